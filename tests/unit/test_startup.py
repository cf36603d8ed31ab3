"""Help and lists come at once: nothing slow is imported for them."""

from __future__ import annotations

import subprocess
import sys

import pytest

SLOW = ("torch", "transformers", "plotly", "scipy")
CODE = f"""
import atexit, sys
from consort.cli import main
sys.argv[0] = "consort"
atexit.register(lambda: print("imported:", *({{*{SLOW!r}}} & set(sys.modules))))
main()
"""


def shown(*arguments: str) -> str:
    strict = ["-W", "error", "-W", "ignore:'click:DeprecationWarning"]  # that is typer's affair
    command = [sys.executable, *strict, "-c", CODE, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(("arguments", "word"), [
    (["--help"], "compare"),
    (["--version"], "0."),
    (["run", "--help"], "--workers"),
    (["verify", "--help"], "TEMPLATE"),
    (["list", "algorithms"], "scaffold"),
    (["list", "models"], "textcnn"),
    (["list", "datasets"], "femnist"),
    (["list", "tasks"], "classification"),
    (["list", "recipes"], "demo"),
    (["list", "metrics"], "accuracy"),
])  # fmt: skip
def test_nothing_slow_is_imported_for(arguments, word):
    text = shown(*arguments)
    assert word in text
    assert text.endswith("imported:\n")
