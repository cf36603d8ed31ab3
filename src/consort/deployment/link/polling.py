"""Shorter polling intervals.

When a part of a message has not arrived yet, Flower asks again after one second, then two, and so
on. That is slow for rounds that take less than a second.
"""

from __future__ import annotations

from typing import Any

from flwr.supercore.inflatable import inflatable_utils

_INTERVALS = {"initial_backoff": 0.05, "backoff_cap": 0.5, "max_tries_per_object": None}
"""In seconds. Without a limit of tries it gives up after two hours, as before."""


def poll_often() -> None:
    """Makes Flower ask again at once in this process, and then at least twice a second."""
    pulls: tuple[Any, ...] = (
        inflatable_utils.pull_objects,
        inflatable_utils.pull_and_inflate_object_from_tree,
    )
    for pull in pulls:
        pull.__kwdefaults__ |= _INTERVALS
