"""Models of Hugging Face: by architecture and config, from a folder, and as they are."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from consort.algorithms.registry import find_algorithm
from consort.core.params import Params
from consort.data.examples import Examples, Splits
from consort.errors import UsageError
from consort.federation.federation import Federation
from consort.federation.member import Member
from consort.models.offline import offline
from consort.models.registry import ModelSpec, build
from consort.run.run import Run
from consort.run.schedule import Schedule
from consort.tasks import Classification
from consort.training.local import LocalTraining

transformers = pytest.importorskip("transformers")

SMALL = {"dim": 8, "n_layers": 1, "n_heads": 2, "hidden_dim": 16, "vocab_size": 20,
         "max_position_embeddings": 6}  # fmt: skip
TASKS = {"topic": Classification(2)}
TEXT = {"input_ids": torch.tensor([1, 2, 3, 0]), "attention_mask": torch.tensor([1, 1, 1, 0])}


def texts(count: int, seed: int) -> Examples:
    ids = torch.randint(1, 20, (count, 4), generator=torch.Generator().manual_seed(seed))
    mask = torch.ones_like(ids)
    mask[::2, 3] = 0
    labels = (ids[:, 0] > 10).long()
    return Examples({"input_ids": ids, "attention_mask": mask}, {"topic": labels})


def test_a_name_and_a_config_make_an_encoder_under_the_seed():
    spec = ModelSpec.of("hf:distilbert", config=SMALL)
    assert hash(spec) == hash(ModelSpec.of({"name": "hf:distilbert", "config": SMALL}))
    one, same, other = (Params.of(build(spec, TASKS, TEXT, seed)) for seed in (1, 1, 2))
    assert one.equals(same)
    assert not one.equals(other)
    assert one.shapes["heads.topic.weight"] == (2, 8)


def test_a_config_object_stands_for_its_model():
    spec = ModelSpec.of(transformers.DistilBertConfig(**SMALL))
    assert spec.name == "hf:distilbert"
    by_name = ModelSpec.of("hf:distilbert", config=SMALL)
    one, same = (Params.of(build(s, TASKS, TEXT, 0)) for s in (spec, by_name))
    assert one.equals(same)


def test_padding_does_not_change_features():
    model = build(ModelSpec.of("hf:distilbert", config=SMALL), TASKS, TEXT, 0).eval()
    batch = {name: tensor[None] for name, tensor in TEXT.items()}
    short = {name: tensor[:, :3] for name, tensor in batch.items()}
    torch.testing.assert_close(model(batch)["topic"], model(short)["topic"])


def test_a_folder_gives_its_weights_and_nothing_is_downloaded(tmp_path):
    saved = transformers.AutoModel.from_config(transformers.DistilBertConfig(**SMALL))
    saved.save_pretrained(tmp_path / "mine")
    model = build(ModelSpec.of(f"hf:{tmp_path / 'mine'}"), TASKS, TEXT, 5)
    own = {f"encoder.network.{name}": tensor for name, tensor in saved.named_parameters()}
    assert Params.of(model).only("encoder").equals(Params(own))


@pytest.mark.parametrize(("name", "options", "message"), [
    ("hf:distilbert-base-uncased", {},
     "there is no folder distilbert-base-uncased, and no architecture 'distilbert-base-uncased': "
     "did you mean 'distilbert'? (nothing is downloaded: save a model in a folder first, and give "
     "that folder)"),
    ("hf:distilbert", {"config": {"dim": 7, "n_heads": 2}}, "its config does not fit distilbert: "),
])  # fmt: skip
def test_what_is_not_there_is_said(name, options, message):
    with pytest.raises(UsageError) as caught:
        build(ModelSpec.of(name, **options), TASKS, TEXT, 0)
    assert message in str(caught.value)


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize("setting", [
    {"trust_remote_code": True}, {"attn_implementation": "some/kernel"}, {"n_layer": 2},
    {"auto_map": {"AutoModel": "code--evil.Model"}}, {"_name_or_path": "/etc"},
    {"quantization_config": {}}, {"cache_dir": "/tmp"},
])  # fmt: skip
def test_settings_are_those_of_the_architecture(setting, saved, tmp_path):
    """Nothing says where to load from or which code to run, and a typing error is found."""
    name = "distilbert"
    if saved:
        config = transformers.DistilBertConfig(**SMALL)
        transformers.AutoModel.from_config(config).save_pretrained(tmp_path)
        name = str(tmp_path)
    with pytest.raises(UsageError, match="config: distilbert has no setting"):
        build(ModelSpec.of(f"hf:{name}", config=setting), TASKS, TEXT, 0)


def test_settings_change_a_saved_model(tmp_path):
    config = transformers.DistilBertConfig(**SMALL)
    transformers.AutoModel.from_config(config).save_pretrained(tmp_path)
    model = build(ModelSpec.of(f"hf:{tmp_path}", config={"dropout": 0.5}), TASKS, TEXT, 0)
    assert model.encoder.network.config.dropout == 0.5


def test_nothing_is_fetched_while_a_model_is_made(monkeypatch):
    from huggingface_hub import constants, get_session
    from huggingface_hub.errors import OfflineModeIsEnabled

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with offline(), pytest.raises(OfflineModeIsEnabled):
        get_session().get(f"{constants.ENDPOINT}/distilbert")
    assert not constants.HF_HUB_OFFLINE


def test_an_empty_folder_is_named(tmp_path):
    with pytest.raises(UsageError, match=f"{tmp_path} holds no model that can be loaded"):
        build(ModelSpec.of(f"hf:{tmp_path}"), TASKS, TEXT, 0)


def classifier() -> nn.Module:
    config = transformers.DistilBertConfig(**SMALL, num_labels=2)
    return transformers.DistilBertForSequenceClassification(config)


def test_a_whole_classifier_is_taken_apart_at_its_head():
    network = classifier()
    model = build(ModelSpec.of(network), TASKS, TEXT, 0).eval()
    assert torch.equal(model.heads["topic"].weight, network.classifier.weight)
    batch = {name: tensor[None] for name, tensor in TEXT.items()}
    torch.testing.assert_close(model(batch)["topic"], network.eval()(**batch).logits)


def test_a_classifier_of_the_last_token_is_taken_apart_too():
    config = transformers.GPT2Config(
        n_embd=8, n_layer=1, n_head=2, vocab_size=20, n_positions=6, num_labels=2, pad_token_id=0
    )
    network = transformers.GPT2ForSequenceClassification(config).eval()
    model = build(ModelSpec.of(network), TASKS, TEXT, 0).eval()
    batch = {name: tensor[None] for name, tensor in TEXT.items()}
    torch.testing.assert_close(model(batch)["topic"], network(**batch).logits)


@pytest.mark.parametrize("model", ["hf:distilbert", classifier])
@pytest.mark.parametrize("algorithm", ["fedavg", "fedper", "lg_fedavg", "fedproto"])
def test_tokenised_text_is_trained_in_a_federation(model, algorithm):
    spec = ModelSpec.of(model, config=SMALL) if isinstance(model, str) else ModelSpec.of(model)
    members = {
        f"c{number}": Member.of(
            TASKS, spec, Splits(texts(24, number), texts(8, number + 9), texts(8, number + 5))
        )
        for number in range(2)
    }
    local = LocalTraining(lr=0.01, optimizer="adam", batch=8)
    history = Run(Federation(members), find_algorithm(algorithm)(local=local), Schedule(2)).go()
    assert any(row.metric == "accuracy" for row in history)
