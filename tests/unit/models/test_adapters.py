"""Adapters on a frozen network: they alone are trained and sent, as a role of their own."""

from __future__ import annotations

import pytest
import torch
from tests.helpers import tiny_splits
from torch import nn

from consort.algorithms.registry import find_algorithm
from consort.core.params import Params, has_role, is_adapter, role_of
from consort.errors import UsageError
from consort.federation.federation import Federation
from consort.federation.member import Member
from consort.run.run import Run
from consort.run.schedule import Schedule
from consort.tasks import Classification
from consort.training.local import LocalTraining

TASKS = {"classify": Classification(3)}


class Adapted(nn.Module):
    """A frozen layer with a trainable path of low rank beside it."""

    def __init__(self, layer: nn.Linear, rank: int) -> None:
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.lora_A = nn.Linear(layer.in_features, rank, bias=False)
        self.lora_B = nn.Linear(rank, layer.out_features, bias=False)
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, x):
        return self.layer(x) + self.lora_B(self.lora_A(x))


class Net(nn.Module):
    def __init__(self, rank: int = 2) -> None:
        super().__init__()
        self.body, self.fc = Adapted(nn.Linear(8, 6), rank), nn.Linear(6, 3)

    def forward(self, x):
        return self.fc(self.body(x).relu())


def federation(*networks) -> Federation:
    return Federation({
        f"c{number}": Member.of(TASKS, network, tiny_splits(f"c{number}"))
        for number, network in enumerate(networks)
    })  # fmt: skip


def sent(clients: Federation, algorithm: str, rounds: int = 1) -> dict[str, float]:
    local = LocalTraining(lr=0.2)
    run = Run(clients, find_algorithm(algorithm)(local=local), Schedule(rounds=rounds))
    return {row.part: row.value for row in run.go() if row.metric == "bytes_up"}


def test_names_tell_what_is_an_adapter():
    name = "encoder.body.lora_A.weight"
    assert has_role(name, "adapter")
    assert has_role(name, "encoder")
    assert role_of(name) == "adapter"
    assert role_of("encoder.body.layer.weight") == "encoder"
    assert is_adapter("encoder.adapters.1.weight")
    assert not is_adapter("encoder.explorer_A.weight")
    model = Params({name: torch.ones(2), "heads.t.weight": torch.ones(3)})
    assert list(model.only("adapter")) == list(model.without("heads")) == [name]


ADAPTERS, HEAD = 4 * 2 * (8 + 6), 4 * (6 * 3 + 3)


@pytest.mark.parametrize(("algorithm", "expected"), [
    ("fedavg", {"adapter": ADAPTERS, "heads": HEAD}),
    ("fedper", {"adapter": ADAPTERS}),
    ("fedrep", {"adapter": ADAPTERS}),
    ("lg_fedavg", {"heads": HEAD}),
    ("fedhca2", {"adapter": ADAPTERS}),
    ("scaffold", {"adapter": 2 * ADAPTERS, "heads": 2 * HEAD}),
])  # fmt: skip
def test_algorithms_send_adapters_and_never_what_is_frozen(algorithm, expected):
    assert sent(federation(Net, Net), algorithm) == expected


def test_the_frozen_layer_stays_as_it_was_and_the_adapters_learn():
    network = Net()
    clients = federation(network, network)
    run = Run(clients, find_algorithm("fedavg")(local=LocalTraining(lr=0.3)), Schedule(rounds=3))
    run.go()
    model = clients.blueprint("c0").model
    assert torch.equal(model.encoder.body.layer.weight, network.body.layer.weight)
    assert run.server.model["encoder.body.lora_B.weight"].abs().sum() > 0


def test_clients_with_different_ranks_are_refused_where_adapters_are_averaged():
    unlike = federation(lambda: Net(2), lambda: Net(3))
    with pytest.raises(UsageError) as caught:
        sent(unlike, "fedavg")
    assert str(caught.value) == (
        "this algorithm needs one whole model for all, but clients c0 and c1 differ in "
        "'encoder.body.lora_A.weight' (2x8 and 3x8): give all clients one architecture and the "
        "same tasks, or choose an algorithm that shares less (such as fedper or local_only)"
    )
    with pytest.raises(UsageError, match="one encoder for all, but clients c0 and c1 differ in"):
        sent(unlike, "fedper")


def test_clients_with_different_ranks_share_heads_or_prototypes():
    unlike = federation(lambda: Net(2), lambda: Net(3))
    assert sent(unlike, "lg_fedavg") == {"heads": HEAD}
    sent(unlike, "fedproto")


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")  # peft's affair
def test_adapters_of_peft_on_a_model_of_hugging_face():
    peft, transformers = pytest.importorskip("peft"), pytest.importorskip("transformers")

    def made():
        config = transformers.ViTConfig(
            image_size=8, patch_size=4, num_channels=1, hidden_size=8, num_hidden_layers=1,
            num_attention_heads=2, intermediate_size=16, num_labels=3,
        )  # fmt: skip
        network = transformers.ViTForImageClassification(config)
        lora = peft.LoraConfig(
            r=2, target_modules=r".*attention.*(query|value|q_proj|v_proj)",
            modules_to_save=["classifier"],
        )  # fmt: skip
        return peft.get_peft_model(network, lora)

    images, labels = torch.rand(24, 1, 8, 8), torch.arange(24) % 3
    members = {c: Member.of(TASKS, made, (images, labels)) for c in ("a", "b")}
    clients = Federation(members)
    names = list(clients.initial("a"))
    assert names[-2:] == ["heads.classify.weight", "heads.classify.bias"]
    assert all(is_adapter(name) for name in names[:-2])
    assert len(names) == 2 + 4
    assert sent(clients, "fedavg") == {"adapter": 4 * 4 * 2 * 8, "heads": 4 * (8 * 3 + 3)}
    one, same = (Federation(members).initial("a") for _ in range(2))
    assert one.equals(same)
