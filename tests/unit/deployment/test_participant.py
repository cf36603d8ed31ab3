"""A client answers the same question with the same bytes, and writes down what it does."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography", reason="pip install 'fedconsort[flower]'")

from tests.adversaries.evil_server import CLIENT, EvilServer, House, honest_recipe, victim
from tests.institutions import Institutions

from consort.core.messages import Payload
from consort.deployment.credentials import ClientCredentials
from consort.deployment.site_log import SiteLog, read_lines, verified
from consort.engines.host import ClientHost

NOISY = '[algorithms.fedavg]\n[privacy]\nlevel = "client"\nclip = 1.0\nnoise = 1.0\n'


@pytest.fixture
def server(tmp_path: Path) -> EvilServer:
    recipe = honest_recipe(tmp_path / "mail", "[algorithms.ditto]\n")
    return EvilServer(victim(House(tmp_path / "house")), recipe, "ditto")


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The methods that were really run."""
    found: list[str] = []
    real = ClientHost.answer

    def answer(self: ClientHost, calls: Any) -> Any:
        found.extend(call.method for call in calls)
        return real(self, calls)

    monkeypatch.setattr(ClientHost, "answer", answer)
    return found


def model_of(server: EvilServer) -> Payload:
    return {"model": server.initial().payload["model"]}


def test_a_question_that_is_asked_again_has_the_same_answer(server, computed):
    model = model_of(server)
    first = server.call(model)
    again = server.call(model, seconds=30.0)
    assert first.payload
    assert again == first
    assert computed == ["train"]


def test_also_after_the_client_was_started_again(server, computed, tmp_path):
    model = model_of(server)
    first = server.call(model)
    server.client = victim(House(tmp_path / "house"))
    assert server.call(model) == first
    assert computed == ["train"]


def test_even_if_it_was_too_late_the_first_time(server, computed):
    model = model_of(server)
    assert server.call(model, seconds=0).error == "was too late"
    assert server.call(model).payload
    assert computed == ["train"]


@pytest.mark.parametrize(
    "changes",
    [
        {"call": [CLIENT, "train", 2, 0, 0]}, {"call": [CLIENT, "train", 1, 1, 0]},
        {"call": [CLIENT, "train", 1, 0, 1]}, {"counted": [1, 0]}, {"session": "0" * 32},
    ],
)  # fmt: skip
def test_any_other_question_is_another_one(changes, server, computed):
    model = model_of(server)
    server.call(model)
    assert server.call(model, **changes).payload
    assert computed == ["train", "train"]


def test_other_weights_are_another_question(server, computed):
    model = model_of(server)
    assert server.call(model) != server.call({"model": model["model"] * 2.0})
    assert computed == ["train", "train"]


def test_an_error_is_not_kept(server, computed):
    assert server.call({}).error
    assert server.call({}).error
    assert computed == ["train", "train"]


def test_what_is_kept_is_the_owners_only_and_checked(server):
    model = model_of(server)
    server.call(model)
    (kept,) = server.client.folder.glob("*/last-answer")
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    kept.write_bytes(kept.read_bytes()[:-1] + b"?")
    assert server.call(model).error == "Failure (see the client's own log)"


@pytest.fixture(params=["[algorithms.fedavg]\n"])
def logged(request: pytest.FixtureRequest, tmp_path: Path) -> EvilServer:
    Institutions(tmp_path / "institutions", [CLIENT])
    home = tmp_path / "institutions" / CLIENT
    log = SiteLog(home, ClientCredentials.open(home, CLIENT).private_key)
    recipe = honest_recipe(tmp_path / "mail", request.param)
    return EvilServer(victim(House(tmp_path / "house"), record=log), recipe)


def home_of(server: EvilServer) -> Path:
    assert server.client.record
    return server.client.record.path.parents[1]


@pytest.mark.parametrize("logged", [NOISY], indirect=True)
def test_every_question_and_answer_is_written_down(logged):
    pytest.importorskip("opacus")
    logged.describe()
    model = model_of(logged)
    logged.call(model)
    logged.call(model)
    logged.call(model, call=[CLIENT, "test", 1, 1, 0], counted=[1, 0])
    logged.describe(study=logged.proposing({"model": {"name": "os:system"}}))
    logged.send(b"nonsense")
    entries = list(verified(home_of(logged)))
    events = [(entry["event"], entry.get("method", entry.get("kind"))) for entry in entries]
    assert events == [
        ("key", None), ("joined", None), ("answered", "describe"), ("answered", "initial"),
        ("asked", "train"), ("answered", "train"), ("answered", "train"), ("asked", "test"),
        ("answered", "test"), ("refused", "describe"), ("refused", None),
    ]  # fmt: skip
    joined, asked, answered, again, scored = (entries[n] for n in (1, 4, 5, 6, 8))
    assert joined["protections"] == ["privacy"]
    assert joined["algorithm"] == "fedavg"
    sizes = {"encoder": 224, "heads": 144}
    assert asked["down"] == answered["up"] == again["up"] == sizes
    assert asked["round"] == 1
    assert again["again"] is True
    assert again["answer"] == answered["answer"]
    assert scored["epsilon"] > 0
    assert scored["study"] == logged.study["digest"]
    assert "name code" in entries[9]["reason"]
    assert entries[9]["session"] == logged.session


def test_what_a_server_repeats_is_written_down_once(logged):
    evil = logged.proposing({"model": {"name": "os:system"}})
    for _ in range(5):
        logged.describe(study=evil)
    logged.describe(study=logged.proposing({"model": {"name": "os:popen"}}))
    assert [entry["event"] for entry in read_lines(home_of(logged))] == [
        "key",
        "refused",
        "refused",
    ]


def test_nothing_is_answered_that_cannot_be_written_down(logged, monkeypatch):
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    model = model_of(logged)
    monkeypatch.setattr(SiteLog, "add", full)
    for answer in (logged.describe(), logged.call(model)):
        assert answer.error == "its disk is full"
        assert not answer.content
    monkeypatch.undo()
    assert logged.call(model).payload


def test_a_log_that_was_changed_meanwhile_stops_the_answers(logged):
    logged.describe()
    path = home_of(logged) / "log" / "log.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    answer = logged.describe()
    assert answer.error == "Failure (see the client's own log)"
    assert not answer.content
