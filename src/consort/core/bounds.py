"""Numbers with bounds, and files: types of options, which recipes are checked against."""

from collections.abc import Callable
from typing import Annotated, Any, get_type_hints

from annotated_types import Ge, Gt, Le
from pydantic import AfterValidator, Strict

from consort.core.permission import FILES, check_permitted

PositiveFloat = Annotated[float, Strict(), Gt(0)]
NonNegativeFloat = Annotated[float, Strict(), Ge(0)]
Probability = Annotated[float, Strict(), Ge(0), Le(1)]
Fraction = Annotated[float, Strict(), Gt(0), Le(1)]
PositiveInt = Annotated[int, Strict(), Ge(1)]
NonNegativeInt = Annotated[int, Strict(), Ge(0)]


def _permitted(path: str) -> str:
    if path:
        check_permitted(FILES, path)
    return path


LocalFile = Annotated[str, AfterValidator(_permitted)]
"""The path of a file or folder on this machine, or an empty text for none.

Each option that is a path must have this type: only the owner of a machine may set it, never the
server of a federation.
"""


def is_local_file(make: Callable[..., Any], option: str) -> bool:
    """Whether an option of a function or class is a file on this machine.

    Args:
        make: The function or class.
        option: The name of one of its parameters.
    """
    annotated: Any = make.__init__ if isinstance(make, type) else make  # type: ignore[misc]
    return get_type_hints(annotated, include_extras=True).get(option) == LocalFile
