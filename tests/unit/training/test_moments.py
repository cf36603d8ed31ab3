"""Kept optimisers against an official loop, which creates its optimiser once."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tests.values.by_hand import three_clients
from torch import Generator
from torch.nn.functional import cross_entropy

from consort.core.params import Params
from consort.errors import UsageError
from consort.training.client import Client
from consort.training.local import LocalTraining

ROUNDS, STEPS = 4, 3
OFFICIAL = {
    "adamw": (torch.optim.AdamW, {"weight_decay": 0.1}),
    "adam": (torch.optim.Adam, {"weight_decay": 0.1}),
    "sgd": (torch.optim.SGD, {"weight_decay": 0.1, "momentum": 0.9}),
}


def client_of(federation, state, round_):
    return Client(
        id="c0",
        model=federation.blueprint("c0").fresh(),
        tasks=dict(federation.members["c0"].tasks),
        data=federation.data("c0"),
        state=state,
        generator=Generator().manual_seed(round_),
        round=round_,
        rounds=ROUNDS,
    )


def trained(federation, local, only=((),)):
    """The model after all rounds; between them the server halves what a client has sent."""
    state, model = {}, Params.of(federation.blueprint("c0").fresh())
    for round_ in range(1, ROUNDS + 1):
        client = client_of(federation, state, round_)
        model.load_into(client.model)
        for roles in only:
            local.run(client, only=roles)
        model = Params.of(client.model) * 0.5
    return model, state


@pytest.mark.parametrize("name", OFFICIAL)
@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_it_is_the_loop_whose_optimiser_is_made_once(name, schedule):
    federation = three_clients()
    kind, options = OFFICIAL[name]
    local = LocalTraining(
        epochs=STEPS, batch=10_000, lr=0.05, optimizer=name, schedule=schedule,
        keep_optimizer=True, **options,
    )  # fmt: skip
    ours, _ = trained(federation, local)

    train = federation.data("c0").train
    network = federation.blueprint("c0").fresh()
    optimizer = kind(network.parameters(), lr=0.05, **options)
    for round_ in range(1, ROUNDS + 1):
        for group in optimizer.param_groups:
            group["lr"] = local.rate(round_, ROUNDS)
        for _ in range(STEPS):
            optimizer.zero_grad()
            outputs = network(train.inputs)
            sum(cross_entropy(outputs[task], train.targets[task]) for task in outputs).backward()
            optimizer.step()
        with torch.no_grad():
            for param in network.parameters():
                param.mul_(0.5)
    for key, tensor in Params.of(network).items():
        assert torch.allclose(ours[key], tensor, atol=1e-6), key
    reset, _ = trained(federation, replace(local, keep_optimizer=False))
    assert max(float((reset[key] - ours[key]).abs().max()) for key in ours) > 1e-3


def test_every_training_of_a_call_has_an_optimiser_of_its_own():
    local = LocalTraining(lr=0.01, optimizer="adam", keep_optimizer=True, steps=2)
    _, state = trained(three_clients(), local, [("heads",), ("encoder",)])
    first, second = state["optimizer 1"], state["optimizer 2"]
    assert first["steps"] == second["steps"] == 2 * ROUNDS
    assert set(first["first"]).isdisjoint(second["first"])


def test_plain_sgd_has_nothing_to_keep():
    federation = three_clients()
    plain = LocalTraining(lr=0.05, steps=3)
    ours, _ = trained(federation, replace(plain, keep_optimizer=True))
    theirs, _ = trained(federation, plain)
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)


def test_optimisers_of_torch_are_not_kept():
    with pytest.raises(UsageError, match=r"keep_optimizer: the state of RMSprop .* sgd, adam"):
        LocalTraining(optimizer="RMSprop", keep_optimizer=True)


def test_fine_tuning_starts_anew():
    assert not LocalTraining(keep_optimizer=True).tuning(2).keep_optimizer


def test_warm_up_may_count_epochs():
    """Five epochs are five rounds of one epoch, and two of four, of which the second ends later."""
    counted = LocalTraining(lr=1.0, warmup=5, warmup_unit="epochs")
    rounds = replace(counted, warmup_unit="rounds")
    assert [counted.rate(r, 9) for r in range(1, 10)] == [rounds.rate(r, 9) for r in range(1, 10)]
    four = replace(counted, epochs=4)
    assert [four.rate(r, 9) for r in (1, 2, 3)] == [1 / 3, 2 / 3, 1.0]
