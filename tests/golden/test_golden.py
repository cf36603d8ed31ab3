"""Small recipes that together use most of the package give the numbers that were recorded.

On the machine that recorded them (the same version of PyTorch, the same instruction set and the
same CPU) every value of every history and every bit of the server's last state must agree. Other
machines round differently, so there the rows must be the same and their values close: within 1e-3,
or a thousandth of the value. A metric that jumps, such as an accuracy over few examples, can be
further off there without an error in the code.

`python -m tests.golden.record` writes the numbers anew; its docstring says when that is allowed.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from tests.golden.outcomes import HERE, RECIPES, Outcome, machine, outcomes, read

WITH_WORKERS = "images"


@pytest.mark.parametrize("recipe", RECIPES)
def test_numbers_are_those_recorded(recipe: str, tmp_path: Path) -> None:
    check(recipe, outcomes(recipe, tmp_path))


def test_numbers_are_the_same_with_workers(tmp_path: Path) -> None:
    check(WITH_WORKERS, outcomes(WITH_WORKERS, tmp_path, workers=2))


def test_every_recipe_has_numbers() -> None:
    assert sorted(path.stem for path in (HERE / "numbers").glob("*.json")) == RECIPES


def check(recipe: str, found: dict[str, Outcome]) -> None:
    recorded_on, expected = read(recipe)
    assert list(found) == list(expected)
    exact = machine() == recorded_on
    for name, outcome in found.items():
        compare(f"{recipe}, {name}", outcome, expected[name], exact)


def compare(run: str, found: Outcome, expected: Outcome, exact: bool) -> None:
    assert [key for key, _ in found.rows] == [key for key, _ in expected.rows], run
    different = [
        (key, value, other)
        for (key, value), (_, other) in zip(found.rows, expected.rows, strict=True)
        if not (repr(value) == repr(other) if exact else close(value, other))
    ]
    assert not different, f"{run}: {len(different)} values, the first of them {different[:5]}"
    assert found.server == expected.server or not exact, f"{run}: the server's last state"


def close(value: float, other: float) -> bool:
    both_undefined = math.isnan(value) and math.isnan(other)
    return both_undefined or math.isclose(value, other, rel_tol=1e-3, abs_tol=1e-3)
