"""Algorithms by name: found without being listed anywhere, described without being imported."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from consort.algorithms import registry
from consort.algorithms.fedavg import FedAvg
from consort.algorithms.registry import algorithm_places, find_algorithm
from consort.core.algorithm import Algorithm
from consort.core.plugins import descriptions
from consort.errors import UsageError

FOUNDATION = {
    "centralised", "ditto", "fedavg", "fedavg_ft", "fedbabu", "fedper", "fedprox", "fedrep",
    "local_only", "scaffold",
}  # fmt: skip


def test_every_file_is_an_algorithm():
    files = {path.stem for path in Path(registry.__file__).parent.glob("*.py")}
    assert set(algorithm_places()) == {f for f in files if f[0] != "_"} - {"registry"}
    assert set(algorithm_places()) >= FOUNDATION
    assert list(algorithm_places()) == sorted(algorithm_places())


@pytest.mark.parametrize("name", list(algorithm_places()))
def test_every_algorithm_is_a_frozen_value_with_a_description(name):
    found = find_algorithm(name)
    assert issubclass(found, Algorithm)
    assert found.__module__ == f"consort.algorithms.{name}"
    assert dataclasses.is_dataclass(found)
    assert found.__dataclass_params__.frozen
    assert dataclasses.is_dataclass(found.state_type())
    assert found() == found()
    first = (found.__doc__ or "").partition("\n")[0]
    assert descriptions("algorithms")[name] == first
    assert first.endswith(".")
    assert len(first) <= 90


def test_own_algorithms_come_from_files_and_modules(tmp_path: Path):
    (tmp_path / "mine.py").write_text(
        "from consort.algorithms.fedavg import FedAvg\n\n\nclass Mine(FedAvg):\n    pass\n"
    )
    assert issubclass(find_algorithm(f"{tmp_path}/mine.py:Mine"), FedAvg)
    assert find_algorithm("consort.algorithms.fedavg:FedAvg") is FedAvg


@pytest.mark.parametrize(("name", "message"), [
    ("fedavgg", "there is no algorithm 'fedavgg': did you mean 'fedavg'"),
    ("FedAvg", "there is no algorithm 'FedAvg': did you mean 'fedavg'"),
    ("registry", "there is no algorithm 'registry'"),
    ("consort.core.params:Params", "consort.core.params:Params is not an Algorithm"),
    ("consort.core.algorithm:on_client", "consort.core.algorithm:on_client is not an Algorithm"),
    ("consort.algorithms.fedavg:FedAvgg", r"consort\.algorithms\.fedavg defines no 'FedAvgg'"),
    ("nowhere.py:Mine", r"there is no file nowhere\.py"),
])  # fmt: skip
def test_what_is_no_algorithm_is_an_error(name, message):
    with pytest.raises(UsageError, match=message):
        find_algorithm(name)
