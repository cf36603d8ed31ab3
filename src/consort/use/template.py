"""The template of a user: the features of references, and the threshold for acceptance."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from consort.core.files import write_file
from consort.domains.signatures.enrolment import Machine
from consort.domains.signatures.writer_dependent import Features
from consort.errors import UsageError
from consort.use.metadata import KEY

_REFERENCES, _SCALE, _WEIGHTS, _CONSTANTS = "references", "scale", "weights", "constants"


@dataclass(frozen=True)
class TemplateMetadata:
    """Everything in a template except the numbers."""

    user: str
    method: str
    """How signatures are scored: `cosine`, `svm` or `fused`."""
    threshold: float
    rates: dict[str, list[float]]
    """Error rates on the calibration signatures, each with the ends of its 95 % interval."""
    origin: str
    """Where the threshold comes from."""
    model: str
    """The path of the model file, relative to the template's folder."""
    digest: str
    """A hash of the model file."""


@dataclass(frozen=True)
class Template:
    """A user as represented by one model."""

    metadata: TemplateMetadata
    references: Features
    machine: Machine | None = None
    """The user's classifier, for the methods `svm` and `fused`."""

    def save(self, path: Path) -> None:
        """Writes a safetensors file, which contains numbers and text but no code."""
        text = {KEY: json.dumps(asdict(self.metadata))}
        numbers: dict[str, NDArray[Any]] = {
            _REFERENCES: np.ascontiguousarray(self.references, dtype=np.float32)
        }
        if self.machine:
            numbers |= {
                _SCALE: self.machine.scale,
                _WEIGHTS: self.machine.weights,
                _CONSTANTS: np.array([self.machine.bias, self.machine.gamma]),
            }
        write_file(path, safetensors.numpy.save(numbers, metadata=text))

    @classmethod
    def load(cls, path: Path) -> Template:
        """Reads a file that `save` wrote.

        Raises:
            UsageError: If the file is missing or not a template.
        """
        if not path.is_file():
            raise UsageError(f"there is no file {path}")
        try:
            with safetensors.safe_open(str(path), "numpy") as file:
                table = json.loads(file.metadata()[KEY])
                metadata = TemplateMetadata(
                    **{field.name: table[field.name] for field in fields(TemplateMetadata)}
                )
                machine = None
                if _WEIGHTS in file.keys():  # noqa: SIM118 (it is not a mapping)
                    bias, gamma = file.get_tensor(_CONSTANTS).tolist()
                    scale, weights = file.get_tensor(_SCALE), file.get_tensor(_WEIGHTS)
                    machine = Machine(scale, weights, bias, gamma)
                return cls(metadata, file.get_tensor(_REFERENCES), machine)
        except (safetensors.SafetensorError, ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"{path} is not a template of this version: create one with `consort enroll`"
            ) from error
