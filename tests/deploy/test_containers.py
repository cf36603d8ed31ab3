"""Containers and units: linted, hardened, and their commands are ones that exist.

They are not built here; what their commands need was tried by hand on a read-only file system as
an ordinary user (see docs/guide/operate.md).
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from itertools import pairwise
from pathlib import Path

import pytest
import typer
from tests.deploy.containers import (
    CONTAINERFILES,
    FOLDER,
    UNITS,
    commands,
    instructions,
    last_stage,
    services,
    unit,
)
from tests.docs.pages import ROOT

from consort import __version__
from consort.cli.app import app

HADOLINT = shutil.which("hadolint") or shutil.which(
    "hadolint", path=str(Path(sys.executable).parent)
)
SYSTEMD = shutil.which("systemd-analyze")
WORST_EXPOSURE = 2.0  # of 10, by systemd's count; 9.6 without any hardening

containerfile = pytest.mark.parametrize("path", CONTAINERFILES, ids=lambda path: path.name)
every_unit = pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
every_service = pytest.mark.parametrize("name", services())


# Commands


@pytest.mark.parametrize(("where", "words"), list(commands()), ids=lambda value: str(value)[:40])
def test_commands_are_ones_that_the_command_line_takes(where, words):
    command = typer.main.get_command(app).commands[words[0]]
    if words[1:] != ["--help"]:
        assert command.make_context(words[0], list(words[1:])).params


def test_a_command_with_a_wrong_option_would_be_found():
    command = typer.main.get_command(app).commands["status"]
    with pytest.raises(Exception, match="No such option"):
        command.make_context("status", ["out", "--wrong"])


# Containerfiles


@containerfile
@pytest.mark.skipif(HADOLINT is None, reason="hadolint is not installed")
def test_hadolint_finds_nothing(path):
    done = subprocess.run([HADOLINT, path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@containerfile
def test_what_is_copied_exists_and_is_not_ignored(path):
    ignored, kept = [], []
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        if line and not line.startswith("#"):
            (kept if line.startswith("!") else ignored).append(line.lstrip("!"))
    assert ignored[0] == "*"  # what is not listed, such as credentials, does not get in
    copied = [rest for word, rest in instructions(path) if word == "COPY"]
    for rest in copied:
        *sources, _ = rest.split()
        if not sources[0].startswith("--from="):
            for source in sources:
                assert (ROOT / source).exists(), source
                assert source in kept, source
    assert len(copied) >= 3


@containerfile
def test_files_that_are_named_in_commands_were_copied(path):
    copied = {
        source for word, rest in instructions(path) if word == "COPY" for source in rest.split()
    }
    for word, rest in instructions(path):
        for name in re.findall(r"requirements/[\w.-]+", rest) if word == "RUN" else ():
            assert (ROOT / name).is_file(), name
            assert "requirements" in copied


@containerfile
def test_every_package_is_installed_by_its_hash(path):
    for word, rest in instructions(path):
        for command in rest.split("&&") if word == "RUN" else ():
            if re.search(r"\bpip\b.* install\b", command):
                assert "--require-hashes" in command or "--no-index" in command, command
            if "pip wheel" in command:
                assert "--no-build-isolation" in command


@containerfile
def test_the_image_is_pinned_and_names_no_registry(path):
    for word, rest in instructions(path):
        if word == "FROM":
            assert re.fullmatch(r"python:3\.11\.\d+-slim-bookworm( AS build)?", rest)


@containerfile
def test_what_is_shipped_runs_as_an_ordinary_user_without_tools(path):
    stage = last_stage(path)
    assert stage["USER"] == ["10001:10001"]
    assert not [rest for rest in stage["RUN"] if re.search(r"apt-get|pip|gcc|curl", rest)]
    assert [rest for rest in stage["COPY"] if not rest.startswith("--from=build")] == []
    assert "ADD" not in stage


@containerfile
def test_no_secret_is_built_in(path):
    text = path.read_text().lower()
    assert not re.search(r"password|token|secret|\.key\b|http", text)
    arguments = [rest for word, rest in instructions(path) if word == "ARG"]
    assert arguments == ["PIP_EXTRA_INDEX_URL="]


def test_server_and_client_are_built_alike():
    stages = []
    for path in CONTAINERFILES:
        lines = [" ".join(pair) for pair in instructions(path)]
        starts = [number for number, line in enumerate(lines) if line.startswith("FROM")]
        stages.append(lines[: starts[1]])
    assert stages[0] == stages[1]
    assert len(stages[0]) > 5


def test_the_health_of_a_server_is_its_status():
    (check,) = last_stage(FOLDER / "Containerfile.server")["HEALTHCHECK"]
    options, words = check.split("CMD ")
    assert json.loads(words)[:2] == ["consort", "status"]
    assert "--interval=" in options


# Compose


@every_service
def test_services_are_hardened(name):
    service = services()[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "noexec" in service["tmpfs"][0]
    assert {"pids_limit", "mem_limit", "logging", "restart"} <= service.keys()
    forbidden = {"privileged", "cap_add", "devices", "pid", "ipc", "network_mode", "user"}
    assert not forbidden & service.keys()


@every_service
def test_services_are_built_from_files_that_exist(name):
    service = services()[name]
    context = (FOLDER / service["build"]["context"]).resolve()
    assert context == ROOT
    assert (context / service["build"]["dockerfile"]).is_file()
    assert service["image"].endswith(f":{__version__}")


@every_service
def test_commands_use_what_is_mounted(name):
    service = services()[name]
    mounted = {volume["target"]: volume for volume in service["volumes"]}
    used = {word for word in service["command"] if str(word).startswith("/")}
    assert used == set(mounted)
    for target, volume in mounted.items():
        assert volume["type"] == "bind"
        written = target.endswith("/out") or (name != "server" and target.endswith("/credentials"))
        assert volume.get("read_only", False) is not written


def test_only_the_port_of_the_clients_is_published():
    assert services()["server"]["ports"] == ["9092:9092"]
    assert all("ports" not in service for name, service in services().items() if name != "server")


# Units


@every_unit
@pytest.mark.skipif(SYSTEMD is None, reason="systemd is not installed")
def test_systemd_understands_every_line(path, tmp_path: Path):
    copy = tmp_path / path.name
    copy.write_text(path.read_text().replace("/opt/consort/bin/consort", "/bin/true"))
    done = subprocess.run([SYSTEMD, "verify", copy], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@every_unit
@pytest.mark.skipif(SYSTEMD is None, reason="systemd is not installed")
def test_systemd_finds_little_exposed(path, tmp_path: Path):
    copy = tmp_path / path.name
    copy.write_text(path.read_text().replace("/opt/consort/bin/consort", "/bin/true"))
    command = [
        SYSTEMD,
        "security",
        "--offline=yes",
        "--no-pager",
        f"--threshold={WORST_EXPOSURE * 10:.0f}",
    ]
    done = subprocess.run([*command, copy], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "Overall exposure level" in done.stdout


@every_unit
def test_units_are_hardened(path):
    service = unit(path)["Service"]
    for key in (
        "NoNewPrivileges",
        "ProtectHome",
        "PrivateTmp",
        "PrivateDevices",
        "RestrictNamespaces",
    ):
        assert service[key] == "yes"
    assert service["ProtectSystem"] == "strict"
    assert service["CapabilityBoundingSet"] == ""
    assert service["UMask"] == "0077"
    assert service["StateDirectoryMode"] == "0700"
    assert service["Restart"] == "on-failure"
    assert service["RestartPreventExitStatus"] == "2"
    assert service["User"] == path.stem


@every_unit
def test_units_write_only_into_their_state(path):
    service = unit(path)["Service"]
    state = f"%S/{service['StateDirectory']}/"
    words = service["ExecStart"].split()
    written = [after for word, after in pairwise(words) if word in ("--out", "--credentials")]
    assert written
    assert all(place.startswith(state) for place in written)


def test_nothing_in_the_folder_is_left_unchecked():
    checked = {*CONTAINERFILES, *UNITS, FOLDER / "compose.yaml"}
    assert {path for path in FOLDER.iterdir() if not fnmatch(path.name, "__*")} == checked
