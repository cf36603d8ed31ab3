"""What is measured in a run, as rows of its history."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from consort.core.messages import Call, Reply
from consort.core.row import Row


def rows_of_scores(
    round_: int, client: str, model: str, splits: Mapping[str, Any]
) -> Iterator[Row]:
    """The scores of one of a client's models on all its splits."""
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
    """What a call cost: bytes by role, and the client's work, operations only if counted."""
    for metric, sizes in (("bytes_down", down), ("bytes_up", up)):
        for role, size in sizes.items():
            yield Row(call.round, metric, size, call.client, part=role)
    work = {"seconds": reply.seconds} | ({"flops": reply.flops} if flops else {})
    for metric, value in work.items():
        yield Row(call.round, metric, value, call.client, part=call.method)
