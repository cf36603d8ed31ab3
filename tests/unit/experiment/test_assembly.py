"""From recipes to federations: who holds what, and what is written down about it."""

from __future__ import annotations

import json
import platform
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.helpers import assert_same
from tests.unit.cli.command import TIMING

import consort
from consort.core.messages import Payload
from consort.core.row import Row
from consort.core.sealed import write_json
from consort.data.partition import fingerprint, load_partition
from consort.data.registry import load_dataset
from consort.engines.choice import EngineChoice, EngineName
from consort.errors import Failure, UsageError
from consort.experiment.allocation import _dataset, dataset_of
from consort.experiment.assembly import assemble
from consort.experiment.loading import recipe_of
from consort.experiment.preparation import prepare_run, reassemble, resume_run
from consort.experiment.recipe import Recipe
from consort.experiment.run_folder import environment
from consort.results.result import Result
from consort.run.folder import read_description

VECTORS = {"name": "synthetic_vectors", "classes": 4, "examples": 120, "features": 6}
PICTURES = {"name": "synthetic_shapes", "examples": 120, "size": 8, "shapes": 3, "textures": 2}
MLP = {"name": "mlp", "hidden": [8]}


def recipe(*groups: dict[str, Any], **changes: Any) -> Recipe:
    who = {"groups": list(groups)} if groups else {"clients": 3}
    table = {
        "title": "tiny",
        "data": VECTORS,
        "model": MLP,
        "run": {"rounds": 2},
        "local": {"lr": 0.1},
        "algorithms": {"fedavg": {}, "ditto": {}},
    }
    return recipe_of({**table, **who, **changes}, "tiny.toml")


def indices(share: Any) -> set[int]:
    parts = (share.train, share.validation, share.test)
    assert sum(map(len, parts)) == len(set(np.concatenate(parts).tolist()))
    return set(np.concatenate(parts).tolist())


def numbers(history: Any) -> list[Row]:
    return [row for row in history if row.metric not in TIMING]


def test_groups_with_the_same_data_hold_different_examples():
    made = assemble(recipe({"name": "a", "count": 2}, {"name": "b", "count": 3}), 0, None)
    assert list(made.shares) == ["a-0", "a-1", "b-0", "b-1", "b-2"]
    held = [indices(share) for share in made.shares.values()]
    assert all(one.isdisjoint(other) for one, other in combinations(held, 2))
    assert set.union(*held) == set(range(120))


def test_groups_share_data_wherever_they_stand_in_the_recipe():
    apart = {"data": {**VECTORS, "examples": 60}}
    groups = [
        {"name": "a", "count": 2},
        {"name": "x", "count": 1, **apart},
        {"name": "b", "count": 2},
    ]
    shares = assemble(recipe(*groups), 0, None).shares
    held = {name: indices(share) for name, share in shares.items()}
    same = [held[name] for name in ("a-0", "a-1", "b-0", "b-1")]
    assert sum(map(len, same)) == len(set.union(*same)) == 120
    assert held["x-0"] == set(range(60))


def test_other_data_for_another_group():
    groups = [
        {"name": "numbers", "count": 2},
        {"name": "pictures", "count": 2, "data": PICTURES, "tasks": ["shape"]},
    ]
    federation = assemble(recipe(*groups), 0, None).federation
    assert federation.data("numbers-0").train.inputs.shape[1:] == (6,)
    assert federation.data("pictures-1").train.inputs.shape[1:] == (3, 8, 8)
    assert list(federation.members["pictures-0"].tasks) == ["shape"]


def test_every_client_gets_the_rows_of_its_share():
    made = assemble(recipe(), 0, None)
    dataset = load_dataset("synthetic_vectors", 0, None, classes=4, examples=120, features=6)
    for name, share in made.shares.items():
        splits = made.federation.data(name)
        for index, examples in (
            (share.train, splits.train),
            (share.validation, splits.validation),
            (share.test, splits.test),
        ):
            rows = torch.from_numpy(index)
            assert torch.equal(examples.inputs, dataset.examples.inputs[rows])
            assert torch.equal(
                examples.targets["classify"], dataset.examples.targets["classify"][rows]
            )


def test_data_that_no_seed_decides_are_read_once_for_all_seeds(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    loaders = (
        f"def {name}:\n    return synthetic_vectors(seed=0)\n" for name in ("read()", "drawn(seed)")
    )
    source = "from consort.domains.vectors.synthetic import synthetic_vectors\n" + "".join(loaders)
    Path("own.py").write_text(source)
    read, drawn = (
        [dataset_of({"name": f"own.py:{name}"}, seed, None) for seed in (1, 2, 1)]
        for name in ("read", "drawn")
    )
    assert read[0] is read[1] is read[2]
    assert drawn[0] is drawn[2] is not drawn[1]


def test_a_seed_decides_the_data_and_the_cut():
    one, same, other = (assemble(recipe(), seed, None) for seed in (0, 0, 1))
    assert one.description == same.description
    assert one.description["partition"] != other.description["partition"]
    assert not torch.equal(
        one.federation.data("client-0").train.inputs, other.federation.data("client-0").train.inputs
    )


def test_some_classes_numbered_anew_in_the_order_given():
    groups = [{"name": "a", "count": 2, "classes": [3, 1]}, {"name": "b", "count": 1}]
    made = assemble(recipe(*groups), 0, None)
    dataset = load_dataset("synthetic_vectors", 0, None, classes=4, examples=120, features=6)
    for name in ("a-0", "a-1"):
        share, splits = made.shares[name], made.federation.data(name)
        labels = dataset.labels[share.train]
        assert set(labels) == {1, 3}
        assert splits.train.targets["classify"].tolist() == [{3: 0, 1: 1}[k] for k in labels]
        assert made.federation.members[name].tasks["classify"].classes == 2
        assert set(made.description["clients"][name]["labels"]) == {"1", "3"}
        assert made.federation.blueprint(name).shapes["heads.classify.weight"] == (2, 8)
    assert made.federation.members["b-0"].tasks["classify"].classes == 4
    assert made.federation.blueprint("b-0").shapes["heads.classify.weight"] == (4, 8)


def test_some_tasks_of_the_data():
    groups = [
        {"name": "shape", "count": 1, "tasks": ["shape"]},
        {"name": "both", "count": 1},
        {"name": "texture", "count": 1, "tasks": ["texture"]},
    ]
    made = assemble(recipe(*groups, data=PICTURES), 0, None)
    tasks = {name: list(client["tasks"]) for name, client in made.description["clients"].items()}
    expected = {"both-0": ["shape", "texture"], "shape-0": ["shape"], "texture-0": ["texture"]}
    assert tasks == expected
    for name, names in expected.items():
        assert list(made.federation.data(name).train.targets) == names
        assert list(made.federation.roster.tasks[name]) == names
    assert list(made.description["tasks"]) == ["shape", "texture"]


def test_models_are_taken_in_turns():
    small, large = {"name": "mlp", "hidden": [4]}, {"name": "mlp", "hidden": [5, 5]}
    clients = assemble(recipe(model=[small, large]), 0, None).description["clients"]
    assert [client["model"] for client in clients.values()] == [
        "mlp(hidden=(4,))",
        "mlp(hidden=(5, 5))",
        "mlp(hidden=(4,))",
    ]
    assert clients["client-0"]["parameters"] == 6 * 4 + 4 + 4 * 4 + 4
    assert clients["client-1"]["parameters"] == 6 * 5 + 5 + 5 * 5 + 5 + 5 * 4 + 4


def test_names_are_as_wide_as_the_largest_so_that_they_sort():
    data = {**VECTORS, "examples": 220}
    names = list(assemble(recipe(clients=11, data=data), 0, None).description["clients"])
    assert names[:3] == ["client-00", "client-01", "client-02"]
    assert names[-1] == "client-10"


def test_the_description_counts_what_clients_hold():
    made = assemble(recipe(partition={"by": "classes", "classes_per_client": 2}), 0, None)
    for name, client in made.description["clients"].items():
        share = made.shares[name]
        sizes = len(share.train), len(share.validation), len(share.test)
        assert (client["train"], client["validation"], client["test"]) == sizes
        assert sum(client["labels"].values()) == sum(sizes)
        assert len(client["labels"]) == 2
    assert made.description["partition"] == fingerprint(made.shares.values())


@pytest.mark.parametrize(("groups", "changes", "message"), [
    ([{"name": "a", "count": 2, "tasks": ["colour"]}], {"data": PICTURES},
     r"group a: synthetic_shapes has no task 'colour' \(shape, texture\)"),
    ([{"name": "a", "count": 2, "tasks": ["shape"]}],
     {"data": PICTURES, "partition": {"by": "task"}}, "client a-1 is left without a task"),
    ([{"name": "a", "count": 2, "classes": [0]}], {"data": PICTURES},
     "group a: `classes` needs data with a single task"),
    ([{"name": "a", "count": 4, "classes": [3]}], {}, r"classes = \[3\] leaves nothing"),
    ([{"name": "a", "count": 4, "classes": [2, 3]}],
     {"partition": {"by": "classes", "classes_per_client": 1}},
     r"client a-\d holds no example of .*\[2, 3\]"),
    ([], {"data": {}}, "names no data"),
])  # fmt: skip
def test_what_cannot_be_assembled(groups, changes, message):
    with pytest.raises(UsageError, match=message):
        assemble(recipe(*groups, **changes), 0, None)


def test_the_run_writes_down_what_decides_its_numbers(tmp_path: Path):
    given = recipe()
    prepare_run(given, "ditto", 7, tmp_path / "run", engine=EngineChoice(workers=2))
    written = json.loads((tmp_path / "run" / "run.json").read_text())
    assert len(written.pop("digest")) == 32
    assert written == read_description(tmp_path / "run")
    assert written["recipe"] == given.table
    chosen = {key: written[key] for key in (
        "title", "algorithm", "kind", "reports", "seed", "rounds", "workers", "engine",
        "address", "data",
    )}  # fmt: skip
    assert chosen == {
        "title": "tiny", "algorithm": "ditto", "kind": "Ditto", "reports": "personal", "seed": 7,
        "rounds": 2, "workers": 2, "engine": None, "address": None, "data": None,
    }  # fmt: skip
    assert written["description"].startswith("FedAvg, and on every client a personal model")
    assert written["tasks"] == {
        "classify": {"kind": "Classification", "metric": "accuracy", "higher_is_better": True}
    }
    assert list(written["clients"]) == ["client-0", "client-1", "client-2"]
    assert written["environment"] == environment()


def test_the_partition_is_saved_with_the_run(tmp_path: Path):
    prepare_run(recipe(), "fedavg", 0, tmp_path)
    saved = load_partition(tmp_path / "partition.json")
    made = assemble(recipe(), 0, None)
    assert list(saved) == list(made.shares)
    assert fingerprint(saved.values()) == read_description(tmp_path)["partition"]


def test_the_environment_names_versions_and_the_machine():
    found = environment()
    assert found["consort"] == consort.__version__
    assert found["torch"] == torch.__version__
    assert found["numpy"] == np.__version__
    assert found["python"] == platform.python_version()
    assert found["cores"] >= 1
    versions = {"consort", "commit", "torch", "numpy", "python"}
    assert set(found) == versions | {"platform", "cpu", "cores"}
    assert json.loads(json.dumps(found)) == found


def test_a_run_is_resumed_from_its_folder_alone(tmp_path: Path):
    straight = prepare_run(recipe(), "ditto", 1, tmp_path / "a")
    expected = numbers(straight.go())
    prepare_run(recipe(), "ditto", 1, tmp_path / "b")
    resumed = resume_run(tmp_path / "b", workers=2)
    assert resumed.workers == 2
    assert numbers(resumed.go()) == expected


@pytest.mark.parametrize("name", [EngineName.embedded, EngineName.workers])
def test_the_engine_is_written_down_and_decides_no_number(name, tmp_path: Path):
    expected = numbers(prepare_run(recipe(), "ditto", 1, tmp_path / "a").go())
    chosen = EngineChoice(name)
    assert numbers(prepare_run(recipe(), "ditto", 1, tmp_path / "b", None, chosen).go()) == expected
    assert read_description(tmp_path / "b")["engine"] == name
    again = prepare_run(recipe(), "ditto", 1, tmp_path / "b", None, EngineChoice(workers=2))
    assert numbers(again.go()) == expected


def test_a_run_from_before_engines_had_names_is_resumed(tmp_path: Path):
    expected = numbers(prepare_run(recipe(), "ditto", 1, tmp_path / "a").go())
    prepare_run(recipe(), "ditto", 1, tmp_path / "b")
    written = read_description(tmp_path / "b")
    del written["engine"], written["address"]
    write_json(tmp_path / "b" / "run.json", written)
    assert numbers(resume_run(tmp_path / "b").go()) == expected


def test_another_machine_makes_the_same_clients(tmp_path: Path):
    given = recipe(algorithms={"centralised": {}})
    prepare_run(given, "centralised", 1, tmp_path)
    written = read_description(tmp_path)
    told = {key: written[key] for key in ("recipe", "algorithm", "seed", "data", "partition")}
    federation, algorithm = reassemble(**told)
    made = assemble(recipe(), 1, None).federation.pooled()
    assert type(algorithm).__name__ == written["kind"]
    assert federation.client_ids == made.client_ids
    for client in federation.members:
        assert_same(federation.data(client), made.data(client))
        assert_same(federation.blueprint(client).params, made.blueprint(client).params)
    with pytest.raises(Failure, match=r"the data of this machine .* are not those of the run"):
        reassemble(**told | {"partition": "another"})


def test_an_engine_that_cannot_be_is_refused():
    with pytest.raises(UsageError, match="the embedded engine is one process"):
        EngineChoice(EngineName.embedded, 2)
    with pytest.raises(UsageError, match="add --engine ray"):
        EngineChoice(EngineName.workers, 2, "auto")


def test_a_recipe_with_groups_is_resumed_too(tmp_path: Path):
    groups = [
        {"name": "a", "count": 2, "classes": [3, 1]},
        {
            "name": "b",
            "count": 1,
            "data": {**VECTORS, "examples": 60},
            "partition": {"by": "dirichlet"},
            "model": [MLP],
        },
    ]
    given = recipe(*groups, algorithms={"fedper": {}})
    expected = numbers(prepare_run(given, "fedper", 0, tmp_path / "a").go())
    prepare_run(given, "fedper", 0, tmp_path / "b")
    assert numbers(resume_run(tmp_path / "b").go()) == expected


@pytest.mark.parametrize(("changes", "name", "seed", "what"), [
    ({"local": {"lr": 0.2}}, "fedavg", 0, r"recipe \(recipe\.local\.lr: 0\.1, now 0\.2\)"),
    ({}, "ditto", 0, "algorithm"),
    ({}, "fedavg", 1, "seed"),
])  # fmt: skip
def test_a_folder_belongs_to_one_run(changes, name, seed, what, tmp_path: Path):
    prepare_run(recipe(), "fedavg", 0, tmp_path).go()
    with pytest.raises(UsageError, match=f"holds a run with another {what}: choose another --out"):
        prepare_run(recipe(**changes), name, seed, tmp_path)


def test_a_run_of_a_version_with_fewer_keys_goes_on(tmp_path: Path):
    prepare_run(recipe(), "fedavg", 0, tmp_path).go()
    path = tmp_path / "run.json"
    written = json.loads(path.read_text())
    for key in ("refuse_imprints", "robust", "unseen"):
        del written["recipe"][key]
    write_json(path, written)
    prepare_run(recipe(), "fedavg", 0, tmp_path)
    with pytest.raises(UsageError, match="another recipe"):
        prepare_run(recipe(refuse_imprints=True), "fedavg", 0, tmp_path)


def test_data_that_changed_since_the_run_began_are_noticed(tmp_path: Path):
    """As when somebody puts other files into the data folder."""
    rng = np.random.default_rng(0)
    arrays: Payload = {"x": rng.integers(0, 255, (60, 28, 28), dtype=np.uint8)}
    arrays["y"], arrays["client"] = rng.integers(0, 10, 60), np.arange(60) % 3
    folder = tmp_path / "data" / "images"
    folder.mkdir(parents=True)
    file = folder / "femnist_digits_12clients.npz"
    np.savez(file, **arrays)
    given = recipe(data={"name": "femnist"}, partition={"by": "natural"})
    prepare_run(given, "fedavg", 0, tmp_path / "run", tmp_path / "data").go()
    assert resume_run(tmp_path / "run").go()
    arrays["client"][0] = 1
    np.savez(file, **arrays)
    _dataset.cache_clear()  # as in another process: each reads a data set once
    with pytest.raises(UsageError, match="another partition"):
        resume_run(tmp_path / "run")


def test_a_partition_that_was_changed_is_noticed(tmp_path: Path):
    prepare_run(recipe(), "fedavg", 0, tmp_path / "a")
    prepare_run(recipe(), "fedavg", 1, tmp_path / "b")
    (tmp_path / "b" / "partition.json").rename(tmp_path / "a" / "partition.json")
    with pytest.raises(Failure, match=r"partition\.json was changed since the run began"):
        resume_run(tmp_path / "a")


def test_a_folder_without_a_run(tmp_path: Path):
    with pytest.raises(UsageError, match=r"holds no run: there is no run\.json in it"):
        read_description(tmp_path)


def test_the_best_round_is_the_one_validation_prefers(tmp_path: Path):
    given = recipe(run={"rounds": 8}, local={"lr": 2.0}, data={**VECTORS, "examples": 600})
    history = prepare_run(given, "fedavg", 3, tmp_path).go()
    rows = [row for row in history if row.metric == "accuracy"]
    means = {
        (split, round_): np.mean([r.value for r in rows if (r.split, r.round) == (split, round_)])
        for split in ("validation", "test")
        for round_ in range(1, 9)
    }
    best = max(range(1, 9), key=lambda r: (means["validation", r], -r))
    result = Result.load(tmp_path)
    assert (result.best_round, result.last_round) == (best, 8)
    assert result.value("accuracy") == pytest.approx(means["test", 8])
    assert result.value("best_accuracy") == pytest.approx(means["test", best])


def test_the_same_data_cannot_be_cut_in_two_ways():
    """Two cuts of the same data overlap: one group's test examples would train the other."""
    groups = [
        {"name": "a", "count": 2},
        {"name": "b", "count": 2, "partition": {"by": "quantity"}},
    ]
    with pytest.raises(UsageError, match="groups a and b cut the same data in different ways"):
        assemble(recipe(*groups), 0, None)


# Obfuscation

FINGERS = {
    "clients": 3,
    "data": {"name": "synthetic_fingerprints", "fingers": 15, "impressions": 2, "size": 32},
    "partition": {"min_examples": 3},
    "model": {"name": "siamese", "scale": 0.125},
    "algorithms": {"fedavg": {}},
}


def loaded(**changes):
    return assemble(recipe_of({**FINGERS, **changes}, "here"), 0, None).federation


def test_clients_take_obfuscations_in_turns():
    plain = loaded()
    blurred = loaded(obfuscation=[{"beta": 0.25, "sigma": 0.0}, {"beta": 0.5, "sigma": 0.0}])
    for client, factor in zip(plain.client_ids, (0.75, 0.5, 0.75), strict=True):
        for one, other in zip(_parts(plain, client), _parts(blurred, client), strict=True):
            assert torch.equal(one.inputs * factor, other.inputs)


def _parts(federation, client):
    splits = federation.data(client)
    return splits.train, splits.validation, splits.test


def test_an_empty_table_is_the_usual_obfuscation():
    assert not torch.equal(
        loaded(obfuscation={}).data("client-0").test.inputs, loaded().data("client-0").test.inputs
    )


def test_a_group_may_have_an_obfuscation_of_its_own():
    groups = [
        {"name": "open", "count": 1},
        {"name": "shy", "count": 1, "obfuscation": {"beta": 1.0, "sigma": 0.0}},
    ]
    table = {key: value for key, value in FINGERS.items() if key != "clients"}
    federation = assemble(recipe_of({**table, "groups": groups}, "here"), 0, None).federation
    assert federation.data("open-0").train.inputs.any()
    assert not federation.data("shy-0").train.inputs.any()


def test_wrong_obfuscations_are_named():
    with pytest.raises(UsageError, match=r"unknown key obfuscation\.betta.*'beta'"):
        recipe_of({**FINGERS, "obfuscation": {"betta": 0.5}}, "here")
    with pytest.raises(UsageError, match=r"obfuscation\.beta"):
        recipe_of({**FINGERS, "obfuscation": [{"beta": 1.5}]}, "here")
    pictures = {"name": "synthetic_images", "per_class": 3}
    cut = {"min_examples": 3}
    with pytest.raises(UsageError, match="obfuscation needs images with values from 0 to 1"):
        loaded(data=pictures, partition=cut, obfuscation={}, model={"name": "cnn4"})
