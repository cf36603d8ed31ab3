"""Secure aggregation: the table `secure` of a recipe."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from annotated_types import Gt, Le
from pydantic import Strict

from consort.core.algorithm import Algorithm
from consort.core.engine import Engine
from consort.core.messages import Payload
from consort.core.wire import tensors_in
from consort.errors import Refused, UsageError
from consort.federation.federation import Federation
from consort.federation.protection import Handler, Protection, Request, Setting
from consort.protection.secure import masks
from consort.protection.secure.client import HIDDEN_AMONG, STEPS, hidden, ready
from consort.protection.secure.server import Secured


@dataclass(frozen=True)
class Secure(Protection):
    """Secure aggregation: the server learns means of answers, but no single answer."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}
    table: ClassVar[str] = "secure"
    alone: ClassVar[bool] = True
    rewrites: ClassVar[bool] = True

    threshold: Annotated[float, Strict(), Gt(0.5), Le(1)] = 0.6
    """The share of a round's clients that must stay until its end; as many would have to collude
    with the server to reveal an answer."""

    def needed(self, clients: int) -> int:
        """How many of `clients` must stay until the end of a round."""
        return max(2, math.ceil(self.threshold * clients))

    def check(self, federation: Federation, algorithm: Algorithm[Any], present: int) -> None:
        """Refuses an algorithm or a protection that needs more than means.

        Raises:
            UsageError: If the algorithm or another protection needs single answers, only one
                client takes part, or a library is missing.
        """
        masks.require()
        if not algorithm.needed_means():
            raise UsageError(
                f"[secure] shows the server nothing but means of answers, and for "
                f"{type(algorithm).__name__} they are not enough: choose an algorithm that only "
                "averages, such as fedavg, fedprox or fedper, or remove [secure]"
            )
        if present < 2:
            raise UsageError(
                "[secure] masks the answers of several clients, but only one takes part: let more "
                "clients take part, or remove [secure]"
            )
        for other in federation.protections:
            if other.needs_single_answers:
                raise UsageError(
                    f"[{other.table}] needs single answers, which [secure] hides: remove one of "
                    "them"
                )

    def server(self, engine: Engine, setting: Setting) -> Engine:
        """Collects masked answers and removes the masks from their sum."""
        return Secured(engine, self.needed, setting.algorithm, setting.tell)

    def client(self, handler: Handler, setting: Setting) -> Handler:
        """Masks every answer, and answers the calls of the protocol."""
        means = setting.algorithm.needed_means()

        def masked(request: Request) -> Payload:
            call = request.call
            if call.method in STEPS:
                return STEPS[call.method](self.needed, request, **call.payload)
            among = call.payload.get(HIDDEN_AMONG, ())
            if not among and not call.evaluation:
                raise Refused("with [secure], it sends only masked answers, among those of others")
            if not call.evaluation:
                ready(self.needed, request, among)
            payload = {key: value for key, value in call.payload.items() if key != HIDDEN_AMONG}
            request.call = replace(call, payload=payload)
            content = handler(request)
            if not call.evaluation:
                return hidden(request, among, content, means)
            if tensors_in(content):
                raise Refused("with [secure], it sends only scores in evaluations, no tensors")
            return content

        return masked
