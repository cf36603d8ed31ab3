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


def _as_text(config: Any) -> Any:
    return json.dumps(config, sort_keys=True) if isinstance(config, dict) else config


Config = Annotated[str, BeforeValidator(_as_text)]
"""The settings of an architecture: a table, kept as text so that it can be compared."""


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
        return transformers.AutoModel.from_pretrained(
            folder, local_files_only=True, use_safetensors=True, **settings
        )
    except (OSError, ValueError, TypeError) as error:
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
    try:
        config = transformers.AutoConfig.for_model(architecture, **settings)
        return transformers.AutoModel.from_config(config)
    except (ValueError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        raise UsageError(f"its config does not fit {architecture}: {reason}") from error
