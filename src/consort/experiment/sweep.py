"""The settings that a search tries: the table `[sweep]` of a recipe.

Every algorithm gets the same number of settings, so that none wins by having been tuned longer.
"""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator

from consort.core.bounds import PositiveInt
from consort.core.registry import did_you_mean
from consort.errors import UsageError

Value = str | bool | int | float
Point = dict[str, Any]
"""One setting: keys of an algorithm's table, such as `local.lr`, with their values."""


@dataclass(frozen=True)
class Range:
    """Numbers between two bounds, for random search and Optuna."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    low: float
    """The smallest value."""
    high: float
    """The largest value."""
    log: bool = False
    """Whether to draw evenly on a logarithmic scale."""
    whole: bool = False
    """Whether values are whole numbers."""

    def __post_init__(self) -> None:
        if not self.low < self.high or (self.log and self.low <= 0):
            raise UsageError(f"low = {self.low}, high = {self.high}: give low < high"
                             + " and, with log, low > 0" * self.log)  # fmt: skip

    def draw(self, generator: random.Random) -> float | int:
        """A value.

        Args:
            generator: The source of randomness.
        """
        if self.log:
            value = math.exp(generator.uniform(math.log(self.low), math.log(self.high)))
        else:
            value = generator.uniform(self.low, self.high)
        return round(value) if self.whole else float(f"{value:.6g}")


def _whole(values: Range, number: float) -> float | int:
    return round(number) if values.whole else number


def _flat(table: Any, place: str = "") -> Any:
    """A space in which `local.lr = […]`, which TOML reads as a table in a table, is one key."""
    if not isinstance(table, Mapping):
        return table
    found: dict[str, Any] = {}
    for key, value in table.items():
        name = f"{place}{key}"
        if isinstance(value, Mapping) and not {"low", "high"} & set(value):
            found |= _flat(value, f"{name}.")
        else:
            found[name] = value
    return found


Space = Annotated[dict[str, list[Value] | Range], BeforeValidator(_flat)]
"""By key of an algorithm's table: the values to choose from."""


@dataclass(frozen=True)
class Sweep:
    """A search for the best settings of every algorithm, with equal budgets."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    space: Space = field(default_factory=dict)
    """What is varied for every algorithm: keys of its table, such as `local.lr`."""
    algorithms: dict[str, Space] = field(default_factory=dict)
    """What is varied for single algorithms in addition."""
    method: Literal["grid", "random", "optuna"] = "grid"
    """How settings are chosen."""
    trials: PositiveInt | None = None
    """How many settings of every algorithm are tried; by default, for a grid, the smallest one."""
    seeds: list[int] = field(default_factory=lambda: [1000])
    """The seeds of the search, which must not be among the recipe's."""
    metric: str = ""
    """The metric on validation data that decides; the tasks' own, if they have the same."""
    seed: int = 0
    """The seed of the choice of settings."""

    def space_of(self, algorithm: str) -> Space:
        """What is varied for an algorithm.

        Args:
            algorithm: Its name in the recipe.
        """
        return self.space | self.algorithms.get(algorithm, {})

    def check(self, algorithms: Mapping[str, Any], seeds: list[int]) -> None:
        """Checks what the rest of the recipe decides.

        Args:
            algorithms: The algorithms of the recipe.
            seeds: The seeds of the recipe.

        Raises:
            UsageError: A name is wrong, seeds overlap, or budgets would not be equal.
        """
        for name in self.algorithms:
            if name not in algorithms:
                raise UsageError(f"sweep.algorithms: no algorithm {did_you_mean(name, algorithms)}")
        if shared := sorted(set(seeds) & set(self.seeds)):
            raise UsageError(
                f"sweep.seeds: {', '.join(map(str, shared))} would be searched and reported: give "
                "seeds that `seeds` does not have"
            )
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise UsageError(f"sweep.seeds = {self.seeds}: give at least one, and each only once")
        for name in algorithms:
            self._check_space(name)

    def _check_space(self, name: str) -> None:
        space = self.space_of(name)
        for key, values in space.items():
            if values == []:
                raise UsageError(f"sweep.space, {key}: give at least one value")
            if self.method == "grid" and isinstance(values, Range):
                raise UsageError(
                    f"sweep.space, {key}: a grid needs a list of values; for a range, write "
                    'method = "random"'
                )
        if self.method != "grid" and self.trials is None:
            raise UsageError(f'sweep.trials: method = "{self.method}" needs a number of trials')
        size = grid_size(space)
        if self.trials is not None and size < self.trials:
            raise UsageError(
                f"sweep.trials = {self.trials}, but {name} has only {size} settings, so its budget "
                f"would be smaller: give it more values, or write trials = {size}"
            )

    def corners(self, algorithm: str) -> list[Point]:
        """Settings in which every value of every list, and every bound of a range, occurs.

        Args:
            algorithm: The name of the algorithm.
        """
        ends = {
            key: [_whole(values, values.low), _whole(values, values.high)]
            if isinstance(values, Range)
            else values
            for key, values in self.space_of(algorithm).items()
        }
        most = max(map(len, ends.values()), default=1)
        return [
            {key: values[number % len(values)] for key, values in ends.items()}
            for number in range(most)
        ]

    def budget(self, algorithms: Mapping[str, Any]) -> int:
        """How many settings of every algorithm are tried.

        Args:
            algorithms: The algorithms of the recipe.
        """
        return self.trials or min(int(grid_size(self.space_of(name))) for name in algorithms)

    def points(self, algorithm: str, budget: int) -> list[Point]:
        """The settings of one algorithm, all different; for grid and random search.

        Args:
            algorithm: Its name in the recipe.
            budget: How many.
        """
        space = self.space_of(algorithm)
        generator = random.Random(f"{self.seed} {algorithm}")
        if self.method == "grid":
            every = [dict(zip(space, v, strict=True)) for v in itertools.product(*_lists(space))]
            chosen = sorted(generator.sample(range(len(every)), budget))
            return [every[number] for number in chosen]
        found: dict[str, Point] = {}
        for point in _drawn(space, generator):
            found.setdefault(json.dumps(point), point)
            if len(found) == budget:
                return list(found.values())
        raise UsageError(f"{algorithm}: fewer than {budget} different settings were found")


def grid_size(space: Space) -> float:
    """How many settings a space has; infinitely many with a range.

    Args:
        space: The space.
    """
    sizes = (len(values) if isinstance(values, list) else math.inf for values in space.values())
    return math.prod(sizes)


def _lists(space: Space) -> list[list[Value]]:
    return [values for values in space.values() if isinstance(values, list)]


_MOST_DRAWS = 100_000


def _drawn(space: Space, generator: random.Random) -> Iterator[Point]:
    for _ in range(_MOST_DRAWS):
        yield {
            key: values.draw(generator) if isinstance(values, Range) else generator.choice(values)
            for key, values in space.items()
        }


def nested(point: Point) -> dict[str, Any]:
    """A setting as tables: `{"local.lr": 0.1}` is `{"local": {"lr": 0.1}}`.

    Args:
        point: The setting.
    """
    table: dict[str, Any] = {}
    for key, value in point.items():
        *outer, last = key.split(".")
        place = table
        for part in outer:
            place = place.setdefault(part, {})
        place[last] = value
    return table
