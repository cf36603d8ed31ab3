"""The recipes that come with Consort."""

from __future__ import annotations

from pathlib import Path

from consort.core.registry import did_you_mean
from consort.errors import UsageError


def shipped_recipes() -> dict[str, Path]:
    """The recipes that come with Consort, by name."""
    root = Path(__file__).parents[1] / "recipes"
    return {
        str(path.relative_to(root).with_suffix("")): path for path in sorted(root.rglob("*.toml"))
    }


def find_recipe(name: str) -> Path:
    """The file of a recipe: a path, or the name of one that comes with Consort."""
    path = Path(name)
    if path.is_file():
        return path
    shipped = shipped_recipes()
    if name.removesuffix(".toml") in shipped:
        return shipped[name.removesuffix(".toml")]
    raise UsageError(f"there is no recipe {did_you_mean(name, [*_neighbours(path), *shipped])}")


def _neighbours(path: Path) -> list[str]:
    """The recipe files in the folder where a file was looked for, as the user would write them."""
    folder = path.parent
    found = sorted(folder.glob("*.toml")) if folder.is_dir() else []
    return [str(file) for file in found if file.name != "pyproject.toml"]
