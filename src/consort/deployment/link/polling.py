"""For a part of a message that is on its way, Flower asks again after one second, then two."""

from __future__ import annotations

from typing import Any

from flwr.supercore.inflatable import inflatable_utils

_OFTEN = {"initial_backoff": 0.05, "backoff_cap": 0.5, "max_tries_per_object": None}
"""Seconds; as long as before, which is two hours in all."""


def ask_often() -> None:
    """In this process, it asks again at once and then twice a second."""
    pulls: tuple[Any, ...] = (
        inflatable_utils.pull_objects,
        inflatable_utils.pull_and_inflate_object_from_tree,
    )
    for pull in pulls:
        pull.__kwdefaults__ |= _OFTEN
