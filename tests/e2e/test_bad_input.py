"""What users get wrong: one sentence with the place and the way out, and nothing is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.kept import place_of
from tests.unit.cli.command import RECIPE, consort, measured, server_bytes, write_recipe

COMMAND = [sys.executable, "-c", "from consort.cli import main; main()"]
PICTURES = 'name = "synthetic_shapes"\nexamples = 80\nsize = 8'
VECTORS = 'name = "synthetic_vectors"\nclasses = 4\nexamples = 90\nfeatures = 6'


def refused(*arguments: object, code: int = 2) -> str:
    """What the command says when it refuses; `--quiet`, so that there is nothing else."""
    found = consort(*arguments, "--quiet")
    assert found.code == code, found
    return found.error


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.mark.parametrize(("old", "new", "words"), [
    ("clients", "cliens", ["unknown key cliens", "did you mean 'clients'"]),
    ("rounds", "rouns", ["unknown key run.rouns", "did you mean 'rounds'"]),
    ("lr = ", "rl = ", ["local.rl", "did you mean 'lr'"]),
    ("[algorithms.ditto]", "[algorithms.ditto]\nstrenth = 1",
     ["unknown key algorithms.ditto.strenth", "did you mean 'strength'"]),
    ("[algorithms.ditto]", "[algorithms.ditto]\nlocal.lrr = 1",
     ["unknown key algorithms.ditto.local.lrr", "did you mean 'lr'"]),
    ("[local]", "[partition]\nalfa = 1\n[local]", ["partition.alfa", "did you mean 'alpha'"]),
    ("[local]", "[compute]\nthread = 1\n[local]", ["compute.thread", "did you mean 'threads'"]),
    ("[local]", "[[published]]\nsource = 'x'\nmetric = 'y'\nvalue = 1\nvalues = {}\n[local]",
     ["published.0.value", "did you mean 'values'"]),
    ("clients = 3", "clients = 'three'", ["key clients", "integer", "'three'"]),
    ("rounds = 2", "rounds = [2]", ["key run.rounds", "integer", "[2]"]),
    ("rounds = 2", "rounds = 2.5", ["key run.rounds", "integer", "2.5"]),
    ("lr = 0.1", "lr = 'high'", ["local.lr", "number", "'high'"]),
    ("clients = 3", "clients = 3\nscales = 2", ["key scales", "2"]),
    ("rounds = 2", "rounds = 0", ["key run.rounds", "1", "0"]),
    ("rounds = 2", "rounds = 2\nparticipation = 1.5", ["key run.participation", "1.5"]),
    ("rounds = 2", "rounds = 2\ndropout = -1", ["key run.dropout", "-1"]),
    ("rounds = 2", "rounds = 2\non_error = 'ignore'", ["key run.on_error", "'skip'", "'ignore'"]),
    ("lr = 0.1", "batch = 0", ["local.batch", "0"]),
    ("lr = 0.1", "optimizer = 'sdg'", ["local.optimizer", "'sgd'", "'sdg'"]),
    ("[local]", "[compute]\nthreads = 0\n[local]", ["compute.threads", "0"]),
    ("clients = 3", "clients = 3\nbatchnorm = 'sum'", ["batchnorm", "'average'", "'sum'"]),
    ("clients = 3", "clients = 0", ["key clients", "0"]),
    ("clients = 3", "clients = 3\nseeds = ['a']", ["key seeds.0", "'a'"]),
    ("clients = 3", "clients = 3\nseeds = []", ["seeds = []", "at least one"]),
    ("clients = 3", "clients = 3\nseeds = [1, 2, 1]", ["seeds = [1, 2, 1]", "each only once"]),
    ("rounds = 2", "rounds = '2'", ["key run.rounds", "integer", "'2'"]),
    ("rounds = 2", "rounds = true", ["key run.rounds", "integer", "True"]),
    ("lr = 0.1", "lr = '0.1'", ["local.lr", "number", "'0.1'"]),
    ("[algorithms.ditto]", "[algorithms.ditto]\nlocal = 3", ["algorithms.ditto.local", "3"]),
    ("[model]\nname = \"mlp\"\nhidden = [8]", "[model]", ["a model needs a name", "mlp"]),
    ("[local]", "[partition]\nalpha = 1\n[local]", ["partition: alpha belongs to by ="]),
    ("[local]", "[partition]\nvalidation = 0.5\ntest = 0.6\n[local]",
     ["partition: validation and test leave nothing to train on"]),
    ("algorithms.fedavg", "algorithms.fedavgg", ["no algorithm 'fedavgg'", "mean 'fedavg'"]),
    ("[algorithms.ditto]", "[algorithms.mine]\nkind = 'mine.py:Mine'", ["no file", "mine.py"]),
    ("[algorithms.fedavg]\n\n[algorithms.ditto]", "", ["key algorithms is missing"]),
    ("[algorithms.fedavg]\n\n[algorithms.ditto]", "[algorithms]",
     ["at least one algorithm", "[algorithms.fedavg]"]),
    ("[algorithms.fedavg]", "[algorithms]\nfedavg = 3", ["key algorithms.fedavg", "3"]),
    ("name = \"mlp\"", "name = \"mpl\"", ["no model 'mpl'", "did you mean 'mlp'"]),
    ("hidden", "hiden", ["model 'mlp' has no option 'hiden'", "did you mean 'hidden'"]),
    ("hidden = [8]", "hidden = 'big'", ["model 'mlp'", "hidden = 'big'"]),
    ("[model]\nname = \"mlp\"\nhidden = [8]", "", ["a model needs a name", "mlp"]),
    ("clients = 3", "", ["either `clients = 10` or [[groups]]"]),
    ("[local]", "[[groups]]\nname = 'a'\ncount = 2\n[local]",
     ["either `clients = 10` or [[groups]]", "not both"]),
    ("clients = 3", "clients = = 3", ["not valid TOML", "line 3"]),
    ("algorithms.fedavg", "algorithms.scaffold]\nlocal.optimizer = 'adam'\n[algorithms.fedavg",
     ["scaffold", "local.optimizer = 'sgd'"]),
])  # fmt: skip
def test_a_recipe_that_is_wrong(old, new, words, tmp_path: Path, out: Path):
    recipe = write_recipe(tmp_path, (old, new))
    line = refused("run", recipe, "--out", out)
    for word in [str(recipe), *words]:
        assert word in line
    assert not out.exists()
    assert refused("inspect", recipe) == line
    assert refused("compare", recipe, "--out", out) == line


@pytest.mark.parametrize(("changes", "more", "words"), [
    ([("synthetic_vectors", "synthetic_vector")], "", ["no data set", "mean 'synthetic_vectors'"]),
    ([("features", "feature")], "",
     ["'synthetic_vectors' has no option 'feature'", "did you mean 'features'"]),
    ([("features = 6", "features = 'six'")], "", ["'synthetic_vectors'", "features", "'six'"]),
    ([(f"[data]\n{VECTORS}", "")], "", ["names no data", "[data]"]),
    ([("\"mlp\"\nhidden = [8]", "\"cnn4\"")], "", ["model 'cnn4'", "images"]),
    ([("clients = 3", "clients = 30")], "",
     ["clients = 30", "min_examples = 10", "90", "lower clients or min_examples"]),
    ([], "[partition]\nby = 'natural'", ["has no owners", "choose another \"by\""]),
    ([], "[partition]\nby = 'domain'", ["has no domains", "choose another \"by\""]),
    ([], "[partition]\nby = 'classes'\nclasses_per_client = 9",
     ["classes_per_client = 9", "4 classes", "lower classes_per_client"]),
    ([], "[partition]\nby = 'dirichlet'\nalpha = 0.001\nmin_examples = 29",
     ["alpha = 0.001", "min_examples = 29", "raise alpha, or lower min_examples or clients"]),
    ([(VECTORS, PICTURES), ("clients = 3", "clients = 1")], "[partition]\nby = 'task'",
     ["clients = 1", "2 tasks", "raise clients"]),
])  # fmt: skip
def test_a_federation_that_is_impossible(changes, more, words, tmp_path: Path, out: Path):
    recipe = write_recipe(tmp_path, *changes, more=more)
    line = refused("run", recipe, "--out", out)
    for word in words:
        assert word in line
    assert not out.exists()
    assert refused("inspect", recipe) == line


@pytest.mark.parametrize(("groups", "words"), [
    ("[[groups]]\nname = 'a'\ncount = 3\nclasses = [2]",
     ["group a", "classes = [2]", "name at least two"]),
    ("[[groups]]\nname = 'a'\ncount = 3\nclasses = [1, 2]\n"
     "[partition]\nby = 'classes'\nclasses_per_client = 1",
     ["client a-", "no example of the classes [1, 2]", "choose more classes"]),
    ("[[groups]]\nname = 'a'\ncount = 3\ntasks = ['colour']",
     ["group a", "no task 'colour'", "classify"]),
    ("[[groups]]\nname = 'a b'\ncount = 3", ["client name 'a b-0'", "letters"]),
    ("[[groups]]\nname = 'a'", ["key groups.0.count is missing"]),
    ("[[groups]]\nname = 'a'\ncounts = 2",
     ["unknown key groups.0.counts", "did you mean 'count'"]),
    ("[[groups]]\nname = 'a'\ncount = 2\npartition = { byy = 'iid' }",
     ["unknown key groups.0.partition.byy", "did you mean 'by'"]),
    ("[[groups]]\nname = 'a'\ncount = 2\n[[groups]]\nname = 'a'\ncount = 1",
     ["two groups are named 'a'"]),
    ("[[groups]]\nname = 'a'\ncount = 2\nclasses = [1, 7]", ["group a", "no class 7"]),
    ("[[groups]]\nname = 'a'\ncount = 2\nclasses = [1, 2, 1]", ["group a", "[1, 2, 1]", "twice"]),
    ("[[groups]]\nname = 'a'\ncount = 1\nmodels = {}\n",
     ["unknown key groups.0.models", "did you mean 'model'"]),
])  # fmt: skip
def test_groups_that_are_impossible(groups, words, tmp_path: Path, out: Path):
    line = refused("run", write_recipe(tmp_path, ("clients = 3", ""), more=groups), "--out", out)
    for word in words:
        assert word in line


def two_groups(tmp_path: Path, data: str, first: str, second: str) -> Path:
    groups = (
        f"[[groups]]\nname = 'a'\ncount = 2\n{first}\n[[groups]]\nname = 'b'\ncount = 2\n{second}"
    )
    return write_recipe(tmp_path, ("clients = 3", ""), (VECTORS, data), more=groups)


@pytest.mark.parametrize(("data", "first", "second"), [
    (PICTURES, "tasks = ['shape']", "tasks = ['texture']"),
    (VECTORS, "classes = [0, 1, 2]", ""),
    (VECTORS, "model = { name = 'mlp', hidden = [9] }", ""),
])  # fmt: skip
def test_clients_that_cannot_be_averaged(data, first, second, tmp_path: Path, out: Path):
    line = refused("run", two_groups(tmp_path, data, first, second), "--out", out)
    for word in ("clients a-0 and b-0 differ in", "one architecture", "fedper"):
        assert word in line
    assert not out.exists()


def test_unlike_clients_cannot_be_pooled(tmp_path: Path, out: Path):
    recipe = two_groups(tmp_path, PICTURES, "tasks = ['shape']", "tasks = ['texture']")
    recipe.write_text(recipe.read_text().replace("algorithms.fedavg", "algorithms.centralised"))
    line = refused("run", recipe, "--out", out)
    assert "one architecture and the same tasks for all, but clients a-0 and b-0 differ" in line
    assert not out.exists()


@pytest.mark.parametrize(("options", "words"), [
    (["--scale", "dekst"], ["tiny.toml has no scale 'dekst'", "did you mean 'desk'"]),
    (["--set", "run.rounds"], ["--set run.rounds", "key=value"]),
    (["--set", "run..rounds=1"], ["--set run..rounds=1", "'run..rounds' is not a key"]),
    (["--set", "run.round=1"], ["tiny.toml", "unknown key run.round", "did you mean 'rounds'"]),
    (["--set", "clients=few"], ["key clients", "'few'"]),
    (["--algorithm", "dito"], ["no algorithm 'dito'", "did you mean 'ditto'"]),
])  # fmt: skip
def test_options_that_are_wrong(options, words, tmp_path: Path, out: Path):
    recipe = write_recipe(tmp_path, more="[scales.desk]\nrun.rounds = 1")
    line = refused("run", recipe, "--out", out, *options)
    for word in words:
        assert word in line


def test_a_comparison_names_all_its_algorithms_before_it_begins(tmp_path: Path, out: Path):
    line = refused("compare", write_recipe(tmp_path), "--algorithms", "fedavg,dito", "--out", out)
    assert "did you mean 'ditto'" in line
    assert not out.exists()


def test_a_comparison_refuses_what_one_of_its_algorithms_cannot_do_before_it_begins(
    tmp_path: Path, out: Path
):
    recipe = write_recipe(tmp_path)
    changes = ["--set", "algorithms.few.kind=fedfew", "--set", "algorithms.few.models=99"]
    line = refused("compare", recipe, *changes, "--out", out)
    assert "few: there are more models (99) than clients (3)" in line
    assert not out.exists()


def test_a_recipe_that_is_not_there():
    line = refused("run", "demmo")
    assert "no recipe 'demmo'" in line
    assert "did you mean 'demo'" in line


@pytest.mark.parametrize("arguments", [
    ["run"], ["run", "demo", "--workers", "0"], ["run", "demo", "--workers", "two"],
    ["run", "demo", "--nonsense"], ["compare", "demo", "--seeds", "0"], ["frobnicate"],
    ["list", "nothing"], ["resume"], ["report"],
])  # fmt: skip
def test_a_command_line_that_is_wrong(arguments):
    found = consort(*arguments)
    assert (found.code, found.out) == (2, "")
    assert "Error: " in found.err
    assert "Traceback" not in found.err


@pytest.mark.parametrize("command", ["resume", "report"])
@pytest.mark.parametrize(("place", "reason"), [
    ("empty", "there is no run.json in it"),
    ("nowhere", "there is no such folder"),
    ("file", "there is no such folder"),
])  # fmt: skip
def test_a_folder_that_is_no_run(command, place, reason, tmp_path: Path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text(RECIPE)
    found = consort(command, tmp_path / place)
    assert found.code == 2
    assert f"{tmp_path / place} holds no run: {reason}" in found.error


@pytest.mark.parametrize(("name", "layouts"), [
    ("cifar10", ["cifar-10-batches-bin", "synthetic_images"]),
    ("femnist", ["femnist/data", "synthetic_writers"]),
    ("ag_news", ["ag_news_csv", "synthetic_news"]),
])  # fmt: skip
def test_real_data_that_are_not_there(name, layouts, tmp_path: Path, out: Path):
    recipe = write_recipe(tmp_path, (VECTORS, f'name = "{name}"'))
    (tmp_path / "wrong").mkdir()
    (tmp_path / "wrong" / "train.csv").write_text("1,2,3\n")
    unnamed = refused("run", recipe, "--out", out)
    missing = refused("run", recipe, "--out", out, "--data", tmp_path / "nowhere")
    wrong = refused("run", recipe, "--out", out, "--data", tmp_path / "wrong")
    assert "--data" in unnamed
    assert "CONSORT_DATA" in unnamed
    assert f"{tmp_path / 'nowhere'} does not exist" in missing
    assert str(tmp_path / "wrong") in wrong
    for line in (unnamed, missing, wrong):
        assert repr(name) in line
    for line in (missing, wrong):
        assert layouts[0] in line
    assert layouts[1] in unnamed
    assert not out.exists()


@pytest.mark.parametrize(("name", "file", "content"), [
    ("cifar10", "images/cifar10_7500.npz", b"not an archive"),
    ("femnist", "femnist/data/train/all.json", b'{"users": []}'),
    ("ag_news", "ag_news_csv/test.csv", b"9,no such class,at all\n"),
])  # fmt: skip
def test_real_data_that_are_damaged(name, file, content, tmp_path: Path, out: Path):
    path = tmp_path / "data" / file
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    if name == "ag_news":
        (path.parent / "train.csv").write_text("1,a title,a text\n")
    recipe = write_recipe(tmp_path, (VECTORS, f'name = "{name}"'))
    found = consort("run", recipe, "--out", out, "--data", tmp_path / "data", "--quiet")
    assert found.code == 1
    assert str(path) in found.error


DIVERGING = ("lr = 0.1", 'lr = 0.1\nepochs = 5\nschedule = "exponential"\ndecay = 1e18')


def test_a_loss_that_is_no_number_ends_the_run_and_loses_nothing(tmp_path: Path, out: Path):
    recipe = write_recipe(tmp_path, DIVERGING, ("rounds = 2", "rounds = 6"))
    line = refused("run", recipe, "--out", out, code=1)
    for word in ("client client-", "loss became nan", "local.lr = 0.1", "local.clip"):
        assert word in line
    folder = out / "fedavg" / "seed-0"
    done = max(json.loads(row)["round"] for row in measured(folder))
    assert 1 <= done < 6
    assert f"in round {done + 1}:" in line
    shorter = write_recipe(tmp_path, DIVERGING, ("rounds = 2", f"rounds = {done}"))
    assert consort("run", shorter, "--out", tmp_path / "shorter").code == 0
    assert measured(folder) == measured(tmp_path / "shorter" / "fedavg" / "seed-0")
    reported = consort("report", folder)
    assert reported.code == 0
    assert (folder / "report.html").is_file()
    assert refused("resume", folder, code=1) == line


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_on_a_client_names_it(workers, tmp_path: Path, out: Path):
    arguments = ("run", write_clumsy(tmp_path), "--out", out, "--workers", workers)
    line = refused(*arguments, code=1)
    assert line == "error: client client-1: ZeroDivisionError: division by zero"


def write_clumsy(folder: Path) -> Path:
    (folder / "clumsy.py").write_text(CLUMSY)
    own = "[algorithms.clumsy]\nkind = 'clumsy.py:Clumsy'"
    return write_recipe(folder, ("[algorithms.fedavg]", own))


CLUMSY = """
from consort.core.algorithm import on_client
from consort.algorithms.fedavg import FedAvg


class Clumsy(FedAvg):
    @on_client
    def train(self, client, model):
        if client.id == "client-1":
            return {'ratio': 1 / 0}
        return super().train(client, model)
"""


def test_as_seen_from_a_shell(tmp_path: Path, out: Path):
    """One line without `--debug`; with it the traceback, and the client's own."""
    recipe = write_recipe(tmp_path, ("rounds", "rouns"))
    plain = shell("run", recipe)
    assert (plain.returncode, plain.stdout) == (2, "")
    assert plain.stderr.startswith(f"error: {recipe}: unknown key run.rouns")
    assert plain.stderr.count("\n") == 1
    assert shell("run", recipe, "--debug").returncode == 2
    debug = shell("run", write_clumsy(tmp_path), "--out", out, "--workers", 2, "--debug")
    assert debug.returncode == 1
    assert debug.stderr.count("Traceback (most recent call last)") >= 2
    assert "return {'ratio': 1 / 0}" in debug.stderr
    assert "client client-1: ZeroDivisionError: division by zero" in debug.stderr


def shell(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def damage(content: bytes, how: str) -> bytes:
    """One of the ways in which files break."""
    place = {"first": 0, "middle": len(content) // 2, "last": len(content) - 1}
    if how in place:
        flipped = bytearray(content)
        flipped[place[how]] ^= 1
        return bytes(flipped)
    return {"empty": b"", "half": content[: len(content) // 2], "longer": content + b"\0"}[how]


@pytest.mark.parametrize("how", ["first", "middle", "last", "empty", "half", "longer"])
def test_a_damaged_checkpoint(how, tmp_path: Path, out: Path):
    recipe = write_recipe(tmp_path, ("rounds = 2", "rounds = 4"))
    command = ("run", recipe, "--algorithm", "ditto", "--quiet", "--out", out)
    assert consort(*command).code == 0
    folder = out / "ditto" / "seed-0"
    expected = measured(folder), server_bytes(folder)
    last = folder / "round-000004.ckpt"
    last.write_bytes(damage(last.read_bytes(), how))
    history = (folder / "history.jsonl").read_bytes()
    for arguments in (("resume", folder), command):
        line = refused(*arguments, code=1)
        assert f"{last} is damaged: delete it" in line
        assert (folder / "history.jsonl").read_bytes() == history
    assert consort("report", folder).code == 0
    last.unlink()
    assert consort("resume", folder, "--quiet").code == 0
    assert (measured(folder), server_bytes(folder)) == expected


def test_without_any_good_checkpoint_the_run_begins_anew(tmp_path: Path, out: Path):
    recipe = write_recipe(tmp_path, ("rounds = 2", "rounds = 3"))
    assert consort("run", recipe, "--algorithm", "ditto", "--out", out, "--quiet").code == 0
    folder = out / "ditto" / "seed-0"
    expected = measured(folder), server_bytes(folder)
    for path in folder.glob("round-*.ckpt"):
        path.unlink()
    assert consort("resume", folder, "--quiet").code == 0
    assert (measured(folder), server_bytes(folder)) == expected


@pytest.mark.parametrize("text", ["", "nonsense", '{"title": "ti', "{}", "[]", "3"])
def test_a_damaged_description(text, tmp_path: Path, out: Path):
    recipe = write_recipe(tmp_path)
    command = ("run", recipe, "--out", out, "--quiet")
    assert consort(*command).code == 0
    path = out / "fedavg" / "seed-0" / "run.json"
    path.write_text(text)
    for arguments in (command, ("resume", path.parent, "--quiet"), ("report", path.parent)):
        found = consort(*arguments)
        assert found.code == 1
        assert str(path) in found.error
        assert "start the run again" in found.error


@pytest.mark.parametrize("text", ["", "{}", '{"fingerprint": "0", "clients": {}}'])
def test_a_damaged_partition(text, tmp_path: Path, out: Path):
    recipe = write_recipe(tmp_path)
    command = ("run", recipe, "--out", out)
    assert consort(*command, "--quiet").code == 0
    path = out / "fedavg" / "seed-0" / "partition.json"
    path.write_text(text)
    for arguments in (command, ("resume", path.parent)):
        assert f"{path} is damaged" in refused(*arguments, code=1)


def test_results_that_were_cut_short_or_lost(tmp_path: Path, out: Path):
    assert consort("run", write_recipe(tmp_path), "--out", out, "--quiet").code == 0
    path = out / "fedavg" / "seed-0" / "history.jsonl"
    path.write_bytes(path.read_bytes()[:100])
    assert f"{path} was cut short" in refused("resume", path.parent, code=1)
    path.unlink()
    assert f"{path} was cut short" in refused("resume", path.parent, code=1)


def test_a_damaged_memory_of_a_client(tmp_path: Path, out: Path):
    """To delete it would let the client go on with an older one, and give other numbers."""
    recipe = write_recipe(tmp_path, ("rounds = 2", "rounds = 3"))
    assert consort("run", recipe, "--algorithm", "ditto", "--out", out, "--quiet").code == 0
    folder = out / "ditto" / "seed-0"
    (folder / "round-000003.ckpt").unlink()
    state, _ = place_of(folder / "clients", "client-1", 2)
    state.write_bytes(damage(state.read_bytes(), "middle"))
    line = refused("resume", folder, code=1)
    for word in ("client client-1", f"{state} is damaged", "start the run again"):
        assert word in line
    assert "delete it" not in line


def test_a_recipe_in_another_encoding(tmp_path: Path):
    recipe = write_recipe(tmp_path)
    recipe.write_bytes(recipe.read_text().replace("tiny", "t\xefny").encode("latin-1"))
    assert f"{recipe} is not valid TOML" in refused("run", recipe)


@pytest.mark.parametrize(("content", "words"), [
    ("import no_such_package", "ModuleNotFoundError: No module named 'no_such_package'"),
    ("def train(:", "line 1: invalid syntax"),
    ("1 / 0", "ZeroDivisionError: division by zero"),
    ("Clumsy = 3", "is not an Algorithm"),
])  # fmt: skip
def test_an_algorithm_of_ones_own_that_cannot_be_imported(content, words, tmp_path: Path):
    recipe = write_clumsy(tmp_path)
    (tmp_path / "clumsy.py").write_text(content)
    for _ in range(2):
        line = refused("run", recipe)
        assert str(tmp_path / "clumsy.py") in line
        assert words in line


def test_a_folder_that_cannot_be_written(tmp_path: Path):
    recipe = write_recipe(tmp_path)
    (tmp_path / "file").write_text("in the way")
    line = refused("run", recipe, "--out", tmp_path / "file", code=1)
    assert f"{tmp_path / 'file'} is not a folder: choose another one" in line


def test_what_tells_but_decides_nothing_may_change(tmp_path: Path, out: Path):
    """A claim that was forgotten must not cost the runs it is about."""
    recipe = write_recipe(tmp_path, ("clients = 3", "clients = 3\nclaims = ['loss(fedavg) < 9']"))
    assert consort("compare", recipe, "--out", out).code == 0
    before = measured(out / "ditto" / "seed-0")
    recipe = write_recipe(
        tmp_path,
        ('"tiny"', '"a better title"'),
        ("clients = 3", "clients = 3\nclaims = ['loss(fedavg) < 99']\nseeds = [0, 1]"),
        ("[algorithms.fedavg]", "[algorithms.fedprox]\n[algorithms.fedavg]"),
    )
    assert consort("compare", recipe, "--out", out, "--check").code == 0
    assert measured(out / "ditto" / "seed-0") == before


@pytest.mark.parametrize("claim", ["loss(fedavg)", "loss(fedavvg) < 99", "loss(fedavg) == 1"])
def test_a_claim_that_cannot_be_read_is_refused_before_any_run(claim, tmp_path: Path, out: Path):
    recipe = write_recipe(tmp_path, ("clients = 3", f"clients = 3\nclaims = ['{claim}']"))
    assert f"claim `{claim}`" in refused("compare", recipe, "--out", out)
    assert not out.exists()


@pytest.mark.parametrize(("line", "message"), [
    ("claims = ['lost(fedavg) < 9']", "claim `lost(fedavg) < 9`: this comparison has no metric"),
    ("claims = ['tuned_loss(fedavg) < 9']", "no metric `tuned_loss`"),
    ("claims = ['flops(fedavg) < 9']", "no metric `flops`"),
    ("published = [{source = 'a', metric = 'acuracy', values = {fedavg = 1}}]",
     "published numbers (a): there is no metric 'acuracy': did you mean 'accuracy'?"),
])  # fmt: skip
def test_what_no_run_measures_is_refused_before_any_run(line, message, tmp_path: Path, out: Path):
    recipe = write_recipe(tmp_path, ("clients = 3", f"clients = 3\n{line}"))
    for command in ("compare", "run"):
        assert message in refused(command, recipe, "--out", out)
        assert not out.exists()


@pytest.mark.parametrize("claim", [
    "balanced_accuracy(fedavg) < 9", "best_loss(fedavg) < 99", "weighted_accuracy(ditto) < 9",
    "worst_accuracy(ditto) <= bytes_up(each other)", "delta_m(ditto) < 9",
])  # fmt: skip
def test_what_a_run_will_measure_is_known_before(claim, tmp_path: Path, out: Path):
    recipe = write_recipe(tmp_path, ("clients = 3", f"clients = 3\nclaims = ['{claim}']"))
    assert consort("compare", recipe, "--out", out).code == 0


@pytest.mark.parametrize(("second", "message"), [
    ("[algorithms.fedavg.robust]\nrule = 'krum'\nmalicious = 2", "needs 7 clients in every round"),
    ("[algorithms.fedavg.attack]\nby = ['sign_flip']\nclients = 4", "but there are 3 clients"),
    ("[algorithms.fedavg]\nkind = 'qfedavg'\nprivacy = {level = 'example'}", "in other ways"),
    ("[algorithms.fedavg.local]\noptimizer = 'adam'\nmomentum = 0.9", "takes no momentum"),
    ("[algorithms.fedavg.local]\naugment = true", "name no augmentation"),
    ("[algorithms.fedprox]\n[algorithms.fedavg.secure]\n[algorithms.fedavg.robust]\nclip = 1.0",
     "which [secure] hides"),
])  # fmt: skip
def test_a_comparison_refuses_its_second_algorithm_before_the_first_is_trained(
    second, message, tmp_path: Path, out: Path
):
    recipe = tmp_path / "two.toml"
    text = RECIPE.partition("[local]")[0] + "[algorithms.ditto]\n" + second
    recipe.write_text(text + "\n")
    line = refused("compare", recipe, "--out", out)
    assert line.startswith("error: fedavg: ")
    assert message in line
    assert not out.exists()


def test_a_comparison_refuses_a_folder_of_another_run_before_any_is_trained(
    tmp_path: Path, out: Path
):
    assert consort("run", write_recipe(tmp_path), "--algorithm", "ditto", "--out", out).code == 0
    changed = write_recipe(tmp_path, ("lr = 0.1", "lr = 0.2"))
    line = refused("compare", changed, "--out", out)
    assert "ditto/seed-0 holds a run with another recipe" in line
    assert not (out / "fedavg").exists()


def test_titles_are_shown_as_they_are(tmp_path: Path, out: Path):
    found = consort("run", write_recipe(tmp_path, ('"tiny"', '"of [/b] and [red]"')), "--out", out)
    assert found.code == 0
    assert "of [/b] and [red] (1 seed" in found.out


def test_runs_without_results_are_left_out_of_a_report(tmp_path: Path, out: Path):
    recipe = write_recipe(
        tmp_path, ("[algorithms.ditto]", "[algorithms.ditto]\nlocal = { lr = 1e30, epochs = 4 }")
    )
    assert "loss became nan in round 1" in refused("compare", recipe, "--out", out, code=1)
    found = consort("report", out)
    assert found.code == 0
    assert "ditto" in found.err
    assert "no results yet" in found.err
    assert "no results yet" in consort("report", out / "ditto").error


def test_a_line_of_results_that_is_none(tmp_path: Path, out: Path):
    assert consort("run", write_recipe(tmp_path), "--out", out, "--quiet").code == 0
    path = out / "fedavg" / "seed-0" / "history.jsonl"
    path.write_text("not a row\n" + path.read_text())
    found = consort("report", out)
    assert found.code == 1
    assert f"{path}, line 1" in found.error


def test_another_recipe_in_the_same_folder(tmp_path: Path, out: Path):
    recipe = write_recipe(tmp_path)
    assert consort("run", recipe, "--out", out, "--quiet").code == 0
    folder = out / "fedavg" / "seed-0"
    before = measured(folder)
    line = refused("run", recipe, "--out", out, "--set", "local.lr=0.2")
    told = "holds a run with another recipe (recipe.local.lr: 0.1, now 0.2): choose another --out"
    assert f"{folder} {told}" in line
    assert measured(folder) == before


def test_a_page_that_cannot_be_written(tmp_path: Path, out: Path):
    assert consort("run", write_recipe(tmp_path), "--out", out, "--quiet").code == 0
    (tmp_path / "file").write_text("in the way")
    place = tmp_path / "file" / "page.html"
    found = consort("report", out, "--out", place)
    assert found.code == 1
    assert str(place) in found.error


def test_bars_and_the_error_are_both_on_standard_error(tmp_path: Path, out: Path):
    recipe = write_recipe(tmp_path, DIVERGING, ("rounds = 2", "rounds = 6"))
    found = consort("run", recipe, "--out", out)
    assert (found.code, found.out) == (1, "")
    lines = found.err.splitlines()
    assert [line for line in lines if line.startswith("error: ")] == lines[-1:]
    assert "Traceback" not in found.err


OWN = """
from dataclasses import dataclass

import torch
from consort import on_client
from consort.algorithms.fedavg import FedAvg, Server


@dataclass(frozen=True)
class Misspelt(FedAvg):
    def round(self, server, clients):
        replies = clients.ask(self.train, model=server.model)
        return Server(replies.mean("modle", weight="examples"))


@dataclass(frozen=True)
class Weights(FedAvg):
    @on_client
    def train(self, client, model):
        return {"model": client.model.state_dict(), "examples": client.examples}


@dataclass(frozen=True)
class Late(FedAvg):
    def round(self, server, clients):
        what = "mod" + "le"
        return Server(clients.ask(self.train, model=server.model).mean(what))


def from_one():
    return torch.randn(90, 6), torch.arange(90) % 4 + 1


def spoilt():
    return torch.full((90, 6), torch.nan), torch.arange(90) % 4


def short():
    return torch.randn(90, 6), torch.arange(80) % 4
"""


def own_recipe(folder: Path, *changes: tuple[str, str]) -> Path:
    (folder / "own.py").write_text(OWN)
    return write_recipe(folder, *changes)


@pytest.mark.parametrize(("kind", "words"), [
    ("Misspelt", ["own.py, line 13: no client answers 'modle': did you mean 'model'?"]),
    ("Weights", ["own.py, line 20: a client cannot answer with a state_dict", "Params.of(client"]),
])  # fmt: skip
def test_a_mistake_in_an_algorithm_is_found_before_the_first_round(kind, words, tmp_path, out):
    recipe = own_recipe(tmp_path, ("[algorithms.ditto]", f"[algorithms.x]\nkind = 'own.py:{kind}'"))
    line = refused("compare", recipe, "--out", out)
    for word in words:
        assert word in line
    assert not out.exists()


def test_a_mistake_that_shows_in_a_round_has_its_line(tmp_path: Path, out: Path):
    recipe = own_recipe(tmp_path, ("[algorithms.ditto]", "[algorithms.x]\nkind = 'own.py:Late'"))
    line = refused("run", recipe, "--algorithm", "x", "--out", out)
    assert "own.py, line 27: the answer of client client-0 has no 'modle'" in line


@pytest.mark.parametrize(("function", "words"), [
    ("from_one", ["own.py:from_one", "are 1 to 4", "subtract 1 from them"]),
    ("spoilt", ["not finite (NaN or infinite)", "repair or remove"]),
    ("short", ["own.py:short", "80 targets for 90 inputs"]),
])  # fmt: skip
def test_data_that_cannot_be_trained_on_are_found_before_the_first_round(
    function, words, tmp_path: Path, out: Path
):
    recipe = own_recipe(tmp_path, (VECTORS, f"name = 'own.py:{function}'"))
    line = refused("run", recipe, "--out", out)
    for word in words:
        assert word in line
    assert not out.exists()


def test_a_recipe_that_is_missing_beside_one_of_nearly_the_same_name(tmp_path: Path, out: Path):
    recipe = write_recipe(tmp_path)
    line = refused("run", recipe.with_name(recipe.name[1:]), "--out", out)
    assert f"did you mean {str(recipe)!r}?" in line


def test_a_claim_about_a_metric_that_is_misspelt(tmp_path: Path, out: Path):
    recipe = write_recipe(tmp_path, ("clients = 3", "clients = 3\nclaims = ['accurcy(ditto) > 0']"))
    line = refused("compare", recipe, "--out", out)
    assert "no metric `accurcy`; did you mean `accuracy`?" in line
    assert not out.exists()
