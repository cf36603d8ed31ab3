from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.institutions import STUDY

import consort
from consort.deployment.study import Study, refuse_code
from consort.errors import UsageError
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
        UsageError, match=f"this client has Consort {consort.__version__}, the server 9.9"
    ):
        sent.accepted(None)


def test_another_recipe_is_refused(recipe):
    sent = Study.of(replace(recipe, local={"lr": 0.2}), "ditto", 3)
    with pytest.raises(UsageError, match="the client's --recipe differs from the server's"):
        sent.accepted(recipe)
    with pytest.raises(UsageError, match="the client's --recipe differs from the server's"):
        Study.of(replace(recipe, algorithms={"scaffold": {}}), "scaffold", 3).accepted(recipe)


def test_a_digest_is_not_believed(recipe):
    sent = replace(Study.of(recipe, "ditto", 3), digest="../../somewhere")
    assert sent.accepted(None).digest == Study.of(recipe, "ditto", 3).digest


@pytest.mark.parametrize("place", ["my.py:Algorithm", "os:system", "a b.py:X", "../x.py:Y"])
def test_code_is_never_taken_from_the_wire(place, recipe):
    sent = Study.of(recipe, "ditto", 3)
    for table in ({"kind": place}, {"companion": {"name": place}}, {"x": [1, {"y": place}]}):
        settings = sent.recipe | {"algorithms": {"ditto": table}}
        with pytest.raises(UsageError, match="refers to code of its own"):
            replace(sent, recipe=settings).accepted(None)
        with pytest.raises(UsageError, match="refers to code of its own"):
            refuse_code(table)


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
    with pytest.raises(UsageError, match="the client's --recipe differs"):
        sent.accepted(other)
