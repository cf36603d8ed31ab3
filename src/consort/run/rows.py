"""What is measured in a run, as rows of its history."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from consort.core.messages import Call, Reply
from consort.core.row import Row


def rows_of_scores(
    round_: int, client: str, model: str, splits: Mapping[str, Any]
) -> Iterator[Row]:
    """Rows for the scores of one of a client's models.

    Args:
        round_: The round after which it was evaluated.
        client: The name of the client.
        model: Which of the client's models it is, such as `global`.
        splits: The scores by split, as `Client.score` returns them, already checked.
    """
    for split, scores in splits.items():
        for task, metrics in scores["tasks"].items():
            for metric, found in metrics.items():
                points = found if isinstance(found, Mapping) else {"": found}
                for part, value in points.items():
                    place = (client, task, split, model, part)
                    yield Row(round_, metric, value, *place, scores["n"])


def rows_of_work(
    call: Call, reply: Reply, down: Mapping[str, int], up: Mapping[str, int], flops: bool
) -> Iterator[Row]:
    """Rows for the cost of a call.

    Args:
        call: The call.
        reply: The reply to it.
        down: The bytes that were sent to the client, by role.
        up: The bytes that the client sent, by role.
        flops: Whether floating-point operations were counted.
    """
    for metric, sizes in (("bytes_down", down), ("bytes_up", up)):
        for role, size in sizes.items():
            yield Row(call.round, metric, size, call.client, part=role)
    work = {"seconds": reply.seconds} | ({"flops": reply.flops} if flops else {})
    for metric, value in work.items():
        yield Row(call.round, metric, value, call.client, part=call.method)
