from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.institutions import STUDY

import consort
from consort.deployment.study import Study
from consort.errors import Refused
from consort.experiment.loading import load_recipe
from consort.experiment.recipe import Recipe


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    (tmp_path / "study.toml").write_text(STUDY + "[algorithms.fedavg]\n[algorithms.ditto]\n")
    return load_recipe(tmp_path / "study.toml")


def arrived(study: Study) -> Study:
    return Study(**json.loads(json.dumps(study.table)))


def test_a_study_is_the_same_on_both_sides(recipe):
    sent = Study.of(recipe, "ditto", 3)
    assert arrived(sent).accepted(None) == sent
    assert arrived(sent).accepted(recipe) == sent


def test_it_says_nothing_about_data_and_other_algorithms(recipe):
    sent = Study.of(recipe, "ditto", 3)
    assert list(sent.recipe["algorithms"]) == ["ditto"]
    assert not {"data", "clients", "groups", "title"} & sent.recipe.keys()


def test_whatever_decides_a_number_changes_the_digest(recipe):
    studies = [
        Study.of(recipe, "ditto", 3),
        Study.of(recipe, "ditto", 4),
        Study.of(recipe, "fedavg", 3),
        Study.of(replace(recipe, local={"lr": 0.2}), "ditto", 3),
        Study.of(replace(recipe, batchnorm="local"), "ditto", 3),
    ]
    assert len({study.digest for study in studies}) == len(studies)
    assert Study.of(replace(recipe, title="another"), "ditto", 3).digest == studies[0].digest


def test_another_version_is_refused(recipe):
    sent = replace(Study.of(recipe, "ditto", 3), version="9.9")
    with pytest.raises(
        Refused, match=f"this client has Consort {consort.__version__}, the server 9.9"
    ):
        sent.accepted(None)


def test_another_recipe_is_refused(recipe):
    sent = Study.of(replace(recipe, local={"lr": 0.2}), "ditto", 3)
    with pytest.raises(Refused, match="the client's --recipe differs from the server's"):
        sent.accepted(recipe)
    with pytest.raises(Refused, match="the client's --recipe differs from the server's"):
        Study.of(replace(recipe, algorithms={"scaffold": {}}), "scaffold", 3).accepted(recipe)


@pytest.mark.parametrize(
    "changes",
    [
        {"digest": "0" * 32},
        {"seed": 4},
        {"algorithm": "fedavg"},
        {"recipe": {"algorithms": {"ditto": {"kind": "fedavg"}}}},
    ],
)
def test_a_digest_that_is_not_that_of_the_settings_is_refused(changes, recipe):
    sent = replace(Study.of(recipe, "ditto", 3), **changes)
    with pytest.raises(Refused, match="the digest of the study is not that of its settings"):
        sent.accepted(None)


def test_a_title_is_told_but_decides_nothing(recipe):
    sent = Study.of(replace(recipe, title="Four\nbanks\x1b[2J"), "ditto", 3)
    assert sent.title == "Fourbanks[2J"
    assert arrived(sent).accepted(recipe) == sent


def test_weights_that_both_have_are_compared_by_content(tmp_path):
    studies = []
    for side, content in (("one", b"1"), ("two", b"1"), ("three", b"2")):
        folder = tmp_path / side
        folder.mkdir()
        weights = folder / "weights.safetensors"
        weights.write_bytes(content)
        text = STUDY.replace(
            'name = "mlp"\nhidden = [8]', f'name = "conv_pyramid"\nweights = "{weights}"'
        )
        (folder / "study.toml").write_text(text + "[algorithms.fedavg]\n")
        studies.append(load_recipe(folder / "study.toml"))
    server, same, other = studies
    sent = arrived(Study.of(server, "fedavg", 0))
    assert sent.accepted(same).recipe["model"]["weights"].startswith(str(tmp_path / "two"))
    with pytest.raises(Refused, match="the client's --recipe differs"):
        sent.accepted(other)
    with pytest.raises(Refused, match="it names files or code"):
        sent.accepted(None)


def test_code_that_both_have_is_compared_by_content(tmp_path):
    recipes = []
    for side, text in (("one", "x = 1\n"), ("two", "x = 1\n"), ("three", "x = 2\n")):
        folder = tmp_path / side
        folder.mkdir()
        code = "from consort.algorithms.fedavg import FedAvg\n\n\nclass Mine(FedAvg):\n    pass\n"
        (folder / "mine.py").write_text(text + code)
        (folder / "study.toml").write_text(STUDY + '[algorithms.a]\nkind = "mine.py:Mine"\n')
        recipes.append(load_recipe(folder / "study.toml"))
    server, same, other = recipes
    sent = arrived(Study.of(server, "a", 0))
    taken = sent.accepted(same)
    assert taken.recipe["algorithms"]["a"]["kind"] == str(tmp_path / "two" / "mine.py") + ":Mine"
    with pytest.raises(Refused, match="the client's --recipe differs"):
        sent.accepted(other)
