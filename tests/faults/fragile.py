"""An algorithm whose clients hold still at one moment, so that something can be done to them."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from consort.algorithms.ditto import Ditto
from consort.core.algorithm import on_client
from consort.core.messages import Payload
from consort.core.params import Params
from consort.training.client import Client


@dataclass(frozen=True)
class Fragile(Ditto):
    """Ditto, but one client, in one round, says where it is and waits for the worst to happen.

    It does so in the middle of its work, and only the first time.
    """

    mark: str = ""
    """The file in which it writes the numbers of its process and of the one that started it."""
    client: str = "client-1"
    round_: int = 2
    patience: float = 60.0

    @on_client
    def train(self, client: Client, model: Params) -> Payload:
        """Ditto's work, and then the wait, before anything is remembered or sent."""
        answer = super().train(client, model)
        mark = Path(self.mark)
        if (client.id, client.round) == (self.client, self.round_) and not mark.exists():
            draft = mark.with_suffix(".tmp")
            draft.write_text(f"{os.getpid()} {os.getppid()}")
            draft.rename(mark)
            time.sleep(self.patience)
        return answer
