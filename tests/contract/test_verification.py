"""Signatures are verified with what any algorithm has learnt, and that changes nothing else."""

from __future__ import annotations

import pytest
from tests.contract.helpers import assert_same_outcome, every_algorithm, finish, run_of
from tests.unit.domains.signatures.test_verification import PROTOCOL, TASKS, signatures, strangers

from consort.data.examples import Examples, Splits
from consort.domains.signatures.verification import SignatureVerification
from consort.federation.federation import Federation
from consort.federation.member import Member
from consort.models.registry import ModelSpec

EXAM = SignatureVerification(
    PROTOCOL, 0, {"unseen_others": strangers(signatures("others", users=3))}
)


def banks(*extras: SignatureVerification) -> Federation:
    """Two clients with signatures of five users."""
    members = {}
    for name in ("c0", "c1"):
        data = Splits(*(signatures(f"{name} {split}") for split in ("train", "val", "test")))
        members[name] = Member.of(TASKS, ModelSpec.of({"name": "mlp", "hidden": [6]}), data)
    public = Examples(signatures("server").inputs, {})
    return Federation(members, extras=extras, server_data=public)


@every_algorithm
def test_every_client_is_verified_and_nothing_else_changes(name, tmp_path):
    run = run_of(name, tmp_path / "with", banks(EXAM), rounds=2)
    examined = finish(run)
    plain = finish(run_of(name, tmp_path / "without", banks(), rounds=2))
    verified = [row for row in examined.rows if row.task == "verify"]
    assert [row for row in examined.rows if row.task != "verify"] == plain.rows
    assert examined.weights == plain.weights
    found = {
        (row.round, row.client, row.split)
        for row in verified
        if (row.metric, row.model) == ("wd_eer", run.algorithm.reports)
    }
    splits = {1: ("validation", "test"), 2: ("validation", "test", "unseen_others")}
    assert found == {(r, c, s) for r in splits for c in ("c0", "c1") for s in splits[r]}
    assert {row.round for row in verified if row.metric == "wd_det"} == {2}


@pytest.mark.parametrize("name", ["fedavg", "fedmh", "fml"])
def test_what_is_verified_is_the_same_in_workers(name, tmp_path):
    alone, many = (
        finish(run_of(name, tmp_path / str(n), banks(EXAM), rounds=2, workers=n)) for n in (1, 2)
    )
    assert_same_outcome(many, alone)
