"""The metadata in a model file, with which it can be used without its run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from consort import __version__
from consort.domains.fingerprints.scan import PrintScan
from consort.domains.signatures.scan import Scan
from consort.errors import Refused
from consort.use.background import Background
from consort.use.calibration import Trials

FEATURES = "features"
KEY = "consort"
"""The key under which they are stored in the file."""


def scan_of(table: Mapping[str, Any]) -> Scan | PrintScan:
    """Restores a scan of a signature or of a fingerprint from its `table`."""
    return PrintScan.of(table) if "zoom" in table else Scan.of(table)


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
    scan: Scan | PrintScan | None = None
    """How an image of a signature or of a fingerprint is converted to an input."""
    views: int = 1
    """The number of views of a signature whose features are averaged."""
    background: Background | None = None
    """Features of other people, against whom users are enrolled."""
    calibration: dict[str, dict[str, Trials]] | None = None
    """Scores of validation signatures, by method and by the number of references."""
    fusion: list[float] | None = None
    """The factors of the score and of the detection head in a fused score."""
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
            scan = table["scan"] and scan_of(table["scan"])
            background = table["background"] and Background(**table["background"])
            lists = {key: tuple(table[key]) for key in ("shape", "tasks")}
            return cls(**(table | lists | {"scan": scan, "background": background}))
        except (ValueError, TypeError, KeyError) as error:
            raise Refused("its metadata cannot be read") from error
