from __future__ import annotations

import pytest
from tests.unit.use.signed import signed_recipe, signed_run

from consort.use.samples import write_samples


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """A finished run that nobody changes, except for models below it."""
    return signed_run(tmp_path_factory.mktemp("signed"))


@pytest.fixture(scope="session")
def samples(tmp_path_factory):
    """Pictures of a user of that run."""
    folder = tmp_path_factory.mktemp("samples")
    return write_samples(signed_recipe(folder), 0, folder)
