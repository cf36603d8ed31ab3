"""The `[partition]` table of a recipe: how a data set is divided among clients."""

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
"""The partitioning schemes."""

SCHEME_OPTIONS: dict[str, tuple[Scheme, ...]] = {
    "alpha": ("dirichlet", "quantity"),
    "balanced": ("dirichlet",),
    "classes_per_client": ("classes",),
}
"""For each option that not all schemes have, the schemes that have it."""

Fraction = Annotated[float, Field(gt=0, lt=1)]
"""A share of a client's examples, between 0 and 1."""


class Cut(BaseModel):
    """The partitioning scheme, its options, and the shares that each client holds out."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    by: Scheme = "iid"
    """The scheme, which is also the kind of heterogeneity."""
    alpha: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.5
    """The concentration of the Dirichlet distribution; smaller is more heterogeneous."""
    balanced: StrictBool = False
    """Whether clients that already hold an equal share of all examples get no further classes."""
    classes_per_client: Annotated[int, Field(ge=1)] = 2
    """The number of classes that each client holds."""
    min_examples: Annotated[int, Field(ge=1)] = 10
    """The smallest number of examples of a client, counting training, validation and test."""
    validation: Fraction = 0.15
    """The share of each client's examples held out for validation."""
    test: Fraction = 0.15
    """The share of each client's examples held out for testing."""
    seed: int | None = None
    """The seed of the partition; None for the seed of the run."""

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
        """Omits the options of other schemes, so that the result is valid input again."""
        return {key: value for key, value in write(self).items() if key not in self._foreign()}

    def _foreign(self) -> set[str]:
        return {option for option, schemes in SCHEME_OPTIONS.items() if self.by not in schemes}
