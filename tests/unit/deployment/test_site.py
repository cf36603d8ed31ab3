"""What a client on a machine of its own keeps to itself."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.institutions import Institutions
from torch import Generator

from consort.deployment.credentials import ClientCredentials
from consort.deployment.privacy_ledger import FILE, Account, PrivacyLedger
from consort.deployment.site import Identity, OwnMachine
from consort.errors import Failure, Refused


def machine(folder: Path, identity: Identity | None = None, run: str = "a" * 32) -> OwnMachine:
    account = Account(PrivacyLedger(folder / FILE), "scans", run)
    return OwnMachine(folder / run, account, identity=identity)


def test_secrets_are_on_disk_and_not_in_the_state(tmp_path):
    site, state = machine(tmp_path), {}
    assert site.secrets(state) == {}
    site.keep(state, {"step": "one", "key": torch.arange(3)})
    assert state == {}
    again = machine(tmp_path).secrets({})
    assert again["step"] == "one"
    assert again["key"].tolist() == [0, 1, 2]
    site.keep(state, {})
    assert machine(tmp_path).secrets({}) == {}
    assert [path.name for path in (tmp_path / ("a" * 32)).iterdir()] == []


def test_damaged_secrets_are_never_used(tmp_path):
    site = machine(tmp_path)
    site.keep({}, {"step": "one"})
    (path,) = (tmp_path / ("a" * 32)).iterdir()
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(Failure, match="one-time secrets are damaged"):
        site.secrets({})
    assert site.secrets({}) == {}


def test_randomness_does_not_depend_on_the_generator_of_the_call(tmp_path):
    one, two = (
        machine(tmp_path).randomness(Generator().manual_seed(0)).normal((50,), torch.float32)
        for _ in range(2)
    )
    assert not (one == two).any()


def test_only_a_client_of_the_federation_can_vouch_for_itself_in_this_run(tmp_path):
    here = Institutions(tmp_path / "here", ["a", "b"])
    there = Institutions(tmp_path / "there", ["b"])

    def identity(institutions: Institutions, name: str) -> Identity:
        return Identity.of(ClientCredentials.open(institutions.folder / name, name))

    a, b = (machine(tmp_path / name, identity(here, name)) for name in "ab")
    proof = b.vouch(b"keys")
    a.verify("b", b"keys", proof)
    stranger = machine(tmp_path / "x", identity(there, "b"))
    later = machine(tmp_path / "b", identity(here, "b"), "c" * 32)
    for client, statement, told in (
        ("a", b"keys", proof),
        ("b", b"other keys", proof),
        ("b", b"keys", stranger.vouch(b"keys")),
        ("b", b"keys", later.vouch(b"keys")),
        ("b", b"keys", proof[:-1]),
        ("b", b"keys", b""),
        ("b", b"keys", b"\xff" * 40),
    ):
        with pytest.raises(Refused, match=f"said to be those of {client} are not signed by it"):
            a.verify(client, statement, told)
    machine(tmp_path / "y").verify("b", b"keys", b"")  # without an identity nothing is checked
