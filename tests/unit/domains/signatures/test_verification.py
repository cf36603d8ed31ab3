from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from consort.core.randomness import derive, generator_for
from consort.data.dataset import Dataset
from consort.data.examples import Examples, Splits
from consort.domains.signatures.tasks import Detection, Identification, identity
from consort.domains.signatures.verification import (
    SignatureVerification,
    genuine_ones,
    signatures_of,
)
from consort.domains.signatures.writer_dependent import CURVE, Signatures, WriterDependent
from consort.errors import Failure, UsageError
from consort.models.multitask import MultiTaskModel
from consort.training.scoring import BATCH

PROTOCOL = WriterDependent(references=4, tests=3, repetitions=2, gamma=0.05)
CENTRES = torch.randn(5, 2, 3, 3, generator=generator_for(0, "centres"))


def signatures(name: str, genuine: int = 8, forged: int = 5, users: int = 5) -> Examples:
    """Pictures around one per user; the forgeries are a bit off."""
    kinds = torch.tensor([1] * genuine + [0] * forged).repeat(users)
    claimed = torch.arange(users).repeat_interleave(genuine + forged)
    noise = torch.randn(len(kinds), 2, 3, 3, generator=generator_for(0, name))
    inputs = CENTRES[claimed] + 0.7 * noise + 0.6 * (1 - kinds)[:, None, None, None]
    order = torch.randperm(len(kinds), generator=generator_for(0, "order", name))
    targets = {"identify": identity(claimed, kinds), "detect": kinds}
    return Examples(inputs, targets).take(order)


def renumbered(examples: Examples) -> Examples:
    """The same signatures of users with numbers that no head has."""
    identify = examples.targets["identify"]
    numbers = torch.where(identify < 0, identify - 900, identify + 900)
    return Examples(examples.inputs, examples.targets | {"identify": numbers})


TASKS = {"identify": Identification(5), "detect": Detection(hidden=4)}


def model_with(encoder: nn.Module, features: int) -> MultiTaskModel:
    return MultiTaskModel(encoder, {name: task.head(features) for name, task in TASKS.items()})


def by_hand(inputs: Tensor, examples: Examples) -> Signatures:
    identify = examples.targets["identify"]
    users = torch.tensor([u if u >= 0 else -1 - u for u in identify.tolist()])
    return Signatures(inputs.numpy(), users.numpy(), (identify >= 0).numpy())


def examined(model, data: Splits, last=False, unseen=None, client="c0", seed=3):
    """What is added to scores that hold nothing but the splits."""
    scores = {split: {"n": 1, "tasks": {}} for split in ("validation", "test")}
    verification = SignatureVerification(PROTOCOL, seed, unseen or {})
    return verification.added_to(scores, model, data, client, last)


def named(metrics: dict[str, float]) -> dict[str, float]:
    return {f"wd_{name}": value for name, value in metrics.items()}


def strangers(examples: Examples) -> Dataset:
    return Dataset("strangers", examples, TASKS, np.zeros(len(examples), int), prepare=double)


def double(inputs: Tensor) -> Tensor:
    return 2 * inputs


def test_the_scores_are_those_of_the_encoders_features():
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(18, 7), nn.Tanh())
    model = model_with(encoder, 7)
    data = Splits(*(signatures(name) for name in ("train", "validation", "test")))
    with torch.no_grad():
        parts = (data.train, data.validation, data.test)
        known, *tested = (by_hand(encoder(part.inputs), part) for part in parts)
    found = examined(model, data)
    for split, rows in zip(("validation", "test"), tested, strict=True):
        expected = PROTOCOL.metrics(rows, known, derive(3, "c0", split))
        assert found[split]["tasks"] == {"verify": named(expected)}
        assert (expected["users"], expected["skipped"]) == (5, 0)
    assert found.keys() == {"validation", "test"}


def test_forgeries_in_the_training_data_are_no_references():
    model = model_with(nn.Flatten(), 18)
    data = Splits(signatures("train"), signatures("validation"), signatures("test"))
    without = replace(data, train=genuine_ones(data.train))
    assert len(without.train) == 5 * 8
    assert set(without.train.targets["detect"].tolist()) == {1}
    assert examined(model, without) == examined(model, data)


def test_test_data_teach_nothing():
    """With other test signatures, those that are still there get the scores they had."""
    data = [signatures(name) for name in ("train", "validation", "test")]
    model = model_with(nn.Flatten(), 18)
    whole = examined(model, Splits(*data))
    other = examined(model, Splits(data[0], data[1], signatures("something else")))
    assert other["validation"] == whole["validation"]
    assert other["test"] != whole["test"]


def test_clients_and_seeds_draw_differently_and_rounds_do_not():
    data = Splits(*(signatures(name) for name in ("train", "validation", "test")))
    model = model_with(nn.Flatten(), 18)
    one, again, client, seed = (
        examined(model, data, **changes)["test"]
        for changes in ({}, {}, {"client": "c1"}, {"seed": 4})
    )
    assert one == again
    assert one != client
    assert one != seed


def test_the_last_round_has_curves_and_users_whom_no_client_knows():
    data = Splits(*(signatures(name) for name in ("train", "validation", "test")))
    model = model_with(nn.Flatten(), 18)
    unseen = {"unseen_others": strangers(renumbered(signatures("unseen")))}
    found = examined(model, data, True, unseen)
    assert list(found) == ["validation", "test", "unseen_others"]
    rows = renumbered(signatures("unseen"))
    expected = PROTOCOL.metrics(
        by_hand(2 * rows.inputs.flatten(1), rows), None, derive(3, "unseen_others")
    )
    metrics = found["unseen_others"]["tasks"]["verify"]
    curve = metrics.pop("wd_det")
    assert metrics == named(expected)
    assert found["unseen_others"]["n"] == len(rows)
    assert list(map(float, curve)) == list(CURVE)
    assert list(curve.values()) == sorted(curve.values(), reverse=True)
    assert curve["0.01"] == pytest.approx(1 - metrics["wd_tar_at_1pct"])
    before = examined(model, data, False, unseen)
    assert before == {
        split: {"n": 1, "tasks": {"verify": without_curve(found[split])}}
        for split in ("validation", "test")
    }


def without_curve(scores):
    return {key: value for key, value in scores["tasks"]["verify"].items() if key != "wd_det"}


def test_users_whom_no_head_knows_can_be_verified():
    tested = signatures("tested")
    model = model_with(nn.Flatten(), 18)
    found, expected = (
        PROTOCOL.metrics(signatures_of(model, part)) for part in (renumbered(tested), tested)
    )
    assert found == pytest.approx(expected)


def test_empty_splits_are_left_out():
    data = Splits(*(signatures(name) for name in ("train", "validation", "test")))
    scores = {"test": {"n": 1, "tasks": {"detect": {"eer": 0.5}}}}
    found = SignatureVerification(PROTOCOL).added_to(
        scores, model_with(nn.Flatten(), 18), data, "a", False
    )
    assert found.keys() == {"test"}
    assert found["test"]["tasks"].keys() == {"detect", "verify"}


def test_maps_of_features_are_flattened_and_batches_change_nothing():
    many = signatures("many", genuine=BATCH // 5, forged=3)
    assert len(many) > BATCH
    found = signatures_of(model_with(nn.Identity(), 18), many)
    assert (found.features == many.inputs.flatten(1).numpy()).all()
    assert (found.genuine == (many.targets["detect"] == 1).numpy()).all()


def test_the_encoder_is_in_evaluation_mode_and_stays_as_it_was():
    encoder = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(18), nn.Dropout(0.5))
    model = model_with(encoder, 18).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    examples = signatures("tested")
    first = signatures_of(model, examples)
    assert (first.features == signatures_of(model, examples).features).all()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_other_data_cannot_be_verified():
    examples = signatures("tested").only(["detect"])
    for look in (genuine_ones, lambda part: signatures_of(model_with(nn.Flatten(), 18), part)):
        with pytest.raises(UsageError, match="data with the tasks identify and detect"):
            look(examples)


def test_a_model_that_diverged_is_a_failure():
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(18, 2))
    nn.init.constant_(encoder[1].bias, torch.nan)
    with pytest.raises(Failure, match="not finite"):
        signatures_of(model_with(encoder, 2), signatures("tested"))


@pytest.mark.parametrize(
    ("train", "test", "judged", "skipped"),
    [
        (signatures("one", users=1), signatures("two", users=1), 0, 1),
        (signatures("none", users=0), signatures("test"), 0, 5),
        (signatures("forged", genuine=0), signatures("test"), 0, 5),
        (signatures("train"), signatures("genuine", forged=0), 0, 5),
        (signatures("few", genuine=1, forged=0), signatures("less", genuine=1, forged=1), 5, 0),
        (signatures("some", users=2), signatures("more"), 2, 3),
    ],
)
def test_small_clients_have_a_defined_result(train, test, judged, skipped):
    found = examined(model_with(nn.Flatten(), 18), Splits(train, test, test), last=True)
    metrics = found["test"]["tasks"]["verify"]
    assert (metrics["wd_users"], metrics["wd_skipped"]) == (judged, skipped)
    assert ("wd_eer" in metrics) == (judged > 0)
    assert all(0 <= value <= 1 for name, value in metrics.items() if name in ("wd_eer", "wd_auc"))
    assert bool(metrics["wd_det"]) == (judged > 0)
