from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from consort.data.examples import Examples
from consort.errors import Failure, UsageError
from consort.metrics.verification import signatures_of, verification_scores
from consort.metrics.writer_dependent import Signatures, WriterDependent
from consort.models.multitask import MultiTaskModel
from consort.randomness import generator_for
from consort.scoring import BATCH
from consort.tasks.signature import Detection, Identification, identity

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


def test_the_scores_are_those_of_the_encoders_features():
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(18, 7), nn.Tanh())
    model = model_with(encoder, 7)
    tested, enrolled = signatures("tested"), signatures("enrolled")
    with torch.no_grad():
        rows, references = (by_hand(encoder(part.inputs), part) for part in (tested, enrolled))
    found = verification_scores(model, PROTOCOL, tested, seed=3)
    assert found == {f"wd_{k}": v for k, v in PROTOCOL.metrics(rows, None, 3).items()}
    personal = verification_scores(model, PROTOCOL, tested, enrolled, seed=3)
    assert personal == {f"wd_{k}": v for k, v in PROTOCOL.metrics(rows, references, 3).items()}
    assert personal != found
    assert (found["wd_users"], found["wd_skipped"]) == (5, 0)


def test_users_whom_no_head_knows_can_be_verified():
    tested = signatures("tested")
    unseen = renumbered(tested)
    model = model_with(nn.Flatten(), 18)
    found, expected = (verification_scores(model, PROTOCOL, part) for part in (unseen, tested))
    assert found == pytest.approx(expected)


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
    with pytest.raises(UsageError, match="data with the tasks identify and detect"):
        verification_scores(model_with(nn.Flatten(), 18), PROTOCOL, examples)


def test_a_model_that_diverged_is_a_failure():
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(18, 2))
    nn.init.constant_(encoder[1].bias, torch.nan)
    with pytest.raises(Failure, match="not finite"):
        verification_scores(model_with(encoder, 2), PROTOCOL, signatures("tested"))


def test_little_or_nothing_to_verify_is_said_in_numbers():
    model = model_with(nn.Flatten(), 18)
    one, nobody = signatures("one", users=1), signatures("none", users=0)
    assert verification_scores(model, PROTOCOL, one) == {"wd_users": 0, "wd_skipped": 1}
    assert verification_scores(model, PROTOCOL, nobody) == {"wd_users": 0, "wd_skipped": 0}
    found = verification_scores(model, PROTOCOL, one, nobody)
    assert found == {"wd_users": 0, "wd_skipped": 1}
