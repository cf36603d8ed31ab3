"""A person is enrolled by a few pictures and recognised by another, or an error says why not."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from consort.core.sealed import write_json
from consort.domains.signatures.dataset import ink
from consort.domains.signatures.enrolment import views
from consort.domains.signatures.scan import Scan
from consort.domains.signatures.writer_dependent import kernel_to, trained
from consort.errors import ConsortError, UsageError
from consort.experiment.trained import trained_model
from consort.use.calibration import best_method, threshold, trials_with
from consort.use.export import export
from consort.use.formats import read_model
from consort.use.persons import enroll, verify
from consort.use.reading import read_sample
from consort.use.template import Template


@pytest.fixture(scope="module")
def references(samples):
    return sorted(samples.folder.glob("reference-*.png"))


@pytest.fixture
def template(run, samples, references, tmp_path):
    path = tmp_path / "templates" / "user.template"
    enroll(run, samples.client, "Ada", references, path)
    return path


def test_a_template_holds_the_features_of_the_references_as_the_run_sees_them(
    template, run, samples
):
    restored = trained_model(run, samples.client)
    kept = Template.load(template)
    about = read_model(template.parent / kept.metadata.model).metadata
    chosen = restored.data.train.targets["identify"] == samples.user
    seen = views(restored.data.train.inputs[chosen].contiguous(), about.views)
    with torch.inference_mode():
        expected = torch.stack([restored.model.eval().encoder(view) for view in seen]).mean(0)
    np.testing.assert_allclose(kept.references, expected[: len(kept.references)], atol=1e-5)
    count = len(kept.references)
    assert kept.metadata.method == best_method(about.calibration, count, False)
    found = threshold(trials_with(about.calibration, kept.metadata.method, count), None)
    assert (kept.metadata.user, kept.metadata.threshold) == ("Ada", found.threshold)
    assert {kind: rate[0] for kind, rate in kept.metadata.rates.items()} == {
        kind: rate.value for kind, rate in found.rates.items()
    }
    assert kept.metadata.origin.startswith(f"validation data of {samples.client} (synthetic_")


@pytest.mark.parametrize("method", ["cosine", "svm"])
def test_a_reference_is_recognised_and_another_drawing_is_not(
    run, samples, references, method, tmp_path
):
    template = tmp_path / "t"
    enroll(run, samples.client, "Ada", references, template, method=method)
    own = verify(template, references[0])
    assert own.accepted
    assert method != "cosine" or own.score == pytest.approx(1)
    page = np.full((32, 48), 255, np.uint8)
    page[np.arange(2, 30), np.arange(2, 30) * 3 // 2] = 0
    Image.fromarray(page).save(tmp_path / "line.png")
    assert verify(template, tmp_path / "line.png").score < own.score


def test_a_template_with_a_machine_scores_as_the_protocol_does(run, samples, references, tmp_path):
    enroll(run, samples.client, "Ada", references, tmp_path / "t", method="svm")
    kept = Template.load(tmp_path / "t")
    model = read_model(tmp_path / kept.metadata.model)
    background = model.metadata.background.features
    rows = np.concatenate([kept.references, background])
    kernel, own = kernel_to(rows, 2.0**-11), np.arange(len(rows)) < len(references)
    expected = trained(kernel(rows), own, 1.0)(kernel(kept.references[:1]))
    assert verify(tmp_path / "t", references[0]).score == pytest.approx(expected[0], abs=1e-4)


def test_a_lower_far_asks_for_more_likeness(run, samples, references, tmp_path):
    thresholds = [
        enroll(run, samples.client, "Ada", references, tmp_path / "t", far).metadata.threshold
        for far in (1, 0.5, 0.1, 0)
    ]
    assert thresholds == sorted(thresholds)
    assert thresholds[0] < thresholds[-1]


def test_a_fused_score_adds_the_detection_head(run, samples, references, tmp_path):
    with pytest.raises(UsageError, match="has no fused score, because client-0 has no forgeries"):
        enroll(run, "client-0", "Ada", references, tmp_path / "t", method="fused")
    for method in ("svm", "fused"):
        enroll(run, "client-1", "Ada", references, tmp_path / method, method=method)
    kept = Template.load(tmp_path / "fused")
    file = tmp_path / kept.metadata.model
    model = read_model(file)
    logit = read_sample(model, file, references[1]).logit
    own, other = model.metadata.fusion
    plain, fused = (verify(tmp_path / method, references[1]).score for method in ("svm", "fused"))
    assert fused == pytest.approx(own * plain + other * logit)


def test_the_background_set_is_small_and_of_generated_people(run, samples, tmp_path):
    about = export(run, samples.client, tmp_path / "model.pt").metadata
    assert about.background.origin == "generated people"
    assert len(about.background.values) < 3 * 64 * about.background.width
    assert read_model(tmp_path / "model.pt").metadata == about


def test_an_exported_file_serves_as_well_as_the_run(run, samples, references, template, tmp_path):
    export(run, samples.client, tmp_path / "model.pt")
    enroll(tmp_path / "model.pt", None, "Ada", references, tmp_path / "other.template")
    one, other = (Template.load(path) for path in (template, tmp_path / "other.template"))
    assert (one.references == other.references).all()
    assert one.metadata.threshold == other.metadata.threshold
    with pytest.raises(UsageError, match=f"is the model of {samples.client}, not of nobody"):
        enroll(tmp_path / "model.pt", "nobody", "Ada", references, tmp_path / "x")


def test_model_and_template_can_be_moved_together_or_apart(run, samples, references, tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    export(run, samples.client, here / "model.pt")
    enroll(here / "model.pt", None, "Ada", references, here / "ada.template")
    score = verify(here / "ada.template", references[0]).score
    here.rename(there)
    assert verify(there / "ada.template", references[0]).score == score
    (there / "model.pt").rename(tmp_path / "elsewhere.pt")
    with pytest.raises(
        UsageError, match=r"its model .*model\.pt is missing: name the file with --model"
    ):
        verify(there / "ada.template", references[0])
    moved = verify(there / "ada.template", references[0], tmp_path / "elsewhere.pt")
    assert moved.score == score
    export(run, "client-1" if samples.client == "client-0" else "client-0", there / "model.pt")
    with pytest.raises(UsageError, match="was created with another model than"):
        verify(there / "ada.template", references[0])


@pytest.mark.parametrize("count", [0, 13])
def test_too_few_or_too_many_references(run, samples, references, count, tmp_path):
    with pytest.raises(UsageError, match=f"expected 1 to 12 references, got {count}"):
        enroll(run, samples.client, "Ada", references[:1] * count, tmp_path / "t")


def test_whose_model_it_is_must_be_said(run, references, tmp_path):
    with pytest.raises(UsageError, match=r"--client '': did you mean .*client-0, client-1"):
        enroll(run, None, "Ada", references, tmp_path / "t")


def test_a_model_of_something_else_knows_no_signatures(run, references, tmp_path):
    about = json.loads((run / "run.json").read_text())
    for client in about["clients"].values():
        client["scan"] = None
    other = tmp_path / "other"
    shutil.copytree(run, other, ignore=shutil.ignore_patterns("models"))
    write_json(other / "run.json", about)
    with pytest.raises(UsageError, match="is not a model of signatures or fingerprints: it was"):
        enroll(other, "client-0", "Ada", references, tmp_path / "t")


def test_pictures_that_show_nothing_or_cannot_be_read(template, tmp_path):
    white, pixel, text = (tmp_path / name for name in ("white.png", "pixel.png", "text.png"))
    Image.new("L", (60, 40), 255).save(white)
    Image.new("RGB", (1, 1), "white").save(pixel)
    text.write_text("no picture")
    for path, complaint in (
        (white, "contains no signature: the page is empty"),
        (pixel, "contains no signature: the page is empty"),
        (text, "cannot be read as an image"),
        (tmp_path / "missing.png", "does not exist"),
    ):
        with pytest.raises(ConsortError, match=f"{path.name} {complaint}"):
            verify(template, path)


def test_a_huge_picture_is_refused(template, tmp_path):
    Image.new("1", (9000, 9000)).save(tmp_path / "huge.png")
    with pytest.raises(ConsortError, match=r"huge\.png has more than \d+ pixels: scale it down"):
        verify(template, tmp_path / "huge.png")


def test_colour_and_transparency_make_no_difference(template, references, tmp_path):
    grey = Image.open(references[0])
    expected = verify(template, references[0]).score
    for mode in ("RGB", "RGBA", "LA"):
        grey.convert(mode).save(tmp_path / f"{mode}.png")
        assert verify(template, tmp_path / f"{mode}.png").score == expected
    grey.convert("CMYK").save(tmp_path / "cmyk.tif")
    assert verify(template, tmp_path / "cmyk.tif").score == pytest.approx(expected, abs=1e-3)
    Image.fromarray(np.asarray(grey).astype(np.uint16) * 257).save(tmp_path / "deep.png")
    assert verify(template, tmp_path / "deep.png").score == expected


def test_a_picture_by_which_nothing_can_be_decided_asks_for_another(template, references, tmp_path):
    page = np.asarray(Image.open(references[0]))
    generator = np.random.default_rng(0)
    pictures = {
        "noise": (
            generator.integers(0, 256, (60, 90)),
            "does not show dark ink on plain, light paper",
        ),
        "gradient": (
            np.tile(np.arange(256), (256, 1)),
            "does not show dark ink on plain, light paper",
        ),
        "twice": (np.concatenate([page, np.full((60, 48), 255), page]), "shows two signatures"),
        "dot": (
            np.pad(np.zeros((4, 4)), 40, constant_values=255),
            "shows a signature of only 4 pixels",
        ),
    }
    for name, (grey, complaint) in pictures.items():
        path = tmp_path / f"{name}.png"
        Image.fromarray(grey.astype(np.uint8)).save(path)
        with pytest.raises(UsageError, match=f"{name}.png {complaint}"):
            verify(template, path)


def test_one_person_under_several_names_is_found(run, samples, references, tmp_path):
    first = tmp_path / "ada.template"
    enroll(run, samples.client, "Ada", references, first, far=1)
    enroll(run, samples.client, "Ada", references, tmp_path / "again.template")
    for number in range(10):
        name = f"Ada {number}"
        with pytest.raises(
            UsageError, match=r"ada\.template is of Ada, but accepts all references"
        ):
            enroll(run, samples.client, name, references, tmp_path / f"{number}.template")
    assert not (tmp_path / "0.template").exists()
    enroll(run, samples.client, "Twin", references, tmp_path / "twin.template", duplicate=True)


def test_a_picture_that_was_drawn_is_read_as_it_was(run, samples):
    restored = trained_model(run, samples.client)
    chosen = restored.data.train.targets["identify"] == samples.user
    image = Scan((32, 48), cleaned=False).read(samples.folder / "reference-1.png")
    again = ink(torch.from_numpy(image[None].copy()))
    torch.testing.assert_close(again, restored.data.train.inputs[chosen][0], atol=1e-6, rtol=0)


def test_a_file_that_is_no_template(template, references):
    for content in (b"", b"nonsense", template.read_bytes()[:-5]):
        template.write_bytes(content)
        with pytest.raises(
            UsageError, match="is not a template of this version: create one with `consort enroll`"
        ):
            verify(template, references[0])
    template.unlink()
    with pytest.raises(UsageError, match="there is no file"):
        verify(template, references[0])
