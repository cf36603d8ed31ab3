"""Messages are opened only if they are signed by their sender, for this receiver, in this place."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("cryptography", reason="pip install 'fedconsort[flower]'")

from tests.institutions import Institutions

from consort.deployment.credentials import ClientCredentials, ServerCredentials
from consort.deployment.envelope import ENVELOPE, ClientEnvelopes, Question, ServerEnvelopes
from consort.engines.flower import Parts
from consort.errors import Refused

SESSION = "0123456789abcdef" * 2
PARTS = {"header": b"{}", "content": b"tensors"}


@pytest.fixture(scope="module")
def institutions(tmp_path_factory: pytest.TempPathFactory) -> Institutions:
    return Institutions(tmp_path_factory.mktemp("place"), ("a-0", "b-0"))


def server_of(institutions: Institutions) -> ServerEnvelopes:
    return ServerEnvelopes.of(institutions.server, institutions.server.admitted())


def client_of(institutions: Institutions, name: str = "a-0") -> ClientEnvelopes:
    return ClientEnvelopes.of(ClientCredentials.open(institutions.folder / name, name))


def asked(server: ServerEnvelopes, name: str = "a-0", number: int = 7) -> Parts:
    (sealed,) = server.seal([(name, SESSION, number, dict(PARTS))])
    return sealed


def test_both_directions(institutions):
    server, client = server_of(institutions), client_of(institutions)
    question, parts = client.open(asked(server))
    assert parts == PARTS
    assert question == Question(SESSION, 7)
    answer = client.seal(question, {"content": b"answer"})
    assert server.open("a-0", SESSION, 7, answer) == {"content": b"answer"}


def changed(sealed: Parts, **fields: Any) -> Parts:
    return sealed | {ENVELOPE: json.dumps(json.loads(sealed[ENVELOPE]) | fields).encode()}


CHANGES: dict[str, Callable[[Parts], Parts]] = {
    "a part is changed": lambda sealed: sealed | {"content": b"Tensors"},
    "a part is added": lambda sealed: sealed | {"more": b""},
    "a part is gone": lambda sealed: {k: v for k, v in sealed.items() if k != "content"},
    "a part has another name": lambda sealed: {
        {"content": "contents"}.get(k, k): v for k, v in sealed.items()
    },
    "parts are exchanged": lambda sealed: (
        sealed | {"content": sealed["header"], "header": sealed["content"]}
    ),
    "no envelope": lambda sealed: {k: v for k, v in sealed.items() if k != ENVELOPE},
    "an empty envelope": lambda sealed: sealed | {ENVELOPE: b""},
    "an endless envelope": lambda sealed: sealed | {ENVELOPE: b"[" * 100_000},
    "no text": lambda sealed: sealed | {ENVELOPE: b"\xff\xfe"},
    "another session": lambda sealed: changed(sealed, session="f" * 32),
    "another number": lambda sealed: changed(sealed, number=8),
    "a number that is none": lambda sealed: changed(sealed, number="7"),
    "another version": lambda sealed: changed(sealed, version=2),
    "another field": lambda sealed: changed(sealed, more=1),
    "another signature": lambda sealed: changed(sealed, signature="00" * 70),
    "no signature": lambda sealed: changed(sealed, signature=""),
    "many parts": lambda sealed: sealed | {f"part-{n}": b"" for n in range(100)},
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_was_changed_on_the_way_is_refused(change, institutions):
    server, client = server_of(institutions), client_of(institutions)
    with pytest.raises(Refused):
        client.open(CHANGES[change](asked(server)))
    answer = client.seal(Question(SESSION, 7), dict(PARTS))
    with pytest.raises(Refused):
        server.open("a-0", SESSION, 7, CHANGES[change](answer))


def test_another_client_cannot_answer_in_its_name(institutions):
    server, other = server_of(institutions), client_of(institutions, "b-0")
    answer = other.seal(Question(SESSION, 7), dict(PARTS))
    assert server.open("b-0", SESSION, 7, answer) == PARTS
    with pytest.raises(Refused, match="not signed by a-0"):
        server.open("a-0", SESSION, 7, answer)
    with pytest.raises(Refused, match="not signed by a-0"):
        server.open("a-0", SESSION, 7, changed(answer, sender="a-0"))


def test_an_answer_is_for_one_question(institutions):
    server, client = server_of(institutions), client_of(institutions)
    answer = client.seal(Question(SESSION, 7), dict(PARTS))
    for session, number in ((SESSION, 8), ("f" * 32, 7)):
        with pytest.raises(Refused, match="another question"):
            server.open("a-0", session, number, answer)


def test_what_was_sent_to_another_client_is_refused(institutions):
    with pytest.raises(Refused, match="is for b-0"):
        client_of(institutions).open(asked(server_of(institutions), "b-0"))


def test_a_question_cannot_come_back_as_an_answer_nor_an_answer_as_a_question(institutions):
    server, client = server_of(institutions), client_of(institutions)
    with pytest.raises(Refused):
        server.open("a-0", SESSION, 7, asked(server))
    with pytest.raises(Refused):
        client.open(client.seal(Question(SESSION, 7), dict(PARTS)))


def test_a_client_cannot_ask_another_client(institutions):
    """Although its certificate is signed by the same authority."""
    folder = institutions.folder / "b-0"
    credentials = ClientCredentials.open(folder, "b-0")
    false = ServerEnvelopes(credentials.private_key, credentials.certificate.read_bytes(), {})
    with pytest.raises(Refused, match="not signed by the server"):
        client_of(institutions).open(asked(false))


def test_a_server_of_another_authority_is_refused(institutions, tmp_path):
    other = ServerCredentials.create(tmp_path / "other", ["localhost"], 2)
    with pytest.raises(Refused, match="not signed by the server"):
        client_of(institutions).open(asked(ServerEnvelopes.of(other, {})))


def test_an_expired_certificate_of_the_server_is_refused(tmp_path):
    made = Institutions(tmp_path, ("a-0",), days=0)
    with pytest.raises(Refused, match="not signed by the server"):
        client_of(made).open(asked(server_of(made)))


def test_what_several_messages_share_is_hashed_once(institutions):
    import time

    server, shared = server_of(institutions), bytes(64 << 20)
    begun = time.process_time()
    server.seal([("a-0", SESSION, 1, {"shared": shared})])
    one = time.process_time() - begun
    begun = time.process_time()
    server.seal([("a-0", SESSION, number, {"shared": shared}) for number in range(2, 22)])
    assert time.process_time() - begun < 5 * one


def test_a_key_that_is_not_known_opens_nothing(institutions):
    answer = client_of(institutions).seal(Question(SESSION, 7), dict(PARTS))
    with pytest.raises(Refused):
        ServerEnvelopes.of(institutions.server, {}).open("a-0", SESSION, 7, answer)


def test_it_is_quick(institutions, record_property):
    import time

    server, client = server_of(institutions), client_of(institutions)
    client.open(asked(server))
    begun = time.process_time()
    for number in range(1, 51):
        question, parts = client.open(asked(server, number=number))
        server.open("a-0", SESSION, number, client.seal(question, parts))
    each = (time.process_time() - begun) / 50
    record_property("seconds per exchange", each)
    assert each < 0.005  # about 1 ms
