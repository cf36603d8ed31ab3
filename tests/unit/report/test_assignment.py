"""Which client uses which model."""

from __future__ import annotations

import pytest
from tests.unit.report.sample import load_run, model_notes

from consort.core.row import Row
from consort.report.assignment import Assignment, idle_models


def chose(*rounds):
    """Notes of clients a, b, … that chose these models in round 1, 2, …"""
    return [
        Row(round_, "chosen_model", model, client)
        for round_, models in enumerate(rounds, 1)
        for client, model in zip("abcdefghij", models, strict=False)
    ]


def weighed(models):
    return [Row(1, "model_weight", 0.5, "a", part=str(model)) for model in range(models)]


@pytest.fixture
def assignment(tmp_path):
    def made(*rows):
        return Assignment.of(load_run(tmp_path / "run", notes=rows))

    return made


def test_the_models_of_all_rounds(assignment):
    found = assignment(*chose([2, 0], [0, 2]), *weighed(4))
    assert found.rounds == {1: {"a": "2", "b": "0"}, 2: {"a": "0", "b": "2"}}
    assert found.last == {"a": "0", "b": "2"}
    assert found.models == ["0", "1", "2", "3"]
    assert found.in_use == {"0", "2"}
    assert str(found) == "2 of 4 models in use"


def test_models_are_counted_as_numbers(assignment):
    assert assignment(*chose([10, 9, 1])).models == ["1", "9", "10"]


def test_clients_with_the_same_model_stand_together(assignment):
    assert assignment(*chose([0, 0, 0, 0], [1, 0, 1, 0])).clients == ["b", "d", "a", "c"]


def test_a_client_that_was_not_evaluated_in_the_end_comes_first(assignment):
    assert assignment(*chose([0, 1, 0], [1, 0])).clients == ["c", "b", "a"]


@pytest.mark.parametrize(
    ("rows", "idle"),
    [
        (chose([0, 0]) + weighed(2), True),
        (chose([0, 1], [1, 1]), True),
        (chose([1, 1], [0, 1]), False),
        (chose([0, 0]), False),
        (chose([0, 0]) + weighed(1), False),
    ],
)
def test_one_of_several_models_for_all(assignment, rows, idle):
    assert assignment(*rows).leaves_models_idle is idle


def test_the_only_model_in_use_is_named(assignment):
    sentence = "all clients chose model 2: the other models are not used"
    assert str(assignment(*chose([2, 2]), *weighed(3))) == sentence


@pytest.mark.parametrize("rows", [[], weighed(3), [Row(1, "chosen_model", 0)]])
def test_nothing_was_noted_of_clients(assignment, rows):
    assert assignment(*rows) is None


def test_a_sentence_per_algorithm(tmp_path):
    notes = {
        ("stuck", 0): model_notes(chosen=0),
        ("stuck", 1): model_notes(),
        ("stuck", 2): model_notes(chosen=2),
        ("lively", 0): model_notes(),
        ("fedavg", 0): [],
        ("alone", 4): model_notes(chosen=1),
    }
    runs = [
        load_run(tmp_path / f"{name}-{seed}", algorithm=name, seed=seed, notes=rows)
        for (name, seed), rows in notes.items()
    ]
    ending = "all clients chose the same model in the last round, the other models are not used"
    assert idle_models(runs) == [f"stuck, seeds 0, 2: {ending}", f"alone, seed 4: {ending}"]
