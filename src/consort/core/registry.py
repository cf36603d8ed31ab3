"""Objects found by name in packages and in files of users, and messages about unknown names."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
from collections.abc import Collection
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from consort.core.user_files import load_file
from consort.errors import UsageError

_SYNONYMS = {
    "learning_rate": "lr",
    "batch_size": "batch",
    "batchsize": "batch",
    "local_epochs": "epochs",
    "num_epochs": "epochs",
    "num_rounds": "rounds",
    "n_rounds": "rounds",
    "wd": "weight_decay",
    "gradient_clipping": "clip",
    "num_clients": "clients",
    "n_clients": "clients",
    "dataset": "data",
}
"""What other libraries call things, and what they are called here."""
_NAME = re.compile(r"\w[\w.-]{0,63}")


def did_you_mean(word: str, choices: Collection[str]) -> str:
    """Text about an unknown word for an error message: the word, the closest choice, all choices.

    Args:
        word: The unknown word.
        choices: The words that are known.
    """
    if not choices:
        return f"{word!r} (there are none)"
    meant = _SYNONYMS.get(word.lower())
    (letters,) = get_close_matches(word.lower(), [c.lower() for c in choices], n=1, cutoff=0)
    alike = [choice for choice in choices if choice.lower() == letters]
    (nearest,) = get_close_matches(word, alike, n=1, cutoff=0)
    nearest = meant if meant and meant in choices else nearest
    return f"{word!r}: did you mean {nearest!r}? (there are: {', '.join(choices)})"


def check_name(client: str, ascii_only: bool = False) -> None:
    """Checks that the name of a client can be the name of a folder and an argument of a command.

    Args:
        client: The name.
        ascii_only: Whether letters and digits must be those of ASCII, so that no two names look
            alike.

    Raises:
        UsageError: If it is longer than 64 characters, contains others than letters, digits, '.',
            '_' and '-', or begins with '.' or '-'.
    """
    if not _NAME.fullmatch(client) or (ascii_only and not client.isascii()):
        kind = "letters (a-z), digits" if ascii_only else "letters, digits"
        raise UsageError(
            f"client name {client!r}: use at most 64 {kind}, '.', '_', '-', and begin with a "
            "letter, a digit or '_'"
        )


def load_object(place: str) -> Any:
    """Imports an object.

    Args:
        place: Where it is, as `package.module:name` or `file.py:name`.

    Raises:
        UsageError: If there is no such module, file or object, or it cannot be imported.
    """
    module_name, _, name = place.partition(":")
    is_file = module_name.endswith(".py")
    module = load_file(Path(module_name)) if is_file else _import(module_name)
    if not hasattr(module, name):
        raise UsageError(f"{module_name} defines no {name!r}")
    return getattr(module, name)


def first_line(place: str) -> str:
    """The first line of an object's docstring, read from its source without importing it.

    Args:
        place: Where the object is, as `package.module:name`.

    Returns:
        The line; empty if no source or docstring is found.
    """
    module, _, name = place.partition(":")
    source = _source(*module.split("."))
    for node in ast.parse(source.read_text("utf-8")).body if source else ():
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            return (ast.get_docstring(node) or "").partition("\n")[0]
    return ""


def _source(package: str, *parts: str) -> Path | None:
    """The file of a module, if it can be found without importing the packages around it."""
    spec = importlib.util.find_spec(package)
    if spec is None:
        return None
    candidates = [Path(spec.origin)] if spec.origin and not parts else []
    for folder in spec.submodule_search_locations or ():
        path = Path(folder, *parts)
        candidates += [path / "__init__.py", path.with_suffix(".py")]
    return next((file for file in candidates if file.suffix == ".py" and file.is_file()), None)


def _import(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise UsageError(f"there is no module {error.name!r} to import {module!r} from") from error
