"""Experiments as objects, and `consort.run` as a function."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.helpers import tiny_federation

import consort
from consort import Experiment, LocalTraining, UsageError
from consort.algorithms.ditto import Ditto
from consort.algorithms.fedavg import FedAvg

LOCAL = LocalTraining(lr=0.1)


def test_an_experiment_is_what_compare_makes_of_its_parts(tmp_path):
    algorithms = [FedAvg(LOCAL), Ditto(LOCAL)]
    claims = ["accuracy(ditto) > 0"]
    experiment = Experiment(tiny_federation(3), algorithms, 2, [3, 4], "Three", claims)
    made = experiment.go(tmp_path / "a", progress=False)
    compared = consort.compare(tiny_federation(3), algorithms, 2, seeds=[3, 4], title="Three",
                               claims=claims, folder=tmp_path / "b", progress=False)  # fmt: skip
    assert list(made.runs) == list(compared.runs)
    assert made.results[0].about["title"] == "Three"
    assert [r.value("accuracy") for r in made.results] == [
        r.value("accuracy") for r in compared.results
    ]
    assert made.verdicts() == compared.verdicts()
    again = experiment.go(tmp_path / "a", progress=False)
    assert again.frame().equals(made.frame())


def test_run_is_a_function_too():
    outcome = consort.run(tiny_federation(2), FedAvg(LOCAL), 1, progress=False)
    assert outcome.result.last_round == 1
    with pytest.raises(UsageError, match="algorithms are objects"):
        consort.run(tiny_federation(2), "fedavg", 1)


def test_run_is_there_before_its_package_is_imported():
    after = "import consort.run.schedule; import consort; print(callable(consort.run))"
    for code in ("import consort; print(callable(consort.run))", after):
        shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert shown.stdout == "True\n", shown.stderr
