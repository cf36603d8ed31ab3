"""What `consort list` prints, collected without importing slow modules."""

from __future__ import annotations

import tomllib

from consort.core.plugins import descriptions


def describe(what: str) -> dict[str, str]:
    """The entries of one kind, each with a one-line description.

    Args:
        what: `algorithms`, `models`, `datasets`, `tasks`, `recipes` or `metrics`.

    Returns:
        Descriptions by name. Those of other packages end with the package's name in brackets.
    """
    return _recipes() if what == "recipes" else descriptions(what)


def _recipes() -> dict[str, str]:
    from consort.experiment.shipped import shipped_recipes

    return {
        name: tomllib.loads(path.read_text()).get("title", "")
        for name, path in shipped_recipes().items()
    }
