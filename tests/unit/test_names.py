"""Classes can be told apart by their names."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import consort


def test_no_two_classes_have_one_name() -> None:
    names = Counter(
        node.name
        for path in Path(consort.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef)
    )
    del names["Server"]  # the state of each algorithm's server
    assert [name for name, count in names.items() if count > 1] == []
