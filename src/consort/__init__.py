"""Federated learning among heterogeneous clients: different data, model architectures and tasks.

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
    from consort.aggregation.server_optimizer import ServerOptimizer
    from consort.algorithms._server_optimizer import with_server_optimizer
    from consort.core.algorithm import Algorithm
    from consort.core.clients import Clients, batchable, on_client
    from consort.core.contract import Count, Model, Number, Whole
    from consort.core.contract_groups import ByTask, Maybe, Optional, Several
    from consort.core.messages import Each, Payload, Replies
    from consort.core.params import Params
    from consort.core.roster import Roster
    from consort.data.dataset import Dataset
    from consort.data.examples import Examples, Splits
    from consort.errors import ConsortError, Failure, UsageError
    from consort.experiment.recipe import Recipe
    from consort.experiment.trained import load_model
    from consort.federation.federation import Federation
    from consort.federation.member import Member
    from consort.federation.protection import Protection
    from consort.federation.selection import Candidates
    from consort.interactive.experiment import Experiment
    from consort.interactive.outcome import Outcome
    from consort.interactive.running import compare, train
    from consort.models.multitask import MultiTaskModel
    from consort.models.registry import ModelSpec
    from consort.run.history import History
    from consort.run.observer import Observer
    from consort.run.run import Run
    from consort.run.schedule import Schedule
    from consort.tasks import Classification, Meter, Task
    from consort.training.client import Client
    from consort.training.compute import Compute
    from consort.training.descent import Descent
    from consort.training.local import LocalTraining
    from consort.training.objectives import pull_towards, shift_by, task_losses

_HOMES = {
    "Algorithm": "core.algorithm",
    "ByTask": "core.contract_groups",
    "Candidates": "federation.selection",
    "Classification": "tasks",
    "Client": "training.client",
    "Clients": "core.clients",
    "Compute": "training.compute",
    "ConsortError": "errors",
    "Count": "core.contract",
    "Dataset": "data.dataset",
    "Descent": "training.descent",
    "Each": "core.messages",
    "Examples": "data.examples",
    "Experiment": "interactive.experiment",
    "Failure": "errors",
    "Federation": "federation.federation",
    "History": "run.history",
    "LocalTraining": "training.local",
    "Maybe": "core.contract_groups",
    "Member": "federation.member",
    "Meter": "tasks",
    "Model": "core.contract",
    "ModelSpec": "models.registry",
    "MultiTaskModel": "models.multitask",
    "Number": "core.contract",
    "Observer": "run.observer",
    "Outcome": "interactive.outcome",
    "Optional": "core.contract_groups",
    "Params": "core.params",
    "Payload": "core.messages",
    "Protection": "federation.protection",
    "Recipe": "experiment.recipe",
    "Replies": "core.messages",
    "Roster": "core.roster",
    "Run": "run.run",
    "Schedule": "run.schedule",
    "ServerOptimizer": "aggregation.server_optimizer",
    "Several": "core.contract_groups",
    "Splits": "data.examples",
    "Task": "tasks",
    "UsageError": "errors",
    "Whole": "core.contract",
    "batchable": "core.clients",
    "compare": "interactive.running",
    "load_model": "experiment.trained",
    "on_client": "core.clients",
    "pull_towards": "training.objectives",
    "shift_by": "training.objectives",
    "task_losses": "training.objectives",
    "train": "interactive.running",
    "with_server_optimizer": "algorithms._server_optimizer",
}

__all__ = [
    "Algorithm",
    "ByTask",
    "Candidates",
    "Classification",
    "Client",
    "Clients",
    "Compute",
    "ConsortError",
    "Count",
    "Dataset",
    "Descent",
    "Each",
    "Examples",
    "Experiment",
    "Failure",
    "Federation",
    "History",
    "LocalTraining",
    "Maybe",
    "Member",
    "Meter",
    "Model",
    "ModelSpec",
    "MultiTaskModel",
    "Number",
    "Observer",
    "Optional",
    "Outcome",
    "Params",
    "Payload",
    "Protection",
    "Recipe",
    "Replies",
    "Roster",
    "Run",
    "Schedule",
    "ServerOptimizer",
    "Several",
    "Splits",
    "Task",
    "UsageError",
    "Whole",
    "batchable",
    "compare",
    "load_model",
    "on_client",
    "pull_towards",
    "shift_by",
    "task_losses",
    "train",
    "with_server_optimizer",
]


def __getattr__(name: str) -> object:
    """Imports a public name when it is first used, so that `import consort` is immediate."""
    if name == "run":  # a package that can be called
        return import_module("consort.run")
    if name not in _HOMES:
        raise AttributeError(f"module 'consort' has no attribute {name!r}")
    return getattr(import_module(f"consort.{_HOMES[name]}"), name)
