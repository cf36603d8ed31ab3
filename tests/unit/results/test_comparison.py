"""Claims against real runs, and which folders hold runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.cli.command import consort, write_recipe

from consort.errors import UsageError
from consort.experiment.loading import load_recipe
from consort.experiment.recipe import Recipe
from consort.results.claims import Verdict
from consort.results.comparison import gains, judge
from consort.results.records import Record
from consort.results.result import Result
from consort.run.folder import runs_below

SEEDS = (0, 1, 2)
NAMES = ("local_only", "fedavg", "scaffold")


@pytest.fixture(scope="module")
def compared(tmp_path_factory) -> tuple[Path, Path]:
    """A recipe and the folder of its comparison: three algorithms, three seeds."""
    folder = tmp_path_factory.mktemp("compared")
    recipe = write_recipe(
        folder,
        ("[algorithms.ditto]", "[algorithms.scaffold]\n\n[algorithms.local_only]"),
        ("examples = 90", "examples = 300"),
        ("lr = 0.1", "lr = 0.3\nbatch = 10"),
        ("rounds = 2", "rounds = 6"),
    )
    root = folder / "out"
    for name in NAMES:
        for seed in SEEDS:
            run = consort("run", recipe, "--algorithm", name, "--seed", seed, "--out", root)
            assert run.code == 0, run.err
    return recipe, root


def with_claims(recipe: Path, *claims: str) -> Recipe:
    return load_recipe(recipe, changes=[f"claims={list(claims)!r}"])


def judged(recipe: Recipe, folders: list[Path]) -> list[Verdict]:
    return judge(recipe.claims, list(recipe.algorithms), folders)


def outcomes(compared: tuple[Path, Path], *claims: str) -> list[str]:
    recipe, root = compared
    return [verdict.outcome for verdict in judged(with_claims(recipe, *claims), runs_below(root))]


def test_bytes_decide_exactly(compared):
    """Scaffold sends the model and its control variate, alone one sends nothing."""
    assert outcomes(
        compared,
        "bytes(scaffold) <= 2 * bytes(fedavg)",
        "bytes(scaffold) < 2 * bytes(fedavg)",
        "bytes_up(scaffold) >= bytes_up(fedavg) + bytes_down(fedavg)",
        "bytes(local_only) < bytes(each other)",
        "bytes(fedavg) < bytes(each other)",
        "bytes(local_only) >= 1",
    ) == ["holds", "fails", "holds", "holds", "fails", "fails"]


def test_scores_are_judged_by_the_spread_over_paired_seeds(compared):
    _, root = compared
    runs = {(r.algorithm, r.seed): r.value("loss") for r in map(Result.load, runs_below(root))}
    margins = [runs["local_only", seed] - runs["fedavg", seed] for seed in SEEDS]
    recipe = with_claims(compared[0], "loss(fedavg) < loss(local_only) + 9", "loss(fedavg) >= 9")
    sure, wrong = judged(recipe, runs_below(root))
    assert (sure.outcome, wrong.outcome) == ("holds", "fails")
    assert f"margin {9 + sum(margins) / 3:+.4g}" in sure.detail
    assert "over 3 seeds" in sure.detail
    assert sure.claim == "loss(fedavg) < loss(local_only) + 9"


def test_what_the_spread_does_not_separate_is_undecided(compared):
    assert outcomes(compared, "accuracy(fedavg) > accuracy(fedavg)") == ["fails"]
    assert outcomes(compared, "accuracy(fedavg) >= accuracy(fedavg)") == ["holds"]
    _, root = compared
    values = [Result.load(run).value("loss") for run in runs_below(root / "fedavg")]
    between = sorted(values)[1]
    assert outcomes(compared, f"loss(fedavg) < {between!r}") == ["undecided"]


def test_one_seed_decides_nothing_but_bytes(compared):
    recipe, root = compared
    given = with_claims(recipe, "loss(fedavg) < 99", "bytes(fedavg) > 0")
    folders = [root / name / "seed-0" for name in NAMES]
    assert [verdict.outcome for verdict in judged(given, folders)] == ["undecided", "holds"]


def test_only_seeds_that_both_have_count(compared):
    recipe, root = compared
    given = with_claims(recipe, "loss(fedavg) < loss(scaffold) + 9")
    folders = [root / "fedavg" / f"seed-{seed}" for seed in SEEDS]
    (none,) = judged(given, folders)
    assert none.outcome == "undecided"
    assert "no seed has all of" in none.detail
    folders += [root / "scaffold" / f"seed-{seed}" for seed in (1, 2)]
    (two,) = judged(given, folders)
    assert two.outcome == "holds"
    assert "over 2 seeds" in two.detail


def test_without_claims_nothing_is_judged(compared):
    recipe, _ = compared
    assert judged(load_recipe(recipe), []) == []


@pytest.mark.parametrize(("claim", "message"), [
    ("f1(fedavg) < 1", "no metric `f1`"),
    ("loss(fedavgg) < 1", "no algorithm `fedavgg`; did you mean `fedavg`"),
    ("loss(fedavg)", "write two sides"),
])  # fmt: skip
def test_a_claim_that_cannot_be_read_is_an_error(compared, claim, message):
    recipe, root = compared
    with pytest.raises(UsageError, match=message):
        judged(with_claims(recipe, claim), runs_below(root))


@pytest.mark.parametrize(("claims", "code"), [
    (["bytes(scaffold) > bytes(fedavg)", "bytes(local_only) <= 0"], 0),
    (["bytes(scaffold) > bytes(fedavg)", "bytes(local_only) > 0"], 1),
    (["loss(fedavg) < 99", "accuracy(fedavg) < accuracy(fedavg)"], 1),
    ([], 0),
])  # fmt: skip
def test_check_turns_the_verdicts_into_the_exit_code(claims, code, tmp_path: Path):
    recipe = write_recipe(
        tmp_path, ("[algorithms.ditto]", "[algorithms.scaffold]\n\n[algorithms.local_only]")
    )
    arguments = ["compare", recipe, "--set", f"claims={claims!r}", "--out", tmp_path / "out"]
    checked = consort(*arguments, "--check")
    assert checked.code == code
    assert all(claim in checked.out for claim in claims)
    assert consort(*arguments).code == 0


def test_an_undecided_claim_does_not_pass_the_check(tmp_path: Path):
    recipe = write_recipe(tmp_path, ("clients = 3", 'clients = 3\nclaims = ["loss(fedavg) < 99"]'))
    arguments = ("compare", recipe, "--algorithms", "fedavg", "--out", tmp_path / "out", "--check")
    one = consort(*arguments)
    assert one.code == 1
    assert "undecided" in one.out
    two = consort(*arguments, "--seeds", 2)
    assert two.code == 0
    assert "holds" in two.out


def test_runs_are_found_in_a_folder_and_below_it(compared, tmp_path: Path):
    _, root = compared
    expected = sorted(root / name / f"seed-{seed}" for name in NAMES for seed in SEEDS)
    assert runs_below(root) == expected
    assert runs_below(root / "fedavg") == [root / "fedavg" / f"seed-{seed}" for seed in SEEDS]
    assert runs_below(root / "fedavg" / "seed-1") == [root / "fedavg" / "seed-1"]
    with pytest.raises(UsageError, match=r"holds no run: there is no run\.json in it or below it"):
        runs_below(tmp_path)


def test_the_gain_over_training_alone_is_relative_and_by_seed(compared):
    _, root = compared
    results = [Result.load(folder) for folder in runs_below(root)]
    found = gains([Record.of(result) for result in results])
    value = {(result.algorithm, result.seed): result.value("accuracy") for result in results}
    for seed in SEEDS:
        alone = value["local_only", seed]
        assert found["local_only", seed] == 0
        expected = 100 * (value["fedavg", seed] - alone) / alone
        assert found["fedavg", seed] == pytest.approx(expected)


def test_without_a_run_alone_there_is_no_gain(compared):
    _, root = compared
    others = [Record.of(Result.load(f)) for f in runs_below(root) if "local_only" not in str(f)]
    assert gains(others) == {}


def test_claims_can_be_about_gains(compared):
    assert outcomes(
        compared, "delta_m(local_only) >= 0", "delta_m(local_only) > 0", "delta_m(fedavg) > -100"
    ) == ["holds", "fails", "holds"]
