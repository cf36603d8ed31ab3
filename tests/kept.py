"""What a folder of states holds, whatever its files look like."""

from __future__ import annotations

from pathlib import Path

from consort.engines.segments import Place
from consort.engines.states import StateStore


def kept_states(folder: Path) -> dict[str, dict[str, bytes]]:
    """By client and `round-step`, the bytes of all states in a folder that are unlike the last."""
    store = StateStore(folder)
    found: dict[str, dict[str, bytes]] = {}
    for client, states in sorted(store._kept.items()):
        last, changes = b"", {}
        for round_, step in sorted(states):
            state = store.read(client, (round_, step + 1))
            if state != last:
                last = changes[f"{round_}-{step}"] = state
        found[client] = changes
    return found


def place_of(folder: Path, client: str, round_: int) -> tuple[Path, Place]:
    """The file with a client's state after a round, and its place there."""
    place = StateStore(folder).find(client, (round_ + 1, 0))
    assert isinstance(place, Place), f"{client} has no state"
    return folder / place.file, place
