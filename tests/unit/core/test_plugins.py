"""Names that packages bring: found, described, and refused where they are wrong."""

from __future__ import annotations

import pytest
from tests.installed import IMPORT, put_package

from consort.algorithms.registry import find_algorithm
from consort.core.plugins import Plugin, descriptions, entries, find
from consort.data.registry import load_dataset
from consort.errors import UsageError
from consort.models.registry import ModelSpec

SOURCE = (
    IMPORT
    + '''
from consort.models.mlp import Mlp


class Net(Mlp):
    """My own layers."""


value = 3
plugin = Plugin(
    models={"my_net": "my_lab:Net"}, datasets={"my_data": "my_lab:value"},
    algorithms={"my_way": "my_lab:Net"}, metrics={"glow": "how bright it is"},
)
'''
)


def test_what_a_package_brings_is_found_by_name(site):
    put_package(site, "my-lab", SOURCE)
    assert find("models", "my_net").__name__ == "Net"
    assert ModelSpec.of({"name": "my_net", "hidden": [5]}).options == (("hidden", (5,)),)
    assert entries("models")["my_net"].package == "my-lab"
    assert list(entries("models")) == sorted(entries("models"))
    assert find("models", "mlp").__name__ == "Mlp"


def test_lists_say_which_package_something_comes_from(site):
    put_package(site, "my-lab", SOURCE)
    assert descriptions("models")["my_net"] == "My own layers. [my-lab]"
    assert descriptions("metrics")["glow"] == "how bright it is [my-lab]"
    assert descriptions("datasets")["my_data"] == "[my-lab]"
    assert "[" not in descriptions("metrics")["accuracy"]


def test_without_packages_there_is_what_comes_with_consort():
    for kind in ("algorithms", "datasets", "models", "tasks", "metrics"):
        assert entries(kind)
        assert {entry.package for entry in entries(kind).values()} == {""}


@pytest.mark.parametrize("kind", ["algorithms", "datasets", "models", "tasks"])
def test_everything_that_comes_with_consort_is_where_its_table_says(kind):
    for name in entries(kind):
        assert find(kind, name).__name__


def test_a_name_that_nobody_brings_is_answered_with_the_nearest():
    with pytest.raises(UsageError, match=r"no model 'my_net': did you mean 'signet'\?") as caught:
        find("models", "my_net")
    assert str(caught.value).endswith("if a package brings it, install that package")
    with pytest.raises(UsageError, match="there is no data set 'femnits': did you mean 'femnist'"):
        find("datasets", "femnits")


def test_things_of_the_wrong_kind_are_refused(site):
    put_package(site, "my-lab", SOURCE)
    with pytest.raises(UsageError, match="my_way is not an Algorithm"):
        find_algorithm("my_way")
    with pytest.raises(UsageError, match="my_data is not a function that makes a Dataset"):
        load_dataset("my_data", 0, None)


@pytest.mark.parametrize(("model", "owners"), [
    ("my_net", "package my-lab and package other-lab"),
    ("mlp", "Consort and package other-lab"),
])  # fmt: skip
def test_two_things_with_one_name_are_refused_with_both_packages(site, model, owners):
    put_package(site, "my-lab", SOURCE)
    put_package(site, "other-lab", f"{IMPORT}plugin = Plugin(models={{{model!r}: 'other:Net'}})")
    expected = f"{owners} both bring the model '{model}': rename it in one of them, or .* "
    with pytest.raises(UsageError, match=f"{expected}`pip uninstall other-lab`"):
        find("models", "cnn4")
    assert find("datasets", "my_data") == 3  # only the kind is in doubt


@pytest.mark.parametrize(("source", "message"), [
    ("import no_such_package", "cannot be imported: ModuleNotFoundError: No module named"),
    ("1 / 0", "cannot be imported: ZeroDivisionError: division by zero"),
    ("plugin = (", "cannot be imported: SyntaxError: "),
    ("", "cannot be imported: AttributeError: module 'my_lab' has no attribute 'plugin'"),
    ("plugin = {'models': {}}", "is a dict where a Plugin is expected"),
    (f"{IMPORT}plugin = Plugin(models={{'x': 'Net'}})",
     "cannot be imported: models: 'x' must be at 'module:object': 'Net'"),
    (f"{IMPORT}plugin = Plugin(modells={{}})",
     "cannot be imported: TypeError: .*unexpected keyword argument 'modells'"),
])  # fmt: skip
def test_a_plugin_that_is_none_is_refused_with_its_package(site, source, message):
    put_package(site, "my-lab", source)
    expected = rf"package my-lab: its plug-in 'mine' \(my_lab:plugin\) {message}.*; repair that "
    with pytest.raises(UsageError, match=expected) as caught:
        entries("models")
    assert "`pip uninstall my-lab`" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("place", "message"), [
    ("my_lab:Nothing", "my_lab defines no 'Nothing'"),
    ("my_lab.deeper:Net", "there is no module 'my_lab.deeper'"),
    ("broken:Net", "ZeroDivisionError: division by zero"),
])  # fmt: skip
def test_a_place_where_nothing_is_is_named_with_its_package(site, place, message):
    (site / "broken.py").write_text("1 / 0")
    put_package(site, "my-lab", f"{IMPORT}plugin = Plugin(models={{'my_net': {place!r}}})")
    assert descriptions("models")["my_net"] == "[my-lab]"
    expected = f"model 'my_net' of package my-lab cannot be imported from {place}: {message}"
    with pytest.raises(UsageError, match=expected):
        find("models", "my_net")


def test_a_plugin_is_a_value():
    assert Plugin() == Plugin(models={})
