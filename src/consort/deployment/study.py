"""What a server proposes to its clients: the settings of a recipe, never code."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import consort
from consort.core.permission import FILES, permitting
from consort.core.user_files import files_of
from consort.core.validation import Table
from consort.errors import Refused
from consort.experiment.recipe import Recipe
from consort.experiment.run_folder import deciding
from consort.models.factories import folder_of
from consort.models.registry import ModelSpec

CLIENT_KEYS = ("clients", "groups", "data")
"""Keys of a recipe that every client decides on its own."""
_LONGEST_TITLE = 200


@dataclass(frozen=True)
class Study:
    """One algorithm of a recipe with one seed; server and clients must have the same."""

    recipe: Table
    algorithm: str
    seed: int
    version: str
    digest: str
    """A hash of everything above, compared before the first round."""
    title: str = ""
    """What the server calls the study; it decides nothing."""

    @classmethod
    def of(cls, recipe: Recipe, algorithm: str, seed: int) -> Study:
        """The study of a recipe: the settings that determine the results, without the clients' own.

        Code and weights in files are identified by their content.

        Args:
            recipe: The recipe.
            algorithm: The name of one of its algorithms.
            seed: The seed of the run.
        """
        written = deciding(recipe.table, algorithm)
        settings = {key: value for key, value in written.items() if key not in CLIENT_KEYS}
        files = _files_in(recipe, algorithm)
        decides = [by_content(settings, files), algorithm, seed, consort.__version__]
        title = "".join(letter for letter in recipe.title if letter.isprintable())
        return cls(
            settings,
            algorithm,
            seed,
            consort.__version__,
            digest(decides),
            title[:_LONGEST_TITLE],
        )

    @property
    def table(self) -> Table:
        """The study as it is sent."""
        return asdict(self)

    def accepted(self, agreed: Recipe | None) -> Study:
        """Checks whether a study that arrived is one that a client can take part in.

        No file that the study names is looked at.

        Args:
            agreed: The only recipe that the client accepts; `None` accepts any without code.

        Returns:
            The study with the client's own settings, if there are agreed ones.

        Raises:
            Refused: If the versions or recipes differ, or the digest is not that of the settings.
        """
        if self.version != consort.__version__:
            raise Refused(
                f"this client has Consort {consort.__version__}, the server {self.version}: "
                "install the same version on both"
            )
        if agreed is None:
            if digest([self.recipe, self.algorithm, self.seed, self.version]) != self.digest:
                raise Refused(
                    "the digest of the study is not that of its settings: it names files or code, "
                    "which a client uses only if it is started with the same recipe (--recipe)"
                )
            return self
        if self.algorithm in agreed.algorithms:
            own = Study.of(agreed, self.algorithm, self.seed)
            if own.digest == self.digest:
                return replace(own, title=self.title)
        raise Refused("the client's --recipe differs from the server's: use the same file on both")


def _files_in(recipe: Recipe, algorithm: str) -> set[str]:
    """The files that the models of a recipe are built from."""
    found = set()

    def note(kind: str, name: str) -> None:
        if kind == FILES:
            found.add(name)

    with permitting(note):
        for group in recipe.all_groups:
            recipe.models_of(group)
        companion = recipe.algorithm(algorithm).companion
        if companion:
            ModelSpec.of(companion)
    return found


def by_content(value: Any, files: Collection[str] = ()) -> Any:
    """The same table with files of code, and others, replaced by hashes of their content.

    Args:
        value: A table of this machine's owner, not of somebody else.
        files: The values that are paths of other files than those of code.
    """
    if isinstance(value, dict):
        return {key: by_content(item, files) for key, item in value.items()}
    if isinstance(value, list):
        return [by_content(item, files) for item in value]
    if isinstance(value, str) and ".py:" in value:
        file, _, name = value.rpartition(":")
        contents = [_content(found) for found in files_of(Path(file))]
        return [*contents[0], name, *contents[1:]]
    if isinstance(value, str) and folder_of(value):
        return _contents(folder_of(value) or Path())
    if isinstance(value, str) and value in files:
        return _content(Path(value))
    return value


def _contents(folder: Path) -> list[list[str]]:
    """The content of a folder with a saved model, wherever it is."""
    return [_content(file) for file in sorted(folder.rglob("*")) if file.is_file()]


def _content(path: Path) -> list[str]:
    data = path.read_bytes() if path.is_file() else b""
    return [path.name, hashlib.blake2b(data, digest_size=16).hexdigest()]


def digest(value: Any) -> str:
    """A hash of plain values (anything that JSON can hold)."""
    text = json.dumps(value, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
