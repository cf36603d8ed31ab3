"""The public names: there, documented, in order, and not in the way of a quick start."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import consort


def test_the_list_is_sorted_and_without_repeats():
    assert consort.__all__ == sorted(set(consort.__all__))


@pytest.mark.parametrize("name", consort.__all__)
def test_every_name_is_there_and_documented(name):
    found = getattr(consort, name)
    assert (inspect.getdoc(found) or "").strip()
    if inspect.isclass(found) or inspect.isfunction(found):
        assert found.__name__ == name
        assert found.__module__.startswith("consort.")
        assert found.__doc__ != object.__doc__


def test_type_checkers_see_the_same_names():
    """What is imported lazily is also imported for those who only read."""
    tree = ast.parse(Path(consort.__file__).read_text())
    seen = {
        alias.asname or alias.name
        for block in tree.body
        if isinstance(block, ast.If)
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    assert seen == set(consort.__all__)


def test_a_star_import_brings_them_all():
    names: dict[str, object] = {}
    exec("from consort import *", names)
    assert set(consort.__all__) <= set(names)


def test_a_name_that_is_not_there_is_an_attribute_error():
    assert not hasattr(consort, "FedAvgg")
    with pytest.raises(AttributeError, match="module 'consort' has no attribute 'FedAvgg'"):
        _ = consort.FedAvgg


def test_importing_consort_imports_nothing_slow():
    code = "import sys, consort; print(consort.__version__, sorted(m for m in sys.modules))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    version, _, modules = shown.stdout.partition(" ")
    assert version == consort.__version__
    for slow in ("torch", "numpy", "pydantic", "rich", "typer", "plotly", "scipy", "transformers"):
        assert f"'{slow}'" not in modules
