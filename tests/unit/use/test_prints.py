"""A finger is enrolled by a few impressions and recognised by another, turned or not."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn.functional import avg_pool2d

from consort.domains.fingerprints.scan import PrintScan
from consort.domains.fingerprints.task import distance
from consort.errors import UsageError
from consort.experiment.loading import load_recipe
from consort.experiment.preparation import prepare_run
from consort.experiment.trained import trained_model
from consort.use.export import export
from consort.use.formats import Outputs, read_model
from consort.use.persons import enroll, verify
from consort.use.prints import (
    TURNS,
    closeness,
    embeddings,
    print_trials,
    turned,
    turned_embeddings,
)
from consort.use.reading import read_sample
from consort.use.template import Template

RECIPE = """
title = "few prints"
clients = 1
data = { name = "synthetic_fingerprints", fingers = 24, size = 48 }
model = { name = "siamese", scale = 0.2 }
run = { rounds = 2 }
local = { lr = 0.05 }

[algorithms.local_only]
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """A model file, its restored model, and pictures of one test finger and of another."""
    folder = tmp_path_factory.mktemp("prints")
    (folder / "prints.toml").write_text(RECIPE)
    prepare_run(load_recipe(folder / "prints.toml"), "local_only", 0, folder / "run").go()
    export(folder / "run", "client-0", folder / "model.pt")
    restored = trained_model(folder / "run", "client-0")
    test = restored.data.test
    for name, row in (("one", 0), ("other", -1)):
        for number, image in enumerate(test.inputs[row]):
            grey = (image[0] * 255).round().byte().numpy()
            Image.fromarray(grey).save(folder / f"{name}-{number}.png")
    return folder, restored


def test_the_file_says_how_prints_are_read_and_which_errors_to_expect(printed):
    folder, restored = printed
    about = export(folder / "run", "client-0", folder / "again.pt").metadata
    assert about.scan == PrintScan(48)
    outputs = Outputs(restored.model.eval(), tuple(restored.model.heads))
    assert about.calibration == {"distance": print_trials(outputs, restored.data.validation, 1)}
    assert set(about.calibration["distance"]) == {"1", "2", "3"}  # of four impressions


def test_a_template_holds_the_embeddings_of_single_prints(printed):
    folder, restored = printed
    enroll(folder / "model.pt", None, "thumb", [folder / "one-0.png"], folder / "thumb.template")
    kept = Template.load(folder / "thumb.template")
    with torch.inference_mode():
        expected = restored.model.eval()(restored.data.test.inputs[:1])["verify"][0]
    np.testing.assert_allclose(kept.references, expected[:1], atol=1e-4)
    assert kept.metadata.origin.endswith("other fingers than it trained with")
    own = verify(folder / "thumb.template", folder / "one-0.png")
    assert own.accepted
    assert own.score == pytest.approx(0, abs=1e-5)
    apart = -float(distance(*expected))
    assert verify(folder / "thumb.template", folder / "one-1.png").score >= apart - 1e-4


def test_a_turned_print_is_nearer_than_without_tolerance(printed):
    def by_place(pairs):
        """Embeddings that know where the ridges are."""
        return torch.empty(0), avg_pool2d(pairs.flatten(0, 1), 6).view(len(pairs), 2, -1)

    prints = printed[1].data.test.inputs[0, :1]
    reference = embeddings(by_place, prints, 1)
    for degrees in (-20.0, 10.0):
        asked = turned_embeddings(by_place, turned(prints, degrees), 1)
        assert closeness(reference, asked)[0] > 0.5 * closeness(reference, asked[:1])[0]


def test_the_nearest_reference_at_the_best_rotation_counts():
    references = np.array([[0.0, 0.0], [4.0, 0.0]])
    queries = np.array([[[9.0, 0.0], [0.0, 3.0]], [[4.0, 2.0], [0.0, 5.0]]])
    assert closeness(references, queries) == pytest.approx([-2, -3])


def test_turning_is_a_rotation_on_paper():
    y, x = torch.meshgrid(torch.arange(41.0), torch.arange(41.0), indexing="ij")
    dot = 1 - torch.exp(-((x - 32) ** 2 + (y - 20) ** 2) / 4)[None, None]
    for degrees in TURNS[1:]:
        weights = 1 - turned(dot, degrees)[0, 0]
        column, row = ((weights * axis).sum() / weights.sum() - 20 for axis in (x, y))
        assert abs(math.degrees(math.atan2(row, column))) == pytest.approx(abs(degrees), abs=0.5)
    assert turned(dot, 0) is dot


def test_what_is_no_print_or_upside_down_is_not_decided(printed, tmp_path):
    folder, _ = printed
    template = tmp_path / "thumb.template"
    enroll(folder / "model.pt", None, "thumb", [folder / "one-0.png"], template, far=0)
    Image.new("L", (90, 90), 255).save(tmp_path / "empty.png")
    noise = np.random.default_rng(0).integers(0, 256, (96, 96)).astype(np.uint8)
    Image.fromarray(noise).save(tmp_path / "noise.png")
    for name in ("empty", "noise"):
        with pytest.raises(UsageError, match=rf"{name}\.png shows no clear fingerprint \(quality "):
            verify(template, tmp_path / f"{name}.png")
    kept = Template.load(template)
    replace(kept, metadata=replace(kept.metadata, threshold=-1e-4)).save(template)
    Image.open(folder / "one-0.png").rotate(180).save(tmp_path / "down.png")
    with pytest.raises(UsageError, match=r"down\.png seems to be upside down: turn the picture"):
        verify(template, tmp_path / "down.png")
    with pytest.raises(UsageError, match="is a model of fingerprints: --method is for signatures"):
        enroll(folder / "model.pt", None, "x", [folder / "one-0.png"], template, method="svm")


def test_a_model_of_obfuscated_prints_is_not_used_on_plain_ones(printed):
    folder, _ = printed
    model = read_model(folder / "model.pt")
    changed = {"obfuscation": "consort.domains.fingerprints.obfuscation:FpDfsn"}
    other = model._replace(metadata=replace(model.metadata, preprocessing=changed))
    with pytest.raises(UsageError, match=r"was trained on pictures that .*FpDfsn changed"):
        read_sample(other, folder / "model.pt", folder / "one-0.png")
