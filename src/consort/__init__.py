"""Federated learning for clients that are unlike: in data, in model architecture, in tasks.

>>> import torch
>>> from consort import Classification, Examples, Federation, LocalTraining, Member, ModelSpec
>>> from consort import Run, Schedule, Splits
>>> from consort.algorithms.fedavg import FedAvg
>>> x = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
>>> examples = Examples(x, {"sign": (x.sum(1) > 0).long()})
>>> splits = Splits(*(examples.take(torch.arange(20) + start) for start in (0, 20, 40)))
>>> member = Member.of({"sign": Classification(2)}, ModelSpec.of({"name": "mlp"}), splits)
>>> federation = Federation({"bank-1": member, "bank-2": member})
>>> history = Run(federation, FedAvg(LocalTraining(lr=0.5)), Schedule(rounds=5)).go()
>>> [row.value for row in history if row.metric == "accuracy" and row.split == "test"][-1]
0.9
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from consort.algorithm import Algorithm, Clients, batchable, on_client
    from consort.client import Client
    from consort.compute import Compute
    from consort.data.dataset import Dataset
    from consort.data.examples import Examples, Splits
    from consort.errors import ConsortError, Failure, UsageError
    from consort.federation import Federation, Member
    from consort.history import History
    from consort.local import LocalTraining
    from consort.messages import Each, Payload, Replies
    from consort.models.multitask import MultiTaskModel
    from consort.models.registry import ModelSpec
    from consort.objectives import pull_towards, shift_by, task_losses
    from consort.params import Params
    from consort.recipe import Recipe
    from consort.roster import Roster
    from consort.run import Run
    from consort.schedule import Schedule
    from consort.tasks import Classification, Meter, Task

_HOMES = {
    "Algorithm": "algorithm",
    "Classification": "tasks",
    "Client": "client",
    "Clients": "algorithm",
    "Compute": "compute",
    "ConsortError": "errors",
    "Dataset": "data.dataset",
    "Each": "messages",
    "Examples": "data.examples",
    "Failure": "errors",
    "Federation": "federation",
    "History": "history",
    "LocalTraining": "local",
    "Member": "federation",
    "Meter": "tasks",
    "ModelSpec": "models.registry",
    "MultiTaskModel": "models.multitask",
    "Params": "params",
    "Payload": "messages",
    "Recipe": "recipe",
    "Replies": "messages",
    "Roster": "roster",
    "Run": "run",
    "Schedule": "schedule",
    "Splits": "data.examples",
    "Task": "tasks",
    "UsageError": "errors",
    "batchable": "algorithm",
    "on_client": "algorithm",
    "pull_towards": "objectives",
    "shift_by": "objectives",
    "task_losses": "objectives",
}

__all__ = [
    "Algorithm",
    "Classification",
    "Client",
    "Clients",
    "Compute",
    "ConsortError",
    "Dataset",
    "Each",
    "Examples",
    "Failure",
    "Federation",
    "History",
    "LocalTraining",
    "Member",
    "Meter",
    "ModelSpec",
    "MultiTaskModel",
    "Params",
    "Payload",
    "Recipe",
    "Replies",
    "Roster",
    "Run",
    "Schedule",
    "Splits",
    "Task",
    "UsageError",
    "batchable",
    "on_client",
    "pull_towards",
    "shift_by",
    "task_losses",
]


def __getattr__(name: str) -> object:
    """Imports a public name when it is first used, so that `import consort` is immediate."""
    if name not in _HOMES:
        raise AttributeError(f"module 'consort' has no attribute {name!r}")
    return getattr(import_module(f"consort.{_HOMES[name]}"), name)
