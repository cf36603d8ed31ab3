"""The same bits through Flower: a real SuperLink with TLS and keys, three real SuperNodes.

One deployment is shared by all that is tested here, because it takes seconds to start.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedconsort[flower]'")

import httpx
from flwr.proto.control_pb2 import (
    ListNodesRequest,
    ListRunsRequest,
    StartRunRequest,
    StopRunRequest,
)
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import generate_key_pairs
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor
from tests.institutions import NAMES, STUDY, Institutions, Wire, free_port, groups, wire
from tests.kept import kept_states
from tests.proxies import Proxy
from tests.unit.cli.command import measured, server_bytes

from consort.deployment.keys import read_key
from consort.deployment.server import FederationServer
from consort.deployment.stack import FlowerStack
from consort.engines.flower import Flower, Ledger
from consort.experiment.loading import load_recipe, recipe_of
from consort.experiment.preparation import prepare_run
from consort.experiment.tables import merged
from consort.run.history import History
from consort.run.observer import Observer

pytestmark = pytest.mark.filterwarnings("ignore")  # other people's deprecations

HIDDEN = "server.invalid"
"""A name of the server that no name server knows."""
REPRESENTATIVE = ("ditto", "fml", "ifca", "fedper")
"""State on clients; a companion; other draws of the model; parts that never leave."""
SECURED = "fedavg"
OPTIONS = {"ifca": "clusters = 2", SECURED: "secure = {}"}
UNKNOWN = {"recipe": {}, "algorithm": "x", "seed": 0, "version": "9.9", "digest": "0" * 32}
"""A study that no client joins."""
States = dict[str, bytes]


@dataclass
class Deployment:
    institutions: Institutions
    stack: FlowerStack
    wire: Wire
    proxy: Proxy
    port: int

    @property
    def authority(self) -> Path:
        return self.institutions.server.folder / "ca.pem"

    def engine(self, folder: Path, deadline: float = 300) -> Flower:
        return Flower(
            self.stack.grid,
            self.stack.nodes,
            {},
            Ledger.open(folder / "exchanges.json"),
            deadline,
            envelopes=self.stack.envelopes,
        )


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    place = tmp_path_factory.mktemp("institutions")
    institutions, port = Institutions(place, hosts=("localhost", HIDDEN)), free_port()
    credentials = institutions.server
    with wire(port) as recorded, closing(Proxy(HIDDEN, port)) as proxy:
        for name in NAMES[:-1]:
            institutions.start_client(name, recorded.port)
        url = f"http://127.0.0.1:{proxy.port}"
        variables = {"HTTPS_PROXY": url, "HTTP_PROXY": url, "NO_PROXY": "example.org"}
        institutions.start_client(NAMES[-1], port, host=HIDDEN, variables=variables)
        try:
            listen = f"localhost:{port}"
            with FlowerStack(
                listen, credentials, credentials.admitted(), place / "flower"
            ) as stack:
                yield Deployment(institutions, stack, recorded, proxy, port)
        finally:
            institutions.close()


def study(folder: Path) -> Path:
    path = folder / "study.toml"
    path.write_text(
        STUDY
        + "[compute]\ncount_flops = true\n"
        + "\n".join(f"[algorithms.{n}]\n{OPTIONS.get(n, '')}" for n in (*REPRESENTATIVE, SECURED))
    )
    return path


def sent(folder: Path, name: str) -> list[str]:
    """All rows; under masks without bytes of no role: only institutions sign their keys."""
    rows = measured(folder)
    return [row for row in rows if '"part":"other"' not in row] if name == SECURED else rows


def far_and_near(
    name: str, deployment: Deployment, folder: Path
) -> dict[str, tuple[States, States]]:
    """Runs both ways and compares what the server has; returns what each client has of either."""
    recipe = load_recipe(study(folder))
    credentials = deployment.institutions.server
    server = FederationServer(recipe, name, 0, folder / "far", credentials, 300, print)
    server.status.begin(list(NAMES), algorithm=name, rounds=2)
    server.run(deployment.stack, Observer())

    settings = {k: v for k, v in recipe.table.items() if v is not None and k != "clients"}
    near = recipe_of(merged(settings, {"groups": groups()}), "near")
    prepare_run(near, name, 0, folder / "near").go()

    assert len(measured(folder / "far")) > 10
    assert any(row.metric == "flops" and row.value for row in History(folder / "far/history.jsonl"))
    assert sent(folder / "far", name) == sent(folder / "near", name)
    assert server_bytes(folder / "far") == server_bytes(folder / "near")
    session = Ledger.open(folder / "far" / "exchanges.json").session
    near_states = kept_states(folder / "near" / "clients")
    homes = {client: deployment.institutions.folder / client / "state" for client in NAMES}
    return {
        client: (kept_states(home / session)[client], near_states.get(client, {}))
        for client, home in homes.items()
    }


@pytest.mark.parametrize("name", REPRESENTATIVE)
def test_three_institutions_and_one_process_agree_bit_for_bit(name, deployment, tmp_path):
    for far, near in far_and_near(name, deployment, tmp_path).values():
        assert far == near


def test_so_they_do_under_masks_whose_keys_are_never_the_same(deployment, tmp_path):
    pytest.importorskip("cryptography", reason="pip install 'fedconsort[secure]'")
    pytest.importorskip("Crypto", reason="pip install 'fedconsort[secure]'")
    for far, near in far_and_near(SECURED, deployment, tmp_path).values():
        assert {"2-0", "2-3"} <= near.keys()
        assert far == {}, (far.keys(), near.keys())  # keys are in a file of their own, used once


def test_a_client_behind_a_proxy_needs_nothing_but_the_proxy(deployment, tmp_path):
    """Its server has a name that only the proxy knows; its own processes talk without it."""
    engine = deployment.engine(tmp_path)
    engine.study = UNKNOWN
    ((_, answer),) = engine.exchange({NAMES[-1]: ({"kind": "describe"}, {})})
    assert "header" in answer
    assert set(deployment.proxy.asked) == {f"CONNECT {HIDDEN}:{deployment.port}"}


def test_what_is_said_is_never_heard_on_the_wire(deployment, tmp_path):
    marker = "THE-SECRET-OF-THIS-TEST"
    engine = deployment.engine(tmp_path)
    engine.study = UNKNOWN | {"algorithm": marker, "version": marker}
    ((_, answer),) = engine.exchange({"a-0": ({"kind": "describe"}, {"shared": marker.encode()})})
    assert marker in json.loads(answer["header"])["error"]  # it went there and came back
    assert len(deployment.wire.heard) > 10_000
    assert marker.encode() not in deployment.wire.heard


def test_orders_are_not_taken_on_the_port_of_clients(deployment):
    folder = deployment.institutions.folder
    for keys in (own_key(folder / "a-0" / "client.key"), generate_key_pairs()):
        with ControlHttpClient.from_server_address(
            f"localhost:{deployment.port}",
            False,
            deployment.authority.read_bytes(),
            [RuntimeVersionHttpInterceptor("flwr-cli"), NodeAuthHttpInterceptor(*keys)],
        ) as control:
            for order, request in (
                (control.StartRun, StartRunRequest()),
                (control.StopRun, StopRunRequest(run_id=1)),
                (control.ListRuns, ListRunsRequest()),
                (control.ListNodes, ListNodesRequest()),
            ):
                with pytest.raises(httpx.HTTPStatusError, match="404"):
                    order(request)


def test_the_same_orders_are_taken_behind_it(deployment):
    """Otherwise the test above would show nothing."""
    with deployment.stack.link._control() as control:
        assert len(control.ListRuns(ListRunsRequest()).run_dict) == 1
        assert {node.node_id for node in control.ListNodes(ListNodesRequest()).nodes_info} == set(
            deployment.stack.nodes.values()
        )


@pytest.mark.parametrize(
    "path",
    [
        "/v1/runtime/acquire-task",
        "/v1/fleet/register-node",
        "/docs",
        "/v1/fleet/../control/list-runs",
    ],
)
def test_other_paths_are_closed(path, deployment):
    authority = str(deployment.authority)
    with httpx.Client(verify=authority) as client:
        assert client.post(f"https://localhost:{deployment.port}{path}").status_code == 404


def test_a_key_that_was_not_admitted_is_refused(deployment):
    authority = str(deployment.authority)
    with httpx.Client(verify=authority) as client:
        for headers in ({}, {"flwr-public-key": "?"}, {"flwr-public-key": "QUJD"}):
            answer = client.post(
                f"https://localhost:{deployment.port}/v1/fleet/pull-messages", headers=headers
            )
            assert answer.status_code == 401


def test_what_flower_writes_is_for_its_owner_only(deployment):
    """Above all superlink.db, which contains every message."""
    places = [deployment.stack.link.folder]
    places += [deployment.institutions.folder / name / "state" for name in NAMES]
    written = [path for place in places for path in place.rglob("*")]
    assert {"superlink.db", "superlink.log", "supernode.log", "executor.secret"} <= {
        path.name for path in written
    }
    for path in (*places, *written):
        assert path.is_socket() or not path.stat().st_mode & 0o077, path


def own_key(path: Path):
    key = read_key(path)
    return key, key.public_key()


def test_a_repeated_message_is_refused(deployment, tmp_path):
    engine = deployment.engine(tmp_path)
    engine.study = UNKNOWN
    ask = {"b-0": ({"kind": "describe"}, {})}
    ((_, first),) = engine.exchange(ask)
    assert "this client has Consort" in json.loads(first["header"])["error"]
    engine.ledger.number = 0
    ((_, again),) = engine.exchange(ask)
    assert "is repeated or outdated" in json.loads(again["header"])["error"]
