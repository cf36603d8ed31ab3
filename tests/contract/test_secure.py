"""Secure aggregation with every algorithm: the same bits on every engine, or a refusal at once."""

from __future__ import annotations

import pytest
from tests.contract.helpers import (
    ROUGH,
    assert_same_outcome,
    every_algorithm,
    finish,
    run_of,
)
from tests.contract.test_letters import far, near
from tests.contract.test_resuming import PowerCut, PullsThePlug
from tests.helpers import assert_same, tiny_federation

from consort.algorithms.registry import find_algorithm
from consort.core.params import Params
from consort.errors import UsageError
from consort.protection.secure.settings import Secure

pytest.importorskip("cryptography", reason="pip install 'fedconsort[secure]'")
pytest.importorskip("Crypto", reason="pip install 'fedconsort[secure]'")

AVERAGING = {
    *("apfl", "ditto", "fedala", "fedavg", "fedavg_ft", "fedbabu", "fedper", "fedprox", "fedrep"),
    *("fml", "lg_fedavg", "scaffold", "feddyn", "fedrod", "moon", "per_fedavg", "pfedme"),
    *("fedadagrad", "fedadam", "fedavgm", "fedyogi"),
}


def secured(name, folder, clients=3, **settings):
    federation = tiny_federation(clients, model=ROUGH).protected(Secure())
    return run_of(name, folder, federation, **{"rounds": 2} | settings)


@every_algorithm
def test_an_algorithm_averages_or_refuses_before_anything_is_asked(name, tmp_path):
    if name in AVERAGING:
        secured(name, tmp_path)
        return
    enough = "only one takes part" if find_algorithm(name).pools_data else "they are not enough"
    with pytest.raises(UsageError, match=enough):
        secured(name, tmp_path)


@pytest.mark.parametrize("name", sorted(AVERAGING))
def test_workers_agree_with_one_process_and_the_means_with_plain_ones(name, tmp_path):
    alone = finish(secured(name, tmp_path / "1"))
    assert_same_outcome(finish(secured(name, tmp_path / "2", workers=2)), alone)
    plain = finish(run_of(name, tmp_path / "plain", tiny_federation(3, model=ROUGH), 2))
    for entry, params in vars(plain.server).items():
        if isinstance(params, Params):
            assert (params - getattr(alone.server, entry)).norm() < 1e-4 * max(1, params.norm())


@pytest.mark.parametrize("name", ["fedavg", "fml"])
def test_letters_agree_with_one_process(name, tmp_path):
    """What goes through Flower is the same: clients keep their keys in their own folders."""
    straight = near(name, tmp_path / "near", secure={})
    assert_same_outcome(far(name, tmp_path / "far", secure={}), straight)


@pytest.mark.parametrize("moment", [("answered", 2), ("tested", 2)])
def test_a_run_that_was_cut_off_goes_on_to_the_same_numbers(moment, tmp_path):
    settings = {"clients": 5, "stragglers": 0.2}
    straight = finish(secured("scaffold", tmp_path / "straight", **settings))
    with pytest.raises(PowerCut):
        secured("scaffold", tmp_path / "cut", observer=PullsThePlug(moment), **settings).go()
    again = finish(secured("scaffold", tmp_path / "cut", **settings))
    assert again.rows == straight.rows
    assert_same(again.server, straight.server)


def test_late_clients_are_lost_in_the_middle_and_their_masks_recovered(tmp_path):
    run = secured("fedavg", tmp_path, clients=8, stragglers=0.2, rounds=4)
    plain = run_of("fedavg", tmp_path / "plain", tiny_federation(8, model=ROUGH), 4, stragglers=0.2)
    found, expected = finish(run), finish(plain)
    opened = [row for row in run.history if (row.metric, row.part) == ("seconds", "secure.open")]
    assert 8 * 0.6 * 4 <= len(opened) < 8 * 4
    assert (found.server.model - expected.server.model).norm() < 1e-5
