"""Inputs of models: one tensor, or several by name, such as token ids and their mask."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

Inputs = Tensor | dict[str, Tensor]
"""A batch of inputs, or one example: a tensor, or tensors by name."""


def each(inputs: Inputs, change: Callable[[Tensor], Tensor]) -> Inputs:
    """Changes every tensor of inputs.

    Args:
        inputs: A tensor, or tensors by name.
        change: Makes a new tensor from a tensor.
    """
    if isinstance(inputs, Tensor):
        return change(inputs)
    return {name: change(tensor) for name, tensor in inputs.items()}


def tensors_of(inputs: Inputs) -> list[Tensor]:
    """The tensors of `inputs`: itself, or all of them in order."""
    return [inputs] if isinstance(inputs, Tensor) else list(inputs.values())


def first_of(inputs: Inputs) -> Tensor:
    """The only tensor of `inputs`, or the first of several; its length is the number of rows."""
    return inputs if isinstance(inputs, Tensor) else next(iter(inputs.values()))


def kind_of(example: Inputs) -> str:
    """The shape and type of an example, for messages: `3x32x32 (float32)`."""
    if isinstance(example, Tensor):
        shape = "x".join(map(str, example.shape)) or "1"
        return f"{shape} ({str(example.dtype).removeprefix('torch.')})"
    return ", ".join(f"{name} {kind_of(tensor)}" for name, tensor in example.items())
