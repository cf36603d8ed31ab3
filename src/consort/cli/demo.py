"""The demonstration: a federation at work, and signatures to try its models with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from consort.cli.options import Json, Out, Quiet, Workers

if TYPE_CHECKING:
    from consort.use.samples import Samples


def demo(out: Out = None, workers: Workers = 2, quiet: Quiet = False, json: Json = False) -> None:
    """Train clients with unlike models on generated signatures; minutes on two cores."""
    from consort.cli.running import compare
    from consort.experiment.loading import load_recipe
    from consort.experiment.shipped import shipped_recipes
    from consort.use.samples import leave_samples

    path = shipped_recipes()["demo"]  # whatever else may be called demo in this folder
    out = out or Path("runs") / "demo"
    compare(str(path), out=out, workers=workers, quiet=quiet, json=json)
    recipe = load_recipe(path)
    samples = leave_samples(recipe, recipe.seeds[0], out / "signatures")
    if not (quiet or json):
        run = out / list(recipe.algorithms)[-1] / f"seed-{recipe.seeds[0]}"
        typer.echo(advice(samples, run, out / f"user-{samples.user}.template"))


def advice(samples: Samples, run: Path, template: Path) -> str:
    """What to try next, as commands that can be copied."""
    folder = samples.folder
    return f"""
A trained model can be used. {folder} has generated signatures of user {samples.user}: references
that {samples.client} trained with, and genuine and forged ones that it has not seen.

consort enroll {run} --client {samples.client} --user {samples.user} --references \
{folder}/reference-*.png --out {template}
consort verify {template} {folder}/genuine-1.png
consort verify {template} {folder}/forged-1.png"""
