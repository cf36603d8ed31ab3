"""The page about institutions is followed to the letter: every command on it is given."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.pages import Block, Page, page
from tests.institutions import environment, free_port, until

from consort.results.result import Result

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedconsort[flower]'")

BANKS = ("bank-1", "bank-2", "bank-3")
PATIENCE = 600  # seconds, on a machine that is busy with other things


def test_three_institutions_from_nothing(tmp_path: Path):
    deploy, port = page("deploy.md"), free_port()
    places = {name: tmp_path / name for name in ("server", *BANKS)}
    for place in places.values():
        place.mkdir()
    blocks = {block.title: block for block in deploy.blocks if block.language == "toml"}
    for place in places.values():  # the server's operator shows the recipe to everybody
        (place / "study.toml").write_text(blocks["study.toml"].text)
    for bank in BANKS:
        (places[bank] / "data").mkdir()
        (places[bank] / "data" / "client.toml").write_text(blocks["client"].text)
    running = {}
    try:
        for block in deploy.blocks:
            if block.language != "console" or block.title not in places:
                continue
            for words in commands(block, port):
                if words[0] == "status":  # which has nothing to show before the server is up
                    assert running["server"].wait(PATIENCE) == 0, said(places["server"])
                if words[1] == "studies":
                    until(lambda: waiting(places["bank-3"]), PATIENCE, "the study")
                    assert_shown(deploy, places["bank-3"])
                if words[1] == "approve":
                    words[-1] = waiting(places["bank-3"])
                started = start(words, places[block.title])
                if words[0] in ("server", "client"):
                    running[block.title] = started
                else:
                    assert started.wait(PATIENCE) == 0, said(places[block.title])
            carry(places)
        table = json.loads((places["server"] / "out" / "status.json").read_text())
        assert table["phase"] == "finished"
        result = Result.load(places["server"] / "out")
        assert result.rounds_done == 3
        assert set(result.clients) == set(BANKS)
        assert (places["server"] / "out" / "report.html").exists()
        assert "lines: none was changed, and none is missing" in said(places["bank-3"])
    finally:
        for process in running.values():
            process.terminate()
        for process in running.values():
            process.wait(60)
    for bank in BANKS:
        until(lambda bank=bank: "stopped; nothing is lost" in said(places[bank]), 10)


def commands(block: Block, port: int) -> list[list[str]]:
    """The words after `consort` of every line, for a server on this machine."""
    text = block.text.replace("fl.example.org:9092", f"localhost:{port}")
    lines = text.replace("fl.example.org", "localhost").splitlines()
    assert all(line.startswith("consort ") for line in lines)
    return [shlex.split(line)[1:] for line in lines]


def waiting(place: Path) -> str:
    """The first digits of the study that waits at a bank."""
    found = re.search(r": study (\w{8}): .*is waiting for", said(place), re.DOTALL)
    return found[1] if found else ""


def assert_shown(deploy: Page, place: Path) -> None:
    """The bank sees what the page shows, but for the hash and the versions."""
    (block,) = [block for block in deploy.blocks if block.language == "text"]
    text = block.text.replace("3f9a61c2", waiting(place))
    for line in text.splitlines():
        assert "versions: " in line or line in said(place)


def start(words: list[str], place: Path) -> subprocess.Popen[bytes]:
    with (place / "said").open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-c", "from consort.cli import main; main()", *words],
            cwd=place,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment(),
        )


def said(place: Path) -> str:
    return (place / "said").read_text(errors="replace")


def carry(places: dict[str, Path]) -> None:
    """Mail between the institutions: requests one way, certificates the other."""
    server = places["server"]
    for bank in BANKS:
        request = places[bank] / "credentials" / f"{bank}.request"
        certificate = server / "credentials" / "clients" / f"{bank}.pem"
        if request.exists():
            shutil.copy(request, server)
        if certificate.exists():
            shutil.copy(certificate, places[bank] / "credentials")
