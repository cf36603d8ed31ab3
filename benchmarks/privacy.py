"""The cost of synthetic fingerprints, of their protection and of the audit.

AFFR's desk scale: pairs of fingerprints of 96 x 96 pixels and the Siamese CNN at a quarter of its
width. The audit is that of a run of AFFR at the scale `synthetic`.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path

import torch
from measure import Report, ratio, take_turns, timed

FINGERS, IMPRESSIONS, SIDE = 16, 4, 96
CLIENTS, PAIRS, BATCH, EPOCHS, REPEATS, TURNS = 4, 96, 32, 2, 3, 5
PARAMETERS, MASKING = 1_000_000, 20
AUDIT = "--no-audit" not in sys.argv
"""The audit takes minutes."""


def dataset(fingers: int, impressions: int):  # noqa: ANN201
    from consort.domains.fingerprints.synthetic.prints import synthetic_fingerprints

    return synthetic_fingerprints(0, fingers=fingers, impressions=impressions, size=SIDE)


def made() -> dict[str, float]:
    """Generated fingerprints per CPU second."""
    dataset(1, 2)
    measured = timed(lambda: dataset(FINGERS, IMPRESSIONS))
    return {"per_second": FINGERS * IMPRESSIONS / measured["cpu"]}


def obfuscated() -> dict[str, float]:
    """Different fingerprints per CPU second that FP-DFSN obfuscates."""
    from consort.domains.fingerprints.obfuscation import FpDfsn

    found = dataset(FINGERS, IMPRESSIONS)
    prints = torch.unique(found.prepare(found.examples.inputs).view(-1, SIDE, SIDE), dim=0)
    FpDfsn()(prints[:1], 0)
    measured = timed(lambda: FpDfsn()(prints, 0))
    return {"per_second": len(prints) / measured["cpu"]}


def examples(seed: int, count: int, task: str):  # noqa: ANN201
    from consort import Examples

    generator = torch.Generator().manual_seed(seed)
    pairs = torch.rand(count, 2, 1, SIDE, SIDE, generator=generator)
    return Examples(pairs, {task: torch.randint(0, 10, (count,), generator=generator)})


def rounds() -> dict[str, float]:
    """The ratio of AFFR's second round to FedAvg's; AFFR's first round measures no gap.

    Both alternate in one process, so that other load slows both down equally. A quarter as many
    pairs are for validation, as in the recipes; there is no evaluation.
    """
    from consort import Federation, Member, ModelSpec, Splits
    from consort.domains.fingerprints.task import Verification

    spec = ModelSpec.of({"name": "siamese", "scale": 0.25})

    def member(seed: int) -> Member:
        train, held_out = (examples(seed, n, "verify") for n in (PAIRS, PAIRS // 4))
        return Member.of({"verify": Verification()}, spec, Splits(train, held_out, held_out))

    members = Federation({f"c{number}": member(number) for number in range(CLIENTS)})
    affr, fedavg = (second_round(name, members) for name in ("affr", "fedavg"))
    turns = [timed(affr)["cpu"] / timed(fedavg)["cpu"] for _ in range(TURNS)]
    return {"ratio": statistics.median(turns)}


def second_round(name: str, members):  # noqa: ANN001, ANN201
    """Runs the first round; returns a function that runs the second one any number of times."""
    from consort import LocalTraining, Run, Schedule
    from consort.algorithms.registry import find_algorithm
    from consort.engines.states import StateStore

    local = LocalTraining(batch=BATCH, epochs=EPOCHS, optimizer="adam", lr=0.001)
    algorithm, store = find_algorithm(name)(local), StateStore()
    run = Run(members, algorithm, Schedule(3))

    def make(number: int, server):  # noqa: ANN001, ANN202
        return run.once_more(number, server, store, lambda engine: engine)

    first = make(1, algorithm.start(members.roster))
    return lambda: make(2, first)


def training(kind: str) -> dict[str, float]:
    """Local epochs of classifying fingers: verification has no losses of single pairs."""
    from consort import Classification, Federation, LocalTraining, Member, ModelSpec, Splits
    from consort.core.randomness import Seeded
    from consort.federation.site import Site
    from consort.protection.dp_sgd import PrivateSteps
    from consort.training.client import Client

    norm = "batch" if kind == "plain" else "group"
    spec = ModelSpec.of({"name": "siamese", "scale": 0.25, "norm": norm})
    data, tasks = examples(0, 4 * PAIRS, "name"), {"name": Classification(10)}
    members = Federation({"c": Member.of(tasks, spec, Splits(data, data, data))})
    members.compute.apply()
    generator = torch.Generator().manual_seed(0)
    client = Client(
        "c",
        members.blueprint("c").model,
        tasks,
        members.data("c"),
        {},
        generator,
        1,
        1,
        steps=PrivateSteps(1.0, 1.0, Site(), Seeded(generator)) if kind == "private" else None,
    )
    local = LocalTraining(batch=BATCH, lr=0.01)
    local.run(client)
    return timed(lambda: local.run(client))


def masking() -> dict[str, float]:
    """Everything that clients and server compute for one secure mean of large models."""
    from consort.algorithms.fedavg import FedAvg
    from consort.core.messages import Call, Replies, Reply
    from consort.core.params import Params
    from consort.federation.protection import Request
    from consort.protection.secure import client as secure_client
    from consort.protection.secure.server import Secured
    from consort.protection.secure.settings import Secure

    secure, ids = Secure(), [f"c{number:02d}" for number in range(MASKING)]
    states: dict[str, dict] = {client: {} for client in ids}
    content = {"model": Params({"w": torch.rand(PARAMETERS)}), "examples": 100}

    class Clients:
        def deliver(self, calls):  # noqa: ANN001, ANN202
            for call in calls:
                request = Request(call, states[call.client], torch.Generator())
                step = secure_client.STEPS.get(call.method)
                if step:
                    answer = step(secure.needed, request, **call.payload)
                else:
                    among, means = call.payload[secure_client.HIDDEN_AMONG], FedAvg.needed_means()
                    answer = secure_client.hidden(request, among, content, means)
                yield Reply(call.client, answer)

    def mean() -> Params:
        calls = [Call(client, "train", 1, 0, 0, {}) for client in ids]
        replies = Secured(Clients(), secure.needed, FedAvg(), print).deliver(calls)
        return Replies({r.client: r.content for r in replies}).mean("model", "examples")

    difference = (mean() - content["model"]).norm()
    return timed(mean) | {"difference": difference}


def audited() -> dict[str, float]:
    """The audit of a run of one round; its cost does not depend on the number of rounds."""
    from consort.attacks.audit import audit
    from consort.experiment.loading import load_recipe
    from consort.experiment.preparation import prepare_run
    from consort.experiment.shipped import find_recipe

    path = find_recipe("affr/single")
    recipe = load_recipe(path, "synthetic", ["run.rounds=1", "run.evaluate_every=0"])
    with tempfile.TemporaryDirectory() as folder:
        prepare_run(recipe, "affr", 0, Path(folder)).go()
        return timed(lambda: audit(Path(folder)))


WORK = {
    "made": made,
    "obfuscated": obfuscated,
    "round": rounds,
    "train": training,
    "masking": masking,
    "audit": audited,
}


def child(kind: str, *arguments: str) -> None:
    from consort.training.compute import Compute

    Compute().apply()
    print(json.dumps(WORK[kind](*arguments)))


def main() -> None:
    report = Report()
    contenders = [("made",), ("obfuscated",), ("round",)]
    contenders += [("train", "plain"), ("train", "group"), ("train", "private"), ("masking",)]
    turns = take_turns(__file__, contenders, REPEATS)

    def median(name: str, what: str) -> float:
        return statistics.median(turn[what] for turn in turns[name])

    report.line("synthetic fingerprints per second", median("made", "per_second"), ">=20")
    report.line("FP-DFSN: images per second", median("obfuscated", "per_second"), ">=50")
    report.line("affr / fedavg, CPU of a round", median("round", "ratio"), "<=1.15")
    found = ratio(turns, "train private", "train plain", "cpu")
    report.line("DP-SGD with GroupNorm / plain with BatchNorm, CPU", found, "<=3")
    found = ratio(turns, "train private", "train group", "cpu")
    report.line("DP-SGD / plain, both with GroupNorm, CPU", found, "<=3")
    seconds = median("masking", "cpu")
    report.line(f"masks of {MASKING} clients, {PARAMETERS:,} numbers: CPU seconds", seconds, "<=3")
    report.line(
        "difference of the secure mean from the mean", median("masking", "difference"), "<=1e-4"
    )
    if AUDIT:
        minutes = take_turns(__file__, [("audit",)], 1)["audit"][0]["cpu"] / 60
        report.line("audit of a run at desk scale: CPU minutes", minutes, "<=10")
    report.finish()


if __name__ == "__main__":
    child(*sys.argv[2:]) if "--child" in sys.argv else main()
