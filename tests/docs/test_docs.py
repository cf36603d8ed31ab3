"""The documentation tells the truth: its code is run, its tables are compared with the source."""

from __future__ import annotations

import dataclasses
import doctest
import importlib
import inspect
import pkgutil
import re
import runpy
import sys
import tomllib
import typing
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
import torch
import typer
from PIL import Image
from tests.docs.pages import PAGES, ROOT, Page, page, quoted, tables
from tests.helpers import (
    assert_same,
    tiny_federation,
    two_task_federation,
    unlike_labels_federation,
    unlike_models_federation,
)

import consort
from consort.algorithms.fedavg import FedAvg
from consort.algorithms.registry import algorithm_places, find_algorithm
from consort.cli.app import app
from consort.cli.inspecting import Listing
from consort.core.algorithm import Clients
from consort.core.params import Params
from consort.core.plugins import Plugin, entries, find
from consort.core.registry import load_object
from consort.core.row import Row
from consort.data.dataset import Dataset
from consort.data.partition import Cut
from consort.domains.fingerprints.synthetic.prints import synthetic_fingerprints
from consort.domains.signatures.scan import Scan
from consort.domains.signatures.unseen import Unseen
from consort.domains.signatures.writer_dependent import Signatures, WriterDependent
from consort.engines.embedded import Embedded
from consort.engines.host import ClientHost
from consort.engines.middleware import ErrorPolicy
from consort.engines.scripted import Scripted
from consort.engines.states import StateStore
from consort.errors import UsageError
from consort.experiment.assembly import assemble
from consort.experiment.loading import load_recipe
from consort.experiment.recipe import Group, Recipe, ServerSide, TaskChanges
from consort.experiment.shipped import find_recipe
from consort.experiment.sweep import Sweep
from consort.federation.protection import Protection
from consort.results.result import Result
from consort.results.table import Published
from consort.run.history import History
from consort.run.observer import Observer
from consort.run.run import Run
from consort.run.schedule import Schedule
from consort.training.compute import Compute
from consort.training.local import LocalTraining
from consort.use.metadata import ModelMetadata
from consort.use.samples import write_samples

COMMANDS = typer.main.get_command(app).commands
DOCTESTED = [
    path for path in sorted((ROOT / "src").rglob("*.py")) if ">>> " in path.read_text("utf-8")
]

every_page = pytest.mark.parametrize("page", PAGES, ids=str)


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """An empty folder to work in, from which Python files can be imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for file in tmp_path.glob("*.py"):
        sys.modules.pop(file.stem, None)


def perform(page: Page) -> None:
    """Gives the `consort` commands that a page shows."""
    for block in page.blocks:
        if block.language == "console":
            for line in block.text.splitlines():
                app(line.split()[1:], standalone_mode=False)


def scores(folder: str) -> list[Row]:
    return [row for row in History(Path(folder) / "history.jsonl") if row.split]


def defaults_of(kind: type) -> dict[str, object]:
    """Every field of a dataclass or pydantic model with its default; None if it has none."""
    if hasattr(kind, "model_fields"):
        return {name: field.default for name, field in kind.model_fields.items()}
    return {field.name: _default(field) for field in dataclasses.fields(kind)}


def _default(field: dataclasses.Field) -> object:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return None if field.default is dataclasses.MISSING else field.default


def options_in(cell: str) -> dict[str, object]:
    return tomllib.loads("\n".join(quoted(cell)))


# Every page


@every_page
def test_relative_links_lead_somewhere(page):
    for link in page.links:
        if not link.startswith("http"):
            file, _, anchor = link.partition("#")
            target = (page.path.parent / file).resolve() if file else page.path
            assert target.is_file(), link
            assert not anchor or anchor in Page(target).anchors, link


def test_the_index_leads_to_every_page():
    targets = {(ROOT / "docs" / link).resolve() for link in page("index.md").links}
    front_doors = {page("index.md").path, page("README.md").path}
    assert targets >= {page.path for page in PAGES} - front_doors


@every_page
def test_modules_and_files_that_are_named_exist(page):
    for name in quoted(page.prose):
        if re.fullmatch(r"[\w/]+/\w+\.py", name):
            assert (ROOT / name).is_file() or (ROOT / "src" / name).is_file(), name
        elif re.fullmatch(r"consort(\.\w+)+", name):
            assert pkgutil.resolve_name(name), name


@every_page
def test_every_fence_is_understood(page):
    """A misspelt title would hide a block from the other tests, and break the page of the site."""
    fences = [line for line in page.text.splitlines() if line.startswith("```")]
    assert len(fences) == 2 * len(page.blocks)


@every_page
def test_code_compiles_and_recipes_load(page, desk):
    page.lay_out(desk)
    for block in page.blocks:
        if block.language == "python":
            compile(block.text, f"{page}: {block.title}", "exec")
        elif block.language == "toml" and block.is_file:
            load_recipe(Path(block.title))
        elif block.language == "toml":
            tomllib.loads(block.text)


@every_page
def test_files_of_the_repository_are_shown_as_they_are(page):
    for block in page.blocks:
        if block.is_of_the_repository:
            assert block.text == (ROOT / block.title).read_text()


@every_page
def test_programs_print_what_the_page_says(page, desk, capsys):
    page.lay_out(desk)
    for program, printed in page.programs():
        runpy.run_path(program, run_name="__main__")
        assert not printed or capsys.readouterr().out == printed


@every_page
def test_commands_and_their_options_exist(page):
    targets = [line.partition(":")[0] for line in (ROOT / "Makefile").read_text().splitlines()]
    for tool, command, *words in page.commands():
        if tool == "make":
            assert command in targets
            continue
        found = COMMANDS[command]
        if words and hasattr(found, "commands"):
            found = found.commands[words[0]]
        known = {option for param in found.params for option in param.opts}
        assert {word for word in words if word.startswith("--")} <= known
        if command == "list":
            assert set(words) <= set(Listing)


@every_page
def test_options_that_are_named_alone_belong_to_some_command(page):
    groups = [command.commands for command in COMMANDS.values() if hasattr(command, "commands")]
    every = [*COMMANDS.values(), *(command for group in groups for command in group.values())]
    known = {o for command in every for param in command.params for o in param.opts}
    named = {words.split()[0] for words in quoted(page.prose) if words.startswith("--")}
    assert named <= known | {"--debug", "--help"}


@pytest.mark.parametrize("path", DOCTESTED, ids=lambda path: path.stem)
def test_examples_in_docstrings_are_right(path):
    name = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
    found = doctest.testmod(importlib.import_module(name.removesuffix(".__init__")))
    assert found.attempted
    assert not found.failed


# README and first steps


def test_the_example_in_the_readme_has_fifteen_lines():
    (program,) = (b.text for b in page("README.md").blocks if b.title == "two_tasks.py")
    assert len([line for line in program.splitlines() if line]) <= 15


def test_the_home_page_has_the_example_of_the_readme():
    def example(blocks):
        (place,) = (n for n, block in enumerate(blocks) if block.title == "two_tasks.py")
        return blocks[place : place + 2]

    shown = example(page("README.md").blocks)
    assert shown == example(page("index.md").blocks)
    assert [block.title for block in shown] == ["two_tasks.py", "output"]


def test_readme_names_the_algorithms_of_the_demonstration():
    recipe = load_recipe(find_recipe("demo"))
    assert set(recipe.algorithms) <= set(quoted(page("README.md").text))


def test_readme_counts_the_algorithms():
    count = len(algorithm_places())
    assert f"{count} algorithms are included" in page("README.md").text
    (comparison,) = tables(page("README.md").text)
    assert [cells[1] for cells in comparison if cells[0] == "algorithms included"] == [str(count)]


def test_every_command_is_listed():
    (table,) = tables(page("commands.md").text)
    assert {cells[0].split()[1].strip("`") for cells in table} == set(COMMANDS)


def test_commands_show_their_help(capsys):
    named = {
        command for page in PAGES for tool, command, *_ in page.commands() if tool == "consort"
    }
    for command in named:
        app([command, "--help"], prog_name="consort", standalone_mode=False)
        assert f"consort {command}" in capsys.readouterr().out


def test_every_extra_is_explained():
    (_, extras) = tables(page("index.md").text)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {cells[0].strip("`") for cells in extras} == set(project["optional-dependencies"])


def test_fedavg_in_the_readme_is_fedavg(desk):
    page("README.md").lay_out(desk)
    local = LocalTraining(lr=0.1, batch=8)
    outcomes = []
    for kind in (load_object("my_fedavg.py:FedAvg"), FedAvg):
        run = Run(tiny_federation(), kind(local), Schedule(rounds=2, participation=0.5))
        outcomes.append([row for row in run.go() if "seconds" not in row.metric and row.client])
        outcomes.append(run.server.model)
    assert outcomes[0] == outcomes[2]
    assert_same(outcomes[1], outcomes[3])


def test_the_recipe_of_the_first_federation_runs(desk):
    page("first-federation.md").lay_out(desk)
    changes = ["--set", "run.rounds=1", "--seeds", "1"]
    app(["compare", "writers.toml", *changes], standalone_mode=False)
    assert Path("runs/writers/report.html").is_file()


# How to add things


def test_the_example_of_an_algorithm_has_thirty_lines(desk):
    page("add-an-algorithm.md").lay_out(desk)
    lines = Path("my_algorithm.py").read_text().splitlines()
    assert len([line for line in lines if line and '"""' not in line]) <= 30


def test_without_momentum_the_example_is_fedavg_bit_for_bit(desk):
    page("add-an-algorithm.md").lay_out(desk)
    perform(page("add-an-algorithm.md"))
    fedavg, without, with_ = (
        scores(f"momentum/{name}/seed-0") for name in ("fedavg", "without", "fedavgm")
    )
    assert fedavg
    assert without == fedavg
    assert with_ != fedavg


def test_momentum_adds_up(desk):
    """Everybody always wants one step more: the moves are 1, then 1 + half of it, and so on."""
    page("add-an-algorithm.md").lay_out(desk)
    algorithm = load_object("my_algorithm.py:FedAvgM")(momentum=0.5)
    roster = tiny_federation().roster
    server = start = algorithm.start(roster)
    ones = Params({name: torch.ones_like(tensor) for name, tensor in start.model.items()})

    def wants_one_more(call):
        return {"model": call.payload["model"] + ones, "examples": 3}

    for moved in (1.0, 1.5, 1.75):
        clients = Clients(roster.ids, 1, 3, 0, Scripted(wants_one_more), len(roster.ids))
        before, server = server, algorithm.round(server, clients)
        assert (server.model - before.model - ones * moved).norm() < 1e-5


def test_the_example_of_a_data_set_needs_personal_heads(desk):
    page("add-a-data-set.md").lay_out(desk)
    perform(page("add-a-data-set.md"))
    assert Path("who-holds-what.html").is_file()
    fedavg, fedper = (
        Result.load(Path(f"moons/{name}/seed-0")).value("accuracy") for name in ("fedavg", "fedper")
    )
    assert fedavg < 0.7
    assert fedper > 0.85


def test_the_example_of_a_model_runs(desk):
    page("add-a-model.md").lay_out(desk)
    perform(page("add-a-model.md"))
    assert len(scores("shortcut/fedavg/seed-0")) == 2 * 4 * 2 * 3


def test_what_a_researcher_has_needs_at_most_fifteen_lines(desk, capsys):
    """The first page: own network, data set, loss and metric with five algorithms."""
    page("index.md").lay_out(desk)
    text = Path("five_algorithms.py").read_text()
    assert len([line for line in text.splitlines() if line]) <= 15
    assert all(word in text for word in ("Blobs", "Net", "focal", "hits"))
    assert "consort" not in Path("mine.py").read_text()
    runpy.run_path("five_algorithms.py")
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:] if line]
    assert len(rows) == 5
    assert all(float(value) > 0.9 for _, value in rows)


def test_the_recipe_of_bring_your_own_runs(desk):
    page("bring-your-own.md").lay_out(desk)
    perform(page("bring-your-own.md"))
    assert {row.metric for row in scores("mine/fedper/seed-0")} >= {"loss", "hits"}


def test_the_algorithm_of_coming_from_pfllib_is_fedper_bit_for_bit(desk):
    page("coming-from-pfllib.md").lay_out(desk)
    mine = load_object("my_fedper.py:MyFedPer")
    local = LocalTraining(lr=0.2)
    theirs, ours = (
        [row for row in Run(tiny_federation(), kind(local), Schedule(rounds=2)).go() if row.split]
        for kind in (find_algorithm("fedper"), mine)
    )
    assert theirs
    assert [*theirs] == [*ours]


def test_the_example_of_an_engine_gives_the_same_bits(desk):
    page("add-an-engine.md").lay_out(desk)
    by_mail = load_object("by_mail.py:ByMail")
    federation, algorithm = tiny_federation(), find_algorithm("scaffold")()
    servers = []
    for engine in (Embedded, by_mail):
        host = ClientHost(federation, algorithm, 0, 2, StateStore())
        server = algorithm.start(federation.roster)
        for round_ in (1, 2):
            clients = Clients(federation.client_ids, round_, 2, 0, engine(host), 4)
            server = algorithm.round(server, clients)
        servers.append(server)
    assert_same(servers[1], servers[0])


@pytest.mark.filterwarnings("ignore:`torch.jit.load` is deprecated")
def test_the_example_of_using_a_model_works(desk, capsys):
    use = page("use-a-model.md")
    use.lay_out(desk)
    samples = write_samples(load_recipe(Path("counters.toml")), 0, desk)
    for name, sample in (("ada-1", "reference-1"), ("ada-2", "reference-2"),
                         ("ada-3", "reference-3"), ("cheque", "genuine-1")):  # fmt: skip
        (samples.folder / f"{sample}.png").rename(f"{name}.png")
    thumb = synthetic_fingerprints(7, fingers=1, impressions=3, size=48).examples.inputs[:, :, 0]
    for name, print_ in (("thumb-1", thumb[0, 0]), ("thumb-2", thumb[0, 1]),
                         ("reader", thumb[1, 1])):  # fmt: skip
        Image.fromarray(print_.contiguous().numpy()).save(f"{name}.png")
    perform(use)
    printed = capsys.readouterr().out
    assert "largest difference from the model in the run: " in printed
    assert "accepted: cheque.png" in printed or "rejected: cheque.png" in printed
    assert "accepted: reader.png as ada-thumb" in printed or "rejected: reader.png" in printed
    assert "thresholds from development data (counters/fedmh/seed-0/scores/client-1/" in printed
    ((program, output),) = (
        (one.text, other.text)
        for one, other in pairwise(use.blocks)
        if (one.language, other.title) == ("python", "output")
    )
    exec(program, {})
    assert capsys.readouterr().out == output


def test_what_a_models_file_says_is_explained_in_full():
    (table,) = tables(page("use-a-model.md").section("Export"))
    named = [name for cells in table for name in quoted(cells[0])]
    assert sorted(named) == sorted(defaults_of(ModelMetadata))
    for field in dataclasses.fields(Scan):
        assert f"`{field.name}`" in page("use-a-model.md").section("Export")


def test_the_hooks_of_local_training_are_all_there():
    (table,) = tables(page("add-an-algorithm.md").section("Hooks of local training"))
    parameters = inspect.signature(LocalTraining.run).parameters.values()
    hooks = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    assert [cells[0].strip("`") for cells in table] == hooks


def test_the_fields_of_a_data_set_are_all_there():
    (table,) = tables(page("add-a-data-set.md").section("What is in a Dataset"))
    assert [c[0].strip("`") for c in table] == [f.name for f in dataclasses.fields(Dataset)]


@pytest.mark.parametrize(("name", "heading", "kind"), [
    ("add-a-protection.md", "The parts", Protection),
    ("add-an-observer.md", "When it is told", Observer),
])  # fmt: skip
def test_everything_that_can_be_overridden_is_there(name, heading, kind):
    (table,) = tables(page(name).section(heading))
    public = {part for part in [*vars(kind), *kind.__annotations__] if not part.startswith("_")}
    assert {cells[0].strip("`").split("(")[0] for cells in table} == public


def test_the_tables_of_a_plugin_are_all_there():
    (table,) = tables(page("add-a-plugin.md").section("What a plug-in can bring"))
    assert {f.name for f in dataclasses.fields(Plugin)} <= {c[0].strip("`") for c in table}


def test_the_names_in_the_concepts_are_public():
    (table,) = tables(page("concepts.md").section("The names"))
    named = {name for cells in table for name in quoted(cells[0])}
    assert named <= set(consort.__all__)


# Recipes

SECTIONS = {
    "Top of the file": Recipe,
    "groups": Group,
    "partition": Cut,
    "server": ServerSide,
    "run": Schedule,
    "local": LocalTraining,
    "tasks": TaskChanges,
    "compute": Compute,
    "published": Published,
    "sweep": Sweep,
    "unseen": Unseen,
}


@pytest.mark.parametrize("heading", SECTIONS)
def test_every_key_of_a_recipe_is_explained(heading):
    (table,) = tables(page("recipes.md").section(heading))
    defaults = defaults_of(SECTIONS[heading])
    hints = typing.get_type_hints(SECTIONS[heading])
    assert sorted(cells[0].strip("`") for cells in table) == sorted(defaults)
    for key, default, meaning in table:
        expected = defaults[key.strip("`")]
        if default:
            assert tomllib.loads(f"x = {default.strip('`')}") == {"x": expected}
        else:
            assert expected in (None, {}, Cut(), Schedule(), Compute())
        if typing.get_origin(hint := hints[key.strip("`")]) is typing.Literal:
            assert set(typing.get_args(hint)) <= set(quoted(meaning))


@pytest.mark.parametrize(
    "table",
    ["", "data.", "partition.", "model.", "run.", "local.", "compute.", "algorithms.fedper."],
)
def test_a_key_that_is_not_explained_is_an_error(table, desk):
    page("recipes.md").lay_out(desk)
    with pytest.raises(UsageError, match="sonnet"):
        assemble(load_recipe(Path("two_kinds.toml"), changes=[f"{table}sonnet=18"]), 0, None)


def test_verification_is_explained_in_full():
    keys, metrics = tables(page("recipes.md").section("verification"))
    defaults = {
        key.strip("`"): tomllib.loads(f"x = {value.strip('`')}")["x"] for key, value, _ in keys
    }
    assert defaults == defaults_of(WriterDependent)
    rows = Signatures(np.eye(24), np.arange(24) % 3, np.arange(24) < 18)
    measured = {f"wd_{name}" for name in WriterDependent().metrics(rows)}
    assert {name for cells in metrics for name in quoted(cells[0])} == measured


def test_a_scale_and_changes_are_laid_over_the_recipe(desk):
    page("recipes.md").lay_out(desk)
    recipe = load_recipe(Path("two_kinds.toml"), "desk", ["local.lr=0.01"])
    assert recipe.run.rounds == 2
    assert recipe.algorithm("local_only").local == LocalTraining(lr=0.01)
    assert recipe.algorithm("fedper").local == LocalTraining(lr=0.01, epochs=2)


@pytest.mark.parametrize(("heading", "kind"), [("data", "datasets"), ("model", "models")])
def test_every_option_of_data_and_models_is_listed(heading, kind):
    (table,) = tables(page("recipes.md").section(heading))
    assert [cells[0].strip("`") for cells in table] == list(entries(kind))
    for name, options, _ in table:
        parameters = inspect.signature(find(kind, name.strip("`"))).parameters.values()
        known = {p.name: p.default for p in parameters if p.default is not p.empty}
        found = options_in(options)
        assert found == {k: list(v) if type(v) is tuple else v for k, v in known.items()}


# Algorithms

(ALGORITHMS,) = tables(page("algorithms.md").text)
UNLIKE = {
    "tasks": two_task_federation,
    "labels": unlike_labels_federation,
    "models": unlike_models_federation,
}

every_algorithm = pytest.mark.parametrize(
    "cells", ALGORITHMS, ids=[cells[0].strip("`") for cells in ALGORITHMS]
)


def test_every_algorithm_has_an_entry():
    named = [cells[0].strip("`") for cells in ALGORITHMS]
    assert sorted(named) == sorted(algorithm_places())
    for name in named:
        assert page("algorithms.md").section(name).strip()


@every_algorithm
def test_an_algorithm_is_what_its_line_says(cells):
    name, _, _, private, _, reports, _ = (cell.strip("`") for cell in cells)
    kind = find_algorithm(name)
    defaults = defaults_of(kind)
    del defaults["local"]
    assert options_in(cells[-1]) == defaults
    assert reports == kind.reports
    assert private == (", ".join(kind.private) or "nothing")


@every_algorithm
@pytest.mark.parametrize("aspect", UNLIKE)
def test_clients_may_differ_in_what_the_line_of_an_algorithm_says(cells, aspect):
    algorithm = find_algorithm(cells[0].strip("`"))()
    if aspect in cells[4].split(", "):
        algorithm.start(UNLIKE[aspect]().roster)
    else:
        with pytest.raises(UsageError, match="clients c0 and c1 differ"):
            algorithm.start(UNLIKE[aspect]().roster)


@pytest.mark.usefixtures("normed_encoder")
@every_algorithm
def test_the_bytes_that_travel_are_those_of_the_formula(cells):
    name, down, up = (cell.strip("`") for cell in cells[:3])
    run = Run(tiny_federation(model={"name": "normed"}), find_algorithm(name)(), Schedule(rounds=2))
    sent = {}
    for row in run.go():
        key = row.round, row.client, row.metric
        sent[key] = sent.get(key, 0) + row.value
    whole = run.federation.blueprint("c0").params
    sizes = {part: 4 * whole.only(part).size for part in ("encoder", "buffers")}
    sizes["model"] = 4 * whole.size
    sizes["tensors"] = len(whole.without("encoder"))
    sizes["clients"] = len(run.federation.client_ids)
    sizes["features"] = 4 * run.federation.blueprint("c0").model.encoder.width
    sizes["classes"] = 3
    sizes["companion"] = sizes["model"]
    sizes["generator"] = 4 * ((512 + 3) * 512 + 5 * 512) + (512 + 1) * sizes["features"]
    for client, round_ in product(run.federation.client_ids, (1, 2)):
        sizes["first"] = int(round_ == 1)
        for metric, formula in (("bytes_down", down), ("bytes_up", up)):
            assert sent.get((round_, client, metric), 0) == eval(formula, {}, sizes)
    assert sizes["buffers"] > 0


# Runs


def test_the_folder_of_a_run_is_described_in_full(desk):
    page("add-a-model.md").lay_out(desk)
    changes = ["--set", "algorithms.scaffold={}", "--algorithm", "scaffold", "--out", "out"]
    app(["run", "shortcut.toml", *changes], standalone_mode=False)
    folder = Path("out/scaffold/seed-0")
    (table,) = tables(page("runs.md").section("The folder"))
    described = [set(folder.glob(cells[0].strip("`"))) for cells in table]
    assert all(described)
    files = {path for path in folder.rglob("*") if path.is_file()}
    assert files - {folder / "report.html"} == set().union(*described)


def test_the_history_is_described_in_full():
    columns, metrics = tables(page("runs.md").section("The history"))
    assert [cells[0].strip("`") for cells in columns] == list(Row._fields)
    federation = tiny_federation(compute=Compute(count_flops=True))
    measured = {row.metric for row in Run(federation, FedAvg(), Schedule(rounds=1)).go()}
    assert {name for cells in metrics for name in quoted(cells[0])} == measured


def test_every_error_policy_is_described():
    (table,) = tables(page("runs.md").section("When a client fails"))
    assert [cells[0].strip("`") for cells in table] == list(typing.get_args(ErrorPolicy))
