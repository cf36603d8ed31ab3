"""Tables as text, CSV, LaTeX (booktabs) and Markdown."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Sequence
from io import StringIO
from typing import Literal, TypeAlias

from consort.results.paper_table import PaperCell, PaperColumn, PaperTable

Format: TypeAlias = Literal["text", "csv", "latex", "markdown"]
_UNKNOWN = "–"  # noqa: RUF001


def laid_out(table: PaperTable, format: Format) -> str:
    """The table in a format, with a line break at its end.

    Args:
        table: The table.
        format: `text` for a terminal, `csv` for programs, `latex` or `markdown` for documents.
    """
    return _WRITERS[format](table)


def digits_of(value: float) -> int:
    """The decimals with which a value is shown: three, or fewer for numbers above 10."""
    if not math.isfinite(value) or abs(value) < 10:
        return 3
    return max(0, 3 - math.floor(math.log10(abs(value))))


def _numbers(cell: PaperCell) -> tuple[str, str]:
    """Mean and deviation; one seed has no deviation."""
    values = cell.values
    if math.isnan(values.mean):
        return _UNKNOWN, ""
    digits = digits_of(values.mean)
    return f"{values.mean:,.{digits}f}", f"{values.std:,.{digits}f}" if values.n > 1 else ""


def _heads(table: PaperTable, up: str, down: str, several: bool) -> list[str]:
    def head(column: PaperColumn) -> str:
        name = f"{column.experiment} {column.metric}" if several else column.metric
        return f"{name.strip()} {up if column.higher_is_better else down}"

    return [head(column) for column in table.columns]


def _cells(
    table: PaperTable, algorithm: str, write: Callable[[PaperCell], str], missing: str = _UNKNOWN
) -> list[str]:
    found = (column.cells.get(algorithm) for column in table.columns)
    return [write(cell) if cell else missing for cell in found]


def _text(table: PaperTable) -> str:
    def write(cell: PaperCell) -> str:
        average, deviation = _numbers(cell)
        text = f"{average} ± {deviation}" if deviation else average
        return text + "*" * cell.significant

    rows = [["algorithm", *_heads(table, "↑", "↓", True)]]
    rows += [[name, *_cells(table, name, write)] for name in table.algorithms]
    return _aligned(rows, "  ") + "".join(f"{note}\n" for note in table.notes)


def _aligned(rows: Sequence[Sequence[str]], gap: str) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *others in rows:
        cells = [first.ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        lines.append(gap.join(cells).rstrip() + "\n")
    return "".join(lines)


def _markdown(table: PaperTable) -> str:
    def write(cell: PaperCell) -> str:
        average, deviation = _numbers(cell)
        average = f"**{average}**" if cell.best else average
        return (f"{average} ± {deviation}" if deviation else average) + r"\*" * cell.significant

    def row(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |\n"

    head = row(["algorithm", *_heads(table, "↑", "↓", True)])
    rule = row(["---", *["---:"] * len(table.columns)])
    body = "".join(row([name, *_cells(table, name, write)]) for name in table.algorithms)
    notes = "".join(f"\n{note.replace('*', chr(92) + '*')}\n" for note in table.notes)
    return head + rule + body + notes


def _latex(table: PaperTable) -> str:
    def write(cell: PaperCell) -> str:
        average, deviation = _numbers(cell)
        if average == _UNKNOWN:
            return "--"
        average = average.replace(",", "{,}")
        text = rf"\mathbf{{{average}}}" if cell.best else average
        text += rf" \pm {deviation.replace(',', '{,}')}" if deviation else ""
        return f"${text}{'^{*}' * cell.significant}$"

    experiments = [column.experiment for column in table.columns]
    several = any(experiments)
    lines = ["% needs \\usepackage{booktabs}"]
    lines += [f"% {note}" for note in table.notes]
    lines += [rf"\begin{{tabular}}{{l{'r' * len(table.columns)}}}", r"\toprule"]
    if several:
        lines += _latex_experiments(table.columns)
    heads = _heads(table, "%up", "%down", False)
    heads = [
        _escaped(head.rsplit(" ", 1)[0])
        + (r" $\uparrow$" if head.endswith("%up") else r" $\downarrow$")
        for head in heads
    ]
    lines += [" & ".join(["Algorithm", *heads]) + r" \\", r"\midrule"]
    lines += [
        " & ".join([_escaped(name), *_cells(table, name, write, "--")]) + r" \\"
        for name in table.algorithms
    ]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _latex_experiments(columns: Sequence[PaperColumn]) -> list[str]:
    heads = [rf"\multicolumn{{1}}{{c}}{{{_escaped(column.experiment)}}}" for column in columns]
    return [" & ".join(["", *heads]) + r" \\"]


_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        **{character: f"\\{character}" for character in "&%$#_{}"},
    }
)


def _escaped(text: str) -> str:
    return text.translate(_LATEX)


def _csv(table: PaperTable) -> str:
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ["algorithm", "experiment", "metric", "mean", "std", "n", "best", "against", "p",
         "significant", "rank"]
    )  # fmt: skip
    for column in table.columns:
        for name, cell in column.cells.items():
            values, ranks = cell.values, column.ranking.ranks if column.ranking else {}
            writer.writerow(
                [name, column.experiment, column.metric, values.mean, values.std, values.n,
                 int(cell.best), column.against,
                 "" if cell.probability is None else cell.probability,
                 int(cell.significant) if column.against else "", ranks.get(name, "")]
            )  # fmt: skip
    return out.getvalue()


_WRITERS: dict[Format, Callable[[PaperTable], str]] = {
    "text": _text,
    "csv": _csv,
    "latex": _latex,
    "markdown": _markdown,
}
