"""Making networks from names, classes, functions and instances."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Mapping
from inspect import Parameter, isclass, isroutine, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consort.core.permission import check_options, check_permitted
from consort.core.plugins import find
from consort.core.registry import load_object
from consort.core.validation import checked_options
from consort.errors import UsageError

if TYPE_CHECKING:
    from consort.core.inputs import Inputs
    from consort.models.registry import ModelSpec

_LIBRARIES = {
    "hf": "consort.models.hugging_face:HuggingFace",
    "timm": "consort.models.timm:Timm",
}
"""Who builds the models of other libraries, whose names are written as `library:name`."""


def as_table(model: Any) -> dict[str, Any]:
    """A model as a table with its name; a config of Hugging Face names its architecture.

    Args:
        model: A table, a name, an `nn.Module`, what makes one, or a config of `transformers`.
    """
    if isinstance(model, Mapping):
        return dict(model)
    if not isinstance(model, str) and hasattr(model, "to_diff_dict") and not _is_made(model):
        settings = model.to_diff_dict()
        unwanted = ("model_type", "transformers_version", "architectures", "_name_or_path")
        config = {key: value for key, value in settings.items() if key not in unwanted}
        return {"name": f"hf:{model.model_type}", "config": config}
    return {"name": model}


def factory(model: Any) -> tuple[str, Any, Any]:
    """Finds what makes a network.

    Args:
        model: A name, an `nn.Module`, or a class or function that makes one.

    Returns:
        Its name; the object itself if it is not found by the name; and what makes the network.

    Raises:
        UsageError: If there is no such model, or it is none.
    """
    if isinstance(model, str):
        return model, None, find_model(model)
    if _is_network(model):
        return type(model).__name__, model, model
    if callable(model):
        return getattr(model, "__name__", type(model).__name__), model, model
    found = find("models", str(model))  # says which names there are
    return str(model), None, found


def find_model(name: str) -> Any:
    """Finds what makes a model that has a name.

    Args:
        name: A name, a place such as `file.py:Class`, or `library:name`.

    Raises:
        UsageError: If there is no such model, or the place holds an instance.
        Refused: If somebody else asks for it who may not: see `consort.core.permission`.
    """
    library, colon, _ = name.partition(":")
    if colon and library in _LIBRARIES:
        check_permitted("models", name)
        return load_object(_LIBRARIES[library])
    found = find("models", name)
    if not (isclass(found) or isroutine(found)) and _is_network(found):
        raise UsageError(
            f"{name} is an instance, whose weights are drawn when its file is read: name its class "
            "or a function that makes it, so that weights depend on the seed alone"
        )
    return found


def folder_of(name: str) -> Path | None:
    """The folder that a model is loaded from, if its name is that of a folder.

    Args:
        name: The name of a model that this machine's owner has written.
    """
    library, _, rest = name.partition(":")
    folder = Path(rest).expanduser()
    return folder if library == "hf" and rest and folder.is_dir() else None


def _is_network(model: Any) -> bool:
    from torch import nn

    return isinstance(model, nn.Module)


def head_places(name: str, make: Any, given: dict[str, Any]) -> Any:
    """Takes the keys `head` and `heads` out of the given options, unless they are the model's own.

    Args:
        name: The name of the model, for messages.
        make: What makes it.
        given: The given options, which are changed.

    Returns:
        What `ModelSpec.heads` holds.

    Raises:
        UsageError: If a value is wrong.
    """
    own = () if _is_made(make) else _parameters(name, make)
    one = given.pop("head", None) if "head" not in own else None
    several = given.pop("heads", None) if "heads" not in own else None
    if one is not None and several is not None:
        raise UsageError(f"model {name!r}: give head or heads, not both")
    if one is False:
        return ()
    if one is not None and not isinstance(one, str):
        raise UsageError(f"model {name!r}: head = {one!r} is not the name of a layer, such as 'fc'")
    if several is None:
        return one
    if not (isinstance(several, Mapping) and all(isinstance(v, str) for v in several.values())):
        raise UsageError(f"model {name!r}: write heads as {{ task = 'layer' }}")
    return tuple(several.items())


def options_of(name: str, make: Any, given: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Checks the options of a model.

    Args:
        name: The name of the model, for messages.
        make: What makes it.
        given: The given options.

    Returns:
        Pairs of option and value, with all defaults.

    Raises:
        UsageError: If there is no such option, or a value is wrong or cannot be compared.
        Refused: If somebody else gives a text that may be a file to code of this machine.
    """
    check_options(name, given)
    if _is_made(make):
        for option in given:
            raise UsageError(f"model {name!r} is already built: it takes no option {option!r}")
        return ()
    apart = tuple(_parameters(name, make))[:1] if _takes_example(name, make, given) else ()
    options = checked_options(f"model {name!r}", make, given, apart + _apart(name))
    for option, value in options.items():
        if not isinstance(value, Hashable):
            raise UsageError(f"model {name!r}: annotate its option {option!r} as a tuple")
    return tuple(options.items())


def made(spec: ModelSpec, example: Inputs, redrawn: bool = False) -> Any:
    """Makes a network, or copies the one that was handed in.

    Args:
        spec: The model.
        example: One prepared input.
        redrawn: Whether other than the usual initial weights are wanted.

    Raises:
        UsageError: If the network cannot be made for the example, or there is one of it only.
    """
    from consort.core.inputs import kind_of

    make = find_model(spec.name) if spec.source is None else spec.source
    if _is_made(make):
        if redrawn:
            raise UsageError(
                f"model {spec.name!r} is a network with weights, but this algorithm starts from "
                "several sets of weights: hand in its class, or a function that makes it"
            )
        return copy.deepcopy(make)
    options = dict(spec.options)
    try:
        network = _make(spec.name, make, example, options)
    except UsageError as error:
        raise UsageError(
            f"model {spec.name!r} cannot be built for inputs of shape {kind_of(example)}: {error}"
        ) from error
    if not _is_network(network):
        raise UsageError(
            f"{spec.name} returns a {type(network).__name__} where an nn.Module is expected"
        )
    return network


def _make(name: str, make: Callable[..., Any], example: Inputs, options: dict[str, Any]) -> Any:
    library, colon, rest = name.partition(":")
    if colon and library in _LIBRARIES:
        return make(example, rest, **options)
    if not _takes_example(name, make, options):
        return _trusted(name, make, options)
    measure = getattr(make, "measure", None)
    return _trusted(name, make, options, measure(example) if measure else example)


def _trusted(name: str, make: Callable[..., Any], options: dict[str, Any], *example: Any) -> Any:
    """Calls what a user wrote, whose errors need the name of the parameter that got an example."""
    try:
        return make(*example, **options)
    except (TypeError, AttributeError) as error:
        if not example or hasattr(make, "measure"):
            raise
        first = next(iter(_parameters(name, make)))
        raise UsageError(
            f"its first parameter {first!r} received an example of the data, because it has no "
            f"default and is not set as an option ({type(error).__name__}: {error})"
        ) from error


def _is_made(make: Any) -> bool:
    return not (isclass(make) or isroutine(make)) and _is_network(make)


def _takes_example(name: str, make: Any, given: Mapping[str, Any]) -> bool:
    if hasattr(make, "measure"):
        return True
    for option in _parameters(name, make).values():
        variadic = option.kind in (Parameter.VAR_KEYWORD, Parameter.KEYWORD_ONLY)
        return not variadic and option.default is Parameter.empty and option.name not in given
    return False


def _apart(name: str) -> tuple[str, ...]:
    library, colon, _ = name.partition(":")
    return ("architecture",) if colon and library in _LIBRARIES else ()


def _parameters(name: str, make: Any) -> Mapping[str, Parameter]:
    try:
        return signature(make).parameters
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"{name} is not a model: an nn.Module, or a class or function that makes one, is "
            "expected"
        ) from error
