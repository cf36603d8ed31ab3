"""Files that hold a model and run without this package: TorchScript and ONNX.

Parameters of an encoder alone are written as safetensors, which models can start from.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from consort.errors import Failure, Refused, UsageError
from consort.models.multitask import MultiTaskModel
from consort.use.facts import KEY, Facts

ENCODER = ".safetensors"
Apply = Callable[[Tensor], tuple[Tensor, ...]]
"""From a batch of inputs to `Facts.outputs`."""


class Usable(NamedTuple):
    """A model to be used: what is known about it, and what it computes."""

    facts: Facts
    apply: Apply


class Outputs(nn.Module):
    """A model as a function: the features, then the output of each task."""

    def __init__(self, model: MultiTaskModel, tasks: tuple[str, ...]) -> None:
        super().__init__()
        self.model = model
        self.tasks = tasks

    def forward(self, inputs: Tensor) -> tuple[Tensor, ...]:
        """All outputs for a batch."""
        found = self.model.encoder(inputs)
        features = torch.cat([part.flatten(1) for part in tree_leaves(found)], 1)
        return (features, *(self.model.output(task, found) for task in self.tasks))


def write_encoder(path: Path, encoder: nn.Module, facts: Facts) -> None:
    """Writes an encoder's parameters, in the form that a model's option `weights` reads."""
    from safetensors.torch import save

    trunk = getattr(encoder, "network", encoder)
    parameters = {name: value.contiguous() for name, value in trunk.state_dict().items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(save(parameters, {KEY: facts.to_json()}))


def write_model(path: Path, outputs: Outputs, facts: Facts, example: Tensor) -> None:
    """Writes a model in the format that the file's suffix asks for; `example` is a small batch."""
    write, _ = _format(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with _undisturbed():
        write(path, outputs, facts, example)


def read_model(path: Path) -> Usable:
    """Reads what `write_model` wrote."""
    _, read = _format(path)
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    try:
        with _undisturbed():
            return read(path)
    except Refused as error:
        raise UsageError(f"{path}: {error}") from error
    except Exception as error:  # damaged files make these libraries raise almost anything
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{path} cannot be read as a model: export it again") from error


def check_suffix(path: Path) -> None:
    """Refuses a file name that stands for no format."""
    _format(path)


def _format(path: Path) -> tuple[Callable[..., None], Callable[[Path], Usable]]:
    match path.suffix:
        case ".pt":
            return _write_torchscript, _read_torchscript
        case ".onnx":
            _needs_onnx()
            return _write_onnx, _read_onnx
    raise UsageError(
        f"{path}: a model's file ends in .pt (TorchScript) or .onnx (ONNX), "
        f"and that of an encoder alone in {ENCODER}"
    )


def _write_torchscript(path: Path, outputs: Outputs, facts: Facts, example: Tensor) -> None:
    traced = torch.jit.trace(outputs, example, check_trace=False)  # type: ignore[no-untyped-call]
    torch.jit.save(traced, str(path), _extra_files={KEY: facts.to_json()})


def _read_torchscript(path: Path) -> Usable:
    found = {KEY: ""}
    traced = torch.jit.load(  # type: ignore[no-untyped-call]
        str(path), map_location="cpu", _extra_files=found
    )
    text: Any = found[KEY]
    return Usable(Facts.of_json(text if isinstance(text, str) else text.decode()), traced)


def _write_onnx(path: Path, outputs: Outputs, facts: Facts, example: Tensor) -> None:
    program = torch.onnx.export(
        outputs,
        (example,),
        input_names=["inputs"],
        output_names=list(facts.outputs),
        dynamic_shapes=({0: torch.export.Dim("batch")},),
        dynamo=True,
        verbose=False,
    )
    if program is None:
        raise Failure(f"{path}: PyTorch made no ONNX program of the model")
    program.model.metadata_props[KEY] = facts.to_json()
    program.save(str(path), external_data=False)


def _read_onnx(path: Path) -> Usable:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    facts = Facts.of_json(session.get_modelmeta().custom_metadata_map.get(KEY, ""))

    def apply(inputs: Tensor) -> tuple[Tensor, ...]:
        found = session.run(list(facts.outputs), {"inputs": inputs.contiguous().numpy()})
        return tuple(map(torch.from_numpy, found))

    return Usable(facts, apply)


def _needs_onnx() -> None:
    from importlib.util import find_spec

    for package in ("onnx", "onnxruntime", "onnxscript"):
        if find_spec(package) is None:
            raise UsageError(f"ONNX needs {package}: pip install 'fedconsort[onnx]', or write .pt")


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Silences PyTorch about the age of TorchScript, and about packages that are not needed."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
