"""A trained model in use, from the command line."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from PIL import Image
from tests.unit.cli.command import consort
from tests.unit.use.signed import signed_recipe, signed_run

from consort.use.samples import write_samples


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A run, pictures of one of its users, and that user's template."""
    folder = tmp_path_factory.mktemp("trained")
    run = signed_run(folder)
    samples = write_samples(signed_recipe(folder), 0, folder / "signatures")
    pictures = sorted((folder / "signatures").glob("reference-*.png"))
    found = consort(
        "enroll", run, "--client", samples.client, "--user", "Ada", "--references", *pictures,
        "--out", folder / "ada.template",
    )  # fmt: skip
    assert found.code == 0, found.err
    assert f"ada.template: Ada, {len(pictures)} references, " in found.out
    assert "genuine ones rejected: " in found.out
    assert "those of others accepted: " in found.out
    return folder


def test_export_says_how_near_it_comes(trained: Path):
    arguments = ("export", trained / "run", "--client", "client-0", "--out", trained / "model.pt")
    found = consort(*arguments)
    assert (found.code, found.err) == (0, "")
    assert "model.pt: mlp(hidden=(12,)" in found.out
    assert "largest difference from the model in the run: 0.0e+00 (5 examples)" in found.out
    data = json.loads(consort(*arguments, "--json").out)
    assert data["outputs"] == ["features", "identify", "detect"]
    assert data["largest_difference"] == 0
    assert consort(*arguments, "--quiet").out == ""


def test_the_exit_code_is_the_decision(trained: Path):
    template, reference = trained / "ada.template", trained / "signatures" / "reference-1.png"
    found = consort("verify", template, reference)
    assert found.code == 0
    assert found.out.startswith(f"accepted: {reference} as Ada, score ")
    strict = trained / "strict.template"
    model = next((trained / "run" / "models").iterdir())
    arguments = ("--user", "Ada", "--out", strict, "--far", 0, "--method", "cosine", reference)
    assert consort("enroll", model, *arguments).code == 0
    page = Image.new("L", (48, 32), 255)
    page.putdata(
        [0 if abs(x * 2 - y * 3) < 3 and 2 < y < 30 else 255 for y in range(32) for x in range(48)]
    )
    page.save(trained / "line.png")
    found = consort("verify", strict, trained / "line.png", "--json")
    assert found.code == 1
    data = json.loads(found.out)
    assert data["accepted"] is False
    assert data["score"] < data["threshold"]
    assert consort("verify", template, reference, "--quiet").out == ""


def test_what_cannot_be_decided_is_no_rejection(trained: Path):
    template, reference = trained / "ada.template", trained / "signatures" / "reference-1.png"
    Image.new("L", (50, 50), 255).save(trained / "empty.png")
    Image.linear_gradient("L").save(trained / "gradient.png")
    for arguments, complaint in (
        ((template, trained / "nothing.png"), "nothing.png does not exist"),
        ((template, trained / "empty.png"), "empty.png contains no signature"),
        ((template, trained / "gradient.png"), "gradient.png does not show dark ink"),
        ((template, template), "ada.template cannot be read as an image"),
        ((reference, reference), "reference-1.png is not a template"),
        ((template, reference, "--model", trained / "gone.pt"), "gone.pt is missing"),
    ):
        found = consort("verify", *arguments)
        assert found.code == 2
        assert complaint in found.error
    assert consort("verify", template).code == 2


def test_references_may_stand_alone_or_behind_their_option(trained: Path):
    pictures = sorted((trained / "signatures").glob("reference-*.png"))
    model = next((trained / "run" / "models").iterdir())
    common = ("enroll", model, "--user", "Ada", "--out", trained / "other.template", "--json")
    one = json.loads(consort(*common, *pictures).out)
    other = json.loads(consort(*common, "--references", *pictures).out)
    each = [word for picture in pictures for word in ("--references", picture)]
    assert one == other == json.loads(consort(*common, *each).out)
    assert "expected 1 to 12 references, got 0" in consort(*common).error
    strict = json.loads(consort(*common, *pictures, "--far", "0").out)
    assert strict["rates"]["random"][0] == 0
    assert strict["threshold"] >= one["threshold"]


def test_the_demo_ends_with_commands_that_work_as_printed(tmp_path: Path, monkeypatch):
    """On a smaller recipe, because the demonstration takes minutes."""
    signed_recipe(tmp_path)
    monkeypatch.setattr(
        "consort.experiment.shipped.shipped_recipes", lambda: {"demo": tmp_path / "signed.toml"}
    )
    found = consort("demo", "--out", tmp_path / "out", "--workers", 1)
    assert found.code == 0, found.err
    assert "few signatures (1 seed, test data)" in found.out
    commands = [shlex.split(line) for line in found.out.splitlines() if line[:8] == "consort "]
    assert [words[1] for words in commands] == ["enroll", "verify", "verify"]
    for _, *words in commands:
        outcome = consort(*(path for word in words for path in expanded(word)))
        assert outcome.code in (0, 1), outcome.err
        assert outcome.err == ""
    assert outcome.out.startswith(("accepted: ", "rejected: "))
    again = consort("demo", "--out", tmp_path / "out", "--workers", 1, "--json")
    assert [run["algorithm"] for run in json.loads(again.out)["runs"]] == ["local_only"]


def expanded(word: str) -> list[object]:
    """As a shell does it with stars."""
    path = Path(word)
    return [*sorted(path.parent.glob(path.name))] if "*" in word else [word]
