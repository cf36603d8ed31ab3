"""How a data set is cut into clients, as written in a recipe."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    StrictBool,
    model_serializer,
    model_validator,
)

Scheme = Literal["iid", "dirichlet", "classes", "quantity", "natural", "domain", "task"]

SCHEME_OPTIONS: dict[str, tuple[Scheme, ...]] = {
    "alpha": ("dirichlet", "quantity"),
    "balanced": ("dirichlet",),
    "classes_per_client": ("classes",),
}
"""The schemes that an option belongs to."""

Fraction = Annotated[float, Field(gt=0, lt=1)]


class Cut(BaseModel):
    """The scheme, its options, and the parts that each client sets aside."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    by: Scheme = "iid"
    alpha: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.5
    balanced: StrictBool = False
    """Whether a client with its fair share of all examples gets no further classes."""
    classes_per_client: Annotated[int, Field(ge=1)] = 2
    min_examples: Annotated[int, Field(ge=1)] = 10
    """No client has fewer examples than this, all its parts together."""
    validation: Fraction = 0.15
    test: Fraction = 0.15

    @model_validator(mode="after")
    def _fits(self) -> Self:
        for option in self._foreign() & self.model_fields_set:
            schemes = " or ".join(f'"{scheme}"' for scheme in SCHEME_OPTIONS[option])
            raise ValueError(f'{option} belongs to by = {schemes}, not to by = "{self.by}"')
        if self.validation + self.test >= 1:
            raise ValueError("validation and test leave nothing to train on: lower one of them")
        return self

    @model_serializer(mode="wrap")
    def _without_foreign(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """What is written can be read again: options of other schemes are not part of it."""
        return {key: value for key, value in write(self).items() if key not in self._foreign()}

    def _foreign(self) -> set[str]:
        return {option for option, schemes in SCHEME_OPTIONS.items() if self.by not in schemes}
