"""The metadata in a model file, with which it can be used without its run."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from consort import __version__
from consort.domains.signatures.scan import Scan
from consort.errors import Refused

FEATURES = "features"
KEY = "consort"
"""The key under which they are stored in the file."""


@dataclass(frozen=True)
class ModelMetadata:
    """Where a model comes from, and its inputs and outputs."""

    client: str
    algorithm: str
    seed: int
    round: int
    architecture: str
    data: str
    shape: tuple[int, ...]
    """The shape of one input; for signatures, values go from 0 (paper) to 1 (ink)."""
    dtype: str
    tasks: tuple[str, ...]
    """The outputs are the features, then one output for each of these tasks, in this order."""
    scan: Scan | None = None
    """How an image of a signature is converted to an input."""
    calibration: dict[str, dict[str, list[float]]] | None = None
    """Scores of genuine and forged validation signatures, by the number of references."""
    preprocessing: dict[str, Any] | None = None
    """How raw inputs of the data set become inputs of the model; None for data made in Python."""
    consort: str = __version__

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of all outputs."""
        return FEATURES, *self.tasks

    def to_json(self) -> str:
        """The metadata as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def of_json(cls, text: str) -> ModelMetadata:
        """Reads what `to_json` wrote.

        Raises:
            Refused: If the text is not valid.
        """
        try:
            table: dict[str, Any] = json.loads(text)
            scan = table["scan"] and Scan.of(table["scan"])
            lists = {key: tuple(table[key]) for key in ("shape", "tasks")}
            return cls(**(table | lists | {"scan": scan}))
        except (ValueError, TypeError, KeyError) as error:
            raise Refused("its metadata cannot be read") from error
