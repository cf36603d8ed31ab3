"""The command that measures score files: `metrics`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from consort.cli.options import Json, Quiet

if TYPE_CHECKING:
    from consort.metrics.intervals import Interval
    from consort.results.score_files import ScoreTable
    from consort.results.verification_rates import Rate


def metrics(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILES", help="Score files; thresholds come from those with dev in their name."
        ),
    ],
    det: Annotated[
        Path | None, typer.Option(help="Also draw DET curves: .svg, .pdf or .png.", metavar="FILE")
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Measure score files in Bob's layout: EER, FMR100, FMR1000, ZeroFMR, rates with intervals.

    Thresholds are chosen on development scores and errors counted on all others. Random impostors
    and skilled forgeries are kept apart.
    """
    from consort.results.score_files import ScoreTable
    from consort.results.verification_rates import own_curve, rates_at_thresholds

    chosen = [file for file in files if "dev" in file.stem]
    tested = [file for file in files if file not in chosen] or chosen
    table = ScoreTable.load(tested)
    if chosen and chosen != tested:
        development, origin = ScoreTable.load(chosen), f"development data ({_names(chosen)})"
    else:
        development, origin = table, f"the tested data themselves, too good ({_names(tested)})"
    curves = {kind: own_curve(table, kind) for kind in table.kinds}
    rows = rates_at_thresholds(development, table, origin)
    if json:
        from dataclasses import asdict
        from json import dumps

        found = {
            "curves": {k: asdict(c) for k, c in curves.items()},
            "thresholds": [asdict(row) for row in rows],
        }
        typer.echo(dumps(found, indent=1))
    elif not quiet:
        typer.echo(f"{len(table.users)} users, {table.scores().size} genuine comparisons")
        for kind, curve in curves.items():
            points = ", ".join(f"{name} {value:.2%}" for name, value in curve.points.items())
            typer.echo(
                f"{kind} impostors ({table.scores(kind).size}): EER {curve.eer:.2%}"
                f"{_in_brackets(curve.eer_interval)}, {points}"
            )
        typer.echo(f"thresholds from {origin}; 95 % intervals: exact, over users")
        for row in rows:
            typer.echo(f"{row.rule} among {row.kind} impostors, threshold {row.threshold:.4f}:")
            typer.echo(f"  FNMR {_shown(row.fnmr)}")
            for kind, rate in row.fmr.items():
                typer.echo(f"  FMR of {kind} impostors {_shown(rate)}")
    if det:
        _draw(table, det)


def _names(files: list[Path]) -> str:
    return ", ".join(map(str, files))


def _in_brackets(*intervals: Interval | None) -> str:
    shown = [str(interval) for interval in intervals if interval]
    return f" ({'; '.join(shown)})" if shown else ""


def _shown(rate: Rate) -> str:
    shown = _in_brackets(rate.clopper_pearson, rate.over_users)
    return f"{rate.value:.2%} of {rate.total}{shown}"


def _draw(table: ScoreTable, path: Path) -> None:
    from consort.metrics.biometric import error_curve
    from consort.report.pictures import write_picture
    from consort.report.verification import det_plot

    curves = {
        f"{kind} impostors": error_curve(table.scores(), table.scores(kind)) for kind in table.kinds
    }
    typer.echo(str(write_picture(det_plot(curves), path)), err=True)
