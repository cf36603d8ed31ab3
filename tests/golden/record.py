"""Records the numbers of the golden recipes anew: `python -m tests.golden.record [RECIPE ...]`.

The numbers are those of this kind of machine; for a kind that has none yet, they are recorded with
code that passes the test on another kind. Otherwise this is allowed only in a change whose purpose
is other numbers: a corrected algorithm, another version of PyTorch, a recipe here that is new or
changed. Such a change says in CHANGELOG.md which numbers are different and why. It is never a way
to make a failing test pass: moving or tidying code changes no number.

What such a change makes different here is taken out of the files of other kinds of machine, which
cannot be recorded here; the rest of their numbers stays.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from tests.golden.outcomes import RECIPES, outcomes, record

if __name__ == "__main__":
    torch.set_num_threads(1)
    for recipe in sys.argv[1:] or RECIPES:
        with TemporaryDirectory() as folder:
            record(recipe, outcomes(recipe, Path(folder)))
