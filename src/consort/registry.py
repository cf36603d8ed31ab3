"""Things found by name: shipped ones, and those in a user's own file or package."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from collections.abc import Collection
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from consort.errors import UsageError


def did_you_mean(word: str, choices: Collection[str]) -> str:
    """Names the word, the choice that is nearest to it, and all choices."""
    if not choices:
        return f"{word!r} (there are none)"
    (nearest,) = get_close_matches(word, choices, n=1, cutoff=0)
    return f"{word!r}: did you mean {nearest!r}? (there are: {', '.join(choices)})"


def load_object(place: str, folder: Path | None = None) -> Any:
    """The object at `package.module:name` or `file.py:name` (looked for in `folder` too)."""
    module_name, _, name = place.partition(":")
    is_file = module_name.endswith(".py")
    module = _from_file(module_name, folder) if is_file else _import(module_name)
    if not hasattr(module, name):
        raise UsageError(f"{module_name} defines no {name!r}")
    return getattr(module, name)


def first_line(place: str) -> str:
    """The first line of an object's docstring, read from its source: nothing is imported."""
    module, _, name = place.partition(":")
    spec = importlib.util.find_spec(module)
    tree = ast.parse(Path(str(spec and spec.origin)).read_text())
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            return (ast.get_docstring(node) or "").partition("\n")[0]
    return ""


def _import(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise UsageError(f"there is no module {error.name!r} to import {module!r} from") from error


def _from_file(name: str, folder: Path | None) -> Any:
    for path in (Path(name), (folder or Path()) / name):
        if path.is_file():
            unique = "consort_user_" + path.stem
            spec = importlib.util.spec_from_file_location(unique, path)
            if spec and spec.loader:
                module = importlib.util.module_from_spec(spec)
                sys.modules[unique] = module  # dataclasses look their module up by name
                try:
                    spec.loader.exec_module(module)
                except SyntaxError as error:
                    raise UsageError(f"{path}, line {error.lineno}: {error.msg}") from error
                return module
    raise UsageError(f"there is no file {name} (looked here and in {folder or '.'})")
