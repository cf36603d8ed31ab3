"""Figures of a server for Prometheus, read with Prometheus's own parser and over a real socket."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.helpers import tiny_federation
from tests.unit.cli.command import consort

from consort.algorithms.fedavg import FedAvg
from consort.deployment.metrics import FAMILIES, Counters, MetricsObserver, figures
from consort.deployment.metrics_page import MetricsPage, metrics_address
from consort.deployment.status_file import StatusFile
from consort.engines.middleware import Absent, RefusedReply
from consort.errors import ClientFailed, Failure, UsageError
from consort.run.run import Run
from consort.run.schedule import Schedule

Series = dict[tuple[str, ...], float]


def parsed(text: str) -> Series:
    """Every sample: its name and its label values, with its value."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


# Counting


def test_what_was_counted_is_read_by_prometheus():
    counters = Counters()
    counters.add("consort_gateway_refused_total", reason="rate")
    counters.add("consort_gateway_refused_total", 2, reason="rate")
    counters.set("consort_rounds_done", 7)
    read = parsed(counters.text())
    assert read["consort_gateway_refused_total", "rate"] == 3
    assert read["consort_rounds_done",] == 7


def test_the_gateway_counts_a_refusal_by_its_reason():
    counters = Counters()
    counters.refused("signature")
    assert parsed(counters.text())["consort_gateway_refused_total", "signature"] == 1


def test_only_announced_names_are_counted():
    with pytest.raises(KeyError):
        Counters().add("consort_secrets_total")


def test_every_family_says_its_kind_and_its_meaning():
    counters = Counters()
    for name, family in FAMILIES.items():
        counters.set(name, 1, **{family.label: "x"} if family.label else {})
    found = list(text_string_to_metric_families(counters.text()))
    assert {family.name for family in found} >= {name.removesuffix("_total") for name in FAMILIES}
    assert all(family.documentation and family.type in ("counter", "gauge") for family in found)


@pytest.mark.parametrize("value", ['a"b', "a\\b", "a\nb 1", "é", 'x"} 1\nconsort_rounds_done 9'])
def test_labels_cannot_forge_other_samples(value):
    counters = Counters()
    counters.add("consort_bytes_up_total", 5, role=value)
    read = parsed(counters.text())
    assert read["consort_bytes_up_total", value] == 5
    assert ("consort_rounds_done",) not in read


def test_a_client_that_invents_roles_does_not_fill_the_memory():
    counters = Counters()
    for number in range(1000):
        counters.add("consort_bytes_up_total", 1, role=f"role {number}")
    read = parsed(counters.text())
    assert 10 < len([key for key in read if key[0] == "consort_bytes_up_total"]) <= 101
    assert sum(value for key, value in read.items() if key[0] == "consort_bytes_up_total") == 1000
    assert read["consort_bytes_up_total", "others"] > 800


def test_a_role_of_any_length_is_cut():
    counters = Counters()
    counters.add("consort_bytes_up_total", 1, role="x" * 100_000)
    assert len(counters.text()) < 2_000


def test_threads_count_together():
    counters = Counters()

    def count() -> None:
        for _ in range(2_000):
            counters.refused("rate")

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert parsed(counters.text())["consort_gateway_refused_total", "rate"] == 16_000


def test_memory_and_uptime_are_of_this_process():
    counters = Counters()
    time.sleep(0.01)
    read = parsed(counters.text())
    assert 1 > read["consort_uptime_seconds",] >= 0.01
    assert read["consort_peak_memory_bytes",] > 10_000_000


# What a run tells


def test_a_run_is_counted_round_by_round():
    counters = Counters()
    run = Run(tiny_federation(), FedAvg(), Schedule(rounds=2), observer=MetricsObserver(counters))
    rows = run.go()
    read = parsed(counters.text())
    clients = len(run.federation.client_ids)
    assert read["consort_rounds_done",] == read["consort_rounds_planned",] == 2
    assert read["consort_replies_total", "train"] == 2 * clients
    for way in ("up", "down"):
        sent = [row for row in rows if row.metric == f"bytes_{way}"]
        roles = {row.part for row in sent}
        assert roles
        for role in roles:
            total = sum(row.value for row in sent if row.part == role)
            assert read[f"consort_bytes_{way}_total", role] == total
    seconds = sum(row.value for row in rows if row.metric == "seconds" and not row.client)
    assert read["consort_round_seconds_total",] == pytest.approx(seconds)


def test_a_resumed_run_begins_with_the_rounds_that_are_done():
    counters = Counters()
    MetricsObserver(counters).started(5, 9)
    read = parsed(counters.text())
    assert (read["consort_rounds_done",], read["consort_rounds_planned",]) == (4, 9)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (Absent("a", "x"), "absent"),
        (RefusedReply("a", "x"), "refused"),
        (ClientFailed("a", "x"), "failed"),
    ],
)
def test_failures_are_counted_by_kind_without_names_or_reasons(error, kind):
    counters = Counters()
    MetricsObserver(counters).failed(error)
    assert parsed(counters.text())["consort_failures_total", kind] == 1
    assert 'client="' not in counters.text()


def test_neither_names_nor_scores_of_clients_are_shown():
    counters = Counters()
    run = Run(tiny_federation(), FedAvg(), Schedule(rounds=1), observer=MetricsObserver(counters))
    rows = run.go()
    text = counters.text()
    assert {row.metric for row in rows if row.split} >= {"accuracy"}
    assert "accuracy" not in text
    assert not [client for client in run.federation.client_ids if f'"{client}"' in text]


def test_clients_are_counted_by_state_and_without_what_they_say(tmp_path: Path):
    status, counters = StatusFile(tmp_path / "status.json"), Counters()
    status.begin(["a", "b", "c"], algorithm="fedavg")
    status.client("a", "failed: a reason that the client made up")
    status.client("b", "working")
    status.seen("b")
    read = parsed(figures(counters, status))
    states = {key[1]: value for key, value in read.items() if key[0] == "consort_clients"}
    assert states == {"failed": 1, "working": 1, "never seen": 1}
    assert read["consort_clients_connected",] == 1
    status.client("a", "working")
    read = parsed(figures(counters, status))
    states = {key[1]: value for key, value in read.items() if key[0] == "consort_clients"}
    assert states == {"working": 2, "never seen": 1}


# The page


def fetch(page: MetricsPage, request: bytes, wait: float = 5) -> bytes:
    with socket.create_connection(("127.0.0.1", page.port), wait) as connection:
        connection.sendall(request)
        answer = b""
        while part := connection.recv(65_536):
            answer += part
        return answer


@pytest.fixture
def page():
    counters = Counters()
    counters.set("consort_rounds_done", 3)
    with MetricsPage(("127.0.0.1", 0), counters.text) as opened:
        yield opened


def test_the_page_is_served_as_prometheus_wants_it(page):
    head, _, body = fetch(page, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert b"text/plain; version=0.0.4" in head
    assert f"Content-Length: {len(body)}".encode() in head
    assert parsed(body.decode())["consort_rounds_done",] == 3


@pytest.mark.parametrize(
    "request_line", [b"GET / HTTP/1.1", b"POST /metrics HTTP/1.1", b"GET /metrics/../x HTTP/1.1"]
)
def test_nothing_else_is_served(request_line, page):
    assert fetch(page, request_line + b"\r\n\r\n").startswith(b"HTTP/1.1 404 ")


def test_a_request_without_end_is_cut_off(page):
    answer = fetch(page, b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 100_000)
    assert answer.startswith(b"HTTP/1.1 400 ") or answer == b""


def test_slow_strangers_do_not_keep_others_waiting(page):
    """More of them than are served at once: after two seconds they are sent away."""
    slow = [socket.create_connection(("127.0.0.1", page.port)) for _ in range(40)]
    for connection in slow:
        connection.sendall(b"GET")
    try:
        end = time.monotonic() + 6
        while not (answer := fetch_or_nothing(page)).startswith(b"HTTP/1.1 200 "):
            assert time.monotonic() < end, answer
            time.sleep(0.1)
    finally:
        for connection in slow:
            connection.close()


def fetch_or_nothing(page: MetricsPage) -> bytes:
    try:
        return fetch(page, b"GET /metrics HTTP/1.0\r\n\r\n")
    except OSError:
        return b""


def test_the_port_is_closed_afterwards(page):
    port = page.port
    page.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 1)


def test_a_port_in_use_is_named(page):
    with pytest.raises(Failure, match=f"127.0.0.1:{page.port}"):
        MetricsPage(("127.0.0.1", page.port), str).__enter__()


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("9100", ("127.0.0.1", 9100)),
        ("10.0.0.5:9100", ("10.0.0.5", 9100)),
        ("[::1]:9100", ("::1", 9100)),
    ],
)
def test_only_this_machine_unless_a_host_is_given(text, address):
    assert metrics_address(text, "fl.example.org:9092") == address


@pytest.mark.parametrize("text", ["", "x", "host:", ":9100", "host:x", "1.2.3.4:99999"])
def test_what_is_no_address_is_refused(text):
    with pytest.raises(UsageError, match="--metrics"):
        metrics_address(text, "fl.example.org:9092")


def test_the_command_refuses_it_before_anything_else():
    pytest.importorskip("flwr", reason="pip install 'fedconsort[flower]'")
    paths = ("--credentials", "nowhere", "--out", "nowhere")
    done = consort("server", "demo", "--listen", "localhost:9092", "--metrics", "9092", *paths)
    assert done.code == 2
    assert "--listen" in done.error


def test_the_port_of_the_clients_is_refused():
    with pytest.raises(UsageError, match="other port than --listen"):
        metrics_address("9092", "fl.example.org:9092")
