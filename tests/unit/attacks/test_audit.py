"""Any run can be audited: what can be attacked is, and what cannot is said."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
import torch
from tests.helpers import assert_same, tiny_member
from tests.unit.cli.command import RECIPE, consort

from consort.attacks.audit import audit, describe_value, known_model
from consort.attacks.membership import Membership
from consort.attacks.recovery import Recovery
from consort.attacks.shadows import infer_membership, shadow_models
from consort.attacks.traffic import Update, replay_last_round, updates
from consort.attacks.victim import Victim
from consort.cli.show_audit import distinct
from consort.core.params import Params
from consort.data.examples import Examples
from consort.engines.states import StateStore
from consort.experiment.loading import load_recipe
from consort.experiment.opening import open_run
from consort.experiment.preparation import prepare_run
from consort.federation.federation import Federation
from consort.report.audit import NO_GUARANTEE, write_audit
from consort.results.result import Result
from consort.training.client import Client
from consort.training.local import LocalTraining

HEAD = """
clients = 2
[run]
rounds = 1
[partition]
validation = 0.2
test = 0.3
[local]
batch = 8
lr = 0.05
"""
VECTORS = """
[data]
name = "synthetic_vectors"
classes = 3
examples = 60
features = 6
[model]
name = "mlp"
hidden = [8]
"""
IMAGES = """
[data]
name = "synthetic_images"
classes = 2
per_class = 20
size = 16
channels = 1
[model]
name = "cnn4"
scale = 0.05
"""
TEXTS = """
[data]
name = "synthetic_news"
classes = 2
per_class = 20
vocabulary = 20
length = 6
[model]
name = "textcnn"
vocabulary = 20
embedding = 4
filters = 2
"""
FINGERS = """
[obfuscation]
beta = 0.5
[data]
name = "synthetic_fingerprints"
fingers = 24
impressions = 2
sensors = 1
size = 32
[model]
name = "siamese"
scale = 0.1
"""


def finished(folder, name, about, rounds=1):
    """A run of one round, or more."""
    recipe = folder / "recipe.toml"
    head = HEAD.replace("rounds = 1", f"rounds = {rounds}")
    recipe.write_text(f"{head}{about}[algorithms.{name}]\n")
    prepare_run(load_recipe(recipe, None, []), name, 0, folder / "run").go()
    return folder / "run"


def audited(folder, name, about, perceptual=None):
    """The findings about the first client, and the page."""
    run = finished(folder, name, about)
    found = audit(run, 3, perceptual)
    assert found.reproduced
    page = write_audit(found, Result.load(run), folder / "audit.html")
    return found.findings[0], page.read_text()


@pytest.mark.parametrize("name", ["fedavg", "scaffold"])
def test_updates_of_encoders_are_attacked(tmp_path, name):
    found, page = audited(tmp_path, name, VECTORS)
    assert isinstance(found.inversion, Recovery)
    assert -1 <= found.inversion.cosine <= 1
    assert "parameters of a model, 83 numbers" in page  # 6 x 8 + 8, and 8 x 3 + 3
    assert NO_GUARANTEE in page


def test_a_guarantee_is_told_with_its_price(tmp_path):
    pytest.importorskip("opacus")
    noisy = VECTORS + '[privacy]\nlevel = "client"\nclip = 1.0\nnoise = 5.0\n'
    _, page = audited(tmp_path, "fedavg", noisy)
    assert NO_GUARANTEE not in page
    assert "Differential privacy per client" in page
    assert "ε = " in page


def test_bare_updates_are_attacked_with_the_model_that_they_were_made_from(tmp_path):
    folder = finished(tmp_path, "fedhca2", VECTORS, rounds=3)
    run = open_run(folder).run
    client = run.federation.client_ids[0]
    ((call, reply),) = replay_last_round(run, [client]).exchanges
    initial = run.federation.initial(client)
    known = known_model(run, client, initial)
    (found,) = updates(call, reply, known)
    assert_same(found.direction, reply.content["update"])
    assert_same(found.model.only("heads"), initial.only("heads"))
    after = StateStore(folder / "clients").load(client, (4, 0))["model"].only("encoder")
    torch.testing.assert_close(dict(found.model.only("encoder") + found.direction), dict(after))
    assert isinstance(audit(folder, 3).findings[0].inversion, Recovery)


@pytest.mark.parametrize("name", ["fedproto", "local_only", "fedmh", "lg_fedavg"])
def test_what_holds_no_update_of_an_encoder_is_not_inverted(tmp_path, name):
    found, page = audited(tmp_path, name, VECTORS)
    assert "inputs cannot be computed from what was sent" in found.inversion
    assert found.inversion in page
    assert "the model that the run reports" in found.attacked_model
    assert isinstance(found.membership["loss"], Membership)
    assert "too few examples for a conclusive result" in page  # four others are judged
    assert ("No client sent a tensor." in page) == (name == "local_only")


def test_pictures_stand_beside_their_originals(tmp_path):
    found, page = audited(tmp_path, "fedavg", IMAGES)
    assert found.attacked_model == "the model that the client sent"
    assert found.inversion.found.shape == (8, 1, 16, 16)
    assert "LPIPS" not in page  # nobody gave its weights
    assert page.count('alt="recovered"') == page.count('alt="original"') >= 8
    assert 0 <= found.information[1] <= 8


def test_texts_are_not_inverted(tmp_path):
    found, _ = audited(tmp_path, "fedavg", TEXTS)
    assert "texts" in found.inversion
    assert "texts" in found.imprint
    assert isinstance(found.membership["loss"], Membership)


def test_obfuscated_pairs_are_brought_back(tmp_path):
    found, page = audited(tmp_path, "affr", FINGERS, lambda one, other: (one - other).abs().mean())
    assert found.inversion.found.shape[1:] == (1, 32, 32)
    assert found.rescaled.gain > 3
    assert found.imprint.originals.max() > 0.9  # as they were, not as the client trains on them
    assert fmean(score.psnr for score in found.imprint.scores) < 20
    assert "Undoing the obfuscation" in page
    for recovered in (found.inversion, found.imprint, found.rescaled):
        worst = max((*recovered.scores, *recovered.baseline), key=lambda score: score.mse)
        assert worst.mse <= worst.lpips <= worst.mse**0.5
    assert page.count(">LPIPS</button>") == page.count(">SSIM</button>") > 0


def victim(train=4):
    member = tiny_member("c0", train)
    federation = Federation({"c0": member})
    return Victim("c0", federation.blueprint("c0").fresh, member.tasks, federation.data("c0"), 0)


def gradient_of(someone):
    model = someone.initial_model()
    outputs = model(someone.data.train.inputs)
    loss = someone.tasks["classify"].loss(
        outputs["classify"], someone.data.train.targets["classify"]
    )
    names, params = zip(*model.named_parameters(), strict=True)
    return Params(dict(zip(names, torch.autograd.grad(loss, params), strict=True)))


@pytest.mark.parametrize(("sign", "signed"), [(1.0, True), (-1.0, False)])
def test_one_step_on_one_example_gives_it_away(sign, signed):
    someone = victim(train=1)
    update = Update(Params.of(someone.initial_model()), gradient_of(someone) * sign, signed)
    found = someone.invert([update], steps=200)
    assert found.cosine > 0.99
    assert found.gain > 3


def test_a_server_that_hands_out_a_layer_of_its_own_gets_examples():
    found = victim(train=3).imprint()
    assert found.recognised == 3
    assert max(score.mse for score in found.scores) < 1e-6


def test_what_was_learnt_by_heart_is_told_from_the_same_inputs_with_other_labels():
    someone = victim(train=10)
    inputs, labels = someone.data.train.inputs, someone.data.train.targets["classify"]
    strange = Examples(inputs, {"classify": (labels + 1) % 3})
    data = replace(someone.data, test=strange)
    model = copy.deepcopy(someone.initial_model())
    client = Client("c0", model, dict(someone.tasks), data, {}, torch.Generator(), 1, 1)
    LocalTraining(lr=0.5, batch=10, steps=100).run(client)
    told = infer_membership(replace(someone, data=data), model, LocalTraining())
    assert told["loss"].auc == 1.0
    assert told["loss"].advantage >= 0.8  # the threshold may cost one of five
    assert set(told) == {
        "loss",
        "loss within its class",
        "loss minus that of a reference",
        "likelihood ratio, 8 shadow models",
    }
    assert told["likelihood ratio, 8 shadow models"].auc > 0.8


def test_shadow_models_need_examples_to_be_trained_on():
    someone = victim(train=10)
    few = replace(someone.data, validation=someone.data.validation.rows(0, 7))
    told = shadow_models(replace(someone, data=few), LocalTraining())
    assert told == "No shadow models: there are fewer than 8 validation examples."


def test_too_few_examples_say_so():
    someone = victim(train=2)
    assert "fewer than 4 training or test examples" in infer_membership(
        someone, someone.initial_model(), LocalTraining()
    )


def test_entries_of_messages_in_words():
    assert (
        describe_value(Params({"encoder.w": torch.ones(2, 3)}))
        == "parameters of a model, 6 numbers"
    )
    assert describe_value({"t": {0: torch.ones(5), 1: torch.ones(5)}}) == "2 tensors, 10 numbers"
    assert describe_value([1, 2]) == "numbers or text"
    assert (describe_value(3), describe_value(None)) == ("a number", "nothing")


def test_the_command(tmp_path):
    recipe = tmp_path / "tiny.toml"
    recipe.write_text(RECIPE)
    assert consort("run", recipe, "--out", tmp_path, "--quiet").code == 0
    run = tmp_path / "fedavg" / "seed-0"
    found = consort("audit", run, "--out", tmp_path / "page.html")
    assert (found.code, found.out.strip()) == (0, str(tmp_path / "page.html"))
    assert "<h2>Membership inference</h2>" in (tmp_path / "page.html").read_text()
    assert consort("audit", tmp_path / "nowhere").code == 2


def test_several_runs_stand_side_by_side_with_what_was_published(tmp_path):
    paper = (
        '[[published]]\nsource="a paper"\nmetric="membership_auc (loss)"\nvalues={fedavg=0.75}\n'
    )
    runs = []
    many = VECTORS.replace("examples = 60", "examples = 180")
    for number, about in enumerate([many, many + paper]):
        (tmp_path / str(number)).mkdir()
        runs.append(finished(tmp_path / str(number), "fedavg", about))
    found = consort("audit", *runs)
    assert found.code == 0
    assert all((run / "audit.html").exists() for run in runs)
    (line,) = (line for line in found.out.splitlines() if "membership_auc (loss)" in line)
    ours, same, theirs = (cell.strip() for cell in line.split("│")[2:5])
    assert (ours, theirs) == (same, "0.75")
    assert consort("audit", *runs, "--out", tmp_path / "page.html").code == 2


def test_titles_are_what_differs_between_folders():
    folders = [Path("runs/with/affr/seed-0"), Path("runs/without/affr/seed-0")]
    assert distinct(folders) == ["with", "without"]
    assert distinct([Path("runs/a/seed-0"), Path("runs/a/seed-1")]) == ["seed-0", "seed-1"]
    assert distinct([Path("/x"), Path("/x/y")]) == ["x", "x/y"]
