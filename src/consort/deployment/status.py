"""How a federation is doing, as its server writes it down in `status.json`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from consort.errors import UsageError

Table = dict[str, Any]
_CONNECTED = 15.0  # seconds; a node asks for messages every three
_SILENT = 30.0  # seconds without a word after which a running server is thought dead


def read_status(path: Path) -> Table:
    """What a server has written."""
    try:
        table: Table = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"{path.parent} holds no run of consort server") from error
    return table


def current_status(folder: Path) -> Table:
    """What a server has written, with what the clock adds to it."""
    table, now = read_status(folder / "status.json"), time.time()
    over = table["phase"] in ("finished", "stopped")
    if not over and now - table["written"] > _SILENT:
        table["phase"], over = "dead: give the same consort server again to go on", True
    for client in table["clients"].values():
        client["connected"] = not over and now - client["seen"] < _CONNECTED
        client["seconds"] = round(now - client["since"], 1)
    return table
