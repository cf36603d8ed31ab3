"""The template of a user: the features of references, and the threshold for acceptance."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
import safetensors
import safetensors.numpy

from consort.core.files import write_file
from consort.domains.signatures.writer_dependent import Features
from consort.errors import UsageError
from consort.use.metadata import KEY

_REFERENCES = "references"


@dataclass(frozen=True)
class TemplateMetadata:
    """Everything in a template except the features."""

    user: str
    threshold: float
    far: float
    """The share of calibration forgeries that the threshold accepts."""
    frr: float
    """The share of genuine calibration signatures that it rejects."""
    model: str
    """The path of the model file, relative to the template's folder."""
    digest: str
    """A hash of the model file."""


@dataclass(frozen=True)
class Template:
    """A user as represented by one model."""

    metadata: TemplateMetadata
    references: Features

    def save(self, path: Path) -> None:
        """Writes a safetensors file, which contains numbers and text but no code."""
        text = {KEY: json.dumps(asdict(self.metadata))}
        references = {_REFERENCES: np.ascontiguousarray(self.references, dtype=np.float32)}
        write_file(path, safetensors.numpy.save(references, metadata=text))

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
                references = file.get_tensor(_REFERENCES)
        except (safetensors.SafetensorError, ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"{path} is not a template: create one with `consort enroll`"
            ) from error
        return cls(metadata, references)
