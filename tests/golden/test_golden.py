"""Small recipes that together use most of the package give the numbers that were recorded.

Numbers are recorded for several kinds of machine: on one of these (the same version of PyTorch, the
same instruction set and the same CPU) every value of every history and every bit of the server's
last state must agree. Other machines round differently, and a few rounds make large differences of
small ones (scores over few examples, weights of attention), so there only the rows must be the
same: the values are not compared, and the test says so by being skipped.

`python -m tests.golden.record` writes the numbers anew; its docstring says when that is allowed.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.golden.outcomes import NUMBERS, RECIPES, Outcome, outcomes, read

WITH_WORKERS = "images"


@pytest.mark.parametrize("recipe", RECIPES)
def test_numbers_are_those_recorded(recipe: str, tmp_path: Path) -> None:
    check(recipe, outcomes(recipe, tmp_path))


def test_numbers_are_the_same_with_workers(tmp_path: Path) -> None:
    check(WITH_WORKERS, outcomes(WITH_WORKERS, tmp_path, workers=2))


def test_every_machine_has_numbers_of_every_recipe() -> None:
    for folder in NUMBERS.iterdir():
        assert sorted(path.stem for path in folder.glob("*.json")) == RECIPES


def check(recipe: str, found: dict[str, Outcome]) -> None:
    exact, expected = read(recipe)
    assert list(found) == list(expected)
    for name, outcome in found.items():
        keys = [[key for key, _ in rows] for rows in (outcome.rows, expected[name].rows)]
        assert keys[0] == keys[1], f"{recipe}, {name}"
    if not exact:
        pytest.skip("no numbers are recorded for this kind of machine: rows were compared only")
    for name, outcome in found.items():
        compare(f"{recipe}, {name}", outcome, expected[name])


def compare(run: str, found: Outcome, expected: Outcome) -> None:
    different = [
        (key, value, other)
        for (key, value), (_, other) in zip(found.rows, expected.rows, strict=True)
        if repr(value) != repr(other)
    ]
    assert not different, f"{run}: {len(different)} values, the first of them {different[:5]}"
    assert found.server == expected.server, f"{run}: the server's last state"
