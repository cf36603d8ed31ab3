"""Score files of a run hold the scores behind its own metrics."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.cli.command import write_recipe

from consort.core.randomness import derive
from consort.domains.fingerprints.task import VerificationMeter
from consort.domains.signatures.verification import genuine_ones, signatures_of
from consort.domains.signatures.writer_dependent import WriterDependent, summary
from consort.errors import UsageError
from consort.experiment.loading import load_recipe
from consort.experiment.preparation import prepare_run
from consort.experiment.trained import trained_model
from consort.metrics.biometric import equal_error_rate
from consort.results.score_files import ScoreTable
from consort.results.verification_rates import own_curve
from consort.use.scores import write_scores

PRINTS = """
title = "few prints"
clients = 1
data = { name = "synthetic_fingerprints", fingers = 12, size = 32 }
model = { name = "siamese", scale = 0.1 }
run = { rounds = 1 }

[algorithms.local_only]
"""


def test_signatures_are_scored_by_the_protocol(run):
    files = write_scores(run)
    assert [str(file.relative_to(run)) for file in files] == [
        f"scores/client-{number}/scores-{split}.csv"
        for number in (0, 1)
        for split in ("dev", "eval")
    ]
    trained = trained_model(run, "client-1")
    tested = signatures_of(trained.model, trained.data.test)
    known = signatures_of(trained.model, genuine_ones(trained.data.train))
    generator = np.random.default_rng(derive(0, "scores-eval.csv"))
    expected = summary(WriterDependent().scores(tested, known, generator))
    table = ScoreTable.load([run / "scores" / "client-1" / "scores-eval.csv"])
    skilled = own_curve(table, "skilled")
    assert skilled.eer == expected["eer_global"]
    assert skilled.eer_of_users == expected["eer"]
    keys = {row.key: row.probe for row in table.rows}
    assert all(keys[row.key] == row.probe for row in table.rows)


def test_fingerprints_are_scored_by_distance(tmp_path):
    (tmp_path / "prints.toml").write_text(PRINTS)
    folder = tmp_path / "run"
    prepare_run(load_recipe(tmp_path / "prints.toml"), "local_only", 0, folder).go()
    _, evaluation = write_scores(folder)
    trained = trained_model(folder, "client-0")
    meter = VerificationMeter(1.0)
    meter.update(
        trained.model.eval()(trained.data.test.inputs)["verify"],
        trained.data.test.targets["verify"],
    )
    genuine, impostor = meter.distances()
    table = ScoreTable.load([evaluation])
    np.testing.assert_allclose(table.scores(), -genuine)
    np.testing.assert_allclose(table.scores("random"), -impostor)
    assert table.kinds == ["random"]
    assert own_curve(table, "random").eer == equal_error_rate(-genuine, -impostor)


def test_nothing_is_verified_by_a_classifier(tmp_path):
    recipe = load_recipe(write_recipe(tmp_path))
    prepare_run(recipe, "fedavg", 0, tmp_path / "run").go()
    with pytest.raises(UsageError, match="no client verifies signatures or fingerprints"):
        write_scores(tmp_path / "run")
