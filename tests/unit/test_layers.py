"""Who imports whom: arrows point down the layers, and packages form no cycle.

Imports inside functions and under TYPE_CHECKING count as well.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "consort"

LAYERS = (
    ("errors",),
    ("core",),
    ("tasks", "models", "data", "metrics", "aggregation", "training"),
    ("algorithms",),
    ("federation", "engines", "protection", "run"),
    ("experiment", "results", "attacks", "trackers"),
    ("report", "studio", "deployment", "use", "interactive", "cli"),
)
"""From the bottom to the top. A package imports its own layer, without cycles, and those below."""
DOMAINS = ("errors", "core", "tasks", "models", "data", "metrics", "training")
"""What a domain may import, besides itself."""
FREE_OF = ("signatures", "fingerprint", "minutia", "scenes", "privacy", "masked", "backdoor")
HOUSE = ("core", "training", "federation", "run", "engines")
"""Words of domains and of protections that `FREE_OF` lists are unknown in these packages."""


def package_of(module: str) -> str:
    """`consort.domains.text.tokens` is in `domains.text`, `consort.core.wire` in `core`."""
    parts = module.split(".")[1:]
    return ".".join(parts[:2]) if parts[:1] == ["domains"] else parts[0] if parts else ""


def imported(path: Path) -> set[str]:
    """The modules of ours that a file imports anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.split(".")[0] == "consort"}


def arrows() -> dict[str, set[tuple[str, str]]]:
    """For every package, the (module, imported module) pairs that leave it."""
    leaving: dict[str, set[tuple[str, str]]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        module = ".".join(("consort", *path.relative_to(SOURCE).with_suffix("").parts))
        own = package_of(module.removesuffix(".__init__"))
        for target in imported(path):
            if package_of(target) != own and own not in ("", "__init__"):
                leaving.setdefault(own, set()).add((module, target))
    return leaving


LEAVING = arrows()


def level(package: str) -> int:
    name = package.split(".")[0]
    return next(number for number, layer in enumerate(LAYERS) if name in layer)


@pytest.mark.parametrize("package", sorted(LEAVING))
def test_no_import_points_up(package):
    wrong = []
    for module, target in LEAVING[package]:
        other = package_of(target)
        if other in ("", "__version__"):
            continue  # the version is everybody's
        if package.startswith("domains"):
            right = other in DOMAINS
        elif other.startswith("domains"):
            right = level(package) >= level("experiment")
        else:
            right = level(other) <= level(package)
        if not right:
            wrong.append(f"{module} imports {target}")
    assert not wrong, "\n".join(sorted(wrong))


def test_packages_form_no_cycle():
    graph = {
        package: {package_of(target) for _, target in pairs} - {"", "__version__"}
        for package, pairs in LEAVING.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        ring = error.args[1]
        shown = [
            f"{module} imports {target}"
            for after, before in zip(ring[1:], ring, strict=False)
            for module, target in sorted(LEAVING.get(after, set()))
            if package_of(target) == before
        ]
        pytest.fail("\n".join(shown))


@pytest.mark.parametrize("package", HOUSE)
def test_the_house_knows_no_domain_and_no_protection(package):
    found = [
        f"{path.relative_to(SOURCE)}: {word}"
        for path in sorted((SOURCE / package).rglob("*.py"))
        for word in FREE_OF
        if word in path.read_text("utf-8").lower()
    ]
    assert not found, "\n".join(found)


def test_an_algorithm_loads_only_what_it_needs():
    code = "import sys, consort.algorithms.fedavg; print(*sorted(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = shown.stdout.split()
    above = ("consort.domains", "consort.protection", "consort.engines", "consort.run")
    assert not [name for name in loaded if name.startswith((*above, "sklearn", "scipy"))]
