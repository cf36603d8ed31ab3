"""Answers calls for the clients of one process, under every engine."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterable, Sequence
from functools import cache, cached_property
from itertools import groupby

import torch
from torch import Generator

from consort.core.algorithm import Algorithm, is_batchable, is_on_client
from consort.core.messages import Call, Payload, Reply, State
from consort.core.params import Params, has_role, statistics
from consort.core.randomness import derive
from consort.core.wire import NamedTensor, check, tensors_in
from consort.data.examples import Examples
from consort.engines.states import StateStore
from consort.errors import ClientFailed, ConsortError, Failure, Refused
from consort.federation.blueprint import Blueprint
from consort.federation.federation import Federation
from consort.federation.protection import Handler, Request, Setting
from consort.federation.site import USES, Site
from consort.models.multitask import MultiTaskModel
from consort.training.client import Client, Witness
from consort.training.cohort import SIZE, Cohort, StackedModel, split_content, stack_payloads
from consort.training.flops import FlopCounter
from consort.training.local import LocalTraining
from consort.training.tuning import Tuning

_STATISTICS = "batchnorm statistics"


class ClientHost:
    """Runs the methods that calls name, on the clients of this process.

    Args:
        federation: The clients, with all protections.
        algorithm: The algorithm whose client methods are run.
        seed: The seed of the run.
        rounds: The number of rounds of the run.
        store: Where the clients' states are kept.
        tuning: If it has epochs, evaluation also scores models after this fine-tuning.
        witness: Called with every model that a client scores, and with its scores.
        site: What the clients keep to themselves; by default a simulated one.
    """

    def __init__(
        self,
        federation: Federation,
        algorithm: Algorithm[object],
        seed: int,
        rounds: int,
        store: StateStore,
        tuning: Tuning = Tuning(),  # noqa: B008
        witness: Witness | None = None,
        site: Site | None = None,
    ) -> None:
        table = algorithm.companion
        self.federation = federation if table is None else federation.accompanied(table)
        self.algorithm = algorithm
        self.seed = seed
        self.rounds = rounds
        self.store = store
        self.tuning = tuning
        self.witness = witness
        self.site = site or Site()
        self._generator = Generator()
        self._seen: tuple[object, ...] = ()

    def chunks(self, calls: Sequence[Call]) -> list[Sequence[Call]]:
        """Groups calls that are answered together, in the same way under every engine.

        Args:
            calls: The calls of one delivery.

        Returns:
            The groups, in the order of the calls.
        """
        alone = any(protection.alone for protection in self.federation.protections)
        if alone or not self.federation.compute.cohort_step:
            return [[call] for call in calls]
        chunks: list[Sequence[Call]] = []
        for key, alike in groupby(calls, key=self._cohort_key):
            run, size = list(alike), 1 if key is None else SIZE
            chunks += [run[start : start + size] for start in range(0, len(run), size)]
        return chunks

    def answer(self, calls: Sequence[Call]) -> list[Reply]:
        """Runs the method that each call names.

        Args:
            calls: One of the groups that `chunks` returns.

        Returns:
            One reply per call; an error of a client becomes an error reply.
        """
        if len(calls) == 1:
            return [self._answer(calls[0])]
        try:
            return self._answer_together(calls)
        except Exception:
            # One by one, so that only the clients that caused the error fail.
            return [self._answer(call) for call in calls]

    def algorithm_of(self, client: str) -> Algorithm[object]:
        """The algorithm with the settings of local training that `client` has."""
        return self.algorithm.with_local(self.federation.members[client].local)

    def _cohort_key(self, call: Call) -> tuple[object, ...] | None:
        """Equal for successive calls that can be trained in one step; None if a call cannot."""
        method = getattr(self.algorithm, call.method, None)
        local = getattr(self.algorithm_of(call.client), "local", None)
        blueprint = self.federation.blueprint(call.client)
        if not (is_batchable(method) and local and local.fits_cohorts and blueprint.stackable):
            return None
        try:
            examples = len(self.federation.data(call.client).train)
        except Exception:
            return None  # answered by itself, so that the error gets the client's name
        return id(blueprint), examples, self.federation.members[call.client].local

    def _answer_together(self, calls: Sequence[Call]) -> list[Reply]:
        start = time.process_time()
        flops = 0

        @cache
        def contents() -> dict[str, Payload]:
            nonlocal flops
            content, flops = self._run_cohort(calls)
            ids = [call.client for call in calls]
            return dict(zip(ids, split_content(content, ids), strict=True))

        handler = self._protected(lambda request: contents()[request.call.client])
        parts = [handler(Request(call, {}, self._generator)) for call in calls]
        each = ((time.process_time() - start) / len(calls), flops // len(calls))
        return [Reply(c.client, p, None, *each) for c, p in zip(calls, parts, strict=True)]

    def _run_cohort(self, calls: Sequence[Call]) -> tuple[Payload, int]:
        """Runs the method once for all clients; also returns the number of operations."""
        first = calls[0]
        blueprint = self.federation.blueprint(first.client)
        for call in calls:
            self._check_once(call.payload, blueprint)
        ids = tuple(call.client for call in calls)
        splits = [self.federation.data(client).train for client in ids]
        cohort = Cohort(
            ids=ids,
            model=StackedModel(blueprint.fresh(), blueprint.params, len(ids)),
            tasks=dict(self.federation.members[first.client].tasks),
            train=Examples(
                torch.stack([part.inputs for part in splits]),
                {t: torch.stack([part.targets[t] for part in splits]) for t in splits[0].targets},
            ),
            generators=[Generator().manual_seed(self._seed(call) + 1) for call in calls],
            round=first.round,
            rounds=self.rounds,
        )
        method = getattr(self.algorithm_of(first.client), first.method)
        with self._counter(first) as counter:
            content = method(cohort, **stack_payloads([call.payload for call in calls]))
        self._keep_private(tensors_in(content))
        return content, counter.flops

    def _counter(self, call: Call) -> FlopCounter:
        """A counter of operations; those of evaluation are not counted."""
        return FlopCounter(self.federation.compute.count_flops and not call.evaluation)

    def _answer(self, call: Call) -> Reply:
        try:
            return self._run(call)
        except ConsortError as error:
            failed = ClientFailed(call.client, str(error))
            failed.__cause__ = error.with_traceback(None)
            return Reply(call.client, error=failed)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            failed = ClientFailed(call.client, reason, traceback.format_exc())
            failed.__cause__ = error.with_traceback(None)
            return Reply(call.client, error=failed)

    def _run(self, call: Call) -> Reply:
        start = time.process_time()
        remembered = self.store.load(call.client, call.before)
        generator = self._generator.manual_seed(self._seed(call) + 1)
        request = Request(call, dict(remembered), generator, site=self.site)
        content = self._handler(request)
        reply = Reply(call.client, content, None, time.process_time() - start, request.flops)
        self._keep_private(reply.tensors)
        self._remember(call, request.state, remembered)
        return reply

    @cached_property
    def _handler(self) -> Handler:
        return self._protected(self._run_method)

    def _protected(self, handler: Handler) -> Handler:
        """A handler with the clients' halves of all protections around it."""
        setting = Setting(self.federation, self.algorithm)
        for protection in self.federation.protections:
            handler = protection.client(handler, setting)
        return handler

    def _run_method(self, request: Request) -> Payload:
        """Runs the method that a call names: the innermost handler."""
        call = request.call
        method = getattr(self.algorithm_of(call.client), call.method, None)
        if not is_on_client(method):
            raise Refused(
                f"{call.method} is not a method that clients answer: mark it with @on_client"
            )
        blueprint = self.federation.blueprint(call.client)
        self._check_once(call.payload, blueprint)
        client = self._client(request, blueprint.fresh())
        with self._counter(call) as counter:
            content: Payload = method(client, **call.payload)  # type: ignore[misc]
        request.flops = counter.flops
        if call.evaluation and client.scored and self.tuning.epochs and "tuned" not in content:
            content["tuned"] = self._tuned(client)
        content = self.site.disclosed(content)
        self._keep_private(tensors_in(content))
        own = statistics(client.model) if client.model.batchnorm == "local" else {}
        if own:
            client.state[_STATISTICS] = Params(own)
        return content

    def _tuned(self, client: Client) -> Payload:
        """Scores of the model that was scored last, after fine-tuning, which nothing else sees."""
        local = getattr(self.algorithm_of(client.id), "local", LocalTraining())
        self.tuning.run(client, local)
        return client.score()

    def _seed(self, call: Call) -> int:
        return derive(self.seed, call.round, call.client, call.method, call.turn)

    def _keep_private(self, tensors: Iterable[NamedTensor]) -> None:
        """Refuses to send tensors that are private in the algorithm."""
        for name, _ in tensors:
            for role in self.algorithm.private:
                if has_role(name, role):
                    raise Failure(
                        f"{name!r} is private in this algorithm and was not sent: leave it out of "
                        "the answer"
                    )

    def _check_once(self, payload: Payload, blueprint: Blueprint) -> None:
        """Checks a payload, unless the same objects were checked for the last call."""
        seen = (blueprint, *payload.values())
        if list(map(id, seen)) != list(map(id, self._seen)):
            check(tensors_in(payload), blueprint.shapes)
            self._seen = seen

    def _client(self, request: Request, model: MultiTaskModel) -> Client:
        call, state = request.call, request.state
        torch.default_generator.manual_seed(self._seed(call))
        if _STATISTICS in state:
            with torch.no_grad():
                torch._foreach_copy_(
                    list(statistics(model).values()), list(state[_STATISTICS].values())
                )
        return Client(
            id=call.client,
            model=model,
            tasks=dict(self.federation.members[call.client].tasks),
            data=self.federation.data(call.client),
            state=state,
            generator=request.generator,
            round=call.round,
            rounds=self.rounds,
            extras=self.federation.extras,
            witness=self.witness,
            steps=request.steps,
        )

    def _remember(self, call: Call, state: State, remembered: State) -> None:
        """Saves a client's state if an entry was added, removed or assigned to.

        Of an evaluation, only the uses of training data are saved.
        """
        if call.evaluation:
            state = remembered | {key: state[key] for key in (USES,) if key in state}
        same = state.keys() == remembered.keys() and all(
            value is remembered[key] for key, value in state.items()
        )
        if not same:
            self.store.save(call.client, call.stamp, state)
