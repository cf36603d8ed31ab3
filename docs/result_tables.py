"""Writes the tables of the pages from the files in `results/`: `make tables`.

A table on a page stands between two comments. The first names a recipe and one of its scales; below
it, every line is a column, with the name of a value and, behind `=`, its title:

    <!-- results fedfew/table1 desk
    accuracy% = accuracy
    accuracy% - local_only = over local training
    bytes / fedavg = traffic
    -->
    <!-- end -->

`%` shows hundredths as percent. `- ALGORITHM` shows the mean difference to that algorithm over
paired seeds with its 95 % interval, `~ ALGORITHM` the probability of that difference by chance
(paired t-test, corrected by Holm's method for as many tests as the column has rows), and
`/ ALGORITHM` the ratio of the means. A column that begins with another recipe and scale, such as
`fedfew/plus@desk accuracy%`, is about that one's runs. Rows are sorted by the first column, the
best first. `<!-- claims fedfew/table1 desk -->` shows the verdicts on the claims
of the recipe in the same way.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from consort.errors import Failure
from consort.experiment.loading import load_recipe
from consort.experiment.recording import record_file
from consort.experiment.shipped import find_recipe
from consort.results.comparison import gains, judge_records
from consort.results.gains import DELTA_M
from consort.results.records import Record, of_one_processor, read_records
from consort.results.significance import holm, t_test
from consort.results.summary import confidence_interval, summarise
from consort.results.values import rises

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs"
RESULTS = ROOT / "results"
BLOCK = re.compile(
    r"(?P<head><!-- (?P<kind>results|claims) (?P<recipe>\S+) (?P<scale>\S+)(?P<columns>[^>]*)-->\n)"
    r"(?P<body>.*?)(?P<tail><!-- end -->)",
    re.DOTALL,
)
_COLUMN = re.compile(
    r"(?:(?P<recipe>\S+)@(?P<scale>\S+) )?"
    r"(?P<name>\w+)(?P<percent>%?)(?: (?P<sign>[-/~]) (?P<rival>\w+))? = (?P<title>.+)"
)
BySeed = Mapping[str, Mapping[int, float]]
"""By algorithm and seed: one value."""


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    title: str
    name: str
    factor: float
    sign: str
    rival: str
    recipe: str = ""
    """Whose runs it is about, if not those of the table."""
    scale: str = ""

    @classmethod
    def read(cls, line: str) -> Column:
        """Reads the line of a column."""
        found = _COLUMN.fullmatch(line.strip())
        if not found:
            raise Failure(f"`{line}` is no column: write it as `accuracy% = title`")
        factor = 100.0 if found["percent"] else 1.0
        texts = (found[key] or "" for key in ("sign", "rival", "recipe", "scale"))
        return cls(found["title"], found["name"], factor, *texts)

    def cell(self, values: BySeed, algorithm: str) -> str:
        """What a row shows."""
        ours, theirs = values.get(algorithm, {}), values.get(self.rival, {})
        if not ours or (self.rival and not theirs) or not all(map(math.isfinite, ours.values())):
            return "–"  # noqa: RUF001
        if self.sign == "/":
            return f"{summarise([*ours.values()]).mean / summarise([*theirs.values()]).mean:.2f}"
        if self.sign == "~":
            return _corrected(values, self.rival).get(algorithm, "")
        if self.sign == "-":
            return self._difference(ours, theirs) if algorithm != self.rival else ""
        summary = summarise([self.factor * value for value in ours.values()])
        digits = 1 if abs(summary.mean) >= 1 else 3
        deviation = f" ± {summary.std:.{digits}f}" if summary.n > 1 else ""
        return f"{summary.mean:.{digits}f}{deviation}"

    def _difference(self, ours: Mapping[int, float], theirs: Mapping[int, float]) -> str:
        seeds = sorted(ours.keys() & theirs.keys())
        margins = [self.factor * (ours[seed] - theirs[seed]) for seed in seeds]
        if len(margins) < 2:
            return "–"  # noqa: RUF001
        low, high = confidence_interval(margins)
        return f"{summarise(margins).mean:+.1f} [{low:+.1f}, {high:+.1f}]"


def _corrected(values: BySeed, rival: str) -> dict[str, str]:
    """By algorithm: the corrected probability of its difference to a rival."""
    found = {}
    for algorithm, ours in values.items():
        seeds = sorted(ours.keys() & values[rival].keys())
        if algorithm != rival:
            found[algorithm] = t_test([ours[s] for s in seeds], [values[rival][s] for s in seeds])
    return {name: f"{p:.3f}" if p >= 0.001 else "< 0.001" for name, p in holm(found).items()}


def generated(text: str, results: Path = RESULTS) -> str:
    """A page with its tables as the files have them.

    Args:
        text: The page.
        results: The folder of the files.

    Raises:
        Failure: A file is missing, or a column cannot be read.
    """

    def block(found: re.Match[str]) -> str:
        if found["kind"] == "claims":
            body = _claims(found["recipe"], found["scale"], results)
        else:
            columns = [Column.read(line) for line in found["columns"].strip().splitlines()]
            body = _table(columns, found["recipe"], found["scale"], results)
        return f"{found['head']}\n{body}\n{found['tail']}"

    return BLOCK.sub(block, text)


def _file(recipe: str, scale: str, results: Path) -> Path:
    return record_file(results, find_recipe(recipe), _named(scale))


def _named(scale: str) -> str | None:
    return None if scale == "default" else scale


def _table(columns: Sequence[Column], recipe: str, scale: str, results: Path) -> str:
    sources = {(c.recipe or recipe, c.scale or scale): None for c in columns}
    files = {source: _file(*source, results) for source in {(recipe, scale): None} | sources}
    records = {source: of_one_processor(read_records(file)) for source, file in files.items()}
    values = {c: _by_seed(records[c.recipe or recipe, c.scale or scale], c.name) for c in columns}
    first = columns[0]
    algorithms = list(dict.fromkeys(r.origin.algorithm for of in records.values() for r in of))
    way = -1.0 if rises(first.name) else 1.0

    def rank(algorithm: str) -> tuple[bool, float]:
        found = [*values[first].get(algorithm, {}).values()]
        mean = summarise(found).mean if found else math.nan
        return not math.isfinite(mean), way * mean if math.isfinite(mean) else 0.0

    lines = ["| method | " + " | ".join(column.title for column in columns) + " |"]
    lines.append("|---" * (len(columns) + 1) + "|")
    for algorithm in sorted(algorithms, key=rank):
        cells = (column.cell(values[column], algorithm) for column in columns)
        lines.append(f"| `{algorithm}` | " + " | ".join(cells) + " |")
    origins = [_origin(records[s], file.relative_to(results.parent)) for s, file in files.items()]
    return "\n".join([*lines, "", *origins, ""])


def _by_seed(records: Sequence[Record], name: str) -> BySeed:
    found: dict[str, dict[int, float]] = {}
    gained = gains(records) if name == DELTA_M else {}
    for record in records:
        origin = record.origin
        value = gained.get((origin.algorithm, origin.seed), record.values.get(name))
        if value is not None:
            found.setdefault(origin.algorithm, {})[origin.seed] = value
    return found


def _origin(records: Sequence[Record], file: Path) -> str:
    seeds = sorted({record.origin.seed for record in records})
    every = f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 2 else " and ".join(map(str, seeds))
    counts: dict[str, int] = {}
    for record in records:
        counts[record.origin.algorithm] = counts.get(record.origin.algorithm, 0) + 1
    fewer = [f"`{name}` {n}" for name, n in counts.items() if n < len(seeds)]
    missing = f" (fewer runs: {', '.join(fewer)})" if fewer else ""
    origin = records[0].origin
    where = f"{origin.cpu}, torch {origin.torch}"
    return f"*Mean ± std over seeds {every}{missing}; {where}; `{file.as_posix()}`.*"


def _claims(recipe: str, scale: str, results: Path) -> str:
    records = of_one_processor(read_records(_file(recipe, scale, results)))
    loaded = load_recipe(find_recipe(recipe), _named(scale))
    verdicts = judge_records(loaded.claims, list(loaded.algorithms), records)
    lines = [f"{v.outcome:>9}  {v.claim}\n{'':11}{v.detail}" for v in verdicts]
    return "\n".join(["```text", *lines, "```", ""])


def main() -> None:
    """Rewrites every page that has tables."""
    for path in sorted(PAGES.rglob("*.md")):
        text = path.read_text("utf-8")
        now = generated(text)
        if now != text:
            path.write_text(now, "utf-8")
            print(path.relative_to(ROOT), file=sys.stderr)


if __name__ == "__main__":
    main()
