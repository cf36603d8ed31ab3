from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

import pytest
from pydantic import Field, Strict

from consort.core.validation import checked, checked_options
from consort.errors import UsageError


def brew(water, *, cups: Annotated[int, Field(ge=1)], kind: Literal["tea", "coffee"] = "tea"):
    return water, cups, kind


class Pot:
    def __init__(self, size, lids: tuple[int, ...] = (1, 2), name=None) -> None:
        self.made = size, lids, name


def test_options_are_all_parameters_but_those_set_apart_in_their_order():
    assert list(
        checked_options("tea", brew, {"kind": "coffee", "cups": 2}, ("water",)).items()
    ) == [
        ("cups", 2),
        ("kind", "coffee"),
    ]
    assert checked_options("pot", Pot, {}, ("size",)) == {"lids": (1, 2), "name": None}


def test_a_list_from_a_recipe_becomes_the_tuple_that_is_meant():
    assert checked_options("pot", Pot, {"lids": [3]}, ("size",))["lids"] == (3,)


def test_what_is_not_annotated_is_taken_as_it_is():
    assert checked_options("pot", Pot, {"name": {"a": [1]}}, ("size",))["name"] == {"a": [1]}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "the tea needs its option 'cups'"),
        ({"cup": 2}, "the tea has no option 'cup': did you mean 'cups'? (there are: cups, kind)"),
        ({"water": 1}, "the tea has no option 'water'"),
        ({"cups": 0}, "the tea cannot have cups = 0: input should be greater than or equal to 1"),
        ({"cups": "2"}, "the tea cannot have cups = '2': input should be a valid integer"),
        ({"cups": 2, "kind": "milk"}, "kind = 'milk': input should be 'tea' or 'coffee'"),
    ],
)
def test_what_does_not_fit_is_one_sentence(given, message):
    with pytest.raises(UsageError) as caught:
        checked_options("the tea", brew, given, ("water",))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@dataclass
class Leaf:
    __pydantic_config__: ClassVar = {"extra": "forbid"}

    veins: Annotated[int, Strict()] = 3


@dataclass
class Tree:
    __pydantic_config__: ClassVar = {"extra": "forbid"}

    name: str
    leaves: list[Leaf] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.name == "stone":
            raise ValueError("a stone is no tree")


def test_a_table_becomes_a_dataclass():
    assert checked(Tree, {"name": "oak", "leaves": [{"veins": 5}]}, "") == Tree("oak", [Leaf(5)])


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, "key garden.name is missing"),
        ({"nmae": "oak"}, "unknown key garden.nmae: 'nmae': did you mean 'name'? (there are: name"),
        ({"name": "oak", "leaves": [{}, {"vein": 1}]}, "unknown key garden.leaves.1.vein: 'vein'"),
        ({"name": "oak", "leaves": [{"veins": "5"}]}, "key garden.leaves.0.veins: it should be a"),
        ({"name": "stone"}, "garden: a stone is no tree"),
    ],
)
def test_a_table_that_does_not_fit_is_one_sentence(table, message):
    with pytest.raises(UsageError) as caught:
        checked(Tree, table, "garden")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
