"""An evil server cannot run code on a client, nor read or write its files, nor learn of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from consort.algorithms.registry import algorithm_places, find_algorithm
from consort.core.wire import encode
from consort.domains.scenes.tasks.segmentation import Segmentation
from consort.errors import ClientFailed, Failure, Tellable, UsageError
from consort.models.registry import ModelSpec, build
from tests.adversaries.evil_server import (
    CLIENT,
    SECRET,
    Answer,
    EvilServer,
    House,
    forged,
    honest_recipe,
    replaced,
    values_in,
    victim,
)
from tests.institutions import holdings

FEDERATED = [name for name in algorithm_places() if not find_algorithm(name).pools_data]
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


@pytest.mark.parametrize(
    "model",
    [
        {"name": "mlp", "hidden": [10**6] * 3},
        {"name": "mlp", "hidden": [10**6] * 200},
        {"name": "mlp", "hidden": [10**12]},
        {"name": "mlp", "hidden": [8] * 10**5},
    ],
)
def test_a_model_that_fills_the_memory_is_not_built(model, house: House, tmp_path: Path):
    server = EvilServer(victim(house), honest_recipe(tmp_path / "mail"))
    answer = server.describe(study=server.proposing({"model": model}))
    assert_refused(answer, house, house.files())
    fml = {"algorithms": {"fedavg": {"kind": "fml", "companion": {}}}}
    server = EvilServer(victim(house), honest_recipe(tmp_path / "mail"))
    study = server.proposing(fml)
    assert server.describe(study=study).payload
    assert_refused(server.initial(study=study, companion=model), house, house.files())


def test_a_companion_is_that_of_the_study_and_stays_the_same(server: EvilServer, house: House):
    assert "not that of the study" in server.initial(companion={"name": "mlp"}).error
    if server.client.agreed is None:
        study = server.proposing({"algorithms": {"fedavg": {"kind": "fml", "companion": {}}}})
        first, second = ({"name": "mlp", "hidden": [size]} for size in (4, 5))
        assert server.initial(study=study, companion=first).payload
        assert "another one than before" in server.initial(study=study, companion=second).error
        named = {"kind": "fml", "companion": first}
        study = server.proposing({"algorithms": {"fedavg": named}})
        assert "not that of the study" in server.initial(study=study, companion=second).error


@pytest.mark.parametrize(
    "changes",
    [
        {"run": {"rounds": 10**12}}, {"local": {"epochs": 10**9}}, {"local": {"steps": 10**9}},
        {"run": {"tuning_epochs": 10**9}}, {"compute": {"threads": 10**6}},
        {"algorithms": {"fedavg": {"kind": "centralised"}}}, {"attack": {"by": ["nan"]}},
        {"algorithms": {"fedavg": {"attack": {"by": ["backdoor"]}}}},
        {"algorithms": {"fedavg": {}, "ditto": {}}}, {"clients": 3}, {"title": 3}, {"evil": 1},
        {"data": {"name": "cedar"}}, {"verification": {}, "unseen": {"x": {"users": 2}}},
        {"verification": {}, "unseen": {"x": {"data": {"name": "cedar"}}}},
        {"evaluations": {"verification": {}}}, {"protection": {"privacy": {}}}, {"seeds": [1]},
    ],
)  # fmt: skip
def test_a_study_cannot_ask_for_everything(changes, house: House, tmp_path: Path):
    server = EvilServer(victim(house), honest_recipe(tmp_path / "mail"))
    allowed = changes == {"seeds": [1]}  # which decide nothing
    answer = server.describe(study=server.proposing(changes))
    if allowed:
        assert answer.payload
    else:
        assert_refused(answer, house, house.files())


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("describe", {"told": 3}), ("describe", {"told": "../x"}), ("describe", {"number": -1}),
        ("describe", {"number": True}), ("describe", {"number": 1.0}), ("describe", {"kind": 3}),
        ("describe", {"number": 10**40}), ("describe", {"session": 3}), ("describe", {"x": 1}),
        ("describe", {"session": "../../" + "a" * 26}), ("describe", {"known": 1}),
        ("describe", {"seconds": -1}), ("describe", {"study": None}), ("describe", {"study": {}}),
        ("initial", {"draw": 10**9}), ("initial", {"draw": -1}), ("initial", {"draw": "0"}),
        ("initial", {"companion": 3}), ("initial", {"companion": [{}]}),
        ("call", {"counted": [1]}), ("call", {"counted": ["/../x", 0]}), ("call", {"counted": {}}),
        ("call", {"evaluation": True}), ("call", {"call": [CLIENT, "train", 1, 0]}),
        ("call", {"call": [CLIENT, "../x", 1, 0, 0]}),
        ("call", {"call": [CLIENT, "train", 3, 0, 0]}),
        ("call", {"call": ["../b-0", "train", 1, 0, 0]}), ("call", {"call": {}}),
        ("call", {"call": [CLIENT, "__class__", 1, 0, 0]}),
        ("call", {"call": [CLIENT, 3, 1, 0, 0]}), ("call", {"call": [CLIENT, "start", 1, 0, 0]}),
        ("call", {"call": [CLIENT, "local", 1, 0, 0]}),
    ],
)  # fmt: skip
def test_a_header_is_what_it_should_be_or_is_refused(kind, changes, server: EvilServer, house):
    answer = {"describe": server.describe, "initial": server.initial, "call": server.call}[kind]
    assert_refused(answer(**changes), house, house.files())
    assert server.describe().payload  # and the client goes on


@pytest.mark.parametrize("data", [b"", b"{}", b"[" * 10**5, b"null", b"\xff", b"{" * 10**6])
def test_nor_does_anything_else_stop_a_client(data, server: EvilServer, house: House):
    assert_refused(server.send(data), house, house.files())
    assert "error" in json.loads(server.client.answer({})["header"])
    assert server.describe().payload


def test_parts_that_are_missing_or_damaged_stop_nobody(server: EvilServer, house: House):
    for parts in ({}, {"shared": b"", "own": b""}, {"shared": encode({}), "own": encode([1])}):
        assert_refused(server.send(server.header("call"), **parts), house, house.files())


@pytest.mark.parametrize("field", ["digest", "seed", "algorithm", "version"])
def test_a_digest_that_does_not_fit_is_refused(field, server: EvilServer, house: House):
    other = {"digest": "0" * 32, "seed": 1, "algorithm": "ditto", "version": "9.9"}[field]
    assert_refused(server.describe(study=server.study | {field: other}), house, house.files())


def test_the_digest_of_another_study_changes_nothing(server: EvilServer):
    """A client that has joined a study uses what it has joined, whatever else arrives with it."""
    told = server.describe().payload
    evil = server.proposing({"model": {"name": "os:system"}}) | {"digest": server.study["digest"]}
    assert server.describe(study=evil).payload == told


def evil_values(house: House) -> list[Any]:
    return [
        house.places["file"], str(house.weights), None, -1, {"name": house.places["module"]},
        {house.places["file"]: {}},
    ]  # fmt: skip


def test_whatever_stands_anywhere_in_a_recipe_nothing_is_told_of_the_machine(
    house: House, tmp_path: Path
):
    server = EvilServer(victim(house), honest_recipe(tmp_path / "mail"))
    before, refused = house.files(), 0
    recipe = server.study["recipe"]
    recipe |= {"verification": {}, "unseen": {"x": {"data": {"name": "synthetic_signatures"}}}}
    recipe |= {"obfuscation": {"name": "fp_dfsn"}, "privacy": {"level": "client", "noise": 1.0}}
    places = [path for path, _ in values_in(recipe) if path]
    for path in places:
        for value in evil_values(house):
            table = server.study | {"recipe": replaced(recipe, path, value)}
            answer = server.describe(study=table | {"digest": forged(table)})
            if answer.error:
                refused += 1
                assert_refused(answer, house, before)
            else:
                assert SECRET.encode() not in answer.content
                assert not house.mark.exists()
    assert refused > 200


def test_errors_of_every_kind_are_told_by_their_kind_only(house: House, tmp_path: Path):
    """Whatever goes wrong on the client's machine, with its path or values in the message."""
    recipe = honest_recipe(tmp_path / "mail", "[algorithms.fedavg]\n")
    secret = f"{house.folder}/{SECRET}"
    for error in (
        UsageError(f"{secret} is missing"), Failure(f"{secret} is damaged"),
        OSError(2, "x", secret), PermissionError(13, secret), MemoryError(secret),
        ValueError(secret), KeyError(secret), RuntimeError(secret), RecursionError(secret),
        ClientFailed(secret, secret, secret), StopIteration(secret), AssertionError(secret),
        UnicodeDecodeError("utf-8", b"x", 0, 1, secret),
    ):  # fmt: skip
        said: list[str] = []
        client = victim(house, say=said.append)
        server = EvilServer(client, recipe)
        server.describe()
        with broken(error):
            answer = server.call({})
        assert_refused(answer, house, house.files())
        assert answer.error.startswith(type(error).__name__)
        assert SECRET in "".join(said)  # the owner reads all of it


@contextmanager
def broken(error: Exception) -> Iterator[None]:
    """The data of the client cannot be loaded, for the reason that is given."""

    def fails(*_: Any) -> Any:
        raise error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("consort.engines.states.StateStore.load", fails)
        yield


def test_what_may_be_told_is_told(house: House, tmp_path: Path):
    server = EvilServer(victim(house), honest_recipe(tmp_path / "mail"))
    server.describe()
    with broken(Tellable("the loss became nan")):
        assert server.call({}).error == "the loss became nan"
    with broken(OSError(28, "No space left on device", SECRET)):
        assert server.call({}).error == "its disk is full"


def test_what_a_client_brings_is_described_without_its_paths(house: House, tmp_path: Path):
    (house.folder / "net.py").write_text(
        "from consort.models.mlp import Mlp\nclass Net(Mlp):\n    pass\n"
    )
    brings = {
        "data": holdings(CLIENT),
        "model": {"name": f"{house.folder / 'net.py'}:Net", "hidden": [4]},
    }
    server = EvilServer(victim(house, brings=brings), honest_recipe(tmp_path / "mail"))
    answer = server.describe()
    assert answer.payload["model"]["name"] == "Net"
    assert str(house.folder).encode() not in answer.content
    assert server.call().payload


def test_weights_of_the_client_itself_are_used_and_not_named(house: House, tmp_path: Path):
    brings = {
        "data": {"name": "synthetic_scenes", "examples": 30, "size": 32},
        "model": {"name": "conv_pyramid", "widths": [8], "weights": str(house.folder / "own.st")},
    }
    spec = ModelSpec.of({"name": "conv_pyramid", "widths": [8]})
    own = build(spec, {"s": Segmentation(3)}, torch.zeros(3, 32, 32), 7).encoder
    save_file(own.state_dict(), house.folder / "own.st")
    server = EvilServer(victim(house, brings=brings), honest_recipe(tmp_path / "mail"))
    answer = server.describe()
    assert answer.payload["model"] == {
        key: value for key, value in answer.payload["model"].items() if key != "weights"
    }
    assert b"own.st" not in answer.content
    name, values = next(iter(own.named_parameters()))
    assert server.initial().payload["model"][f"encoder.{name}"].equal(values)


@pytest.mark.parametrize("name", FEDERATED)
def test_no_algorithm_is_a_way_in(name, house: House, tmp_path: Path):
    """The same tricks with the client half of every algorithm."""
    recipe = honest_recipe(tmp_path / "mail", f"[algorithms.{name}]\n")
    server = EvilServer(victim(house), recipe, name)
    told = server.describe().payload
    before = house.files()
    model = {"model": server.initial().payload["model"]}
    for method in ("train", "test"):
        for numbers in (["/../../../mark", 0, 0], [1, "/../../../mark", 0], [10**6, 0, 0]):
            assert_refused(server.call(model, call=[CLIENT, method, *numbers]), house, before)
        evil = {"name": house.places["file"]}
        answer = server.call(model, call=[CLIENT, method, 1, 0, 0], companion=evil)
        assert_refused(answer, house, before)
    for place in house.places.values():
        table = {"algorithms": {name: {"kind": place}}}
        assert_refused(server.describe(study=server.proposing(table)), house, before)
    assert server.describe().payload == told
