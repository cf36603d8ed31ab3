"""The cost of FedMH's search, of its rounds and of its augmentation on narrow models.

Signatures of 64 x 96 pixels and SigNet at a quarter of its width, as in the desk scale of the
recipes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from functools import partial
from itertools import accumulate

import torch
from measure import Report, ratio, take_turns, timed

CLIENTS, IMAGES, USERS, BATCH, REPEATS, GOES = 2, 256, 55, 32, 3, 5
SIZES = (1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5)
"""Sizes of the updates for which both searches must choose the same."""
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
    from consort.domains.signatures.tasks import Detection, Identification, identity

    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(IMAGES, 1, 64, 96, generator=generator)
    users = torch.randint(USERS, (IMAGES,), generator=generator)
    genuine = torch.randint(2, (IMAGES,), generator=generator)
    targets = {"identify": identity(users, genuine), "detect": genuine}
    return Examples(images, targets), {"identify": Identification(USERS), "detect": Detection()}


def side_by_side(works: Mapping[str, Callable[[], object]]) -> dict[str, list[dict[str, float]]]:
    """CPU time of several runs, and the floating-point operations of one more.

    The functions alternate, so that other load on the machine slows all of them down equally.
    """
    for warm_up in works.values():
        warm_up()
    goes = [{name: timed(work)["cpu"] for name, work in works.items()} for _ in range(GOES)]
    flops = {name: operations(work) for name, work in works.items()}
    return {name: [{"cpu": go[name], "flops": flops[name]} for go in goes] for name in works}


def operations(work: Callable[[], object]) -> int:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops()


def one_client():  # noqa: ANN201
    from consort.core.params import Params
    from consort.data.examples import Splits
    from consort.models.registry import ModelSpec, build
    from consort.training.client import Client

    data, tasks = signatures(0)
    model = build(ModelSpec.of(MODEL), tasks, data.inputs[0], 0)
    model.to(memory_format=torch.channels_last)
    state = {"model": Params.of(model)}
    generator = torch.Generator().manual_seed(0)
    return Client("c0", model, tasks, Splits(data, data, data), state, generator, 1, 1)


def head_updates(client, count: int, size: float):  # noqa: ANN001, ANN201
    """Sums of random updates, small enough that some are accepted and some are not."""
    from consort.core.params import Params

    generator = torch.Generator().manual_seed(1)
    heads = client.state["model"].without("encoder")
    return list(
        accumulate(
            Params({n: size * torch.randn(t.shape, generator=generator) for n, t in heads.items()})
            for _ in range(count)
        )
    )


def literal_losses(client, sums):  # noqa: ANN001, ANN201
    """The losses of a search as printed: every choice is a model that sees all training data."""
    from consort.algorithms.fedmh import head_after
    from consort.training.objectives import features_of, losses_of_features

    heads = client.state["model"].without("encoder")

    @torch.inference_mode()
    def losses(choice):  # noqa: ANN001, ANN202
        for task, prefix in zip(client.tasks, choice, strict=True):
            head_after(heads, sums, task, prefix).load_into(client.model)
        return [loss.item() for loss in losses_of_features(client, features_of(client)).values()]

    return losses


def searches(clients: int) -> dict[str, list[dict[str, float]]]:
    """The search through all candidates, and the choices for smaller and smaller updates."""
    from consort.algorithms.fedmh import FedMH

    client = one_client()
    updates = {size: head_updates(client, clients, size) for size in SIZES}
    kinds = {f"literal {clients}": literal_losses, f"cached {clients}": FedMH().losses}

    def look(kind: str, size: float, significance: float):  # noqa: ANN202
        client.recall("model")
        losses = kinds[kind](client, updates[size])
        return FedMH(significance=significance).search_for(clients, len(client.tasks), losses)

    measured = side_by_side({kind: partial(look, kind, 1e-3, 1e9) for kind in kinds})
    chosen = {kind: [look(kind, size, 0) for size in SIZES] for kind in kinds}
    return {kind: [go | {"chosen": chosen[kind]} for go in goes] for kind, goes in measured.items()}


def rounds() -> dict[str, list[dict[str, float]]]:
    """One round of each, without evaluation."""
    return side_by_side({name: one_round(name) for name in ROUNDS})


def one_round(name: str) -> Callable[[], object]:
    from consort import LocalTraining, Replies, Run, Schedule
    from consort.algorithms.registry import find_algorithm

    kind = find_algorithm(name.removesuffix("_exact").removesuffix("_features"))
    kind.evaluate = lambda *_: Replies({})
    algorithm = kind(LocalTraining(batch=BATCH, lr=0.05, epochs=2), **ROUNDS[name])
    members = federation()
    for client in members.client_ids:
        members.data(client)
    return lambda: Run(members, algorithm, Schedule(1, evaluate_every=0)).go()


def augmentation() -> dict[str, list[dict[str, float]]]:
    """CPU time to augment all images, as a share of an epoch of training steps on them."""
    from consort import LocalTraining
    from consort.domains.signatures.training import varied

    client = one_client()
    local = LocalTraining(batch=BATCH, lr=0.05)

    def vary() -> None:
        varied(client.data.train, balance=False, augment=True, generator=client.generator)

    for warm_up in (vary, lambda: local.run(client)):
        warm_up()
    epoch, variation = (
        min(timed(work)["cpu"] for _ in range(3)) for work in (lambda: local.run(client), vary)
    )
    return {"augment": [{"share": variation / epoch}]}


def child(*arguments: str) -> None:
    from consort.training.compute import Compute

    Compute().apply()
    print(json.dumps(WORKS[arguments]()))


WORKS = {
    ("searches", "5"): lambda: searches(5),
    ("searches", "20"): lambda: searches(20),
    ("rounds",): rounds,
    ("augment",): augmentation,
}
"""Each of these runs in a process of its own; variants that are compared share one."""


def main() -> None:
    report = Report()
    turns: dict[str, list] = {}
    for processes in take_turns(__file__, list(WORKS), REPEATS).values():
        for process in processes:
            for contender, goes in process.items():
                turns.setdefault(contender, []).extend(goes)
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
            found = ratio(turns, f"fedmh_{name}", "lg_fedavg", what)
            report.line(f"fedmh, {name} weights / lg_fedavg, {what} of a round", found, target)
    for what in ("flops", "cpu"):
        found = ratio(turns, "fedmh_plus", "fedmh_exact", what)
        report.line(f"fedmh_plus / fedmh, {what} of a round", found)
    shares = sorted(turn["share"] for turn in turns["augment"])
    report.line("augmentation / training step, CPU", shares[len(shares) // 2], "<=0.25")
    report.finish()


if __name__ == "__main__":
    child(*sys.argv[2:]) if "--child" in sys.argv else main()
