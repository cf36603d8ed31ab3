"""Every key of a recipe acts among institutions as in one process, or is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedconsort[flower]'")

from tests.installed import IMPORT, put_package
from tests.institutions import NAMES
from tests.letters import PostOffice
from tests.unit.cli.command import measured, server_bytes
from tests.unit.deployment.test_remote import Near, run

from consort.core.permission import permitting
from consort.core.plugins import find
from consort.core.validation import adapter
from consort.deployment.participant import Participant
from consort.deployment.policy import Judge, Policy
from consort.deployment.site import OwnMachine
from consort.errors import Refused, UsageError
from consort.experiment.loading import recipe_of
from consort.experiment.preparation import prepare_run
from consort.experiment.recipe import Recipe
from consort.experiment.sweep import Sweep
from consort.experiment.tables import merged
from consort.federation.site import Site
from consort.results.result import Result
from consort.training.local import LocalTraining

EVALUATION = (
    IMPORT
    + '''
from dataclasses import dataclass, fields

from consort import Params, Protection


@dataclass(frozen=True)
class Size:
    """How large weights are."""

    scale: float = 1.0
    tasks = {"size": {"metric": "weights", "higher_is_better": True}}

    def kept(self, dataset):
        return dataset

    def extra(self, clients, load, data, seed):
        return self

    def prepare(self):
        pass

    def added_to(self, scores, model, data, client, last):
        size = sum(float(p.detach().abs().sum()) for p in model.parameters())
        scores["test"]["tasks"]["size"] = {"weights": self.scale * size}
        return scores


@dataclass(frozen=True)
class Rounded(Protection):
    digits: int = 3

    def client(self, handler, setting):
        def rounded(request):
            content = handler(request)
            if "model" in content:
                model = content["model"].items()
                content["model"] = Params({n: t.round(decimals=self.digits) for n, t in model})
            return content

        return rounded


plugin = Plugin(evaluations={"size": "my_lab:Size"}, protections={"rounded": "my_lab:Rounded"})
'''
)
BASE: dict[str, Any] = {
    "clients": 3,
    "model": {"name": "mlp", "hidden": [8]},
    "run": {"rounds": 2, "evaluate_every": 0},
    "local": {"lr": 0.1},
    "algorithms": {"fedavg": {}},
}
VECTORS = {"name": "synthetic_vectors", "classes": 4, "features": 6}
IMAGES = {"name": "synthetic_images", "classes": 3, "size": 16}
SIGNATURES = {"name": "synthetic_signatures", "users": 4, "size": [16, 24]}

ACTING: dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "schedule": (VECTORS, {
        "run": {"rounds": 3, "participation": 0.67, "evaluate_every": 2, "tuning_epochs": 1,
                "tuning_choice": "best", "selection": {"name": "oort", "exploration": 0.5}},
        "average_rounds": 2,
    }),
    "losses": (VECTORS, {
        "run": {"dropout": 0.3, "stragglers": 0.3, "on_error": "retry", "retries": 1},
        "partition": {"min_examples": 30, "validation": 0.2, "test": 0.3},
    }),
    "training": (VECTORS, {
        "local": {"epochs": 2, "batch": 7, "momentum": 0.5, "clip": 1.0,
                  "weight_decay": 0.01, "schedule": "exponential", "warmup": 1, "decay": 0.5,
                  "warmup_unit": "epochs", "keep_optimizer": True,
                  "task_weights": {"classify": 0.5}},
        "model": {"name": "mlp", "hidden": [5, 6]},
    }),
    "steps": (VECTORS, {
        "local": {"steps": 3, "optimizer": "adam", "lr": 0.003},
        "compute": {"count_flops": True},
        "evaluations": {"size": {"scale": 3.0}},
        "protection": {"rounded": {"digits": 2}},
    }),
    "own": (VECTORS, {
        "local": {"optimizer": "RMSprop", "optimizer_options": {"alpha": 0.9}, "lr": 0.003},
        "partition": {"seed": 3},
        "tasks": {"classify": {"loss": "multi_margin_loss"}},
    }),
    "images": (IMAGES, {
        "model": {"name": "resnet", "widths": [4, 4], "depths": [1, 1]},
        "batchnorm": "local",
        "compute": {"threads": 2, "channels_last": False},
    }),
    "robust": (VECTORS, {"robust": {"rule": "trimmed_mean", "malicious": 1, "clip": 0.5}}),
    "private": (VECTORS, {
        "privacy": {"level": "client", "clip": 0.7, "noise": 0.1, "delta": 1e-4},
        "refuse_imprints": True,
    }),
    "secure": (VECTORS, {"secure": {"threshold": 0.9}}),
    "signatures": (SIGNATURES, {
        "verification": {"references": 3, "tests": 2, "forgeries": 2, "repetitions": 2,
                         "c": 2.0, "gamma": 0.01},
        "unseen": {"others": {"data": SIGNATURES | {"users": 3}}},
        "obfuscation": {"beta": 0.3},
        "local": {"balance": True, "repeat": "larger", "augment": True},
    }),
}  # fmt: skip
"""What has an effect, several keys at a time: the clients' data, and the keys."""

REFUSED: dict[str, tuple[Mapping[str, Any], str]] = {
    "data": ({"data": VECTORS}, r"\[data\] belong into the client.toml"),
    "groups": ({"groups": [{"name": "a", "count": 3}], "clients": None}, r"\[\[groups\]\] are"),
    "server.data": ({"server": {"data": VECTORS}}, r"\[server.data\] works in simulations only"),
    "model.*": ({"model": [{"name": "mlp"}, {"name": "mlp"}]}, "model is a list"),
    "obfuscation.*": ({"obfuscation": [{}, {}]}, "obfuscation is a list"),
    "partition.by": ({"partition": {"by": "dirichlet"}}, 'partition.by = "dirichlet" divides'),
    "compute.cohort_step": ({"compute": {"cohort_step": True}}, "compute.cohort_step trains"),
    "attack": ({"attack": {"by": ["nan"]}}, r"\[attack\] works in simulations only"),
    "unseen.*.users": (
        {"unseen": {"own": {"users": 2}}, "verification": {}}, "unseen.own.users are taken"
    ),
}  # fmt: skip
WITH = {
    "groups": "groups.*.",
    "attack": "attack.",
    "server.data": "server.examples",
    "partition.by": ("partition.alpha", "partition.balanced", "partition.classes_per_client"),
}
"""What is refused together with a key that is refused."""

TOLD = {"title", "about", "seeds", "scales", "claims"} | {
    f"published.*.{key}"
    for key in ("source", "metric", "values", "percent", "higher_is_better", "group", "task")
}
TOLD |= {f"sweep.{field.name}" for field in fields(Sweep)}
"""What decides nothing: words, choices of the command, and what only comparisons look at."""
CODE = {"local.transform"}
"""What is always code of a file or package, which a server may not name."""
ELSEWHERE = {"algorithms", "clients", "run.rounds"} | CODE
"""What all other tests of institutions have."""


POLICY = Policy(
    "listed",
    evaluations=["size", "verification"],
    protections=["privacy", "refuse_imprints", "robust", "rounded", "secure"],
)
"""What clients run here: also the plug-in above."""


def keys_of(schema: Mapping[str, Any], definitions: Mapping[str, Any], path: str) -> Iterator[str]:
    """The places of all values in a table, `*` for what the user names or counts."""
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rsplit("/", 1)[-1]]
    inner = [*schema.get("anyOf", ())]
    if "$ref" in schema.get("items", {}):
        inner.append(("*", schema["items"]))
    named = schema.get("additionalProperties")
    if isinstance(named, dict) and "$ref" in named:
        inner.append(("*", named))
    inner += [(name, value) for name, value in schema.get("properties", {}).items()]
    found = False
    for part in inner:
        name, value = part if isinstance(part, tuple) else ("", part)
        if name or "$ref" in value:
            found = True
            yield from keys_of(value, definitions, ".".join(filter(None, (path, name))))
    if not found:
        yield path


def all_keys() -> set[str]:
    def walk(kind: Any, path: str = "") -> set[str]:
        schema = adapter(kind).json_schema(mode="validation")
        return set(keys_of(schema, schema.get("$defs", {}), path))

    found = (walk(Recipe) - {"verification", "unseen"}) | walk(find("evaluations", "verification"))
    built_in = ("refuse_imprints", "privacy", "secure", "robust", "attack")
    tables = {"local": LocalTraining} | {key: find("protections", key) for key in built_in}
    for key, kind in tables.items():
        inside = walk(kind, key)
        found = (found - {key}) | inside if inside != {key} else found
    return found


def keys_in(table: Mapping[str, Any], known: set[str], path: str = "") -> Iterator[str]:
    """The known keys that a table sets."""
    for name, value in table.items():
        places = {f"{path}{name}", f"{path}*"} & known
        if places:
            yield from places
        else:
            star = any(key.startswith(f"{path}*.") for key in known)
            yield from keys_in(value, known, f"{path}{'*' if star else name}.")


def test_somebody_has_decided_about_every_key():
    known = all_keys()
    assert {"run.rounds", "groups.*.local", "unseen.*.data", "attack.by", "local.lr"} <= known
    acting = {key for _, table in ACTING.values() for key in keys_in(table, known)}
    refused = set(REFUSED) & known
    for prefixes in WITH.values():
        refused |= {key for key in known if key.startswith(prefixes)}
    decided = [acting, refused, TOLD, ELSEWHERE]
    assert set.union(*decided) == known
    assert not acting & refused
    assert not TOLD & (acting | refused)


@pytest.fixture(autouse=True)
def _lab(site: Path) -> None:
    put_package(site, "my-lab", EVALUATION)


def holdings(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The same for every client, but for how much of it there is."""
    more = {VECTORS["name"]: "examples", IMAGES["name"]: "per_class"}
    key = more.get(data["name"], "genuine")
    return {**data, key: {"examples": 90, "per_class": 30, "genuine": 8}[key] + NAMES.index(name)}


@pytest.mark.parametrize("case", ACTING)
def test_what_acts_in_one_process_acts_among_institutions(case, tmp_path: Path, monkeypatch):
    data, changes = ACTING[case]
    if "privacy" in changes:  # all must be the same but for the noise, which is secret there
        monkeypatch.setattr(OwnMachine, "randomness", Site.randomness)
    for needed in {"privacy": ["opacus"], "secure": ["cryptography", "Crypto"]}.get(case, []):
        pytest.importorskip(needed)
    settings = merged(BASE, changes)
    groups = [{"name": n[:-2], "count": 1, "data": holdings(data, n)} for n in NAMES]
    one = recipe_of({k: v for k, v in settings.items() if k != "clients"} | {"groups": groups}, "x")
    prepare_run(one, "fedavg", 0, tmp_path / "near").go()
    clients = {
        n: Participant(
            n, {"data": holdings(data, n)}, None, tmp_path / n, say=lambda _: None, policy=POLICY
        )
        for n in NAMES
    }
    run(recipe_of(settings, "x"), Near(PostOffice(clients)), tmp_path / "far", "fedavg")
    assert measured(tmp_path / "far") == measured(tmp_path / "near")
    assert server_bytes(tmp_path / "far") == server_bytes(tmp_path / "near")
    far, near = (Result.load(tmp_path / side) for side in ("far", "near"))
    assert far.metric_names() == near.metric_names()
    assert far.own_metrics == near.own_metrics
    assert far.average_rounds == near.average_rounds


@pytest.mark.parametrize("key", REFUSED)
def test_what_would_have_no_effect_is_refused(key, tmp_path: Path):
    changes, message = REFUSED[key]
    settings = {k: v for k, v in merged(BASE, changes).items() if v is not None}
    with pytest.raises(UsageError, match=message) as caught:
        run(recipe_of(settings, "x"), Near(PostOffice({})), tmp_path / "far", "fedavg")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "far").exists()


@pytest.mark.parametrize("changes", [
    {"local": {"transform": "torch.nn.functional:relu"}},
    {"local": {"optimizer": "torch.optim:SGD"}},
    {"tasks": {"classify": {"loss": "torch.nn.functional:cross_entropy"}}},
    {"tasks": {"classify": {"metrics": ["torch.nn.functional:mse_loss"]}}},
    {"model": {"name": "hf:distilbert"}},
    {"model": {"name": "torch.nn:Flatten"}},
])  # fmt: skip
def test_a_server_cannot_name_code(changes):
    judge = Judge(POLICY, set())
    with permitting(judge), pytest.raises(Refused, match="does not allow a server to name code"):
        recipe_of(merged(BASE, changes), "the server's recipe")
