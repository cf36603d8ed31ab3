"""FedAvg with a learning rate on the server."""

from __future__ import annotations

from dataclasses import dataclass

from consort import Clients
from consort.algorithms.fedavg import FedAvg, Server


@dataclass(frozen=True)
class SlowFedAvg(FedAvg):
    """FedAvg whose global model goes only a part of the way to the mean."""

    step: float = 0.5

    def round(self, server: Server, clients: Clients) -> Server:
        """From the old global model towards the mean of the clients' models."""
        mean = super().round(server, clients).model
        return Server(server.model + (mean - server.model) * self.step)
