"""Models of Hugging Face as encoders, from a local folder or from the name of an architecture."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import BeforeValidator
from torch import Tensor, nn

from consort.core.inputs import Inputs, each
from consort.core.registry import did_you_mean
from consort.errors import UsageError
from consort.models.offline import offline


def _as_text(config: Any) -> Any:
    return json.dumps(config, sort_keys=True) if isinstance(config, dict) else config


Config = Annotated[str, BeforeValidator(_as_text)]
"""The settings of an architecture: a table, kept as text so that it can be compared."""
_LOCAL: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
_NOT_SETTINGS = {
    "architectures",
    "auto_map",
    "attn_implementation",
    "backbone_config",
    "model_type",
    "quantization_config",
    "transformers_version",
}
"""Keys of configs that name other models, code or files."""


class HuggingFace(nn.Module):
    """A model of `transformers` without head; nothing is ever downloaded.

    Features are the model's pooled output, if it has one, or else the mean over the tokens that its
    attention mask shows. Inputs by name, such as `input_ids` and `attention_mask`, are passed on by
    name.

    Args:
        example: One prepared input.
        architecture: A folder with a saved model, whose weights are the initial weights, or the
            name of an architecture, such as `distilbert`, whose weights are drawn.
        config: Settings of the architecture, such as `{n_layers = 2}`.

    Raises:
        UsageError: If there is neither such a folder nor such an architecture, or a setting is
            wrong.
    """

    def __init__(self, example: Inputs, architecture: str, config: Config = "{}") -> None:
        super().__init__()
        settings = json.loads(config)
        folder = Path(architecture).expanduser()
        with offline():
            self.network = (
                _loaded(folder, settings) if folder.is_dir() else _drawn(architecture, settings)
            )
        self.network.eval()
        with torch.no_grad():
            features = self(each(example, lambda tensor: tensor[None]))
        self.network.train()
        self.width = features.shape[1]

    def forward(self, inputs: Inputs) -> Tensor:
        """The features of a batch of `inputs`."""
        found = self.network(**inputs) if isinstance(inputs, dict) else self.network(inputs)
        pooled: Tensor | None = found.get("pooler_output")
        if pooled is not None:
            return pooled.flatten(1)
        tokens: Tensor = found.last_hidden_state
        mask = inputs.get("attention_mask") if isinstance(inputs, dict) else None
        if mask is None:
            return tokens.mean(1)
        shown = mask[..., None].to(tokens.dtype)
        return (tokens * shown).sum(1) / shown.sum(1).clamp(min=1)


def _loaded(folder: Path, settings: dict[str, Any]) -> Any:
    transformers = importlib.import_module("transformers")
    try:
        config = transformers.AutoConfig.from_pretrained(folder, **_LOCAL)
        for key, value in _checked(config, settings).items():
            setattr(config, key, value)
        return transformers.AutoModel.from_pretrained(
            folder, config=config, use_safetensors=True, **_LOCAL
        )
    except UsageError:
        raise
    except (OSError, ValueError, TypeError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise UsageError(f"{folder} holds no model that can be loaded: {reason}") from error


def _drawn(architecture: str, settings: dict[str, Any]) -> Any:
    transformers = importlib.import_module("transformers")
    known = list(transformers.CONFIG_MAPPING.keys())
    if architecture not in known:
        nearest = did_you_mean(architecture, known).partition(" (there are")[0]
        raise UsageError(
            f"there is no folder {architecture}, and no architecture {nearest} (nothing is "
            "downloaded: save a model in a folder first, and give that folder)"
        )
    usual = transformers.AutoConfig.for_model(architecture)
    try:
        config = type(usual)(**_checked(usual, settings))
        return transformers.AutoModel.from_config(config, trust_remote_code=False)
    except UsageError:
        raise
    except (OSError, ValueError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        raise UsageError(f"its config does not fit {architecture}: {reason}") from error


def _checked(config: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """Settings of an architecture only: nothing that says where to load from, or which code."""
    known = {*config.to_dict(), *config.attribute_map, "num_labels"}
    known = {key for key in known if not key.startswith("_")} - _NOT_SETTINGS
    for key in settings:
        if key not in known:
            raise UsageError(
                f"config: {config.model_type} has no setting {did_you_mean(key, sorted(known))}"
            )
    return settings
