"""A run on a few generated signatures, in no time."""

from __future__ import annotations

from pathlib import Path

from consort.experiment.loading import load_recipe
from consort.experiment.preparation import prepare_run
from consort.experiment.recipe import Recipe

RECIPE = """
title = "few signatures"
clients = 2
model = [{ name = "mlp", hidden = [12] }, { name = "cnn4", scale = 0.1 }]

[data]
name = "synthetic_signatures"
users = 3
genuine = 12
forged = 12
size = [32, 48]

[run]
rounds = 2

[local]
lr = 0.02

[algorithms.local_only]
"""


def signed_recipe(folder: Path) -> Recipe:
    """The recipe, by way of a file."""
    path = folder / "signed.toml"
    path.write_text(RECIPE)
    return load_recipe(path)


def signed_run(folder: Path) -> Path:
    """The folder of a finished run."""
    run = folder / "run"
    prepare_run(signed_recipe(folder), "local_only", 0, run).go()
    return run
