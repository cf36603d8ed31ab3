"""Numbers with bounds, which recipes are checked against."""

from typing import Annotated

from annotated_types import Ge, Gt, Le
from pydantic import Strict

Positive = Annotated[float, Strict(), Gt(0)]
NotNegative = Annotated[float, Strict(), Ge(0)]
Probability = Annotated[float, Strict(), Ge(0), Le(1)]
Share = Annotated[float, Strict(), Gt(0), Le(1)]
Count = Annotated[int, Strict(), Ge(1)]
CountOrNone = Annotated[int, Strict(), Ge(0)]
