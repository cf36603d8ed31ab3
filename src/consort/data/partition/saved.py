"""Saving and loading partitions, and a short fingerprint to compare them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from consort.core.files import write_file
from consort.data.partition.share import Share
from consort.errors import Failure


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    train: list[int]
    validation: list[int]
    test: list[int]
    tasks: list[str]


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    fingerprint: str
    clients: dict[str, _Entry]


def fingerprint(shares: Iterable[Share]) -> str:
    """Sixteen hexadecimal digits of a hash of `shares`; equal partitions have equal ones."""
    digest = hashlib.sha256()
    for share in shares:
        parts = (share.train, share.validation, share.test)
        digest.update(repr((share.tasks, *map(len, parts))).encode())
        for part in parts:
            digest.update(part.astype("<i8").tobytes())
    return digest.hexdigest()[:16]


def save_partition(path: Path, shares_by_client: Mapping[str, Share]) -> None:
    """Writes a partition as JSON.

    Args:
        path: The file to write.
        shares_by_client: The share of each client by its name.
    """
    clients = {
        name: _Entry(
            train=share.train.tolist(),
            validation=share.validation.tolist(),
            test=share.test.tolist(),
            tasks=list(share.tasks),
        )
        for name, share in shares_by_client.items()
    }
    content = _File(fingerprint=fingerprint(shares_by_client.values()), clients=clients)
    write_file(path, content.model_dump_json().encode())


def load_partition(path: Path) -> dict[str, Share]:
    """Reads a file that `save_partition` wrote.

    Args:
        path: The file to read.

    Returns:
        The share of each client by its name.

    Raises:
        Failure: If the file does not exist, is damaged, or was changed after it was written.
    """
    try:
        content = _File.model_validate_json(path.read_bytes())
    except FileNotFoundError as error:
        raise Failure(f"the partition {path} does not exist") from error
    except ValidationError as error:
        raise Failure(f"the partition {path} is damaged: {_first(error)}") from error
    shares = {name: _share(entry) for name, entry in content.clients.items()}
    if fingerprint(shares.values()) != content.fingerprint:
        raise Failure(f"the partition {path} is damaged: its fingerprint does not match")
    return shares


def _share(entry: _Entry) -> Share:
    train, validation, test = (
        np.array(part, dtype=np.int64) for part in (entry.train, entry.validation, entry.test)
    )
    return Share(train, validation, test, tuple(entry.tasks))


def _first(error: ValidationError) -> str:
    first = error.errors()[0]
    return ".".join(map(str, first["loc"])) + " " + first["msg"] if first["loc"] else first["msg"]
