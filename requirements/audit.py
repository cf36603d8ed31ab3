"""Checks a file of locked dependencies, and that exactly these are installed.

    python requirements/audit.py LOCK          compares with what is installed
    python requirements/audit.py LOCK --pins   prints lines such as name==1.0

It needs nothing but Python, so that it runs in the environment that it checks. Known
vulnerabilities are looked up by pip-audit, which `make audit` gives the pins.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import distributions
from pathlib import Path

TOOLS = {"fedconsort", "pip", "wheel"}
"""May be installed without being locked: Consort itself, and what installs it."""
_LINE = re.compile(r"([A-Za-z0-9._-]+)(?:\[[\w,-]+\])?==([^\s;]+)(?: ; [^\\]+)?")
_HASH = re.compile(r"sha256:[0-9a-f]{64}")


def read_lock(text: str) -> dict[str, str]:
    """The versions in a lock file, by name.

    Args:
        text: Its content.

    Raises:
        ValueError: If a line is no pinned version with hashes, or names an index or an address.
    """
    locked = {}
    joined = re.sub(r"\s*\\\n\s*", " ", re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE))
    for line in filter(None, joined.splitlines()):
        wanted, *hashes = (part.strip() for part in line.split("--hash="))
        found = _LINE.fullmatch(wanted)
        if not found:
            raise ValueError(f"no pinned version: {wanted}")
        if not hashes or not all(_HASH.fullmatch(value) for value in hashes):
            raise ValueError(f"no hashes: {wanted}")
        name = normalised(found[1])
        if name in locked:
            raise ValueError(f"twice: {name}")
        locked[name] = found[2]
    return locked


def normalised(name: str) -> str:
    """The one spelling of a `name` that counts."""
    return re.sub(r"[-_.]+", "-", name).lower()


def installed() -> dict[str, str]:
    """The version of every package of this environment, by name."""
    return {normalised(found.metadata["Name"]): found.version for found in distributions()}


def differences(locked: Mapping[str, str], present: Mapping[str, str]) -> Iterator[str]:
    """What is installed otherwise than it is locked, as sentences.

    Args:
        locked: What `read_lock` returned.
        present: What `installed` returned.
    """
    for name in sorted(locked.keys() | present.keys() - TOOLS):
        if name not in locked:
            yield f"{name} {present[name]} is installed but not locked"
        elif name not in present:
            yield f"{name} {locked[name]} is locked but not installed"
        elif present[name] != locked[name]:
            yield f"{name} {present[name]} is installed, but {locked[name]} is locked"


def pins(locked: Mapping[str, str]) -> str:
    """Lines for pip-audit, without the names of builds (`+cpu`), which no database knows.

    Args:
        locked: What `read_lock` returned.
    """
    return "".join(f"{name}=={version.partition('+')[0]}\n" for name, version in locked.items())


def main(path: str, *options: str) -> int:
    """Checks one file.

    Args:
        path: The file.
        options: `--pins`, or nothing.

    Returns:
        The exit status: 0 if nothing differs.
    """
    locked = read_lock(Path(path).read_text("utf-8"))
    if "--pins" in options:
        print(pins(locked), end="")
        return 0
    found = list(differences(locked, installed()))
    print(*found or [f"{len(locked)} packages are installed as locked"], sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
