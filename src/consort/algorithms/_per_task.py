"""One model for every group of clients with the same tasks and the same architecture.

A group has the name of its first client; `alike` is `Roster.alike()`: the group of every client.
"""

from __future__ import annotations

from collections.abc import Mapping

from consort.core.algorithm import Clients
from consort.core.messages import Each, Payload, Replies
from consort.core.params import Params


def models_for(models: Mapping[str, Params], alike: Mapping[str, str], clients: Clients) -> Each:
    """To every client of the round the model of its group."""
    return Each({client: models[alike[client]] for client in clients.ids})


def by_group(replies: Replies, alike: Mapping[str, str]) -> dict[str, Replies]:
    """The replies of every group that answered."""
    found: dict[str, dict[str, Payload]] = {}
    for client, reply in replies.items():
        found.setdefault(alike[client], {})[client] = reply
    return {group: Replies(answers) for group, answers in found.items()}


def group_means(replies: Replies, alike: Mapping[str, str]) -> dict[str, Params]:
    """The mean model, weighted by examples, of every group that answered."""
    groups = by_group(replies, alike)
    return {group: answers.mean("model", weight="examples") for group, answers in groups.items()}


def note_by_task(clients: Clients, name: str, replies: Replies, key: str) -> None:
    """Keeps the number that each client sent for each of its tasks in the history.

    Args:
        clients: The clients of the round.
        name: The name of the number in the history.
        replies: What the clients answered.
        key: The entry of an answer with one number per task.
    """
    for task in sorted({task for reply in replies.values() for task in reply[key]}):
        values = {c: float(r[key][task]) for c, r in replies.items() if task in r[key]}
        clients.note(name, values, part=task)
