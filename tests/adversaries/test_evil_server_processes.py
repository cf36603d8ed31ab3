"""The evil server again, with a real client: its process, its keys, its owner's commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedconsort[flower]'")

from consort.deployment.approval import WAITING, Studies
from consort.deployment.site_log import read_lines
from consort.deployment.stack import FlowerStack
from consort.deployment.study import Study
from consort.engines.flower import Flower, Ledger, reply_of
from tests.adversaries.evil_server import CLIENT, House, forged, honest_recipe
from tests.institutions import Institutions, free_port
from tests.unit.cli.command import consort

pytestmark = pytest.mark.filterwarnings("ignore")  # other people's deprecations


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Flower]:
    """A server with one client, whose owner has said nothing yet."""
    institutions, port = Institutions(tmp_path, [CLIENT]), free_port()
    (tmp_path / CLIENT / "policy.toml").unlink()
    credentials = institutions.server
    institutions.start_client(CLIENT, port)
    try:
        with FlowerStack(
            f"localhost:{port}", credentials, credentials.admitted(), tmp_path / "flower"
        ) as stack:
            study = Study.of(honest_recipe(tmp_path / "mail"), "fedavg", 0).table
            ledger = Ledger.open(tmp_path / "exchanges.json")
            yield Flower(stack.grid, stack.nodes, study, ledger, 60, envelopes=stack.envelopes)
    finally:
        institutions.close()


def ask(engine: Flower, **header: Any) -> Any:
    ((_, answer),) = engine.exchange({CLIENT: (header, {})})
    reply = reply_of(CLIENT, answer)
    return reply.error.reason if reply.error else reply.content


def test_a_client_does_what_its_owner_allows_and_nothing_else(engine: Flower, tmp_path: Path):
    home, house = tmp_path / CLIENT, House(tmp_path / "house").furnish()
    companion = {"name": "pydoc:pipepager", "cmd": f"touch {house.mark}"}
    assert ask(engine, kind="initial", companion=companion, draw=0) == WAITING
    (entry,) = Studies.of(home).all()
    assert consort("site", "approve", home, entry.hash[:8]).code == 0
    assert ask(engine, kind="describe")["train"] > 0
    assert ask(engine, kind="initial", companion=companion, draw=0) == (
        "the companion model is not that of the study"
    )
    honest = engine.study
    for place in house.places.values():
        for changes in ({"model": {"name": place}}, {"algorithms": {place: {}}}):
            table = {**honest, "recipe": honest["recipe"] | changes}
            engine.study = table | {"digest": forged(table)}
            assert "its policy does not allow a server to name code" in ask(engine, kind="describe")
    engine.study = honest
    assert ask(engine, kind="initial", companion=None, draw=0)["model"].size > 0
    assert not house.mark.exists()
    assert "none was changed, and none is missing" in consort("site", "log", home, "--verify").out
    events = [entry["event"] for entry in read_lines(home)]
    assert events.count("joined") == 2
    assert events.count("refused") == 2 + 2 * len(house.places)
