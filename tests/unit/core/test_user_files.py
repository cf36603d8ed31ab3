"""A file of a user imports what lies beside it."""

from __future__ import annotations

import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from consort.core.registry import load_object
from consort.core.user_files import files_of, user_line
from consort.errors import UsageError


def put(folder: Path, **files: str) -> Path:
    folder.mkdir(exist_ok=True, parents=True)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return folder


def test_a_file_imports_another_beside_it(tmp_path):
    put(tmp_path, enc="from mynet import width\nwide = 2 * width", mynet="width = 3")
    assert load_object(f"{tmp_path / 'enc.py'}:wide") == 6


def test_a_package_beside_it_and_imports_inside_functions_work(tmp_path):
    put(tmp_path / "parts", __init__="", layers="size = 4")
    put(tmp_path, enc="def wide():\n    from parts.layers import size\n    return size")
    assert load_object(f"{tmp_path / 'enc.py'}:wide")() == 4


def test_two_files_share_what_both_import(tmp_path):
    put(tmp_path, one="from mine_too import Thing", two="from mine_too import Thing")
    put(tmp_path, mine_too="class Thing: pass")
    one, two = (load_object(f"{tmp_path / name}.py:Thing") for name in ("one", "two"))
    assert one is two


def test_files_of_one_name_in_two_folders_are_two(tmp_path):
    for number, name in enumerate("ab"):
        put(tmp_path / name, enc="from samename import width", samename=f"width = {number}")
    found = [load_object(f"{tmp_path / name / 'enc.py'}:width") for name in "abab"]
    assert found == [0, 1, 0, 1]


def test_a_changed_neighbour_is_read_anew(tmp_path):
    put(tmp_path, enc="from changing import width", changing="width = 1")
    place = f"{tmp_path / 'enc.py'}:width"
    assert load_object(place) == 1
    put(tmp_path, changing="width = 22")
    os.utime(tmp_path / "changing.py", (1, 1))
    assert load_object(place) == 22


def test_installed_packages_are_still_found(tmp_path):
    put(tmp_path, enc="import json, torch\nfound = json.dumps(torch.ones(1).tolist())")
    assert load_object(f"{tmp_path / 'enc.py'}:found") == "[1.0]"


def test_the_path_is_as_before_but_for_the_folder_at_its_end(tmp_path):
    before = list(sys.path)
    put(tmp_path, enc="value = 1")
    load_object(f"{tmp_path / 'enc.py'}:value")
    assert sys.path == [*before, str(tmp_path)]


@pytest.mark.parametrize(("neighbour", "message"), [
    ("value = =", r"broken\.py, line 1: invalid syntax"),
    ("1 / 0", r"enc\.py cannot be imported: ZeroDivisionError: division by zero"),
    ("import nowhere_at_all", r"enc\.py cannot be imported: .*No module named 'nowhere_at_all'"),
])  # fmt: skip
def test_what_is_wrong_is_said_with_its_file(tmp_path, neighbour, message):
    put(tmp_path, enc="import broken", broken=neighbour)
    with pytest.raises(UsageError, match=message):
        load_object(f"{tmp_path / 'enc.py'}:value")


def test_all_files_that_belong_to_one_are_found_without_running_them(tmp_path):
    put(tmp_path / "parts", __init__="from . import layers", layers="from .sub import deep")
    put(tmp_path / "parts" / "sub", deep="def late():\n    from sizes import ONE")
    put(tmp_path, enc="import parts.layers, json\n1 / 0", sizes="import fast", other="")
    compiled = f"fast{EXTENSION_SUFFIXES[0]}"
    (tmp_path / compiled).write_bytes(b"\x7fELF")
    (tmp_path / "parts" / "__pycache__").mkdir()
    (tmp_path / "parts" / "__pycache__" / "layers.cpython-311.pyc").write_bytes(b"")
    found = [str(file.relative_to(tmp_path)) for file in files_of(tmp_path / "enc.py")]
    package = ["parts/__init__.py", "parts/layers.py", "parts/sub/deep.py"]
    assert found == ["enc.py", compiled, *package, "sizes.py"]
    put(tmp_path, broken="import = 3")
    assert files_of(tmp_path / "broken.py") == [tmp_path / "broken.py"]


def test_the_line_of_a_user_is_found_in_any_of_his_files(tmp_path):
    put(tmp_path, enc="import sums\n\ndef add(x):\n    return sums.add(x)", sums="")
    (tmp_path / "sums.py").write_text("\ndef add(x):\n    return sum(x, start='')\n")
    add = load_object(f"{tmp_path / 'enc.py'}:add")
    with pytest.raises(TypeError) as caught:
        add([1])
    assert user_line(caught.value) == "sums.py, line 3"
    with pytest.raises(UsageError) as refused:
        load_object("nowhere.py:x")
    assert user_line(refused.value) == ""
