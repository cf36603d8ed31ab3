"""Every promise of the threat model names tests that exist, and every tested attack is named."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from tests.docs.pages import ROOT, page, quoted, tables
from tests.fuzz.targets import TARGETS

TESTS = ROOT / "tests"
ACTORS = (
    "A malicious server",
    "A malicious or broken client",
    "Clients that collude",
    "A stranger at the port",
    "Somebody on the network",
    "Another user on the same machine",
    "A thief of a disk or a backup",
    "Crashes, power cuts and full disks",
    "A dependency",
)
REFERENCE = re.compile(r"[\w/]+/test_\w+\.py::test_\w+")


@cache
def names_in(path: Path) -> frozenset[str]:
    """The names of the tests in a file, found without running it."""
    nodes = ast.walk(ast.parse(path.read_text("utf-8")))
    functions = (node.name for node in nodes if isinstance(node, ast.FunctionDef))
    return frozenset(name for name in functions if name.startswith("test_"))


def exists(reference: str) -> bool:
    """Whether a test such as `unit/core/test_wire.py::test_…` is in the repository."""
    path, _, name = reference.partition("::")
    return (TESTS / path).is_file() and name in names_in(TESTS / path)


def promises(actor: str) -> list[list[str]]:
    (table,) = tables(page("threat-model.md").section(actor))
    return table


@pytest.mark.parametrize("actor", ACTORS)
def test_every_promise_names_tests_that_exist(actor):
    table = promises(actor)
    assert table
    for promise, shown in table:
        names = quoted(shown)
        assert names, promise
        for name in names:
            assert REFERENCE.fullmatch(name), name
            assert exists(name), f"{promise}: {name}"


def test_every_section_is_about_an_actor():
    headings = re.findall(r"^## (.*)$", page("threat-model.md").text, re.MULTILINE)
    assert tuple(headings) == ACTORS


def test_no_promise_is_made_twice():
    made = [promise for actor in ACTORS for promise, _ in promises(actor)]
    assert len(made) == len(set(made))


def test_every_file_of_attacks_and_faults_shows_a_promise():
    files = [
        path for folder in ("adversaries", "faults") for path in (TESTS / folder).glob("test_*.py")
    ]
    named = page("threat-model.md").text
    simulations = {"test_ray_faults.py"}  # a cluster is one institution
    assert files
    for path in files:
        relative = path.relative_to(TESTS).as_posix()
        assert path.name in simulations or f"`{relative}::" in named, relative


def test_a_test_that_does_not_exist_is_noticed():
    assert exists("docs/test_threat_model.py::test_a_test_that_does_not_exist_is_noticed")
    assert not exists("docs/test_threat_model.py::test_that_nobody_wrote")
    assert not exists("docs/test_nothing.py::test_that_nobody_wrote")


def test_the_figures_of_the_last_hour_of_fuzzing_are_those_of_its_file():
    lines = (ROOT / "tests" / "fuzz" / "last_hour.txt").read_text().splitlines()[1:]
    figures = [[int(number) for number in re.findall(r"\d+", line)] for line in lines]
    assert {line.partition(":")[0] for line in lines} == set(TARGETS)
    inputs, accepted, findings = map(sum, zip(*figures, strict=True))
    assert findings == 0
    text = " ".join(page("threat-model.md").text.split())
    assert f"tried {inputs:,} inputs" in text
    assert f"{accepted:,} were accepted" in text
