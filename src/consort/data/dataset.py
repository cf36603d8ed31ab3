"""A data set before it is cut into clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from consort.data.examples import Examples
from consort.domains.signatures.scan import Scan
from consort.tasks import Task


def as_is(inputs: Tensor) -> Tensor:
    """The default preparation: none."""
    return inputs


@dataclass(frozen=True, eq=False)
class Dataset:
    """All examples with what a partitioner may cut by.

    Inputs are stored small (bytes for images, token ids for text); `prepare` turns the
    rows of one client into what its model sees.
    """

    name: str
    examples: Examples
    tasks: dict[str, Task]
    labels: NDArray[np.int64]
    """The class of each example, for label skew and stratified splits."""
    strata: NDArray[np.int64] | None = None
    """What splits keep in proportion, where that is finer than the class."""
    owners: NDArray[np.int64] | None = None
    """The natural client (a writer, a hospital) of each example, where there is one."""
    domains: NDArray[np.int64] | None = None
    """The domain (a sensor, a style) of each example, where there is one."""
    units: NDArray[np.int64] | None = None
    """What is never torn apart, such as a finger with all its pairs, or the views of a place."""
    prepare: Callable[[Tensor], Tensor] = as_is
    scan: Scan | None = None
    """How further pictures are read from files, where the inputs are signatures."""

    def __len__(self) -> int:
        return len(self.examples)
