from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

from consort.core.params import Params
from consort.core.registry import did_you_mean, first_line, load_object
from consort.errors import UsageError

SOURCE = '''
from __future__ import annotations
from dataclasses import dataclass

@dataclass
class Mine:
    """My own."""
    rate: float = 0.5
'''


@pytest.mark.parametrize(("word", "nearest"), [
    ("fedavgg", "fedavg"), ("Scafold", "scaffold"), ("fed_rep", "fedrep"),
])  # fmt: skip
def test_the_nearest_name_is_proposed_and_all_are_listed(word, nearest):
    text = did_you_mean(word, ["fedavg", "fedrep", "scaffold"])
    assert text == f"{word!r}: did you mean {nearest!r}? (there are: fedavg, fedrep, scaffold)"


def test_what_other_libraries_call_it_is_understood_in_either_case():
    assert did_you_mean("learning_rate", ["repeat", "lr"]).startswith(
        "'learning_rate': did you mean 'lr'?"
    )
    assert did_you_mean("learning_rate", ["earning"]).startswith(
        "'learning_rate': did you mean 'earning'?"
    )
    assert did_you_mean("rmsprop", ["Rprop", "RMSprop"]).startswith(
        "'rmsprop': did you mean 'RMSprop'?"
    )


def test_without_choices_there_is_nothing_to_propose():
    assert did_you_mean("x", []) == "'x' (there are none)"


def test_a_word_like_nothing_still_gets_a_proposal():
    assert "did you mean" in did_you_mean("zzzz", {"fedavg": 1, "ditto": 2})


def test_objects_are_found_in_modules():
    assert load_object("consort.core.registry:did_you_mean") is did_you_mean
    assert load_object("json:dumps").__name__ == "dumps"


def test_objects_are_found_in_files(tmp_path: Path, monkeypatch):
    (tmp_path / "own.py").write_text(SOURCE)
    found = load_object(f"{tmp_path / 'own.py'}:Mine")
    assert dataclasses.fields(found)[0].default == 0.5
    monkeypatch.chdir(tmp_path)
    assert load_object("own.py:Mine") is found


def test_a_changed_file_is_read_anew(tmp_path: Path):
    path = tmp_path / "own.py"
    path.write_text("value = 1")
    assert load_object(f"{path}:value") == 1
    path.write_text("value = 'other'")
    assert load_object(f"{path}:value") == "other"


def test_a_file_with_a_syntax_error_is_named_with_its_line(tmp_path: Path):
    path = tmp_path / "own.py"
    path.write_text("value = 1\nvalue = =")
    with pytest.raises(UsageError, match=r"own\.py, line 2: invalid syntax"):
        load_object(f"{path}:value")


@pytest.mark.parametrize(("place", "message"), [
    ("consort.core.registry:nothing", r"consort\.core\.registry defines no 'nothing'"),
    ("consort.core.registry", r"consort\.core\.registry defines no ''"),
    ("consort.nowhere:thing", r"no module 'consort\.nowhere'"),
    ("no_such_package.part:thing", "no module 'no_such_package' to import 'no_such_package.part'"),
    ("missing.py:Thing", r"no file missing\.py"),
])  # fmt: skip
def test_what_is_not_there_is_an_error_that_names_it(place, message):
    with pytest.raises(UsageError, match=message):
        load_object(place)


def test_the_first_line_is_that_of_the_docstring():
    assert first_line("consort.core.params:Params") == (Params.__doc__ or "").partition("\n")[0]
    assert first_line("consort.core.registry:first_line").startswith(
        "The first line of an object's"
    )
    assert first_line("consort.core.registry:nothing") == ""
    assert first_line("json:dumps") == (json.dumps.__doc__ or "").partition("\n")[0]
    assert first_line("bisect:insort_right").startswith("Insert item x in list a")
    assert first_line("consort.nowhere:thing") == first_line("no_such_package:thing") == ""


def test_reading_first_lines_imports_nothing_slow():
    code = (
        "import sys; from consort.core.registry import first_line; "
        "print(first_line('consort.federation.federation:Federation'), 'torch' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "The clients of a run. False\n"
