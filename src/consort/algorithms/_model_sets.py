"""What FedFew and its variant have in common: a few server models for many clients."""

from __future__ import annotations

from consort.aggregation.stch_set import SetWeights
from consort.core.algorithm import Clients
from consort.core.roster import Roster
from consort.errors import UsageError


def check_count(models: int, roster: Roster) -> None:
    """Refuses more models than there are clients.

    Args:
        models: The number of models.
        roster: The clients.

    Raises:
        UsageError: If there are fewer clients than models.
    """
    clients = len(roster.ids)
    if models > clients:
        raise UsageError(
            f"there are more models ({models}) than clients ({clients}): set models to at most "
            f"{clients}"
        )


def note_weights(clients: Clients, ids: list[str], weights: SetWeights) -> None:
    """Records the weight of every client, and of every model for a client, in the history.

    Args:
        clients: The clients of the round.
        ids: The names of the clients, in the order of the weights.
        weights: The weights.
    """
    clients.note("client_weight", dict(zip(ids, weights.clients.tolist(), strict=True)))
    for number, column in enumerate(weights.models.T.tolist()):
        clients.note("model_weight", dict(zip(ids, column, strict=True)), part=str(number))
