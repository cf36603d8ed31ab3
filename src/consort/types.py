"""Numbers with limits, so that a recipe with an impossible one is refused at once."""

from typing import Annotated

from annotated_types import Ge, Gt, Le

Positive = Annotated[float, Gt(0)]
NotNegative = Annotated[float, Ge(0)]
Probability = Annotated[float, Ge(0), Le(1)]
Share = Annotated[float, Gt(0), Le(1)]
Count = Annotated[int, Ge(1)]
CountOrNone = Annotated[int, Ge(0)]
