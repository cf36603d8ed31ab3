"""What users write is checked here, by pydantic: tables of a recipe, options of models and data.

An adapter takes a thousand times longer to build than to use, so each is built once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, get_type_hints

from consort.core.registry import did_you_mean
from consort.errors import UsageError

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

Table = dict[str, Any]
_UNKNOWN = ("unexpected_keyword_argument", "extra_forbidden")


@cache
def adapter(kind: Any) -> TypeAdapter[Any]:
    """What checks and writes values of a type, built once."""
    from pydantic import TypeAdapter  # not at the top: lists and help need no pydantic

    return TypeAdapter(kind)


def checked(kind: Any, options: Mapping[str, Any], where: str) -> Any:
    """A dataclass made from a table.

    Args:
        kind: The dataclass.
        options: Its fields, as a recipe gives them.
        where: The table's key in the recipe, for messages.

    Raises:
        UsageError: A key is unknown, is missing or has a value that does not fit.
    """
    from pydantic import ValidationError

    try:
        return adapter(kind).validate_python(dict(options))
    except ValidationError as error:
        raise UsageError(explain(error, kind, where)) from error


def checked_options(
    owner: str, make: Callable[..., Any], given: Mapping[str, Any], apart: Collection[str]
) -> dict[str, Any]:
    """All options of a function or class: the values given, checked, and defaults for the others.

    Args:
        owner: Whose options they are, for messages.
        make: Its parameters are the options; their annotations check the values.
        given: Values by name.
        apart: Parameters that are not options, because the caller provides them.

    Raises:
        UsageError: An option is unknown, is missing or has a value that does not fit.
    """
    options = {name: value for name, value in _defaults(make).items() if name not in apart}
    for name, value in given.items():
        if name not in options and not _takes_any(make):
            raise UsageError(f"{owner} has no option {did_you_mean(name, options)}")
        options[name] = _checked_option(owner, name, _option(make, name), value)
    for name, value in options.items():
        if value is Parameter.empty:
            raise UsageError(f"{owner} needs its option {name!r}")
    return options


@cache
def _defaults(make: Callable[..., Any]) -> dict[str, Any]:
    options = signature(make).parameters.values()
    variadic = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    return {option.name: option.default for option in options if option.kind not in variadic}


@cache
def _takes_any(make: Callable[..., Any]) -> bool:
    """Whether options of any name are accepted, and passed on to something else."""
    kinds = [option.kind for option in signature(make).parameters.values()]
    return Parameter.VAR_KEYWORD in kinds


@cache
def _option(make: Callable[..., Any], name: str) -> TypeAdapter[Any]:
    """What checks one option; parameters that are no options may be of any type, even tensors."""
    from pydantic import TypeAdapter

    annotated = make.__init__ if isinstance(make, type) else make  # type: ignore[misc]
    return TypeAdapter(get_type_hints(annotated, include_extras=True).get(name, Any))


def _checked_option(owner: str, name: str, option: TypeAdapter[Any], value: Any) -> Any:
    from pydantic import ValidationError
    from pydantic_core import to_json

    try:
        # As JSON, because a strict check of Python values refuses a list where a tuple is meant.
        return option.validate_json(to_json(value, inf_nan_mode="null"), strict=True)
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
        raise UsageError(
            f"{owner} cannot have {name} = {value!r}: {reason[0].lower()}{reason[1:]}"
        ) from error


def explain(error: ValidationError, kind: Any, where: str) -> str:
    """The first thing that is wrong with a table, with its key."""
    first = min(error.errors(), key=lambda found: found["type"] not in _UNKNOWN)
    path = [str(part) for part in first["loc"]]
    key = ".".join(filter(None, [where, *path]))
    match first["type"]:
        case "unexpected_keyword_argument" | "extra_forbidden":
            return f"unknown key {key}: {did_you_mean(path[-1], _known_keys(kind, path[:-1]))}"
        case "missing":
            return f"key {key} is missing"
        case "value_error":
            return f"{key}: {first['ctx']['error']}"
    return f"key {key}: {first['msg'].replace('Input', 'it', 1)}, found {first['input']!r}"


def _known_keys(kind: Any, path: Sequence[str]) -> list[str]:
    """The fields of the dataclass at a path inside another, as far as it can be followed."""
    fields = adapter(kind).json_schema(mode="validation")
    definitions = fields.get("$defs", {})
    node = fields
    for step in ["", *path]:
        node = node.get("properties", {}).get(step, node) if step else node
        node = node.get("items", node)
        node = next((option for option in node.get("anyOf", ()) if "$ref" in option), node)
        if "$ref" in node:
            node = definitions[node["$ref"].rsplit("/", 1)[-1]]
    return list(node.get("properties", {}))
