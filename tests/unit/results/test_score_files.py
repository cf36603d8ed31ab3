"""What is written is read back, by us and by readers that know only Bob's columns."""

from __future__ import annotations

import csv

import pytest

from consort.errors import UsageError
from consort.results.score_files import ScoredProbe, ScoreTable

ROWS = (
    ScoredProbe("ada", "ada", "a,1", "", 0.1 + 0.2),
    ScoredProbe("ada", "bob", "b1", "", -1e-17),
    ScoredProbe("ada", "forger-of-ada", "f1", "skilled", 0.25),
    ScoredProbe("bob", "bob", "b1", "", 0.5),
)


def test_comparisons_survive_a_file_to_the_last_bit(tmp_path):
    ScoreTable(ROWS).save(tmp_path / "scores-dev.csv")
    again = ScoreTable.load([tmp_path / "scores-dev.csv"])
    assert again == ScoreTable(ROWS)
    assert again.users == ["ada", "bob"]
    assert again.kinds == ["random", "skilled"]
    assert again.scores().tolist() == [0.1 + 0.2, 0.5]
    assert again.scores("random").tolist() == [-1e-17]
    assert again.scores("skilled", "ada").tolist() == [0.25]
    assert again.scores(None, "bob").tolist() == [0.5]


def test_bob_takes_no_forgery_for_a_genuine_sample(tmp_path):
    ScoreTable(ROWS).save(tmp_path / "scores.csv")
    with (tmp_path / "scores.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    equal = [float(r["score"]) for r in rows if r["bio_ref_subject_id"] == r["probe_subject_id"]]
    licit = [float(r["score"]) for r in rows if not r["probe_attack_type"]
             and r["probe_reference_id"] == r["bio_ref_reference_id"]]  # fmt: skip
    assert equal == licit == [0.1 + 0.2, 0.5]
    assert {"probe_key"} <= rows[0].keys()


def test_four_columns_are_enough(tmp_path):
    path = tmp_path / "four.csv"
    path.write_text(
        "bio_ref_subject_id,probe_subject_id,key,score\nada,ada,x,1\nada,bob,y,0\n", "utf-8"
    )
    table = ScoreTable.load([path])
    assert (table.scores().tolist(), table.scores("random").tolist()) == ([1], [0])


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a,b\n1,2\n", "is no score file: it needs the columns bio_ref_subject_id"),
        ("", "is no score file: it needs"),
        ("bio_ref_subject_id,probe_subject_id,key,score\na,a,x,much\n", "line 2: a subject or"),
        ("bio_ref_subject_id,probe_subject_id,key,score\na,a,x,nan\n", "line 2: a subject or"),
        ("bio_ref_subject_id,probe_subject_id,key,score\na\n", "line 2: a subject or"),
        ("bio_ref_subject_id,probe_subject_id,key,score\na,a,x,1\n", "no impostor and no forgery"),
        ("bio_ref_subject_id,probe_subject_id,key,score\na,b,x,1\n", "no genuine comparison"),
    ],
)
def test_what_is_no_score_file(tmp_path, text, complaint):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(UsageError, match=complaint):
        ScoreTable.load([path])


def test_a_file_of_bytes_or_none(tmp_path):
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="is no score file: it is not text"):
        ScoreTable.load([tmp_path / "bytes.csv"])
    with pytest.raises(UsageError, match="there is no file"):
        ScoreTable.load([tmp_path / "missing.csv"])
