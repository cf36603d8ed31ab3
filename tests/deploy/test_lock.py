"""The locked dependencies are complete in form: pinned, hashed, from nowhere in particular."""

from __future__ import annotations

import re
import tomllib
from importlib.util import module_from_spec, spec_from_file_location

import pytest
from packaging.requirements import Requirement
from tests.docs.pages import ROOT

_spec = spec_from_file_location("audit", ROOT / "requirements" / "audit.py")
audit = module_from_spec(_spec)
_spec.loader.exec_module(audit)

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = {"server-client": ("flower", "secure", "privacy"), "test": ("test",)}
every_lock = pytest.mark.parametrize("name", EXTRAS)
HASH = "--hash=sha256:" + "0" * 64


def lock(name: str) -> str:
    return (ROOT / "requirements" / f"{name}.txt").read_text()


def wanted(*extras: str) -> list[Requirement]:
    """What the project and some of its extras ask for; an extra may name others."""
    found = [Requirement(line) for line in PROJECT["dependencies"]]
    for extra in extras:
        for line in PROJECT["optional-dependencies"][extra]:
            requirement = Requirement(line)
            if requirement.name == PROJECT["name"]:
                found += wanted(*requirement.extras)
            else:
                found.append(requirement)
    return found


@every_lock
def test_every_line_is_a_pinned_version_with_hashes(name):
    assert len(audit.read_lock(lock(name))) > 50


@every_lock
def test_the_lock_satisfies_the_project(name):
    locked = audit.read_lock(lock(name))
    for requirement in wanted(*EXTRAS[name]):
        version = locked[audit.normalised(requirement.name)]
        assert requirement.specifier.contains(version, prereleases=True), requirement


@every_lock
def test_torch_is_the_cpu_build_of_the_constraints(name):
    (pin,) = re.findall(r"^torch==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    locked = audit.read_lock(lock(name))
    assert locked["torch"] == f"{pin}+cpu"
    assert not [package for package in locked if package.startswith(("nvidia", "cuda", "triton"))]


@every_lock
def test_no_index_and_no_address_is_named(name):
    assert not re.search(r"https?:|file:|index-url|find-links|@", lock(name))


def test_what_builds_consort_is_locked_too():
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert (ROOT / "requirements" / "build.in").read_text().split() == asked
    locked = audit.read_lock(lock("build"))
    for requirement in map(Requirement, asked):
        assert requirement.specifier.contains(locked[requirement.name])


def test_server_and_tests_have_the_same_versions():
    ours, tests = (audit.read_lock(lock(name)) for name in EXTRAS)
    assert ours.items() <= tests.items()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("numpy>=2 " + HASH, "no pinned version"),
        ("numpy " + HASH, "no pinned version"),
        ("numpy==2.0", "no hashes"),
        ("numpy==2.0 --hash=md5:0", "no hashes"),
        ("numpy==2.0 \\\n    --hash=sha256:12", "no hashes"),
        ("--index-url https://example.org " + HASH, "no pinned version"),
        ("numpy @ https://example.org/numpy.whl " + HASH, "no pinned version"),
        (f"numpy==2.0 {HASH}\nNumPy==2.1 {HASH}", "twice"),
    ],
)
def test_what_is_not_locked_is_found(line, reason):
    with pytest.raises(ValueError, match=reason):
        audit.read_lock(line + "\n")


def test_a_lock_is_read_with_comments_and_continued_lines():
    text = (
        f"# made by\nruamel_yaml==1.0+cpu \\\n    {HASH} \\\n    {HASH}\n    # via x\nb==2 {HASH}\n"
    )
    assert audit.read_lock(text) == {"ruamel-yaml": "1.0+cpu", "b": "2"}


def test_differences_are_named_and_tools_are_not():
    locked = {"a": "1", "b": "2", "c": "3"}
    present = {"a": "1", "b": "9", "pip": "1", "fedconsort": "1", "new": "1"}
    assert list(audit.differences(locked, present)) == [
        "b 9 is installed, but 2 is locked",
        "c 3 is locked but not installed",
        "new 1 is installed but not locked",
    ]


def test_this_environment_is_read():
    present = audit.installed()
    assert audit.normalised("pytest_xdist") in present
    assert not list(audit.differences(present, present))


def test_pins_have_versions_that_databases_know():
    assert audit.pins({"torch": "2.13.0+cpu", "numpy": "2.0"}) == "torch==2.13.0\nnumpy==2.0\n"
