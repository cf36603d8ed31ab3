"""Python files of users, which may import other files beside them."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import all_suffixes
from pathlib import Path
from types import ModuleType
from zlib import crc32

from consort.errors import UsageError

_SUFFIXES = tuple(all_suffixes())
_imported: dict[str, dict[Path, int]] = {}
"""By module: the files beside it that it imported, and when these were changed last."""
_folders: list[str] = []
"""The folders of files that were loaded; imports inside functions look there as well."""


def load_file(path: Path) -> ModuleType:
    """Runs a Python file once, and again after it, or a file that it imports, was changed.

    Args:
        path: The file. What it imports is looked for beside it first.

    Raises:
        UsageError: If there is no such file, or it cannot be imported.
    """
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    whole = path.resolve()
    # Named after its time of change, so that a file is run once, and again after a change.
    name = f"consort_user_{path.stem}_{crc32(str(whole).encode())}_{_age(whole)}"
    if name not in sys.modules or _is_old(name):
        with _beside(whole.parent):
            sys.modules[name] = _run(name, path)
            _imported[name] = {file: _age(file) for file in _modules_in(whole.parent).values()}
    return sys.modules[name]


def files_of(path: Path) -> list[Path]:
    """A file and those beside it that it imports, in order; nothing is run.

    Of a package beside it, all files count.

    Args:
        path: The file.
    """
    found: dict[Path, None] = {}
    waiting = [path]
    while waiting:
        file = waiting.pop()
        if file in found or not file.is_file():
            continue
        found[file] = None
        for name in _imports(file):
            waiting += _code(path.parent, f"{name}.*")
            waiting += _code(path.parent / name, "**/*")
    return [path, *sorted(found.keys() - {path})]


def _code(folder: Path, pattern: str) -> list[Path]:
    """The files of a folder that Python can import, compiled ones included."""
    files = (file for file in folder.glob(pattern) if "__pycache__" not in file.parts)
    return [file for file in files if file.name.endswith(_SUFFIXES)]


def _imports(file: Path) -> set[str]:
    """The first names of modules that a file imports; none of a file that cannot be read."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return set()
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
    return {name.split(".", 1)[0] for name in found}


def user_line(error: BaseException) -> str:
    """The file and line of a user where an error came from, such as `mine.py, line 3`.

    Args:
        error: The error, with its traceback.

    Returns:
        The last such line; empty if no file of a user was involved.
    """
    found = ""
    known = {str(file) for files in _imported.values() for file in files}
    step = error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        name = step.tb_frame.f_globals.get("__name__", "")
        if name.startswith("consort_user_") or code.co_filename in known:
            found = f"{Path(code.co_filename).name}, line {step.tb_lineno}"
        step = step.tb_next
    return found


def _run(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} cannot be imported")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        del sys.modules[name]
        raise UsageError(f"{error.filename or path}, line {error.lineno}: {error.msg}") from error
    except Exception as error:
        del sys.modules[name]
        reason = f"{type(error).__name__}: {error}"
        raise UsageError(f"{path} cannot be imported: {reason}") from error
    return module


@contextmanager
def _beside(folder: Path) -> Iterator[None]:
    """Lets imports find the files of a folder first, without those of the same name elsewhere."""
    for name in _modules_in(folder, changed=True):
        del sys.modules[name]
    for other in _folders:
        for name in _modules_in(Path(other)) if other != str(folder) else ():
            if _is_in(folder, name):
                del sys.modules[name]
    importlib.invalidate_caches()
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        if str(folder) not in _folders:
            _folders.append(str(folder))
            sys.path.append(str(folder))


def _modules_in(folder: Path, changed: bool = False) -> dict[str, Path]:
    """The imported modules that are files below a folder; only changed ones, if so asked for."""
    known = {file: age for files in _imported.values() for file, age in files.items()}
    found = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        own = name == "__main__" or name.startswith("consort_user_")
        if own or not file or not _is_below(folder, Path(file)):
            continue
        age = _age(Path(file))
        if not changed or known.get(Path(file), age) != age:
            found[name] = Path(file)
    return found


def _is_below(folder: Path, file: Path) -> bool:
    """Whether a module belongs to the user's folder, and not to an environment inside it."""
    return file.is_relative_to(folder) and "site-packages" not in file.parts


def _is_in(folder: Path, module: str) -> bool:
    first = module.split(".", 1)[0]
    return (folder / f"{first}.py").is_file() or (folder / first).is_dir()


def _is_old(name: str) -> bool:
    return any(_age(file) != age for file, age in _imported.get(name, {}).items())


def _age(file: Path) -> int:
    return file.stat().st_mtime_ns if file.exists() else 0
