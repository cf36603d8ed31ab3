"""Model files that work without this package: TorchScript and ONNX.

Parameters alone, of a whole model or of its encoder, are written as safetensors.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from consort.core.files import write_file
from consort.errors import Failure, Refused, UsageError
from consort.models.multitask import MultiTaskModel
from consort.use.metadata import KEY, ModelMetadata

STATE = ".safetensors"
Apply = Callable[[Tensor], tuple[Tensor, ...]]
"""Maps a batch of inputs to the outputs that `ModelMetadata.outputs` names."""


class LoadedModel(NamedTuple):
    """A model read from a file: its metadata, and the function it computes."""

    metadata: ModelMetadata
    apply: Apply


class Outputs(nn.Module):
    """A model with a tuple of tensors as output: the features, then the output of each task.

    Args:
        model: The model.
        tasks: The tasks, in the order of their outputs.
    """

    def __init__(self, model: MultiTaskModel, tasks: tuple[str, ...]) -> None:
        super().__init__()
        self.model = model
        self.tasks = tasks

    def forward(self, inputs: Tensor) -> tuple[Tensor, ...]:
        """The outputs for a batch of inputs."""
        found = self.model.encoder(inputs)
        features = torch.cat([part.flatten(1) for part in tree_leaves(found)], 1)
        return (features, *(self.model.output(task, found) for task in self.tasks))


def write_encoder(path: Path, encoder: nn.Module, metadata: ModelMetadata) -> None:
    """Writes an encoder's parameters in the format that the model option `weights` reads.

    Args:
        path: The file to write.
        encoder: The encoder.
        metadata: Is stored in the file.
    """
    write_state(path, getattr(encoder, "network", encoder), metadata)


def write_state(path: Path, module: nn.Module, metadata: ModelMetadata) -> None:
    """Writes the `state_dict` of a module, with the names that PyTorch has for it.

    A model that was made from a network has the names of that network.

    Args:
        path: The file to write.
        module: The module.
        metadata: Is stored in the file.
    """
    from safetensors.torch import save

    names = getattr(module, "original_names", {})
    state = {_renamed(name, names): value for name, value in module.state_dict().items()}
    parameters = {name: value.contiguous().clone() for name, value in state.items()}
    write_file(path, save(parameters, {KEY: metadata.to_json()}))


def _renamed(name: str, beginnings: Mapping[str, str]) -> str:
    for here, there in beginnings.items():
        if name.startswith(here):
            return there + name.removeprefix(here)
    return name


def write_model(path: Path, outputs: Outputs, metadata: ModelMetadata, example: Tensor) -> None:
    """Writes a model in the format of the file's suffix.

    Args:
        path: The file to write.
        outputs: The model.
        metadata: Is stored in the file.
        example: A small batch of inputs, with which the model is traced.

    Raises:
        UsageError: If the suffix stands for no format, or a package for it is missing.
        Failure: If the model cannot be converted.
    """
    write, _ = _format(path)
    with _without_warnings(), TemporaryDirectory(prefix="consort-") as folder:
        draft = Path(folder) / path.name
        write(draft, outputs, metadata, example)
        write_file(path, draft.read_bytes())


def read_model(path: Path) -> LoadedModel:
    """Reads a file that `write_model` wrote.

    Raises:
        UsageError: If the file is missing or damaged.
    """
    _, read = _format(path)
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    try:
        with _without_warnings():
            return read(path)
    except Refused as error:
        raise UsageError(f"{path}: {error}") from error
    except Exception as error:  # damaged files make these libraries raise almost anything
        if isinstance(error, UsageError):
            raise
        raise UsageError(
            f"{path} is not a model file or is damaged: export the model again"
        ) from error


def check_suffix(path: Path) -> None:
    """Checks that a file name stands for a format.

    Raises:
        UsageError: If it does not, or a package for the format is missing.
    """
    _format(path)


def _format(path: Path) -> tuple[Callable[..., None], Callable[[Path], LoadedModel]]:
    match path.suffix:
        case ".pt":
            return _write_torchscript, _read_torchscript
        case ".onnx":
            _needs_onnx()
            return _write_onnx, _read_onnx
    raise UsageError(
        f"{path}: use a file name that ends in .pt (TorchScript), .onnx (ONNX) or, for the "
        f"state_dict alone, {STATE}"
    )


def _write_torchscript(
    path: Path, outputs: Outputs, metadata: ModelMetadata, example: Tensor
) -> None:
    traced = torch.jit.trace(outputs, example, check_trace=False)  # type: ignore[no-untyped-call]
    torch.jit.save(traced, str(path), _extra_files={KEY: metadata.to_json()})


def _read_torchscript(path: Path) -> LoadedModel:
    found = {KEY: ""}
    traced = torch.jit.load(  # type: ignore[no-untyped-call]
        str(path), map_location="cpu", _extra_files=found
    )
    text: Any = found[KEY]
    return LoadedModel(
        ModelMetadata.of_json(text if isinstance(text, str) else text.decode()), traced
    )


def _write_onnx(path: Path, outputs: Outputs, metadata: ModelMetadata, example: Tensor) -> None:
    program = torch.onnx.export(
        outputs,
        (example,),
        input_names=["inputs"],
        output_names=list(metadata.outputs),
        dynamic_shapes=({0: torch.export.Dim("batch")},),
        dynamo=True,
        verbose=False,
    )
    if program is None:
        raise Failure(f"{path}: PyTorch cannot convert the model to ONNX")
    program.model.metadata_props[KEY] = metadata.to_json()
    program.save(str(path), external_data=False)


def _read_onnx(path: Path) -> LoadedModel:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    metadata = ModelMetadata.of_json(session.get_modelmeta().custom_metadata_map.get(KEY, ""))

    def apply(inputs: Tensor) -> tuple[Tensor, ...]:
        found = session.run(list(metadata.outputs), {"inputs": inputs.contiguous().numpy()})
        return tuple(map(torch.from_numpy, found))

    return LoadedModel(metadata, apply)


def _needs_onnx() -> None:
    from importlib.util import find_spec

    for package in ("onnx", "onnxruntime", "onnxscript"):
        if find_spec(package) is None:
            raise UsageError(f"ONNX needs {package}: pip install 'fedconsort[onnx]', or write .pt")


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Suppresses PyTorch's warnings about TorchScript's age and about optional packages."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
