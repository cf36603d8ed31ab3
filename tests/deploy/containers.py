"""Reads the files in `deploy/`: instructions, services, and the commands they give."""

from __future__ import annotations

import configparser
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from tests.docs.pages import ROOT

FOLDER = ROOT / "deploy"
CONTAINERFILES = sorted(FOLDER.glob("Containerfile.*"))
UNITS = sorted(FOLDER.glob("*.service"))


def instructions(path: Path) -> list[tuple[str, str]]:
    """The instructions of a Containerfile with their arguments; continued lines are joined."""
    text = re.sub(r"^#.*\n", "", path.read_text(), flags=re.MULTILINE)
    joined = re.sub(r"\\\n\s*", "", text)
    return [tuple(line.split(None, 1)) for line in joined.splitlines() if line.strip()]


def last_stage(path: Path) -> dict[str, list[str]]:
    """The arguments of each instruction of what is shipped."""
    found: dict[str, list[str]] = {}
    for word, rest in instructions(path):
        if word == "FROM":
            found = {}
        found.setdefault(word, []).append(rest)
    return found


def services() -> dict[str, dict[str, Any]]:
    """The services of the compose file."""
    return yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]


def unit(path: Path) -> configparser.ConfigParser:
    """A systemd unit; its specifiers are not replaced."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(re.sub(r"\\\n\s*", "", path.read_text()))
    return parser


def commands() -> Iterator[tuple[str, list[str]]]:
    """Every command line for `consort`, without that word, and where it stands."""
    for path in CONTAINERFILES:
        stage = last_stage(path)
        assert json.loads(stage["ENTRYPOINT"][0]) == ["consort"]
        yield path.name, json.loads(stage["CMD"][0])
        for check in stage["HEALTHCHECK"]:
            if check != "NONE":
                yield path.name, json.loads(check.partition("CMD ")[2])[1:]
    for name, service in services().items():
        yield name, service["command"]
    for path in UNITS:
        program, *words = shlex.split(unit(path)["Service"]["ExecStart"])
        assert program == "/opt/consort/bin/consort"
        yield path.name, words
