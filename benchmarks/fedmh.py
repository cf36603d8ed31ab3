"""What FedMH's search, its rounds and its augmentation cost on thin models.

Signatures of 64 x 96 pixels and SigNet at a quarter of its width, as in the recipes' desk scale.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from itertools import accumulate

import torch
from measure import Report, ratio, take_turns, timed

CLIENTS, IMAGES, USERS, BATCH, REPEATS = 2, 256, 55, 32, 3
SIZES = (1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5)
"""Of the updates among which the searches must choose alike."""
SEARCHES = [(kind, str(clients)) for clients in (5, 20) for kind in ("literal", "cached")]
ROUNDS = {
    "lg_fedavg": {},
    "fedmh_exact": {"weighting": "exact"},
    "fedmh_features": {"weighting": "features"},
    "fedmh_plus": {},
}
MODEL = {"name": "signet", "scale": 0.25, "stride": 3, "features": 256}


def federation():  # noqa: ANN201
    from consort import Federation, Member, ModelSpec, Splits

    spec = ModelSpec.of(MODEL)

    def member(seed: int) -> Member:
        data, tasks = signatures(seed)
        return Member.of(tasks, spec, Splits(data, data, data))

    return Federation({f"c{number}": member(number) for number in range(CLIENTS)})


def signatures(seed: int):  # noqa: ANN201
    from consort import Examples
    from consort.tasks.signature import Detection, Identification, identity

    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(IMAGES, 1, 64, 96, generator=generator)
    users = torch.randint(USERS, (IMAGES,), generator=generator)
    genuine = torch.randint(2, (IMAGES,), generator=generator)
    targets = {"identify": identity(users, genuine), "detect": genuine}
    return Examples(images, targets), {"identify": Identification(USERS), "detect": Detection()}


def counted(work: Callable[[], object], goes: int = 1) -> dict[str, float]:
    """CPU time of the quickest of some goes, and floating-point operations in one more."""
    from torch.utils.flop_counter import FlopCounterMode

    measured = min((timed(work) for _ in range(goes)), key=lambda go: go["cpu"])
    with FlopCounterMode(display=False) as counter:
        work()
    return measured | {"flops": counter.get_total_flops()}


def one_client():  # noqa: ANN201
    from consort.client import Client
    from consort.data.examples import Splits
    from consort.models.registry import ModelSpec, build
    from consort.params import Params

    data, tasks = signatures(0)
    model = build(ModelSpec.of(MODEL), tasks, data.inputs[0], 0)
    model.to(memory_format=torch.channels_last)
    state = {"model": Params.of(model)}
    generator = torch.Generator().manual_seed(0)
    return Client("c0", model, tasks, Splits(data, data, data), state, generator, 1, 1)


def head_updates(client, count: int, size: float):  # noqa: ANN001, ANN201
    """Sums of random updates, small enough that some are accepted and some are not."""
    from consort.params import Params

    generator = torch.Generator().manual_seed(1)
    heads = client.state["model"].without("encoder")
    return list(
        accumulate(
            Params({n: size * torch.randn(t.shape, generator=generator) for n, t in heads.items()})
            for _ in range(count)
        )
    )


def search(kind: str, clients: int) -> dict[str, float]:
    """The search through all candidates, and which one is chosen with ever smaller updates."""
    from consort.algorithms.fedmh import FedMH, cached_losses, literal_losses

    client = one_client()

    def look(size: float, significance: float):  # noqa: ANN202
        client.recall("model")
        losses = {"literal": literal_losses, "cached": cached_losses}[kind]
        return FedMH(significance=significance).look(
            clients, len(client.tasks), losses(client, updates[size])
        )

    updates = {size: head_updates(client, clients, size) for size in SIZES}
    look(1e-3, 1e9)
    measured = counted(lambda: look(1e-3, 1e9), goes=5)
    return measured | {"chosen": [look(size, 0) for size in SIZES]}


def rounds(name: str) -> dict[str, float]:
    """One round, evaluation left out."""
    from consort import LocalTraining, Replies, Run, Schedule
    from consort.algorithms.registry import find_algorithm

    kind = find_algorithm(name.removesuffix("_exact").removesuffix("_features"))
    kind.evaluate = lambda *_: Replies({})
    algorithm = kind(LocalTraining(batch=BATCH, lr=0.05, epochs=2), **ROUNDS[name])
    members = federation()
    for client in members.client_ids:
        members.data(client)
    Run(members, algorithm, Schedule(1, evaluate_every=0)).go()
    return counted(lambda: Run(members, algorithm, Schedule(1, evaluate_every=0)).go(), goes=5)


def augmentation() -> dict[str, float]:
    """CPU time to vary all images, as a share of an epoch of steps on them."""
    from consort import LocalTraining
    from consort.data.signatures.training import varied

    client = one_client()
    local = LocalTraining(batch=BATCH, lr=0.05)

    def vary() -> None:
        varied(client.data.train, balance=False, augment=True, generator=client.generator)

    for warm_up in (vary, lambda: local.run(client)):
        warm_up()
    epoch, variation = (
        min(timed(work)["cpu"] for _ in range(3)) for work in (lambda: local.run(client), vary)
    )
    return {"share": variation / epoch}


def child(kind: str, *arguments: str) -> None:
    from consort.compute import Compute

    Compute().apply()
    work = {"round": rounds, "augment": augmentation}.get(kind)
    measured = work(*arguments) if work else search(kind, int(arguments[0]))
    print(json.dumps(measured))


def main() -> None:
    report = Report()
    contenders = [*SEARCHES, *(("round", name) for name in ROUNDS), ("augment",)]
    turns = take_turns(__file__, contenders, REPEATS)
    for clients, target in ((5, "<=0.2"), (20, "<=0.05")):
        ours, theirs = f"cached {clients}", f"literal {clients}"
        for what in ("flops", "cpu"):
            report.line(
                f"search among {clients}: cached / literal, {what}",
                ratio(turns, ours, theirs, what),
                target,
            )
        unlike = sum(
            mine != other
            for a, b in zip(turns[ours], turns[theirs], strict=True)
            for mine, other in zip(a["chosen"], b["chosen"], strict=True)
        )
        report.line(f"search among {clients}: choices that differ", unlike, "<=0")
    for name, target in (("exact", "<=2.0"), ("features", "<=1.25")):
        for what in ("flops", "cpu"):
            found = ratio(turns, f"round fedmh_{name}", "round lg_fedavg", what)
            report.line(f"fedmh, {name} weights / lg_fedavg, {what} of a round", found, target)
    for what in ("flops", "cpu"):
        found = ratio(turns, "round fedmh_plus", "round fedmh_exact", what)
        report.line(f"fedmh_plus / fedmh, {what} of a round", found)
    shares = sorted(turn["share"] for turn in turns["augment"])
    report.line("augmentation / training step, CPU", shares[len(shares) // 2], "<=0.25")
    report.finish()


if __name__ == "__main__":
    child(*sys.argv[2:]) if "--child" in sys.argv else main()
