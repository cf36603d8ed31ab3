"""What the checks of answers cost: as a share of a round with models of 1 MB, and per message.

20 clients with 250 vectors of 784 numbers each; one local epoch in batches of 10; the shares are
measured within one run, so that they do not depend on what else the machine does.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import torch
from measure import Report
from safetensors import torch as safetensors

CLIENTS, EXAMPLES, INPUTS, ROUNDS, REPEATS = 20, 250, 784, 3, 30


def federation():  # noqa: ANN201
    from consort import Classification, Examples, Federation, Member, ModelSpec, Splits

    generator = torch.Generator().manual_seed(0)
    members = {}
    for number in range(CLIENTS):
        x = torch.randn(EXAMPLES, INPUTS, generator=generator)
        examples = Examples(x, {"classify": torch.randint(0, 10, (EXAMPLES,), generator=generator)})
        one = examples.rows(0, 1)
        model = ModelSpec.of({"name": "mlp", "hidden": [320]})
        splits = Splits(examples, one, one)
        members[f"client-{number:02d}"] = Member.of({"classify": Classification(10)}, model, splits)
    return Federation(members)


def share_of_checks() -> float:
    """The processor time of all checks of answers, divided by that of the run."""
    from consort import LocalTraining, Run, Schedule
    from consort.algorithms.fedavg import FedAvg
    from consort.engines.answers import Answers

    spent = 0.0
    check = Answers.check

    def timed_check(*arguments: Any) -> None:
        nonlocal spent
        start = time.process_time()
        check(*arguments)
        spent += time.process_time() - start

    Answers.check = timed_check  # type: ignore[method-assign]
    try:
        run = Run(federation(), FedAvg(LocalTraining(batch=10)), Schedule(rounds=ROUNDS))
        start = time.process_time()
        run.go()
        return spent / (time.process_time() - start)
    finally:
        Answers.check = check  # type: ignore[method-assign]


def quickest(work: Callable[[], Any]) -> float:
    best = math.inf
    for _ in range(REPEATS):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def main() -> None:
    torch.set_num_threads(1)
    from consort.core.contract import Count, Model
    from consort.core.wire import decode, encode

    report = Report()
    report.line("checks of answers / round, models of 1 MB", share_of_checks(), "<=0.02")
    clients = federation()
    known = clients.known("client-00")
    answer = {"model": clients.initial("client-00"), "examples": EXAMPLES}
    data = encode(answer)
    limits = (Model().size(known) + Count().size(known)).limits
    ours = quickest(lambda: decode(data, limits=limits))
    plain = quickest(lambda: safetensors.load(data))
    report.line("megabytes of the answer", len(data) / 1e6)
    report.line("bounded decoding, milliseconds", 1000 * ours)
    report.line("bounded decoding / safetensors alone", ours / plain)
    report.finish()


if __name__ == "__main__":
    main()
