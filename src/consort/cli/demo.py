"""The command `consort demo`: trains a small federation and writes signatures to try it with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from consort.cli.options import Json, Out, Quiet, Workers

if TYPE_CHECKING:
    from consort.use.samples import Samples


def demo(out: Out = None, workers: Workers = 2, quiet: Quiet = False, json: Json = False) -> None:
    """Train clients with different customers on generated signatures.

    Takes about two minutes on two cores.
    """
    from consort.cli.running import compare
    from consort.experiment.loading import load_recipe
    from consort.experiment.shipped import shipped_recipes
    from consort.use.samples import write_samples

    path = shipped_recipes()["demo"]  # not a file named demo in the working directory
    out = out or Path("runs") / "demo"
    compare(str(path), out=out, workers=workers, quiet=quiet, json=json)
    recipe = load_recipe(path)
    samples = write_samples(recipe, recipe.seeds[0], out / "signatures")
    if not (quiet or json):
        run = out / list(recipe.algorithms)[-1] / f"seed-{recipe.seeds[0]}"
        typer.echo(advice(samples, run, out / f"user-{samples.user}.template"))


def advice(samples: Samples, run: Path, template: Path) -> str:
    """What to try next, as commands that can be copied.

    Args:
        samples: The signatures that were written.
        run: The folder of the run whose model is used.
        template: Where the template of the user will be written.

    Returns:
        Text for the terminal.
    """
    folder = samples.folder
    return f"""
Try a trained model: {folder} contains generated signatures of user {samples.user}.
The client {samples.client} was trained with the references; the other signatures, genuine and
forged, are new to it.

consort enroll {run} --client {samples.client} --user {samples.user} --references \
{folder}/reference-*.png --out {template}
consort verify {template} {folder}/genuine-1.png
consort verify {template} {folder}/forged-1.png"""
