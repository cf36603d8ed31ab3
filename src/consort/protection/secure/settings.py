"""Means of answers that nobody sees, as a recipe's table."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from annotated_types import Gt, Le
from pydantic import Strict

from consort.errors import UsageError
from consort.protection.secure import masks

if TYPE_CHECKING:
    from consort.attacks.poisoning import Attack
    from consort.core.algorithm import Algorithm
    from consort.protection.robust import Robust


@dataclass(frozen=True)
class Secure:
    """Secure aggregation: the server learns means of answers, and no answer."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    threshold: Annotated[float, Strict(), Gt(0.5), Le(1)] = 0.6
    """Of the clients of a round, the share that must stay until its end, and that would have to
    conspire with the server to see an answer."""

    def needed(self, clients: int) -> int:
        """How many of so many clients must stay."""
        return max(2, math.ceil(self.threshold * clients))

    def check(
        self, algorithm: Algorithm[Any], present: int, robust: Robust, attack: Attack
    ) -> None:
        """Refuses what cannot work with means alone."""
        masks.require()
        if not algorithm.needed_means():
            raise UsageError(
                f"[secure] shows the server nothing but means of answers, and for "
                f"{type(algorithm).__name__} they are not enough: choose an algorithm that only "
                "averages, such as fedavg, fedprox or fedper, or remove [secure]"
            )
        if present < 2:
            raise UsageError("[secure] hides clients among each other, but only one takes part")
        if robust.rule != "mean" or robust.clip:
            raise UsageError("[robust] must see single answers, which [secure] hides: remove one")
        if set(attack.by) - {"label_flip"}:
            raise UsageError("[attack] changes answers on their way, where [secure] hides them")
