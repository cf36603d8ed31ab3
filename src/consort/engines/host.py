"""Answers calls for clients that live in this process; every engine ends here."""

from __future__ import annotations

import time
import traceback
from collections.abc import Sequence
from itertools import groupby

import torch
from torch import Generator

from consort.core.algorithm import Algorithm, is_batchable, is_on_client
from consort.core.messages import EXCHANGES, HIDDEN_AMONG, Call, Payload, Reply, State
from consort.core.params import Params, has_role, statistics
from consort.core.randomness import derive
from consort.core.wire import check, tensors_in
from consort.data.examples import Examples
from consort.engines.states import StateStore
from consort.errors import ClientFailed, ConsortError, Failure, Refused
from consort.federation.blueprint import Blueprint
from consort.federation.federation import Federation
from consort.models.multitask import MultiTaskModel
from consort.protection.imprint import refuse_imprints
from consort.protection.secure.client import STEPS, hidden
from consort.protection.secure.settings import Secure
from consort.training.client import Client, Witness
from consort.training.cohort import SIZE, Cohort, StackedModel, split_content, stack_payloads
from consort.training.flops import FlopCounter
from consort.training.local import LocalTraining

_STATISTICS = "batchnorm statistics"


class ClientHost:
    """Looks a client up, lends it a model, runs one of its methods, keeps its state."""

    def __init__(
        self,
        federation: Federation,
        algorithm: Algorithm[object],
        seed: int,
        rounds: int,
        store: StateStore,
        tuning_epochs: int = 0,
        witness: Witness | None = None,
    ) -> None:
        table = algorithm.companion
        self.federation = federation if table is None else federation.accompanied(table)
        self.algorithm = algorithm
        self.seed = seed
        self.rounds = rounds
        self.store = store
        self.tuning_epochs = tuning_epochs
        self.witness = witness
        self._generator = Generator()
        self._seen: tuple[object, ...] = ()

    def chunks(self, calls: Sequence[Call]) -> list[Sequence[Call]]:
        """Cuts calls into what is answered together, in the same way on every engine."""
        alone = self.federation.privacy or self.federation.secure
        if alone or not self.federation.compute.cohort_step:
            return [[call] for call in calls]
        chunks: list[Sequence[Call]] = []
        for key, alike in groupby(calls, key=self._cohort_key):
            run, size = list(alike), 1 if key is None else SIZE
            chunks += [run[start : start + size] for start in range(0, len(run), size)]
        return chunks

    def answer(self, calls: Sequence[Call]) -> list[Reply]:
        """Runs the method each call names; whatever goes wrong becomes an error reply."""
        if len(calls) == 1:
            return [self._answer(calls[0])]
        try:
            return self._answer_together(calls)
        except Exception:
            # Find out whose fault it was; the others need not suffer.
            return [self._answer(call) for call in calls]

    def algorithm_of(self, client: str) -> Algorithm[object]:
        """The algorithm as this client runs it."""
        return self.algorithm.with_local(self.federation.members[client].local)

    def _cohort_key(self, call: Call) -> tuple[object, ...] | None:
        """Equal for neighbours that can be trained in one step; None where that cannot be."""
        method = getattr(self.algorithm, call.method, None)
        local = getattr(self.algorithm_of(call.client), "local", None)
        blueprint = self.federation.blueprint(call.client)
        if not (is_batchable(method) and local and local.fits_cohorts and blueprint.stackable):
            return None
        try:
            examples = len(self.federation.data(call.client).train)
        except Exception:
            return None  # answered alone, where errors get the client's name
        return id(blueprint), examples, self.federation.members[call.client].local

    def _answer_together(self, calls: Sequence[Call]) -> list[Reply]:
        start = time.process_time()
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
        self._keep_secret(Reply("", content))
        each = ((time.process_time() - start) / len(ids), counter.flops // len(ids))
        contents = split_content(content, ids)
        return [Reply(c, part, None, *each) for c, part in zip(ids, contents, strict=True)]

    def _counter(self, call: Call) -> FlopCounter:
        """Evaluation is no work: it is not counted."""
        return FlopCounter(self.federation.compute.count_flops and not call.evaluation)

    def _answer(self, call: Call) -> Reply:
        try:
            return self._run(call)
        except ConsortError as error:
            return Reply(call.client, error=ClientFailed(call.client, str(error)))
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            failed = ClientFailed(call.client, reason, traceback.format_exc())
            return Reply(call.client, error=failed)

    def _run(self, call: Call) -> Reply:
        if self.federation.secure and call.method in EXCHANGES:
            return self._exchange(self.federation.secure, call)
        start = time.process_time()
        method = getattr(self.algorithm_of(call.client), call.method, None)
        if not is_on_client(method):
            raise ConsortError(f"{call.method} is not a method that clients answer")
        blueprint = self.federation.blueprint(call.client)
        self._check_once(call.payload, blueprint)
        remembered = self.store.load(call.client, call.before)
        client = self._client(call, blueprint.fresh(), dict(remembered))
        with self._counter(call) as counter:
            content: Payload = method(client, **self._arguments(call))  # type: ignore[misc]
        if call.evaluation and client.scored and self.tuning_epochs and "tuned" not in content:
            content["tuned"] = self._tuned(client)
        content = self._hidden(client, call, self._private(client, call, content))
        reply = Reply(call.client, content, None, time.process_time() - start, counter.flops)
        self._keep_secret(reply)
        if not call.evaluation:
            self._keep(client, call.stamp, remembered)
        return reply

    def _private(self, client: Client, call: Call, content: Payload) -> Payload:
        """The answer with what privacy asks for: noise, or when evaluated, what was spent."""
        privacy = self.federation.privacy
        if privacy is None:
            return content
        if call.evaluation:
            return content | {"epsilon": privacy.epsilon(self.store.load(call.client, call.before))}
        return privacy.protected(content, call.payload, client.state, client.generator)

    def _arguments(self, call: Call) -> Payload:
        """What the method gets; among whom its answer is hidden is no affair of an algorithm."""
        if self.federation.secure is None:
            return call.payload
        return {key: value for key, value in call.payload.items() if key != HIDDEN_AMONG}

    def _exchange(self, secure: Secure, call: Call) -> Reply:
        """What is said around a masked answer; only the client's memory takes part in it."""
        start = time.process_time()
        state = self.store.load(call.client, call.before)
        content = STEPS[call.method](secure, call.client, state, **call.payload)
        self.store.save(call.client, call.stamp, state)
        return Reply(call.client, content, None, time.process_time() - start)

    def _hidden(self, client: Client, call: Call, content: Payload) -> Payload:
        """The answer with masks, if it is to be hidden; scores are no secret."""
        secure = self.federation.secure
        if secure is None:
            return content
        if call.evaluation:
            if tensors_in(content):
                raise Refused("with [secure], only scores are told in an evaluation")
            return content
        if HIDDEN_AMONG not in call.payload:
            raise Refused("with [secure], it answers only among others")
        self._keep_secret(Reply(client.id, content))  # masked, it has no names any more
        among, means = call.payload[HIDDEN_AMONG], self.algorithm.needed_means()
        return hidden(secure, client.id, client.state, among, content, means)

    def _tuned(self, client: Client) -> Payload:
        """Scores of the model that was scored last, after local training that nobody else sees."""
        local = getattr(self.algorithm_of(client.id), "local", LocalTraining())
        local.tuning(self.tuning_epochs).run(client)
        return client.score()

    def _seed(self, call: Call) -> int:
        return derive(self.seed, call.round, call.client, call.method, call.turn)

    def _keep_secret(self, reply: Reply) -> None:
        """Refuses to send what the algorithm promises to keep, and what cannot be sent."""
        for name, _ in reply.tensors:
            for role in self.algorithm.private:
                if has_role(name, role):
                    raise Failure(f"{name!r} is private in this algorithm and was not sent")

    def _check_once(self, payload: Payload, blueprint: Blueprint) -> None:
        """What was sent to the client before as well was checked then."""
        seen = (blueprint, *payload.values())
        if list(map(id, seen)) != list(map(id, self._seen)):
            tensors = tensors_in(payload)
            check(tensors, blueprint.shapes)
            if self.federation.refuses_imprints:
                refuse_imprints(tensors)
            self._seen = seen

    def _client(self, call: Call, model: MultiTaskModel, state: State) -> Client:
        seed = self._seed(call)
        torch.default_generator.manual_seed(seed)
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
            generator=self._generator.manual_seed(seed + 1),
            round=call.round,
            rounds=self.rounds,
            verification=self.federation.verification,
            witness=self.witness,
            privacy=self.federation.privacy,
        )

    def _keep(self, client: Client, stamp: tuple[int, int], remembered: State) -> None:
        if client.model.batchnorm == "local":
            own = statistics(client.model)
            if own:
                client.state[_STATISTICS] = Params(own)
        same = client.state.keys() == remembered.keys() and all(
            value is remembered[key] for key, value in client.state.items()
        )
        if not same:
            self.store.save(client.id, stamp, client.state)
