"""The table "Who can see what" of the page about institutions, cell by cell.

Two real federations of three institutions run, with the command, as processes: one in which a
client fails, and one with secure aggregation. Every byte between each client and the server is
recorded twice: as the network sees it, and as the server sees it,
without TLS. Since a run among institutions has the same bits as one in this process, it is known
what the answers, the states and the data are that are looked for; keys that are used once are
copied from their file before that. Every "no" is about something that is found where it may be.
"""

from __future__ import annotations

import base64
import json
import select
import socket
import ssl
import stat
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import Popen
from urllib.request import urlopen

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedconsort[flower]'")

from prometheus_client.parser import text_string_to_metric_families
from tests.docs.pages import page, tables
from tests.e2e.failing import FAILS, QUOTED
from tests.institutions import NAMES, STUDY, Institutions, Wire, free_port, groups, until, wire
from torch import Tensor

from consort.core.files import read_checked
from consort.core.messages import Call, Reply
from consort.core.wire import decode, tensors_in
from consort.deployment.keys import read_key
from consort.engines.embedded import Embedded
from consort.engines.flower import Ledger
from consort.engines.middleware import Wrapper
from consort.engines.states import StateStore
from consort.errors import Failure
from consort.experiment.assembly import assemble
from consort.experiment.loading import load_recipe, recipe_of
from consort.experiment.tables import merged
from consort.run.run import Run

PATIENCE = 600.0  # seconds, on a machine that is busy with other things
CLAIMS: dict[tuple[str, str, str], str] = {}
"""The test of each cell: by its row, its column and what it says."""


def cell(row: str, column: str, says: str) -> Callable[[Callable], Callable]:
    """Marks the test of a cell."""

    def mark(test: Callable) -> Callable:
        assert CLAIMS.setdefault((row, column, says), test.__name__) == test.__name__
        return test

    return mark


# The recording


class Plain:
    """The server's end of TLS: passes on what is said, and remembers it in clear."""

    def __init__(self, target: int, credentials: Path) -> None:
        self.target = target
        self.up, self.down = bytearray(), bytearray()
        self._inside = ssl.create_default_context(cafile=str(credentials / "ca.pem"))
        self._outside = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._outside.load_cert_chain(credentials / "server.pem", credentials / "server.key")
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        with ExitStack() as stack, suppress(OSError):
            stack.enter_context(near)
            far = stack.enter_context(socket.create_connection(("127.0.0.1", self.target)))
            clients = stack.enter_context(self._outside.wrap_socket(near, server_side=True))
            server = stack.enter_context(self._inside.wrap_socket(far, server_hostname="localhost"))
            self._pass(clients, server)

    def _pass(self, client: ssl.SSLSocket, server: ssl.SSLSocket) -> None:
        others = {client: (server, self.up), server: (client, self.down)}
        while True:
            ready = [end for end in others if end.pending()]
            for end in ready or select.select(list(others), [], [])[0]:
                sink, heard = others[end]
                end.settimeout(0)
                try:
                    data = end.recv(1 << 16)
                except ssl.SSLWantReadError:
                    continue
                if not data:
                    return
                heard += data
                sink.settimeout(60)
                sink.sendall(data)

    def close(self) -> None:
        self._listener.close()


class Recording(Wrapper):
    """Remembers calls and replies."""

    def deliver(self, calls: Sequence[Call]) -> Iterator[Reply]:
        for call, reply in zip(calls, self.engine.deliver(calls), strict=True):
            self.exchanges.append((call, reply))
            yield reply


@dataclass
class Recorded:
    """A federation that has run."""

    institutions: Institutions
    network: dict[str, Wire]
    plain: dict[str, Plain]
    metrics: int
    """The port of the server's metrics."""
    exchanges: list[tuple[Call, Reply]] = field(default_factory=list)
    data: dict[str, list[bytes]] = field(default_factory=dict)
    started: set[str] = field(default_factory=set)
    """The command lines of all processes."""
    figures: list[str] = field(default_factory=list)
    """What the server's metrics showed."""
    once: dict[str, set[bytes]] = field(default_factory=dict)
    """The private keys of secure aggregation that each client had."""
    modes: set[int] = field(default_factory=set)
    """Who could read them, and their folders."""

    @property
    def out(self) -> Path:
        return self.institutions.folder / "out"

    def answers(self, client: str) -> list[bytes]:
        """The tensors of a client's answers, unlike any that another client has."""
        return raw(
            tensor
            for call, reply in self.exchanges
            if call.client == client and not call.evaluation
            for _, tensor in tensors_in(reply.content)
        )

    def sent(self) -> list[bytes]:
        """The tensors that the server sends to everybody in round 2."""
        (payload, *_) = (call.payload for call, _ in self.exchanges if call.round == 2)
        return raw(tensor for _, tensor in tensors_in(payload))

    def states(self, client: str) -> list[bytes]:
        """The tensors that a client keeps between rounds."""
        session = Ledger.open(self.out / "exchanges.json").session
        folder = self.home(client) / "state" / session
        return raw(tensor for _, tensor in tensors_in(StateStore(folder).load(client, (3, 0))))

    def home(self, client: str) -> Path:
        return self.institutions.folder / client

    def secrets(self, *files: Path) -> list[bytes]:
        """Private keys, in all the forms in which they could be written."""
        found = []
        for file in files:
            number = read_key(file, None, "here").private_numbers().private_value
            scalar = number.to_bytes((number.bit_length() + 7) // 8, "big")
            lines = file.read_bytes().splitlines()[1:-1]
            found += [scalar, scalar.hex().encode(), base64.b64encode(scalar)[:-4], *lines[1:]]
        return found

    @property
    def server_files(self) -> bytes:
        folders = (self.out, self.institutions.server.folder)
        return content(*folders) + (self.institutions.folder / "server.log").read_bytes()


def raw(tensors: Iterator[Tensor]) -> list[bytes]:
    """The bytes of tensors that are long enough not to occur by chance."""
    found = [tensor.numpy().tobytes() for tensor in tensors if tensor.numel() >= 8]
    return [data for data in found if len(set(data)) > 16]


def content(*folders: Path) -> bytes:
    """Everything that is written in some folders."""
    files = (path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file())
    return b"\0".join(path.read_bytes() for path in files)


def found(needles: Sequence[bytes], *places: bytes | bytearray) -> int:
    """How many of them occur in one of the places."""
    assert needles
    return sum(any(needle in place for place in places) for needle in needles)


def open_to_others(folder: Path) -> list[str]:
    """What others than its owner can use of what Consort wrote into a folder."""
    by_hand = (".pem", ".toml")  # a certificate and a policy are put there, and are not secret
    paths = [folder, *(path for path in folder.rglob("*") if path.suffix not in by_hand)]
    assert len(paths) > 3
    return [str(path) for path in paths if stat.S_IMODE(path.stat().st_mode) & 0o77]


@contextmanager
def recording(place: Path, study: str) -> Iterator[tuple[Recorded, Popen[bytes], Path]]:
    """Starts three institutions and their server; what they say is recorded."""
    institutions, port = Institutions(place), free_port()
    institutions.environment["TMPDIR"] = str(place / "tmp")
    (place / "tmp").mkdir()
    recipe = place / "study.toml"
    recipe.write_text(study)
    with ExitStack() as stack:
        stack.callback(institutions.close)
        plain, network = {}, {}
        for name in NAMES:
            plain[name] = Plain(port, institutions.server.folder)
            stack.callback(plain[name].close)
            network[name] = stack.enter_context(wire(plain[name].port))
            more = ("--recipe", recipe, "--log-file", place / f"{name}.jsonl")
            institutions.start_client(name, network[name].port, *more)
        recorded = Recorded(institutions, network, plain, metrics=free_port())
        server = institutions.start(
            *("server", recipe, "--listen", f"localhost:{port}", "--out", recorded.out),
            *("--credentials", institutions.server.folder, "--log-file", place / "server.jsonl"),
            *("--metrics", recorded.metrics),
            log="server.log",
        )
        yield recorded, server, recipe


def finish(server: Popen[bytes], run: Recorded, watch: Callable[[Recorded], None]) -> None:
    """Watches a run until its end."""
    until(lambda: watch(run) or server.poll() is not None, PATIENCE, "the run")
    assert server.returncode == 0, run.institutions.said("server.log")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    kind = Path(__file__).with_name("failing.py")
    study = STUDY.replace("[run]", '[run]\non_error = "skip"')
    study += f'[algorithms.failing]\nkind = "{kind}:Failing"\n'
    with recording(tmp_path_factory.mktemp("seen"), study) as (recorded, server, recipe):
        recorded.exchanges, recorded.data = near(recipe)
        finish(server, recorded, watch)
        yield recorded


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    study = STUDY + "[secure]\n[algorithms.fedavg]\n"
    with recording(tmp_path_factory.mktemp("masked"), study) as (recorded, server, _):
        finish(server, recorded, copy_once)
        yield recorded


def copy_once(run: Recorded) -> None:
    """Copies the keys of secure aggregation while they are on disk, and notes who can read them."""
    for client in NAMES:
        for path in run.home(client).rglob("one-time"):
            with suppress(OSError, Failure):  # it is replaced or deleted at this moment
                secrets = decode(read_checked(path))
                run.once.setdefault(client, set()).update(map(bytes, secrets["private"].numpy()))
                run.modes |= {stat.S_IMODE(p.stat().st_mode) for p in (path, path.parent)}


def watch(run: Recorded) -> None:
    """Notes what everybody on the machine can see: command lines of processes, and metrics."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            run.started.add(path.read_bytes().decode(errors="replace"))
    with suppress(OSError), urlopen(f"http://127.0.0.1:{run.metrics}/metrics", timeout=5) as answer:
        run.figures.append(answer.read().decode())


def near(study: Path) -> tuple[list[tuple[Call, Reply]], dict[str, list[bytes]]]:
    """The same run in this process: what is asked and answered, and the data of each client."""
    recipe = load_recipe(study)
    settings = {k: v for k, v in recipe.table.items() if v is not None and k != "clients"}
    recipe = recipe_of(merged(settings, {"groups": groups()}), "near")
    federation = assemble(recipe, 0, None).federation
    exchanges: list[tuple[Call, Reply]] = []

    def engine(host):
        made = Recording(Embedded(host))
        made.exchanges = exchanges
        return made

    Run(federation, recipe.algorithm("failing"), recipe.run, 0, engine=engine).go()
    rows = {
        client: [
            example.numpy().tobytes()
            for part in (member.load().train, member.load().test)
            for example in part.inputs
        ]
        for client, member in federation.members.items()
    }
    times = Counter(row for client in rows.values() for row in set(client))
    return exchanges, {c: [row for row in of if times[row] == 1] for c, of in rows.items()}


def others(client: str) -> list[str]:
    return [name for name in NAMES if name != client]


# A client's data

DATA = "a client's data"


@pytest.mark.parametrize("client", NAMES)
@cell(DATA, "server", "no")
def test_data_do_not_get_to_the_server(client, run):
    assert len(run.data[client]) > 20
    assert len(run.plain[client].up) > 10_000
    assert not found(run.data[client], run.plain[client].up, run.server_files)


@pytest.mark.parametrize("client", NAMES)
@cell(DATA, "another client", "no")
def test_data_do_not_get_to_other_clients(client, run):
    heard = [run.plain[name].down for name in others(client)]
    assert not found(run.data[client], *heard, *(content(run.home(n)) for n in others(client)))


@cell(DATA, "on the network", "no")
def test_data_are_not_on_the_network(run):
    for client in NAMES:
        assert not found(run.data[client], run.network[client].heard)


@cell(DATA, "on the same machine", "its owner")
def test_data_are_not_written_anywhere_else(run):
    """The folder of the data is its owner's affair; no copy of them is made."""
    everything = content(run.institutions.folder)
    for client in NAMES:
        assert not found(run.data[client], everything)


# What a client discloses, and its answers

ANSWERS = "what a client discloses, and its answers"


@pytest.mark.parametrize("client", NAMES)
@cell(ANSWERS, "server", "yes")
def test_answers_get_to_the_server(client, run):
    answers = run.answers(client)
    assert found(answers, run.plain[client].up) == len(answers) >= 2
    described = json.loads((run.out / "run.json").read_text())["clients"][client]
    first = next(reply for call, reply in run.exchanges if call.client == client)
    assert described["train"] == first.content["examples"] > 20


@pytest.mark.parametrize("client", NAMES)
@cell(ANSWERS, "another client", "no")
def test_answers_do_not_get_to_other_clients(client, run):
    heard = [run.plain[name].down for name in others(client)]
    assert not found(run.answers(client), *heard, *(content(run.home(n)) for n in others(client)))


@cell(ANSWERS, "on the network", "no")
def test_answers_are_not_readable_on_the_network(run):
    for client in NAMES:
        assert len(run.network[client].heard) > len(run.plain[client].up)
        assert not found(run.answers(client), run.network[client].heard)


@cell(ANSWERS, "on the same machine", "its owner")
def test_answers_on_the_servers_disk_are_its_owners(run):
    assert open_to_others(run.out) == []


# What the server sends

SENT = "what the server sends"


@cell(SENT, "server", "yes")
def test_the_server_has_what_it_sends(run):
    checkpoint = (run.out / "round-000001.ckpt").read_bytes()
    assert found(run.sent(), checkpoint) == len(run.sent()) >= 2


@pytest.mark.parametrize("client", NAMES)
@cell(SENT, "another client", "its own only")
def test_a_client_gets_only_what_is_for_it(client, run):
    down = bytes(run.plain[client].down)
    assert found(run.sent(), down) == len(run.sent())
    for name in NAMES:
        assert (b'"receiver":"%s"' % name.encode() in down) == (name == client)


@cell(SENT, "on the network", "no")
def test_what_is_sent_is_not_readable_on_the_network(run):
    for client in NAMES:
        assert not found(run.sent(), run.network[client].heard)


@pytest.mark.parametrize("client", NAMES)
@cell(SENT, "on the same machine", "its owner")
def test_what_arrives_at_a_client_is_its_owners(client, run):
    assert open_to_others(run.home(client)) == []


# A client's state between rounds

STATE = "a client's state between rounds"


@pytest.mark.parametrize("client", NAMES)
@cell(STATE, "server", "no")
def test_state_does_not_get_to_the_server(client, run):
    states = run.states(client)
    assert found(states, content(run.home(client))) == len(states) >= 2
    assert not found(states, run.plain[client].up, run.server_files)


@pytest.mark.parametrize("client", NAMES)
@cell(STATE, "another client", "no")
def test_state_does_not_get_to_other_clients(client, run):
    heard = [run.plain[name].down for name in others(client)]
    assert not found(run.states(client), *heard, *(content(run.home(n)) for n in others(client)))


@cell(STATE, "on the network", "no")
def test_state_is_not_on_the_network(run):
    for client in NAMES:
        assert not found(run.states(client), run.network[client].heard)


@pytest.mark.parametrize("client", NAMES)
@cell(STATE, "on the same machine", "its owner")
def test_state_is_its_owners(client, run):
    assert open_to_others(run.home(client) / "state") == []
    temporary = Path(run.institutions.environment["TMPDIR"])
    assert not found(run.states(client), content(temporary), b"")


# Private keys

KEYS = "private keys"


@cell(KEYS, "server", "no")
def test_keys_of_clients_do_not_get_to_the_server(run):
    for client in NAMES:
        secrets = run.secrets(run.home(client) / "client.key")
        assert found(secrets, content(run.home(client))) >= 1
        assert not found(secrets, run.plain[client].up, run.server_files)


@pytest.mark.parametrize("client", NAMES)
@cell(KEYS, "another client", "no")
def test_keys_do_not_get_to_other_clients(client, run):
    server = run.institutions.server.folder
    files = [run.home(name) / "client.key" for name in others(client)]
    secrets = run.secrets(*files, server / "server.key", server / "ca.key")
    assert not found(secrets, run.plain[client].down, content(run.home(client)))


@cell(KEYS, "on the network", "no")
def test_keys_are_not_on_the_network(run):
    server = run.institutions.server.folder
    files = [run.home(name) / "client.key" for name in NAMES]
    secrets = run.secrets(*files, server / "server.key", server / "ca.key")
    assert not found(secrets, *(run.network[name].heard for name in NAMES))


@cell(KEYS, "on the same machine", "their owner")
def test_keys_are_their_owners(run):
    server = run.institutions.server.folder
    files = [
        *(run.home(name) / "client.key" for name in NAMES),
        server / "server.key",
        server / "ca.key",
    ]
    for file in files:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    lines = "\n".join(run.started).encode()
    assert b"supernode" in lines
    assert not found(run.secrets(*files), lines)


# Keys of secure aggregation

ONCE = "keys of secure aggregation"


def rounds_of_keys(run: Recorded, *clients: str) -> list[bytes]:
    keys = [key for client in clients for key in run.once[client]]
    assert len(keys) >= 2 * len(clients)  # a pair in each round; both if the file was seen in time
    return keys


@cell(ONCE, "server", "no")
def test_keys_of_secure_aggregation_do_not_get_to_the_server(masked):
    for client in NAMES:
        keys = rounds_of_keys(masked, client)
        assert not found(keys, masked.plain[client].up, masked.server_files)


@pytest.mark.parametrize("client", NAMES)
@cell(ONCE, "another client", "no")
def test_keys_of_secure_aggregation_do_not_get_to_other_clients(client, masked):
    keys = rounds_of_keys(masked, *others(client))
    assert not found(keys, masked.plain[client].down, content(masked.home(client)))


@cell(ONCE, "on the network", "no")
def test_keys_of_secure_aggregation_are_not_on_the_network(masked):
    heard = [masked.network[client].heard for client in NAMES]
    assert not found(rounds_of_keys(masked, *NAMES), *heard)


@cell(ONCE, "on the same machine", "its owner, until they are used")
def test_keys_of_secure_aggregation_are_their_owners_and_are_gone_after_use(masked):
    assert masked.modes == {0o600, 0o700}
    assert not found(rounds_of_keys(masked, *NAMES), content(masked.institutions.folder))


# Tracebacks and messages of errors

ERRORS = "tracebacks and messages of errors"


@cell(ERRORS, "server", "the kind of error only")
def test_the_server_is_told_the_kind_of_an_error(run):
    events = json.loads((run.out / "status.json").read_text())["events"]
    assert [text for _, text in events if FAILS in text and "KeyError" in text]
    places = (run.plain[FAILS].up, run.server_files)
    assert not found([QUOTED.encode(), b"Traceback"], *places)


@cell(ERRORS, "another client", "no")
def test_other_clients_are_not_told_of_an_error(run):
    for client in others(FAILS):
        said = run.institutions.said(f"{client}.log").encode()
        assert b"round 2" in said
        heard = run.plain[client].down
        assert not found([QUOTED.encode(), b"KeyError"], heard, said, content(run.home(client)))


@cell(ERRORS, "on the network", "no")
def test_errors_are_not_readable_on_the_network(run):
    assert found([b"KeyError"], run.plain[FAILS].up)
    for client in NAMES:
        assert not found([QUOTED.encode(), b"KeyError"], run.network[client].heard)


@cell(ERRORS, "on the same machine", "the client's own terminal")
def test_an_error_is_shown_on_the_clients_own_terminal(run):
    said = run.institutions.said(f"{FAILS}.log")
    assert "Traceback" in said
    assert QUOTED in said
    assert QUOTED.encode() not in content(run.home(FAILS))
    log = (run.institutions.folder / f"{FAILS}.jsonl").read_text()
    assert '"kind": "KeyError"' in log
    assert QUOTED not in log


# The table


def test_every_cell_of_the_table_has_a_test():
    section = page("deploy.md").section("Who can see what")
    (head, *_) = (line for line in section.splitlines() if line.startswith("|"))
    columns = [name.strip() for name in head.split("|")[2:-1]]
    (table,) = tables(section)
    said = {
        (row, column, text)
        for row, *cells in table
        for column, text in zip(columns, cells, strict=True)
    }
    assert set(CLAIMS) == said
    assert all(name in globals() for name in CLAIMS.values())


def test_metrics_showed_the_run_and_nobody_in_it(run):
    (last, *_) = reversed(run.figures)
    read = {s.name: s.value for f in text_string_to_metric_families(last) for s in f.samples}
    assert read["consort_rounds_planned"] == 2
    assert read["consort_bytes_up_total"] > 0
    assert not found([name.encode() for name in NAMES], *(text.encode() for text in run.figures))


def test_both_sides_logged_the_run(run):
    folder = run.institutions.folder
    server = [json.loads(line) for line in (folder / "server.jsonl").read_text().splitlines()]
    names = {line["event"] for line in server}
    assert {"run_started", "round_done", "client_failed", "run_finished"} <= names
    for client in NAMES:
        lines = [json.loads(x) for x in (folder / f"{client}.jsonl").read_text().splitlines()]
        assert {"connection", "joined", "answered"} <= {line["event"] for line in lines}
