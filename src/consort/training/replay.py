"""The calls that autograd makes in a step, written down once and then made without it.

On a tiny model autograd takes longer to keep its graph than to compute. A replayed step calls the
same kernels in the same order with tensors of the same layout, so every bit is as before.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from consort.data.examples import Examples

Found = tuple[Sequence[Tensor], Sequence[Tensor]]
"""The losses of a batch and the gradients of the parameters."""
Step = Callable[[Examples], Found]
Program = Callable[..., Found]

_PATIENCE = 20  # steps of a kind before one is recorded, which takes as long as some more of them
_UNFIT = {
    torch.Tag.nondeterministic_seeded,
    torch.Tag.dynamic_output_shape,
    torch.Tag.data_dependent_output,
    torch.Tag.inplace_view,
}


def is_steady(part: object) -> bool:
    """Whether a module or a task does the same to every batch: known of ours and of torch's."""
    return type(part).__module__.partition(".")[0] in ("consort", "torch")


class _Memory:
    """What is known of one model: its modules, and by setting and kind of batch its steps."""

    def __init__(self, model: nn.Module) -> None:
        self.modules = tuple(model.modules())
        self.parameters = tuple(model.parameters())
        self.seen: dict[Hashable, Counter[Hashable]] = {}
        self.programs: dict[Hashable, dict[Hashable, Program]] = {}
        self.fit = all(map(is_steady, self.modules)) and not list(model.buffers())

    def is_hooked(self) -> bool:
        """Whether somebody looks into the model while it computes."""
        return any(
            m._forward_pre_hooks or m._forward_hooks or m._backward_pre_hooks or m._backward_hooks
            for m in self.modules
        )


_memories: WeakKeyDictionary[nn.Module, _Memory] = WeakKeyDictionary()


def replayed(step: Step, model: nn.Module, setting: Hashable, constants: Sequence[Tensor]) -> Step:
    """The same step, which is recorded and replayed as soon as that pays, if it can be.

    Besides the batch it may depend on the model's parameters, on `constants`, and on nothing else
    that is not in `setting`.
    """
    memory = _memories.get(model) or _memories.setdefault(model, _Memory(model))
    if not memory.fit or memory.is_hooked():
        return step
    seen = memory.seen.setdefault(setting, Counter())
    programs = memory.programs.setdefault(setting, {})
    given = (*memory.parameters, *constants)

    def replay(batch: Examples) -> Found:
        tensors = (batch.inputs, *batch.targets.values())
        kind = tuple((tensor.shape, tensor.stride(), tensor.dtype) for tensor in tensors)
        program = programs.get(kind)
        if program is not None:
            with torch.no_grad():
                return program(*given, *tensors)
        seen[kind] += 1
        if seen[kind] != _PATIENCE:
            return step(batch)
        with _Recorder((*given, *tensors)) as recorder:
            found = step(batch)
        program = recorder.program(found)
        if program is not None:
            programs[kind] = program
        return found

    return replay


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Lets every call through and writes it down as a line of Python."""

    def __init__(self, given: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.given = given
        self.places = {_place(tensor) for tensor in given}
        self.names = {id(tensor): f"given{place}" for place, tensor in enumerate(given)}
        self.alive = list(given)  # so that no id is used again
        self.bound: dict[str, Any] = {}
        self.lines: list[str] = []
        self.fit = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # to skip it is to import it, which takes seconds

    def __torch_dispatch__(
        self, function: Any, _: Any, args: Sequence[Any] = (), options: Mapping[str, Any] = {}
    ) -> Any:
        result = function(*args, **options)
        self.fit &= _UNFIT.isdisjoint(function.tags) and not self._changes_given(function, args)
        if function is torch.ops.aten.detach.default:
            self._name(result, self._written(args[0]))
        else:
            written = [self._written(value) for value in args]
            written += [f"{key}={self._written(value)}" for key, value in options.items()]
            call = f"{self._bound(function._op)}({', '.join(written)})"
            self.lines.append(f"{self._target(result)} = {call}")
        return result

    def program(self, found: Found) -> Program | None:
        """What was written down, as a function of what was given, if it finds the same bits."""
        last = f"return {self._written(found)}"
        if not self.fit:
            return None
        head = f"def program({', '.join(f'given{place}' for place in range(len(self.given)))}):"
        exec("\n    ".join([head, *_freeing(self.lines, last), last]), self.bound)
        program: Program = self.bound["program"]
        with torch.no_grad(), _disable_current_modes():  # whoever counts does not count this
            again = program(*self.given)
        pairs = zip((*found[0], *found[1]), (*again[0], *again[1]), strict=True)
        same = all(torch.equal(a, b) and a.stride() == b.stride() for a, b in pairs)
        return program if same else None

    def _changes_given(self, function: Any, args: Sequence[Any]) -> bool:
        """Whether a call writes to a tensor, or to a view of one, that is not the step's own."""
        written = [
            value
            for argument, value in zip(function._schema.arguments, args, strict=False)
            if argument.is_write
        ]
        return not all(isinstance(v, Tensor) and _place(v) not in self.places for v in written)

    def _target(self, result: Any) -> str:
        if isinstance(result, tuple | list):
            return "".join(f"{self._target(part)}, " for part in result)
        return self._name(result, f"made{len(self.alive)}")

    def _name(self, value: Any, name: str) -> str:
        self.alive.append(value)
        return self.names.setdefault(id(value), name)

    def _written(self, value: Any) -> str:
        """A value as it stands in the program: a name, or itself where it can be read back."""
        if isinstance(value, tuple | list):
            return f"[{', '.join(map(self._written, value))}]"
        if value is None or isinstance(value, bool | int):
            return repr(value)
        if not isinstance(value, Tensor):
            return self._bound(value)
        self.fit &= id(value) in self.names
        return self.names.get(id(value), "unknown")

    def _bound(self, value: Any) -> str:
        name = f"bound{len(self.bound)}"
        self.bound[name] = value
        return name


def _place(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _freeing(lines: Sequence[str], last: str) -> list[str]:
    """The lines, each letting go of what no later one names."""
    needed, found = set(re.findall(r"made\d+", last)), []
    for line in reversed(lines):
        done = set(re.findall(r"made\d+", line)) - needed
        needed |= done
        found.append(f"{line}; del {', '.join(sorted(done))}" if done else line)
    return found[::-1]
