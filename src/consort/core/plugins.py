"""Plug-ins: the names that recipes can use, brought by Consort's domains and by other packages.

A package declares its `Plugin` as an entry point in its pyproject.toml:

    [project.entry-points."consort"]
    mylab = "mylab.consort:plugin"

Plug-ins hold places ("module:object") instead of objects, so nothing is imported before it is used.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from consort.core.permission import check_permitted
from consort.core.registry import did_you_mean, first_line, load_object
from consort.errors import UsageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "consort"
"""The group of entry points in which packages declare plug-ins."""
_MODULES, _DOMAINS = ("consort.algorithms.registry", "consort.protection"), "consort.domains"
_WORDS = {"datasets": "data set"}
"""What one entry of a kind is called in messages, where that is not the kind without its s."""


@dataclass(frozen=True)
class Plugin:
    """The names that a package brings, by kind, each with its place: "module:object".

    Raises:
        UsageError: If a place is not of the form "module:object".
    """

    algorithms: Mapping[str, str] = field(default_factory=dict)
    """Subclasses of `Algorithm`."""
    datasets: Mapping[str, str] = field(default_factory=dict)
    """Functions that return a `Dataset`; see `consort.data.registry`."""
    models: Mapping[str, str] = field(default_factory=dict)
    """Encoders; see `consort.models.registry`."""
    tasks: Mapping[str, str] = field(default_factory=dict)
    """Task classes, for `consort list tasks`."""
    augmentations: Mapping[str, str] = field(default_factory=dict)
    """Random changes of training data (`local.augment`); see `consort.training.augmentation`."""
    balancings: Mapping[str, str] = field(default_factory=dict)
    """Balancings of training data (`local.balance`); see `consort.training.augmentation`."""
    evaluations: Mapping[str, str] = field(default_factory=dict)
    """Measurements besides the metrics of tasks; see `consort.training.evaluation`."""
    obfuscations: Mapping[str, str] = field(default_factory=dict)
    """Dataclasses of options, which turn prepared inputs and a `seed` into obfuscated inputs."""
    protections: Mapping[str, str] = field(default_factory=dict)
    """Subclasses of `Protection`; recipes give their options as `[protection.NAME]`."""
    metrics: Mapping[str, str] = field(default_factory=dict)
    """A line about each metric, for `consort list metrics`; these are not places."""

    def __post_init__(self) -> None:
        for kind in fields(self):
            for name, place in dict(getattr(self, kind.name)).items():
                if kind.name != "metrics" and ":" not in place:
                    raise UsageError(f"{kind.name}: {name!r} must be at 'module:object': {place!r}")


class Registered(NamedTuple):
    """The place of a name, and the package that brings it."""

    place: str
    """Where the object is: "module:object"."""
    package: str = ""
    """The package that brings it; empty for Consort itself."""


@cache
def entries(kind: str) -> dict[str, Registered]:
    """All names of a kind, in alphabetical order.

    Args:
        kind: A field of `Plugin`, such as "models".

    Returns:
        The place and package of each name.

    Raises:
        UsageError: If a package's plug-in cannot be imported or is no `Plugin`, or two packages
            bring the same name.
    """
    found: dict[str, Registered] = {}
    for package, plugin in (*_built_in(), *_installed()):
        for name, place in getattr(plugin, kind).items():
            if name in found:
                raise UsageError(_two_bring(kind, name, found[name].package, package))
            found[name] = Registered(place, package)
    return dict(sorted(found.items()))


def find(kind: str, name: str) -> Any:
    """Imports an object by its name or by its place.

    Args:
        kind: A field of `Plugin`, such as "models".
        name: The name that a recipe uses, or a place: `package.module:object` or `file.py:object`.

    Raises:
        UsageError: If the name is unknown, or the object cannot be imported.
        Refused: If somebody else asks for it who may not: see `consort.core.permission`.
    """
    check_permitted(kind, name)
    if ":" in name:
        return load_object(name)
    if name not in entries(kind):
        raise UsageError(
            f"there is no {_word(kind)} {did_you_mean(name, entries(kind))}; if a package brings "
            "it, install that package"
        )
    entry = entries(kind)[name]
    try:
        return load_object(entry.place)
    except Exception as error:
        if not entry.package:
            raise
        raise UsageError(
            f"{_word(kind)} {name!r} of package {entry.package} cannot be imported from "
            f"{entry.place}: {_reason(error)}; {_remedy(entry.package)}"
        ) from error


def descriptions(kind: str) -> dict[str, str]:
    """A line about each name of a kind, read from sources without importing anything.

    Args:
        kind: A field of `Plugin`, such as "models".
    """
    return {
        name: _line(entry.place if kind == "metrics" else first_line(entry.place), entry.package)
        for name, entry in entries(kind).items()
    }


def _line(text: str, package: str) -> str:
    return f"{text} [{package}]".strip() if package else text


@cache
def _built_in() -> list[tuple[str, Plugin]]:
    """The plug-ins of Consort itself; every package in `domains` is one, without a list of them."""
    domains = pkgutil.iter_modules(import_module(_DOMAINS).__path__, f"{_DOMAINS}.")
    modules = *_MODULES, *(domain.name for domain in domains)
    return [("", import_module(module).plugin) for module in modules]


@cache
def _installed() -> list[tuple[str, Plugin]]:
    """The plug-ins of other packages, with the name of each package."""
    from importlib.metadata import entry_points  # not at the top: it would slow down every `--help`

    return [_loaded(entry) for entry in entry_points(group=GROUP)]


def _loaded(entry: EntryPoint) -> tuple[str, Plugin]:
    package = entry.dist.name if entry.dist else entry.module
    what = f"package {package}: its plug-in {entry.name!r} ({entry.value})"
    try:
        found = entry.load()
    except Exception as error:
        raise UsageError(
            f"{what} cannot be imported: {_reason(error)}; {_remedy(package)}"
        ) from error
    if not isinstance(found, Plugin):
        raise UsageError(
            f"{what} is a {type(found).__name__} where a Plugin is expected; {_remedy(package)}"
        )
    return package, found


def _two_bring(kind: str, name: str, first: str, second: str) -> str:
    one, other = (f"package {package}" if package else "Consort" for package in (first, second))
    way = f"rename it in one of them, or {_remedy(second)}"
    return f"{one} and {other} both bring the {_word(kind)} {name!r}: {way}"


def _remedy(package: str) -> str:
    return f"repair that package or remove it with `pip uninstall {package}`"


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, UsageError) else f"{type(error).__name__}: {error}"


def _word(kind: str) -> str:
    return _WORDS.get(kind, kind.removesuffix("s"))
