"""Answers calls for clients that live in this process; every engine ends here."""

from __future__ import annotations

import time
import traceback
from collections.abc import Sequence

import torch
from torch import Generator

from consort.algorithm import Algorithm, is_on_client
from consort.checkpoint import StateStore
from consort.client import Client, State
from consort.errors import ClientFailed, ConsortError, Failure
from consort.federation import Federation
from consort.messages import Call, Payload, Reply, check, tensors_in
from consort.models.multitask import MultiTaskModel
from consort.params import Params, has_role, statistics
from consort.randomness import derive

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
    ) -> None:
        self.federation = federation
        self.algorithm = algorithm
        self.seed = seed
        self.rounds = rounds
        self.store = store
        self._generator = Generator()

    def chunks(self, calls: Sequence[Call]) -> list[Sequence[Call]]:
        """Cuts calls into what is answered together, in the same way on every engine."""
        return [[call] for call in calls]

    def answer(self, calls: Sequence[Call]) -> list[Reply]:
        """Runs the method each call names; whatever goes wrong becomes an error reply."""
        return [self._answer(call) for call in calls]

    def _answer(self, call: Call) -> Reply:
        start = time.perf_counter()
        try:
            content = self._run(call)
        except ConsortError as error:
            return Reply(call.client, error=ClientFailed(call.client, str(error)))
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            failed = ClientFailed(call.client, reason, traceback.format_exc())
            return Reply(call.client, error=failed)
        return Reply(call.client, content, seconds=time.perf_counter() - start)

    def _run(self, call: Call) -> Payload:
        method = getattr(self.algorithm, call.method, None)
        if not is_on_client(method):
            raise ConsortError(f"{call.method} is not a method that clients answer")
        blueprint = self.federation.blueprint(call.client)
        check(call.payload, blueprint.shapes)
        stamp = (call.round, call.step)
        client = self._client(call, blueprint.fresh(), self.store.load(call.client, stamp))
        content: Payload = method(client, **call.payload)  # type: ignore[misc]
        self._keep_secret(content)
        if not call.evaluation:
            self._keep(client, stamp)
        return content

    def _keep_secret(self, content: Payload) -> None:
        """Refuses to send what the algorithm promises to keep on the client."""
        private = self.algorithm.private
        for name, _ in tensors_in(content) if private else ():
            if any(has_role(name, role) for role in private):
                raise Failure(f"{name!r} is private in this algorithm and was not sent")

    def _client(self, call: Call, model: MultiTaskModel, state: State) -> Client:
        seed = derive(self.seed, call.round, call.client, call.method, call.turn)
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
        )

    def _keep(self, client: Client, stamp: tuple[int, int]) -> None:
        if client.model.batchnorm == "local":
            own = statistics(client.model)
            if own:
                client.state[_STATISTICS] = Params(own)
        if client.state.changed:
            self.store.save(client.id, stamp, client.state)
