"""Numbers with bounds, which recipes are checked against."""

from typing import Annotated

from annotated_types import Ge, Gt, Le
from pydantic import Strict

PositiveFloat = Annotated[float, Strict(), Gt(0)]
NonNegativeFloat = Annotated[float, Strict(), Ge(0)]
Probability = Annotated[float, Strict(), Ge(0), Le(1)]
Fraction = Annotated[float, Strict(), Gt(0), Le(1)]
PositiveInt = Annotated[int, Strict(), Ge(1)]
NonNegativeInt = Annotated[int, Strict(), Ge(0)]
