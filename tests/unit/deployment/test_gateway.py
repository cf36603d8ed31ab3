"""The gateway forwards what admitted clients send, as it has checked it, and nothing else."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedconsort[flower]'")

import httpx
from tests.gateways import PULL, PUSH, Front, front
from tests.institutions import until

from consort.deployment.connections import PortLimits


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory):
    with front(tmp_path_factory.mktemp("gateway")) as made:
        yield made


def test_a_signed_request_gets_through_with_the_headers_that_were_checked(door: Front):
    headers = door.signed("a-0")
    more = {"x-forwarded-for": "1.2.3.4", "cookie": "c", "flwr-superexec-ts": "1"}
    answer = door.post(headers | more, content=b"body")
    assert (answer.status_code, answer.content) == (200, b"ok")
    path, sent, size = door.heard[-1]
    assert (path, size) == (PULL, 4)
    found = {name.lower(): value for name, value in sent.items()}
    assert {name: found[name] for name in headers} == headers
    assert not more.keys() & found.keys()


def test_a_request_is_good_once(door: Front):
    headers = door.signed("a-0")
    assert door.post(headers).status_code == 200
    for path in (PULL, "/v1/fleet/deactivate-node"):
        again = door.post(headers, path)
        assert (again.status_code, again.text) == (401, "this request was sent before")


def test_a_signature_in_another_form_is_no_other_request(door: Front):
    """Whoever has seen (r, s) can write (r, n - s), which is as valid."""
    from base64 import b64decode, b64encode

    from cryptography.hazmat.primitives.asymmetric.utils import (
        decode_dss_signature,
        encode_dss_signature,
    )

    order = int(
        "ffffffffffffffffffffffffffffffffffffffffffffffffc7634d81f4372ddf581a0db248b0a77aecec196accc52973",
        16,
    )
    headers = door.signed("a-0")
    assert door.post(headers).status_code == 200
    r, s = decode_dss_signature(b64decode(headers["flwr-signature"]))
    other = b64encode(encode_dss_signature(r, order - s)).decode()
    assert door.post(headers | {"flwr-signature": other}).text == "this request was sent before"


@pytest.mark.parametrize("age", [-60, 400])
def test_a_signature_has_its_time(age, door: Front):
    answer = door.post(door.signed("a-0", age=age))
    assert (answer.status_code, answer.text) == (401, "the clock of this client is wrong")


def test_what_was_signed_before_the_gateway_opened_is_refused(door: Front):
    """It does not know whether that was used already."""
    answer = door.post(door.signed("a-0", age=200))
    assert answer.status_code == 401


def test_the_key_of_another_client_needs_its_signature(door: Front):
    headers = door.signed("a-0")
    headers["flwr-public-key"] = door.signed("b-0")["flwr-public-key"]
    answer = door.post(headers)
    assert (answer.status_code, answer.text) == (401, "this request is not signed with this key")


@pytest.mark.parametrize("missing", ["flwr-public-key", "flwr-timestamp", "flwr-signature"])
def test_every_header_is_needed(missing, door: Front):
    headers = {k: v for k, v in door.signed("a-0").items() if k != missing}
    assert door.post(headers).status_code == 401


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("flwr-timestamp", "now"),
        ("flwr-timestamp", "2024-01-01T00:00:00"),
        ("flwr-timestamp", "9" * 5000),
        ("flwr-signature", "%"),
        ("flwr-public-key", "QUJD"),
    ],
)
def test_headers_that_are_none_are_refused(name, value, door: Front):
    assert door.post(door.signed("a-0") | {name: value}).status_code == 401


def test_a_second_key_header_is_refused(door: Front):
    """A revoked client came in with it: the gateway took the last one and Flower the first."""
    headers = door.signed("a-0")
    for name in headers:
        answer = door.post([*headers.items(), (name, headers[name])])
        assert (answer.status_code, answer.text) == (400, "two values of a header")


@pytest.mark.parametrize("path", ["/v1/fleet/register-node", "/", "/v1/fleet/pull-messages?x=1"])
def test_other_paths_are_closed(path, door: Front):
    assert door.post(door.signed("a-0"), path).status_code == 404


def test_the_length_of_a_body_must_be_known(door: Front):
    with door.client() as client:
        answer = client.post(PULL, headers=door.signed("a-0"), content=iter([b"piece"]))
    assert answer.status_code == 411


def test_large_bodies_are_refused_unread(door: Front):
    headers = door.signed("a-0") | {"content-length": str(7 << 20)}
    with door.connect() as raw:
        raw.sendall(head(PUSH, headers))
        assert b" 413 " in raw.recv(1000)


def head(path: str, headers: dict[str, str]) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "host: localhost", *(f"{k}: {v}" for k, v in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode()


def test_a_client_sends_as_much_as_an_answer_and_no_more(door: Front):
    door.gateway.largest_answer = 4 << 20
    piece = bytes(1 << 20)
    assert door.post(door.signed("b-0"), PUSH, piece).status_code == 413  # it was not asked
    assert "b-0" in door.gateway.too_large
    door.gateway.allow("b-0")
    assert "b-0" not in door.gateway.too_large
    answers = [door.post(door.signed("b-0"), PUSH, piece).status_code for _ in range(8)]
    assert answers == [200] * 5 + [413] * 3
    assert "b-0" in door.gateway.too_large


def test_a_message_to_another_client_is_not_forwarded(door: Front):
    from flwr.proto.fleet_pb2 import PushMessagesRequest
    from flwr.proto.message_pb2 import Message, Metadata, ObjectTree
    from flwr.proto.node_pb2 import Node

    def pushed(node: int, **about: object) -> int:
        metadata = {"src_node_id": 7, "dst_node_id": 1, "reply_to_message_id": "x"} | about
        request = PushMessagesRequest(
            node=Node(node_id=node),
            messages_list=[Message(metadata=Metadata(**metadata))],
            message_object_trees=[ObjectTree()],
        )
        body = request.SerializeToString()
        return door.post(door.signed("a-0"), "/v1/fleet/push-messages", body).status_code

    door.gateway.nodes = {"a-0": 7, "b-0": 8}
    door.gateway.allow("a-0")
    assert pushed(7) == 200
    assert pushed(8) == 403
    assert pushed(7, src_node_id=8) == 403
    assert pushed(7, dst_node_id=8) == 403
    assert pushed(7, reply_to_message_id="") == 403


def test_a_revoked_client_is_cut_off_at_once_also_on_a_connection_that_is_open(tmp_path: Path):
    with front(tmp_path) as door, door.client() as client, door.connect() as idle:
        idle.sendall(head(PULL, door.signed("a-0") | {"content-length": "0"}))
        assert b" 200 " in idle.recv(1000)
        assert client.post(PULL, headers=door.signed("a-0")).status_code == 200
        door.institutions.server.revoke("a-0")
        refused = client.post(PULL, headers=door.signed("a-0"))
        assert (refused.status_code, refused.text) == (401, "this key is not admitted")
        idle.settimeout(5)
        assert idle.recv(1000) == b""
        assert client.post(PULL, headers=door.signed("b-0")).status_code == 200


def test_files_that_cannot_be_read_are_reported_and_stop_nobody(tmp_path: Path):
    told: list[str] = []
    with front(tmp_path, report=told.append) as door:
        folder = door.institutions.server.folder / "clients"
        (folder / "zebra.pem").write_text("nonsense")
        (folder / "folder.pem").mkdir()
        assert door.post(door.signed("a-0")).status_code == 200
        assert door.post(door.signed("a-0")).status_code == 200
        assert sorted(told) == [
            f"{folder / name} is not a certificate that can be read"
            for name in ("folder.pem", "zebra.pem")
        ]
        assert set(door.gateway.keys) == {"a-0", "b-0"}


def test_the_oldest_stranger_gives_way_and_clients_do_not(tmp_path: Path):
    limits = PortLimits(strangers=3, of_peer=3, of_client=2)
    with front(tmp_path, limits=limits) as door:
        client = door.connect()
        client.sendall(head(PULL, door.signed("a-0") | {"content-length": "0"}))
        assert b" 200 " in client.recv(1000)
        strangers = [door.connect() for _ in range(5)]
        for gone in strangers[:2]:
            assert gone.recv(10) == b""
        client.sendall(head(PULL, door.signed("a-0") | {"content-length": "0"}))
        assert b" 200 " in client.recv(1000)
        until(lambda: len(door.gateway._connections.strangers) == 3, 5)
        for connection in (client, *strangers):
            connection.close()
        until(lambda: not door.gateway._connections.strangers, 5)


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_no_file_descriptor_is_lost(tmp_path: Path):
    with front(tmp_path, limits=PortLimits(strangers=5, of_peer=5)) as door:
        door.post(door.signed("a-0"))
        before = open_files()
        for _ in range(10):
            several = [door.connect() for _ in range(8)]
            for connection in several:
                connection.close()
        until(lambda: open_files() <= before + 2, 10)


def test_a_port_in_use_is_named(tmp_path: Path):
    from tests.gateways import Behind

    from consort.deployment.gateway import Gateway
    from consort.errors import Failure

    with front(tmp_path) as door, Behind(tmp_path / "other") as behind:
        credentials = door.institutions.server
        second = Gateway(door.gateway.listen, behind.address, b"", credentials)
        with pytest.raises(Failure, match=f"cannot listen on {door.gateway.listen}: Address"):
            second.start()


def test_what_stands_behind_may_be_away(tmp_path: Path):
    with front(tmp_path) as door:
        door.gateway._superlink.base_url = httpx.URL("https://127.0.0.1:1")
        begun = time.monotonic()
        assert door.post(door.signed("a-0")).status_code == 503
        assert time.monotonic() - begun < 5
