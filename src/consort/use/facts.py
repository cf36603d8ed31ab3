"""What a model's file says about the model, so that it can be used without its run."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from consort import __version__
from consort.domains.signatures.scan import Scan
from consort.errors import Refused

FEATURES = "features"
KEY = "consort"
"""Where the facts are in a file's metadata."""


@dataclass(frozen=True)
class Facts:
    """Where a model comes from, what goes in, what comes out."""

    client: str
    algorithm: str
    seed: int
    round: int
    architecture: str
    data: str
    shape: tuple[int, ...]
    """Of one input, which is ink from 0 (paper) to 1 where the inputs are signatures."""
    dtype: str
    tasks: tuple[str, ...]
    """The outputs are the features and then one for each of these, in this order."""
    scan: Scan | None = None
    """How a picture of a signature becomes an input."""
    calibration: dict[str, dict[str, list[float]]] | None = None
    """Scores of genuine and forged signatures that were kept for choices, by references."""
    consort: str = __version__

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of all outputs."""
        return FEATURES, *self.tasks

    def to_json(self) -> str:
        """As text."""
        return json.dumps(asdict(self))

    @classmethod
    def of_json(cls, text: str) -> Facts:
        """From text that `to_json` made."""
        try:
            table: dict[str, Any] = json.loads(text)
            scan = table["scan"] and Scan.of(table["scan"])
            lists = {key: tuple(table[key]) for key in ("shape", "tasks")}
            return cls(**(table | lists | {"scan": scan}))
        except (ValueError, TypeError, KeyError) as error:
            raise Refused("what it says about itself cannot be read") from error
