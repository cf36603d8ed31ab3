"""What a recipe may say about a thing: the parameters of the function or class that makes it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from inspect import Parameter, signature
from typing import Any, get_type_hints

from consort.core.registry import did_you_mean
from consort.errors import UsageError


def checked_options(
    owner: str, make: Callable[..., Any], given: Mapping[str, Any], apart: Collection[str]
) -> dict[str, Any]:
    """All options of `make` with the values given, checked by their annotations, or by default.

    Parameters in `apart` are not options: the caller provides them.
    """
    parameters = signature(make).parameters.items()
    options = {name: option.default for name, option in parameters if name not in apart}
    annotated = make.__init__ if isinstance(make, type) else make  # type: ignore[misc]
    kinds = get_type_hints(annotated, include_extras=True)
    for name, value in given.items():
        if name not in options:
            raise UsageError(f"{owner} has no option {did_you_mean(name, options)}")
        options[name] = _checked(owner, name, kinds.get(name, Any), value)
    for name, value in options.items():
        if value is Parameter.empty:
            raise UsageError(f"{owner} needs its option {name!r}")
    return options


def _checked(owner: str, name: str, kind: Any, value: Any) -> Any:
    from pydantic import TypeAdapter, ValidationError
    from pydantic_core import to_json

    try:
        # As JSON, because a strict check of Python values refuses a list where a tuple is meant.
        text = to_json(value, inf_nan_mode="null")
        return TypeAdapter(kind).validate_json(text, strict=True)
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
        raise UsageError(
            f"{owner} cannot have {name} = {value!r}: {reason[0].lower()}{reason[1:]}"
        ) from error
