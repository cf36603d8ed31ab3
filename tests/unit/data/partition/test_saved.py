import hashlib
import json

import numpy as np
import pytest

from consort.data.partition import Share, fingerprint, load_partition, save_partition
from consort.errors import Failure


def share(train, validation, test, *tasks):
    return Share(*(np.array(part, dtype=np.int64) for part in (train, validation, test)), tasks)


SHARES = {
    "ann": share([0, 4, 5], [2], [1], "shape", "texture"),
    "bob": share([9], [], [], "shape"),
}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "run" / "partition.json"
    save_partition(path, SHARES)
    return path


def test_round_trip(path):
    loaded = load_partition(path)
    assert list(loaded) == ["ann", "bob"]
    for name, expected in SHARES.items():
        for part in ("train", "validation", "test"):
            read = getattr(loaded[name], part)
            assert read.dtype == np.int64
            assert np.array_equal(read, getattr(expected, part))
        assert loaded[name].tasks == expected.tasks
    assert fingerprint(loaded.values()) == fingerprint(SHARES.values())


def test_a_fingerprint_is_a_digest_of_tasks_sizes_and_positions():
    positions = b"".join(number.to_bytes(8, "little") for number in (9,))
    expected = hashlib.sha256(b"(('shape',), 1, 0, 0)" + positions).hexdigest()[:16]
    assert fingerprint([SHARES["bob"]]) == expected


@pytest.mark.parametrize(
    "changed",
    [
        [SHARES["bob"], SHARES["ann"]],
        [SHARES["ann"]],
        [SHARES["ann"], share([8], [], [], "shape")],
        [SHARES["ann"], share([], [9], [], "shape")],
        [SHARES["ann"], share([9], [], [], "texture")],
    ],
)
def test_any_change_changes_the_fingerprint(changed):
    assert fingerprint(changed) != fingerprint(SHARES.values())


def test_a_truncated_file_is_refused(path):
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(Failure, match=r"partition\.json is damaged: Invalid JSON"):
        load_partition(path)


def test_a_file_of_another_shape_is_refused_with_the_place(path):
    content = json.loads(path.read_text())
    content["clients"]["ann"]["train"][1] = "four"
    path.write_text(json.dumps(content))
    with pytest.raises(Failure, match=r"is damaged: clients\.ann\.train\.1 .*integer"):
        load_partition(path)


def test_a_changed_number_is_noticed(path):
    content = json.loads(path.read_text())
    content["clients"]["ann"]["train"][1] += 1
    path.write_text(json.dumps(content))
    with pytest.raises(Failure, match="is damaged: its fingerprint does not match"):
        load_partition(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(Failure, match=r"gone\.json does not exist"):
        load_partition(tmp_path / "gone.json")
