"""The server takes what clients tell about themselves only if it can be true, and goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedconsort[flower]'")

import torch
from tests.institutions import STUDY
from tests.letters import PostOffice, participants
from tests.unit.cli.command import measured
from tests.unit.deployment.test_remote import Near, run

from consort.core.params import Params
from consort.core.wire import decode, encode
from consort.deployment.approval import WAITING, Studies
from consort.deployment.policy import Policy
from consort.deployment.status import current_status
from consort.engines.flower import Parts
from consort.errors import ClientFailed
from consort.experiment.loading import load_recipe
from consort.experiment.recipe import Recipe

LIAR = "c-0"
"""The client that is asked for initial weights first."""
Lie = Callable[[dict[str, Any]], Any]


@pytest.fixture
def study(tmp_path: Path) -> Recipe:
    (tmp_path / "study.toml").write_text(STUDY + "[algorithms.fedavg]\n")
    return load_recipe(tmp_path / "study.toml")


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("consort.deployment.server._RETRY_SECONDS", 0.05)


class Lying(PostOffice):
    """One client lies some times, in the answers of one kind; then it says the truth."""

    def __init__(self, folder: Path, kind: str, lie: Lie, times: int = 2) -> None:
        super().__init__(participants(folder))
        honest = self.participants[LIAR].answer
        self.left = times

        def answer(parts: Parts) -> Parts:
            found = honest(parts)
            if f'"kind":"{kind}"'.encode() not in parts["header"] or not self.left:
                return found
            self.left -= 1
            return found | {"content": encode(lie(decode(found["content"])))}

        self.participants[LIAR].answer = answer  # type: ignore[method-assign]


DESCRIPTIONS: dict[str, Lie] = {
    "nothing": lambda _: {},
    "a list": lambda _: [1],
    "no tasks": lambda about: about | {"tasks": {}},
    "a number": lambda about: about | {"tasks": 3},
    "no model": lambda about: {k: v for k, v in about.items() if k != "model"},
    "a model without a name": lambda about: about | {"model": {}},
    "many examples": lambda about: about | {"train": 10**18 * 10},
    "half an example": lambda about: about | {"train": 0.5},
    "more": lambda about: about | {"more": 1},
    "tensors": lambda about: about | {"model": {"name": "x", "y": torch.zeros(3)}},
    "control characters": lambda about: about | {"model": {"name": "\x1b[2J"}},
    "nan": lambda about: about | {"local": {"lr": float("nan")}},
    "a path": lambda about: about | {"initial": "../../x"},
}


@pytest.mark.parametrize("what", DESCRIPTIONS)
def test_a_malformed_description_is_refused_and_the_server_waits(what, study, tmp_path):
    post = Lying(tmp_path / "homes", "describe", DESCRIPTIONS[what])
    said = run(study, Near(post), tmp_path / "far", "fedavg")
    (complaint,) = {text for text in said if text.startswith(f"client {LIAR}:")}
    assert "\n" not in complaint
    assert complaint.isprintable()
    assert "Traceback" not in complaint
    assert said.index(complaint) < said.index(f"{LIAR} has joined (3 of 3)")
    assert current_status(tmp_path / "far")["phase"] == "finished"


def weights(change: Callable[[Params], Any]) -> Lie:
    return lambda content: {"model": change(content["model"])}


def with_first(params: Params, tensor: torch.Tensor) -> Params:
    return params | {next(iter(params)): tensor}


INITIAL: dict[str, Lie] = {
    "nan": weights(lambda params: params * float("nan")),
    "others": weights(lambda params: params * 2.0),
    "fewer": weights(lambda params: params.only("encoder")),
    "more": weights(lambda params: params | {"encoder.more": torch.zeros(1)}),
    "doubles": weights(lambda params: Params({n: t.double() for n, t in params.items()})),
    "halves": weights(lambda params: Params({n: t.half() for n, t in params.items()})),
    "whole numbers": weights(lambda params: with_first(params, torch.zeros(8, 6).long())),
    "another shape": weights(lambda params: with_first(params, torch.zeros(6, 8))),
    "no weights": lambda _: {},
    "a tensor": lambda _: {"model": torch.zeros(3)},
    "something else": lambda content: content | {"more": 1},
}


@pytest.mark.parametrize("what", INITIAL)
def test_initial_weights_that_were_not_announced_are_not_taken(what, study, tmp_path):
    run(study, Near(PostOffice(participants(tmp_path / "homes-1"))), tmp_path / "near", "fedavg")
    post = Lying(tmp_path / "homes-2", "initial", INITIAL[what], times=99)
    said = run(study, Near(post), tmp_path / "far", "fedavg")
    asked = [name for name, header in post.headers if header["kind"] == "initial"]
    assert asked == [LIAR, "a-0"]
    assert any(text.startswith(f"client {LIAR}: ") for text in said)
    assert measured(tmp_path / "far") == measured(tmp_path / "near")


@pytest.mark.parametrize("what", INITIAL)
def test_a_client_that_alone_has_its_model_is_named(what, study, tmp_path):
    post = Lying(tmp_path / "homes", "initial", INITIAL[what], times=99)
    for name, client in post.participants.items():
        if name != LIAR:
            client.brings |= {"model": {"name": "mlp", "hidden": [9]}}
    (tmp_path / "study.toml").write_text(STUDY + "[algorithms.fedproto]\n")
    with pytest.raises(ClientFailed, match=f"client {LIAR}: ") as caught:
        run(load_recipe(tmp_path / "study.toml"), Near(post), tmp_path / "far", "fedproto")
    assert "\n" not in str(caught.value)


def test_the_server_waits_until_an_owner_approves(study, tmp_path):
    post = PostOffice(participants(tmp_path / "homes"))
    studies = Studies(tmp_path / "studies")
    client = post.participants[LIAR]
    client.policy, client.studies = Policy(), studies

    def approve() -> None:
        state = ""
        while state != WAITING:
            folder = tmp_path / "far"
            table = current_status(folder)["clients"] if (folder / "status.json").exists() else {}
            state = table.get(LIAR, {}).get("state", "")
        (entry,) = studies.all()
        studies.decide(entry.hash, "approved")

    owner = threading.Thread(target=approve, daemon=True)
    owner.start()
    said = run(study, Near(post), tmp_path / "far", "fedavg")
    owner.join(5)
    assert said.count(f"client {LIAR}: {WAITING}") == 1
    assert current_status(tmp_path / "far")["phase"] == "finished"
