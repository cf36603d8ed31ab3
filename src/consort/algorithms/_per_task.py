"""One model for every group of clients with the same tasks and the same architecture.

A group has the name of its first client; `alike` is the group of every client, `Roster.alike()`.
"""

from __future__ import annotations

from collections.abc import Mapping

from consort.core.algorithm import Clients
from consort.core.messages import Each, Payload, Replies
from consort.core.params import Params


def models_for(models: Mapping[str, Params], alike: Mapping[str, str], clients: Clients) -> Each:
    """Chooses the model of its group for every client of a round.

    Args:
        models: The models by group.
        alike: The group of every client.
        clients: The clients of the round.

    Returns:
        The models by client, to be sent.
    """
    return Each({client: models[alike[client]] for client in clients.ids})


def by_group(replies: Replies, alike: Mapping[str, str]) -> dict[str, Replies]:
    """Divides replies by group.

    Args:
        replies: What the clients answered.
        alike: The group of every client.

    Returns:
        The replies of every group that answered.
    """
    found: dict[str, dict[str, Payload]] = {}
    for client, reply in replies.items():
        found.setdefault(alike[client], {})[client] = reply
    return {group: Replies(answers) for group, answers in found.items()}


def group_means(replies: Replies, alike: Mapping[str, str]) -> dict[str, Params]:
    """The mean model of every group, weighted by examples.

    Args:
        replies: What the clients answered, with `model` and `examples`.
        alike: The group of every client.

    Returns:
        The means of the groups that answered.
    """
    groups = by_group(replies, alike)
    return {group: answers.mean("model", weight="examples") for group, answers in groups.items()}


def note_by_task(clients: Clients, name: str, replies: Replies, key: str) -> None:
    """Records the number that each client sent for each of its tasks in the history.

    Args:
        clients: The clients of the round.
        name: The name of the number in the history.
        replies: What the clients answered.
        key: The entry of an answer with one number per task.
    """
    for task in sorted({task for reply in replies.values() for task in reply[key]}):
        values = {c: float(r[key][task]) for c, r in replies.items() if task in r[key]}
        clients.note(name, values, part=task)
