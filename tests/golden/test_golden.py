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
from tests.golden.outcomes import NUMBERS, RECIPES, Outcome, outcomes, read, still_known

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
    unknown = sum(
        compare(f"{recipe}, {name}", outcome, expected[name]) for name, outcome in found.items()
    )
    if unknown:
        pytest.skip(f"all agrees, but {unknown} numbers have not been recorded here anew")


def compare(run: str, found: Outcome, expected: Outcome) -> int:
    """Checks what is recorded, and counts what is not."""
    different = [
        (key, value, other)
        for (key, value), (_, other) in zip(found.rows, expected.rows, strict=True)
        if other is not None and repr(value) != repr(other)
    ]
    assert not different, f"{run}: {len(different)} values, the first of them {different[:5]}"
    assert expected.server in (found.server, None), f"{run}: the server's last state"
    return [value for _, value in expected.rows].count(None) + (expected.server is None)


def test_what_changes_here_is_unknown_elsewhere_until_it_is_recorded_there() -> None:
    key, other, new = ((1, metric, "", "", "", "", "", 0) for metric in ("a", "b", "c"))
    before = {"run": Outcome([(key, 1.0), (other, 2.0), (other, 3.0)], "s")}
    theirs = {"run": Outcome([(key, 1.5), (other, 2.5), (other, 3.5)], "t")}
    now = {
        "run": Outcome([(key, 1.0), (new, 9.0), (other, 2.0), (other, 4.0)], "s"),
        "added": Outcome([(key, 1.0)], "u"),
    }
    assert still_known(now, before, theirs) == {
        "run": Outcome([(key, 1.5), (new, None), (other, 2.5), (other, None)], "t"),
        "added": Outcome([(key, None)], None),
    }
