"""The names of values that are known before a run are those that the run has."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from tests.helpers import MLP, tiny_federation, tiny_member
from torch import Tensor

from consort.data.examples import Examples, Splits
from consort.domains.signatures.tasks import Detection
from consort.errors import UsageError
from consort.experiment.assembly import assemble
from consort.experiment.loading import recipe_of
from consort.experiment.preparation import prepare_run
from consort.federation.federation import Federation
from consort.federation.member import Member
from consort.models.registry import ModelSpec
from consort.results.claims import Claim
from consort.results.expected import known_values
from consort.results.gains import DELTA_M
from consort.results.result import Result
from consort.tasks import Classification, Meter
from consort.training.compute import Compute


def test_they_are_those_of_a_real_run(tmp_path: Path):
    table = {
        "clients": 3,
        "data": {"name": "synthetic_vectors", "examples": 90},
        "model": {"name": "mlp", "hidden": [8]},
        "run": {"rounds": 1, "tuning_epochs": 1},
        "compute": {"count_flops": True},
        "algorithms": {"fedavg": {}},
    }
    recipe = recipe_of(table, "here")
    known = known_values(assemble(recipe, 0, None).federation)
    prepare_run(recipe, "fedavg", 0, tmp_path).go()
    assert set(known) == {*Result.load(tmp_path).metric_names(), DELTA_M}


def test_a_misspelt_metric_in_a_claim_is_found_before_any_run():
    known = known_values(tiny_federation(2))
    Claim.parse("worst_accuracy(a) > balanced_accuracy(b)", ["a", "b"], known)
    with pytest.raises(UsageError, match="no metric `acuracy`; did you mean `accuracy`"):
        Claim.parse("acuracy(a) > acuracy(b)", ["a", "b"], known)
    with pytest.raises(UsageError, match="no metric `flops`"):
        Claim.parse("flops(a) > flops(b)", ["a", "b"], known)
    assert "flops" in known_values(tiny_federation(2, compute=Compute(count_flops=True)))


def test_metrics_that_the_caller_knows_of_are_taken_over():
    known = known_values(tiny_federation(2), ["attack_success"])
    assert {"attack_success", "best_attack_success", "tuned_attack_success"} <= set(known)


def test_what_is_measured_besides_tasks_is_known_too(tmp_path: Path):
    table = {
        "clients": 2,
        "data": {"name": "synthetic_signatures", "users": 8, "genuine": 8, "forged": 8},
        "model": {"name": "mlp", "hidden": [8]},
        "run": {"rounds": 1},
        "verification": {"references": 2, "repetitions": 1},
        "unseen": {"others": {"users": 3}},
        "algorithms": {"local_only": {}},
    }
    recipe = recipe_of(table, "here")
    known = known_values(assemble(recipe, 0, None).federation)
    assert {"wd_eer", "worst_wd_eer", "wd_auc", "unseen_others_wd_eer"} <= set(known)
    assert not [name for name in known if "wd_det" in name]
    prepare_run(recipe, "local_only", 0, tmp_path).go()
    measured = Result.load(tmp_path).metric_names()
    assert set(measured) <= set(known)
    assert {name for name in known if "tuned" not in name} == {*measured, DELTA_M}


def member(genuine: list[int]) -> Member:
    """Signatures of which so many are genuine, in this order."""
    targets = torch.tensor(genuine)
    examples = Examples(torch.randn(len(genuine), 4), {"detect": targets})
    spec = ModelSpec.of(MLP)
    return Member.of({"detect": Detection(hidden=2)}, spec, Splits(examples, examples, examples))


def test_as_many_examples_are_taken_as_a_metric_needs():
    """Error rates need genuine signatures and forgeries, and the first ones are all genuine."""
    assert {"eer", "auc"} <= set(known_values(Federation({"a": member([1] * 40 + [0])})))


def test_another_client_is_asked_where_one_cannot_tell():
    clients = {"a": member([1] * 10), "b": member([1, 0] * 5)}
    assert {"eer", "auc"} <= set(known_values(Federation(clients)))


def test_where_it_cannot_be_known_nothing_is_refused():
    """No client has a forgery: perhaps its metrics would be others, so any name is let through."""
    known = known_values(Federation({"a": member([1] * 10), "b": tiny_member("b")}))
    assert known == []
    Claim.parse("eer(x) < auc(x)", ["x"], known)


@dataclass(frozen=True)
class Counted(Classification):
    """Looks at every example it is shown."""

    def meter(self) -> Meter:
        found = super().meter()
        update = found.update

        def counting(output: Tensor, target: Tensor) -> None:
            SEEN.append(len(target))
            update(output, target)

        found.update = counting  # type: ignore[method-assign]
        return found


SEEN: list[int] = []


def test_a_few_examples_of_one_client_are_enough_for_an_ordinary_task():
    x = torch.randn(1000, 4)
    examples = Examples(x, {"sign": (x.sum(1) > 0).long()})
    one = Member.of({"sign": Counted(2)}, ModelSpec.of(MLP), Splits(examples, examples, examples))
    known_values(Federation({f"c{number}": one for number in range(20)}))
    assert sum(SEEN) <= 20
