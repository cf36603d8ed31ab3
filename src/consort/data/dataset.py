"""A data set before it is cut into clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from consort.data.examples import Examples
from consort.tasks import Task


def as_is(inputs: Tensor) -> Tensor:
    """The default preparation: none."""
    return inputs


class Reader(Protocol):
    """How the file of a further example becomes what is stored of it, then and later."""

    def read(self, path: Path) -> NDArray[np.uint8]:
        """Reads one example, without the preparation of the data set."""
        ...

    def table(self) -> dict[str, Any]:
        """The reader as values that can be written as JSON, to make it again later."""
        ...


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
    reader: Reader | None = None
    """How further examples are read from files, where models are used on such."""

    def __len__(self) -> int:
        return len(self.examples)

    @cached_property
    def example(self) -> Tensor:
        """One input as models see it."""
        return self.prepare(self.examples.inputs[:1])[0]
