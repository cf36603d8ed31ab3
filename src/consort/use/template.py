"""What is kept of a person: the features of some references, and when a signature is accepted."""

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
from consort.use.facts import KEY

_REFERENCES = "references"


@dataclass(frozen=True)
class Terms:
    """Everything in a template but the features."""

    user: str
    threshold: float
    far: float
    """The share of forgeries that this threshold accepted when it was chosen."""
    frr: float
    """The share of genuine signatures that it rejected then."""
    model: str
    """The model's file, seen from the template's folder."""
    digest: str
    """Of the model's file."""


@dataclass(frozen=True)
class Template:
    """A person as one model knows them."""

    terms: Terms
    references: Features

    def save(self, path: Path) -> None:
        """Writes a safetensors file: numbers and text, nothing that could be run."""
        text = {KEY: json.dumps(asdict(self.terms))}
        references = {_REFERENCES: np.ascontiguousarray(self.references, dtype=np.float32)}
        write_file(path, safetensors.numpy.save(references, metadata=text))

    @classmethod
    def load(cls, path: Path) -> Template:
        """Reads what `save` wrote."""
        if not path.is_file():
            raise UsageError(f"there is no file {path}")
        try:
            with safetensors.safe_open(str(path), "numpy") as file:
                table = json.loads(file.metadata()[KEY])
                terms = Terms(**{field.name: table[field.name] for field in fields(Terms)})
                references = file.get_tensor(_REFERENCES)
        except (safetensors.SafetensorError, ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{path} is no template: make one with `consort enroll`") from error
        return cls(terms, references)
