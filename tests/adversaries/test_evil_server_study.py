"""An evil server cannot run code on a client, nor read or write its files, nor learn of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.adversaries.evil_server import (
    CLIENT,
    SECRET,
    Answer,
    EvilServer,
    House,
    honest_recipe,
    victim,
)

PLACES = ("file", "relative", "module", "system", "own", "missing")


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path / "house").furnish()


@pytest.fixture(params=["any recipe", "--recipe"])
def server(request: pytest.FixtureRequest, house: House, tmp_path: Path) -> EvilServer:
    recipe = honest_recipe(tmp_path / "mail")
    return EvilServer(victim(house, recipe if request.param == "--recipe" else None), recipe)


def assert_refused(answer: Answer, house: House, before: set[str]) -> None:
    """Nothing ran, nothing was read or written, and the server learns of no file."""
    assert not house.mark.exists()
    assert answer.error
    assert not answer.content
    for word in (SECRET, str(house.folder), "Traceback", "Errno", "no such file", "\n"):
        assert word.lower() not in answer.error.lower()
    assert house.files() == before


@pytest.mark.parametrize("kind", ["initial", "call"])
@pytest.mark.parametrize("place", PLACES)
def test_a_companion_is_no_way_to_run_code(place, kind, server: EvilServer, house: House):
    before = house.files()
    companion = {"name": house.places[place], "cmd": f"touch {house.mark}"}
    ask = server.initial if kind == "initial" else server.call
    assert_refused(ask(companion=companion), house, before)


def code_in_recipes(place: str) -> dict[str, dict[str, Any]]:
    return {
        "key": {"algorithms": {place: {}}},
        "kind": {"algorithms": {"fedavg": {"kind": place}}},
        "companion": {"algorithms": {"fedavg": {"kind": "fml", "companion": {"name": place}}}},
        "model": {"model": {"name": place}},
        "models": {"model": [{"name": place}]},
        "augment": {"local": {"augment": place}},
        "own augment": {"algorithms": {"fedavg": {"local": {"augment": place}}}},
        "obfuscation": {"obfuscation": {"name": place}},
        "obfuscations": {"obfuscation": [{"name": place}]},
        "evaluation": {"evaluations": {place: {}}},
        "protection": {"protection": {place: {}}},
        "own protection": {"algorithms": {"fedavg": {"protection": {place: {}}}}},
        "unseen": {"verification": {}, "unseen": {"x": {"data": {"name": place}}}},
        "data": {"data": {"name": place}},
        "groups": {"groups": [{"name": "a", "count": 1, "model": {"name": place}}]},
    }


@pytest.mark.parametrize("where", code_in_recipes(""))
@pytest.mark.parametrize("place", PLACES)
def test_nor_is_any_key_of_a_recipe(where, place, server: EvilServer, house: House):
    before = house.files()
    changes = code_in_recipes(house.places[place])[where]
    table = server.proposing(changes)
    if where == "key":
        table["recipe"]["algorithms"] = changes["algorithms"]
        table |= {"algorithm": house.places[place]}
        table |= {"digest": server.proposing({}, **table)["digest"]}
    assert_refused(server.describe(study=table), house, before)


@pytest.mark.parametrize("step", ["/../../../mark", "0/../../../mark", 1.5, True, -1, None, 10**30])
@pytest.mark.parametrize("position", [2, 3, 4])
def test_numbers_of_a_call_are_no_paths(position, step, server: EvilServer, house: House):
    before = house.files()
    call = [CLIENT, "train", 1, 0, 0]
    call[position] = step
    assert_refused(server.call(call=call), house, before)


def test_files_cannot_be_read_as_weights(house: House, tmp_path: Path):
    recipe = honest_recipe(tmp_path / "mail")
    brings = {"data": {"name": "synthetic_scenes", "examples": 30, "size": 32}}
    errors = []
    for path in (house.weights, house.code, house.folder, house.folder / "nothing", "", "a/b"):
        server = EvilServer(victim(house, brings=brings), recipe)
        before = house.files()
        model = {"name": "conv_pyramid", "widths": [8], "weights": str(path)}
        answer = server.describe(study=server.proposing({"model": model}))
        if path:
            assert_refused(answer, house, before)
            errors.append(answer.error)
        else:
            assert answer.payload["model"]["name"] == "conv_pyramid"
    assert len(set(errors)) == 1  # so nobody learns which of them exist
