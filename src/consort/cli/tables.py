"""The command `table`: results for a paper, with tests of significance."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from consort.errors import UsageError

if TYPE_CHECKING:
    from consort.results.paper_table import PaperColumn


class TableFormat(StrEnum):
    """The formats of `consort table`."""

    text = "text"
    csv = "csv"
    latex = "latex"
    markdown = "markdown"


class SignificanceTest(StrEnum):
    """The tests of `consort table`."""

    wilcoxon = "wilcoxon"
    t = "t"
    friedman = "friedman"


class Pairing(StrEnum):
    """What the tests pair."""

    seeds = "seeds"
    clients = "clients"
    folders = "folders"


def table(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders of runs.")],
    format: Annotated[TableFormat, typer.Option(help="How the table is written.")] = (
        TableFormat.text
    ),
    metric: Annotated[
        list[str],
        typer.Option(
            help="A metric, or any value that claims can name; may be repeated; default: the "
            "metrics of the tasks.",
            metavar="NAME",
        ),
    ] = [],  # noqa: B006
    test: Annotated[
        SignificanceTest | None,
        typer.Option(help="Mark algorithms that differ significantly from the best."),
    ] = None,
    over: Annotated[
        Pairing, typer.Option(help="What is paired in a test: seeds, clients or whole folders.")
    ] = Pairing.seeds,
    against: Annotated[
        str, typer.Option(help="Compare with this algorithm instead of the best.", metavar="NAME")
    ] = "",
    diagram: Annotated[
        Path | None,
        typer.Option(
            help="With --test friedman: write the critical-difference diagram to this file "
            "(.svg, .pdf or .png).",
            metavar="FILE",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Write the table to this file instead of the screen.", metavar="FILE"),
    ] = None,
) -> None:
    """Print a table for a paper: mean ± std, the best in bold, significance marks.

    Folders with runs of the same algorithm and seed are columns of their own.
    """
    from consort.results.layout import laid_out
    from consort.results.mixing import unlike_settings
    from consort.results.paper_table import experiments_of, paper_table
    from consort.results.result import Result
    from consort.run.folder import runs_below

    if diagram and test != SignificanceTest.friedman:
        raise UsageError("--diagram shows average ranks: add --test friedman")
    found = {
        folder: [Result.load(run) for run in runs_below(folder)]
        for folder in dict.fromkeys(folders)
    }
    experiments = experiments_of(found)
    for runs in experiments.values():
        for warning in unlike_settings(runs):
            typer.echo(f"warning: these runs do not belong together: {warning}", err=True)
    made = paper_table(experiments, metric, test.value if test else None, over.value, against)
    text = laid_out(made, format.value)
    if out:
        _write(out, text)
    else:
        typer.echo(text, nl=False)
    if diagram:
        _draw(made.columns, diagram)


def _draw(columns: Sequence[PaperColumn], path: Path) -> None:
    """Writes the diagram of every ranking; several files are numbered by metric."""
    from consort.report.critical_difference import critical_difference_diagram
    from consort.report.pictures import write_picture

    ranked = [(column, column.ranking) for column in columns if column.ranking]
    for column, ranking in ranked:
        name = "-".join(filter(None, (column.experiment, column.metric)))
        file = path.with_stem(f"{path.stem}-{name}") if len(ranked) > 1 else path
        typer.echo(str(write_picture(critical_difference_diagram(ranking), file)), err=True)


def _write(path: Path, text: str) -> None:
    from consort.errors import Failure

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    except OSError as error:
        raise Failure(f"{path}: the table cannot be written: {error.strerror}") from error
    typer.echo(str(path))
