"""Reads the status of a federation, which its server writes to `status.json`."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from consort.errors import UsageError

Table = dict[str, Any]
_CONNECTED = 15.0  # seconds; a connected node polls at least every three
_SILENT = 30.0  # seconds without an update after which the server is considered dead


def read_status(path: Path) -> Table:
    """Reads `status.json`.

    Args:
        path: The file.

    Raises:
        UsageError: If it is missing or damaged.
    """
    try:
        table: Table = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"{path.parent} contains no run of consort server") from error
    return table


def current_status(folder: Path) -> Table:
    """The status of a run now: what the server has written, and how long ago.

    Args:
        folder: The folder of the run.

    Returns:
        The content of `status.json`, with `connected` and `seconds` (in the present state) added
        to each client.

    Raises:
        UsageError: If the folder contains no run of `consort server`.
    """
    table, now = read_status(folder / "status.json"), time.time()
    over = table["phase"] in ("finished", "stopped")
    if not over and now - table["written"] > _SILENT:
        table["phase"], over = "dead: repeat the consort server command to continue", True
    for client in table["clients"].values():
        client["connected"] = not over and is_connected(client, now)
        client["seconds"] = round(now - client["since"], 1)
    return table


def is_connected(client: Mapping[str, Any], now: float) -> bool:
    """Whether a client has sent a request lately.

    Args:
        client: Its entry in the status.
        now: The present time.
    """
    return bool(now - client["seen"] < _CONNECTED)
