"""Clients with other dense tasks, and one with several, in one federation."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from tests.contract.helpers import assert_same_outcome, finish, overhear
from tests.values.by_hand import play

from consort.algorithms.fedavg_per_task import FedAvgPerTask
from consort.algorithms.fedhca2 import FedHCA2
from consort.algorithms.matfl import MaTFL
from consort.algorithms.mfed import MFed
from consort.core.params import has_role
from consort.core.wire import tensors_in
from consort.data.examples import Examples, Splits
from consort.domains.scenes.synthetic.scenes import synthetic_scenes
from consort.domains.scenes.tasks.dense import IGNORED
from consort.errors import UsageError
from consort.federation.federation import Federation
from consort.federation.member import Member
from consort.models.registry import ModelSpec
from consort.run.run import Run
from consort.run.schedule import Schedule
from consort.training.local import LocalTraining

LOCAL = LocalTraining(lr=0.02, batch=4, optimizer="adamw", augment=True)
TINY = ModelSpec.of({"name": "conv_pyramid", "widths": [4, 8], "channels": 8})
CLIENTS = {
    "depth": ("depth",),
    "edges": ("edges",),
    "parts": ("parts",),
    "several": ("segment", "normals", "saliency", "edges"),
}


@cache
def scenes():
    return synthetic_scenes(0, examples=24, size=32)


def member(place, tasks, change=lambda examples: examples, model=TINY):
    dataset = scenes()
    rows = dataset.examples.only(tasks).rows(6 * place, 6)
    rows = change(Examples(dataset.prepare(rows.inputs), rows.targets))
    splits = Splits(rows.rows(0, 4), rows.rows(4, 1), rows.rows(5, 1))
    return Member.of({name: dataset.tasks[name] for name in tasks}, model, splits)


def federation(model=TINY, **others):
    members = {
        name: member(i, tasks, model=model) for i, (name, tasks) in enumerate(CLIENTS.items())
    }
    return Federation(members | others, batchnorm="local")


@pytest.mark.parametrize("algorithm", [FedHCA2, MFed, MaTFL, FedAvgPerTask])
def test_they_learn_together_and_are_tested_on_their_own_metrics(algorithm, tmp_path):
    outcome = play(algorithm(LOCAL), federation(), tmp_path, rounds=2)
    tested = {(r.client, r.task, r.metric) for r in outcome.rows if r.split == "test"}
    for client, task, metric in [
        ("depth", "depth", "rmse"),
        ("edges", "edges", "ods_f"),
        ("several", "segment", "miou"),
        ("several", "normals", "mean_error"),
        ("several", "saliency", "max_f"),
    ]:
        assert (client, task, metric) in tested


SMALL = {"name": "conv_pyramid", "widths": [4, 8], "channels": 8, "rates": [1, 2]}
DEEP = [ModelSpec.of(SMALL | {"decoder": kind}) for kind in ("deeplabv3", "deeplabv3plus")]


@pytest.mark.parametrize("model", [TINY, *DEEP], ids=str)
def test_heads_never_travel_and_decoders_do(model):
    exchanges, _ = overhear(FedHCA2(LOCAL), federation(model), rounds=1)
    said = [{name for name, _ in tensors_in([e.call.payload, e.reply.content])} for e in exchanges]
    assert not any(has_role(name, "heads") for names in said for name in names)
    assert all(any(has_role(name, "decoders") for name in names) for names in said)


def test_it_is_noted_which_decoder_attends_to_which(tmp_path):
    outcome = play(FedHCA2(LOCAL), federation(), tmp_path, rounds=2)
    noted = [row for row in outcome.rows if row.metric == "attention"]
    decoders = [f"{client}/{task}" for client, tasks in CLIENTS.items() for task in tasks]
    pairs = [f"{one} → {other}" for one in decoders for other in decoders]
    assert sorted((row.round, row.part) for row in noted) == sorted(
        (round_, pair) for round_ in (1, 2) for pair in pairs
    )
    for one in decoders:
        shares = [r.value for r in noted if r.round == 2 and r.part.startswith(f"{one} →")]
        assert sum(shares) == pytest.approx(1)


def test_workers_find_the_same_bits(tmp_path):
    def outcome(workers):
        folder = tmp_path / str(workers)
        folder.mkdir()
        run = Run(federation(), FedHCA2(LOCAL), Schedule(2), folder=folder, workers=workers)
        return finish(run)

    assert_same_outcome(outcome(2), outcome(1))


def test_a_client_without_any_label_takes_part_and_has_no_score(tmp_path):
    def blank(examples):
        hidden = torch.full_like(examples.targets["parts"], IGNORED)
        return Examples(examples.inputs, {"parts": hidden})

    outcome = play(FedHCA2(LOCAL), federation(parts=member(2, ("parts",), blank)), tmp_path)
    scored = {row.client for row in outcome.rows if row.split == "test"}
    assert scored == {"depth", "edges", "several"}
    held = tensors_in([vars(outcome.server), outcome.states])
    assert all(bool(tensor.isfinite().all()) for _, tensor in held)


def test_other_encoders_are_refused_by_name():
    wide = ModelSpec.of({"name": "conv_pyramid", "widths": [4, 6], "channels": 8})
    depth = member(0, ("depth",))
    other = Member(depth.tasks, wide, depth.example, depth.load)
    with pytest.raises(UsageError, match="clients depth and edges differ"):
        FedHCA2().start(federation(depth=other).roster)


def test_decoders_of_unequal_width_attend_among_their_like(tmp_path):
    wide = ModelSpec.of({"name": "conv_pyramid", "widths": [4, 8], "channels": 12})
    depth = member(0, ("depth",))
    other = Member(depth.tasks, wide, depth.example, depth.load)
    server = play(FedHCA2(LOCAL), federation(depth=other), tmp_path).server
    seen = server.attended["depth"]["decoders.depth.fuse.0.weight"]
    assert seen.shape == (12, 24, 1, 1)
