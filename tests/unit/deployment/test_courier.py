"""A client without any connection takes part by signed files, with the same numbers."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedconsort[flower]'")

import torch
from tests.institutions import NAMES, STUDY, Institutions, groups
from tests.kept import kept_states
from tests.letters import PostOffice, participants
from tests.unit.cli.command import measured, server_bytes

from consort.cli import main
from consort.core.wire import encode
from consort.deployment.client import answer_to
from consort.deployment.courier import (
    Courier,
    bring_back,
    read_parts,
    waiting_for,
    write_parts,
)
from consort.deployment.credentials import ClientCredentials
from consort.deployment.envelope import ClientEnvelopes, Question, ServerEnvelopes
from consort.deployment.server import FederationServer
from consort.deployment.stack import MixedPost
from consort.engines.flower import Ledger
from consort.errors import Refused, UsageError
from consort.experiment.loading import load_recipe, recipe_of
from consort.experiment.preparation import prepare_run
from consort.run.observer import Observer

HERMIT = "b-0"
SESSION = "0" * 32
PARTS = {"header": b"{}", "own": b"", "content": b"tensors"}


@pytest.fixture(scope="module")
def institutions(tmp_path_factory: pytest.TempPathFactory) -> Institutions:
    return Institutions(tmp_path_factory.mktemp("place"))


def envelopes(institutions: Institutions, name: str = HERMIT) -> ClientEnvelopes:
    return ClientEnvelopes.of(ClientCredentials.open(institutions.folder / name, name))


def asked(courier: Courier, institutions: Institutions, number: int = 1) -> str:
    server = ServerEnvelopes.of(institutions.server, institutions.server.admitted())
    (sealed,) = server.seal([(HERMIT, SESSION, number, PARTS)])
    (id_,) = courier.push([(courier.nodes[HERMIT], sealed)], 60)
    return id_


@pytest.fixture
def courier(institutions: Institutions, tmp_path: Path) -> Courier:
    keys = institutions.server.admitted()
    return Courier(tmp_path / "out", {HERMIT: keys[HERMIT]})


# Files


def test_parts_come_back_as_they_were(tmp_path):
    write_parts(tmp_path / "file", PARTS)
    assert read_parts(tmp_path / "file") == PARTS
    assert not (tmp_path / "file").stat().st_mode & 0o077


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"nonsense",
        b"\xff" * 1000,
        (1 << 40).to_bytes(8, "little") + b"{}",
        encode([1, 2]),
        encode({"header": "text"}),
        encode({"header": 1}),
        encode({f"part-{n}": torch.zeros(1, dtype=torch.uint8) for n in range(50)}),
        encode({"header": torch.zeros(2, 2, dtype=torch.uint8)}),
        encode({"header": torch.zeros(4)}),
    ],
)
def test_other_files_are_refused(content, tmp_path):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(Refused, match="is not a file made by consort site pack"):
        read_parts(tmp_path / "file")


def test_a_file_that_is_too_large_is_not_read(tmp_path):
    write_parts(tmp_path / "file", PARTS)
    with pytest.raises(Refused, match="is not a file of at most 100 bytes"):
        read_parts(tmp_path / "file", 100)
    with pytest.raises(Refused, match="is not a file of at most"):
        read_parts(Path("/dev/zero"))


# There and back


def test_there_and_back(courier, institutions, tmp_path):
    id_ = asked(courier, institutions)
    assert courier.pull([id_]) == []
    (tmp_path / "carried").write_bytes(waiting_for(courier.run, HERMIT))
    own = envelopes(institutions)
    question, parts = own.open(read_parts(tmp_path / "carried"))
    assert parts == PARTS
    write_parts(tmp_path / "back", own.seal(question, {"content": b"answer"}))
    assert bring_back(courier.run, tmp_path / "back") == HERMIT
    (arrival,) = courier.pull([id_])
    assert arrival.reply_to == id_
    assert arrival.parts["content"] == b"answer"
    assert courier.pull([id_]) == []
    with pytest.raises(UsageError, match="no message waits for b-0"):
        bring_back(courier.run, tmp_path / "back")


@pytest.mark.parametrize(
    ("question", "signer", "why"),
    [
        (Question(SESSION, 2), HERMIT, "belongs to another question"),
        (Question("f" * 32, 1), HERMIT, "belongs to another question"),
        (Question(SESSION, 1), "a-0", "a-0 is not reached by hand"),
    ],
)
def test_an_answer_to_something_else_is_not_taken_in(
    question, signer, why, courier, institutions, tmp_path
):
    id_ = asked(courier, institutions)
    write_parts(tmp_path / "back", envelopes(institutions, signer).seal(question, PARTS))
    with pytest.raises((Refused, UsageError), match=why):
        bring_back(courier.run, tmp_path / "back")
    assert courier.pull([id_]) == []


def test_an_answer_that_was_changed_on_the_way_is_not_taken_in(courier, institutions, tmp_path):
    asked(courier, institutions)
    sealed = envelopes(institutions).seal(Question(SESSION, 1), PARTS)
    write_parts(tmp_path / "back", sealed | {"content": b"other"})
    with pytest.raises(Refused, match="not signed by b-0"):
        bring_back(courier.run, tmp_path / "back")


def test_a_newer_message_takes_the_place_of_an_older_one(courier, institutions, tmp_path):
    asked(courier, institutions, 1)
    id_ = asked(courier, institutions, 2)
    write_parts(tmp_path / "back", envelopes(institutions).seal(Question(SESSION, 1), PARTS))
    with pytest.raises(Refused, match="belongs to another question"):
        bring_back(courier.run, tmp_path / "back")
    write_parts(tmp_path / "back", envelopes(institutions).seal(Question(SESSION, 2), PARTS))
    bring_back(courier.run, tmp_path / "back")
    assert len(courier.pull([id_])) == 1


def test_a_name_is_no_path(courier):
    with pytest.raises(UsageError, match="client name"):
        waiting_for(courier.run, "../../etc")


# A run


@contextmanager
def carrying(run: Path, institutions: Institutions, homes: Path) -> Iterator[None]:
    """Somebody carries files, and every time the client is started anew."""
    over = threading.Event()

    def carry() -> None:
        while not over.is_set():
            time.sleep(0.02)
            try:
                (homes / "carried").write_bytes(waiting_for(run, HERMIT))
            except UsageError:
                continue
            (hermit,) = participants(homes, [HERMIT]).values()
            parts = read_parts(homes / "carried")
            write_parts(homes / "back", answer_to(parts, envelopes(institutions), hermit))
            bring_back(run, homes / "back")
            while (run / "by-hand" / HERMIT / "question").exists() and not over.is_set():
                time.sleep(0.02)

    thread = threading.Thread(target=carry)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("algorithm", ["ditto", "fedavg"])
def test_two_clients_online_and_one_by_hand_have_the_numbers_of_a_simulation(
    algorithm, institutions, tmp_path
):
    (tmp_path / "study.toml").write_text(STUDY + f"[algorithms.{algorithm}]\n")
    study = load_recipe(tmp_path / "study.toml")
    homes, out = tmp_path / "homes", tmp_path / "far"
    online = PostOffice(participants(homes, [name for name in NAMES if name != HERMIT]))
    online.envelopes = {name: envelopes(institutions, name) for name in online.participants}
    keys = institutions.server.admitted()
    said: list[str] = []
    courier = Courier(out, {HERMIT: keys[HERMIT]}, said.append)
    stack: Any = SimpleNamespace(
        grid=MixedPost(online, courier),  # type: ignore[arg-type]
        nodes=online.nodes | courier.nodes,
        envelopes=ServerEnvelopes.of(institutions.server, keys),
        admits=lambda _: True,
        bound_answers=lambda _: None,
    )
    server = FederationServer(
        study, algorithm, 0, out, institutions.server, 60, said.append, [HERMIT]
    )
    server.status.begin(list(NAMES), algorithm=algorithm, rounds=2)
    homes.mkdir(exist_ok=True)
    with carrying(out, institutions, homes):
        server.run(stack, Observer())
    assert f"a message waits for b-0: consort site pack {out} b-0 FILE" in said

    settings = {k: v for k, v in study.table.items() if v is not None and k != "clients"}
    near = recipe_of(settings | {"groups": groups()}, "near")
    prepare_run(near, algorithm, 0, tmp_path / "near").go()
    assert measured(out) == measured(tmp_path / "near")
    assert server_bytes(out) == server_bytes(tmp_path / "near")
    session = Ledger.open(out / "exchanges.json").session
    found = kept_states(homes / HERMIT / session).get(HERMIT, {})
    assert found == kept_states(tmp_path / "near" / "clients").get(HERMIT, {})


@pytest.fixture
def umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def consort(monkeypatch: pytest.MonkeyPatch, *words: object) -> None:
    monkeypatch.setattr(sys, "argv", ["consort", *map(str, words)])
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise


@pytest.mark.usefixtures("umask")
def test_the_commands(courier, institutions, tmp_path, monkeypatch, capsys):
    (tmp_path / "study.toml").write_text(STUDY + "[algorithms.fedavg]\n")
    study = load_recipe(tmp_path / "study.toml")
    server = FederationServer(
        study, "fedavg", 0, courier.run, institutions.server, 60, print, [HERMIT]
    )
    sealing = ServerEnvelopes.of(institutions.server, institutions.server.admitted())
    header = encode_header(server)
    (sealed,) = sealing.seal([(HERMIT, SESSION, 1, {"header": header})])
    (id_,) = courier.push([(courier.nodes[HERMIT], sealed)], 60)

    there, back = tmp_path / "there", tmp_path / "back"
    consort(monkeypatch, "site", "pack", courier.run, HERMIT, there)
    client = (
        *("--credentials", institutions.folder / HERMIT, "--name", HERMIT),
        *("--data", institutions.folder / f"{HERMIT}-data", "--out", back),
        *("--recipe", tmp_path / "study.toml"),
    )
    consort(monkeypatch, "site", "unpack", there, *client)
    consort(monkeypatch, "site", "unpack", back, "--run", courier.run)
    assert "the answer of b-0 is taken in" in capsys.readouterr().out
    (arrival,) = courier.pull([id_])
    opened = sealing.open(HERMIT, SESSION, 1, arrival.parts)
    assert b'"error": ""' in opened["header"] or b'"error":""' in opened["header"]

    with pytest.raises(SystemExit):
        consort(monkeypatch, "site", "pack", courier.run, HERMIT, there)
    assert "no message waits for b-0" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        consort(monkeypatch, "site", "unpack", there)
    assert "a client gives --credentials, --data, --name and --out" in capsys.readouterr().err
    there.write_bytes(b"nonsense")
    with pytest.raises(SystemExit):
        consort(monkeypatch, "site", "unpack", there, *client)
    assert "is not a file made by consort site pack" in capsys.readouterr().err


def encode_header(server: FederationServer) -> bytes:
    import json

    table = {"kind": "describe", "session": SESSION, "number": 1, "seconds": 60.0, "known": False}
    return json.dumps(table | {"study": server.study.table, "told": None}).encode()


def test_a_client_that_is_not_admitted_cannot_be_reached_by_hand(institutions, tmp_path):
    (tmp_path / "study.toml").write_text(STUDY + "[algorithms.fedavg]\n")
    study = load_recipe(tmp_path / "study.toml")
    server = FederationServer(
        study, "fedavg", 0, tmp_path / "out", institutions.server, 60, print, ["b-1"]
    )
    with pytest.raises(UsageError, match="--by-hand 'b-1': did you mean 'b-0'"):
        server.go("localhost:1", Observer())
