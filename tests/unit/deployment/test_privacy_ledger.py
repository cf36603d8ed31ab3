"""The ledger of a site: what it counts, and that nothing is lost or forgotten."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.unit.cli.command import consort

from consort.core.validation import checked
from consort.deployment.privacy_ledger import (
    FILE,
    Account,
    PrivacyLedger,
    PrivacyLimit,
    epsilon_of,
    name_of_data,
    refuse_without_noise,
    uses_of,
)
from consort.errors import Failure, Refused, UsageError
from consort.federation.site import Use
from consort.protection.dp import Privacy
from consort.protection.secure.settings import Secure

STEP = Use("example", 2.0, 0.1, 10)


def begun(path: Path, *runs: str, limit: PrivacyLimit | None = None) -> PrivacyLedger:
    ledger = PrivacyLedger(path / FILE)
    for run in runs:
        ledger.begin("scans", run, "fedavg", True, limit)
    return ledger


def test_uses_add_up_within_runs_and_over_all_of_them(tmp_path):
    ledger = begun(tmp_path, "one", "two")
    for run in ("one", "one", "two"):
        ledger.charge("scans", run, STEP, None)
    again = PrivacyLedger(tmp_path / FILE)
    assert Account(again, "scans", "one").uses == [Use("example", 2.0, 0.1, 20)]
    everything = uses_of(again.read(), "scans")
    assert epsilon_of(everything, 1e-5) == epsilon_of([Use("example", 2.0, 0.1, 30)], 1e-5)
    assert uses_of(again.read(), "letters") == []


def test_a_run_that_begins_again_keeps_what_it_has_spent(tmp_path):
    ledger = begun(tmp_path, "one")
    ledger.charge("scans", "one", STEP, None)
    ledger.begin("scans", "one", "fedavg", False, None)
    run = ledger.read()["scans"]["runs"]["one"]
    assert run["uses"] == [["example", 2.0, 0.1, 10]]
    assert not run["noisy"]
    ledger.begin("scans", "one", "fedavg", True, None)
    assert not ledger.read()["scans"]["runs"]["one"]["noisy"]


def test_what_is_refused_is_not_charged(tmp_path):
    limit = PrivacyLimit(epsilon_of([Use("example", 2.0, 0.1, 25)], 1e-5))
    ledger = begun(tmp_path, "one", "two", limit=limit)
    account = Account(ledger, "scans", "two", limit)
    ledger.charge("scans", "one", STEP, limit)
    account.afford(STEP)
    account.charge(STEP)
    before = (tmp_path / FILE).read_bytes()
    for ask in (account.afford, account.charge):
        with pytest.raises(Refused, match="the limit of its data, epsilon = "):
            ask(STEP)
    assert (tmp_path / FILE).read_bytes() == before


def test_the_file_is_the_owners_alone_and_on_disk_before_the_answer(tmp_path, monkeypatch):
    ledger = begun(tmp_path / "new", "one")
    synced = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda number: synced.append(number) or fsync(number))
    ledger.charge("scans", "one", STEP, None)
    assert len(synced) >= 2  # the file, and the folder
    assert (tmp_path / "new").stat().st_mode & 0o077 == 0
    for path in (tmp_path / "new").iterdir():
        assert path.stat().st_mode & 0o077 == 0, path


def test_a_damaged_ledger_is_not_taken_for_an_empty_one(tmp_path):
    ledger = begun(tmp_path, "one")
    path = tmp_path / FILE
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(bytes(data))
    for ask in (ledger.read, lambda: ledger.charge("scans", "one", STEP, None)):
        with pytest.raises(Failure, match=r"privacy\.ledger is damaged, so what was spent"):
            ask()
    assert path.read_bytes() == bytes(data)


def test_the_same_files_are_the_same_data_whatever_the_options(tmp_path):
    def name(folder, **options):
        return name_of_data({"data": {"name": "cifar10"} | options}, folder)

    assert name(tmp_path) == name(tmp_path / ".", share=0.5) == f"cifar10 in {tmp_path}"
    assert name(tmp_path) != name(tmp_path / "other")
    assert name(None) == "cifar10"


def test_a_limit_needs_noise_in_every_study():
    limit = PrivacyLimit(8.0)
    refuse_without_noise([Privacy("client")], limit)
    refuse_without_noise([], None)
    for protections in ([], [Secure()]):
        with pytest.raises(Refused, match=r"only in studies with \[privacy\]"):
            refuse_without_noise(protections, limit)


def test_the_table_of_a_policy_is_checked():
    assert checked(PrivacyLimit, {"epsilon": 8.0}, "policy.toml") == PrivacyLimit(8.0)
    for wrong in ({}, {"epsilon": 0.0}, {"epsilon": 1.0, "delta": 1.0}, {"epsilon": 1.0, "x": 1}):
        with pytest.raises(UsageError):
            checked(PrivacyLimit, wrong, "policy.toml")


def test_the_command_shows_data_runs_and_what_they_cost(tmp_path):
    ledger = begun(tmp_path, "a" * 32, limit=PrivacyLimit(8.0))
    ledger.charge("scans", "a" * 32, STEP, None)
    ledger.begin("letters", "b" * 32, "ditto", False, None)
    shown = consort("site", "privacy", tmp_path)
    for text in ("scans", "fedavg aaaaaaaa", "8.0", f"{epsilon_of([STEP], 1e-5):.2f}"):
        assert text in shown.out, text
    assert "no noise" in shown.out
    missing = consort("site", "privacy", tmp_path / "nowhere")
    assert missing.code == 2
    assert "no run has used the data of this client yet" in missing.error
