"""What the screen shows while a run goes on."""

from __future__ import annotations

from contextlib import suppress

import pytest
from tests.unit.report.sample import load_run, model_notes

from consort.cli.show import Screen
from consort.core.messages import Call, Replies
from consort.errors import ClientFailed, Failure


def bars(screen: Screen) -> dict[str, tuple[float, float | None]]:
    return {
        task.description.strip(): (task.completed, task.total) for task in screen.progress.tasks
    }


def call(method: str = "train") -> Call:
    return Call("c0", method, 1, 0, 0, {})


def test_the_bars_follow_the_run():
    with Screen(quiet=False, as_json=False, bars=True) as screen:
        observer = screen.watch("fedavg", 3, rounds=5)
        assert bars(screen)["fedavg, seed 3"] == (0, 5)
        observer.round_started(1, 4)
        observer.answered(call())
        observer.answered(call())
        observer.answered(call("test"))
        assert bars(screen) == {"fedavg, seed 3": (0, 5), "round 1": (2, 4)}
        observer.evaluated(1, Replies({}))
        observer.round_started(2, 4)
        assert bars(screen) == {"fedavg, seed 3": (1, 5), "round 2": (0, 4)}
        observer.round_started(4, 4)
        assert bars(screen) == {"fedavg, seed 3": (3, 5), "round 4": (0, 4)}
        observer.finished()
    assert bars(screen) == {"fedavg, seed 3": (5, 5)}


def test_one_run_after_another():
    with Screen(quiet=False, as_json=False, bars=True) as screen:
        first = screen.watch("fedavg", 0, rounds=2)
        first.round_started(1, 1)
        first.finished()
        screen.watch("ditto", 0, rounds=2).round_started(1, 1)
        assert bars(screen) == {
            "fedavg, seed 0": (2, 2), "ditto, seed 0": (0, 2), "round 1": (0, 1),
        }  # fmt: skip


def test_lost_clients_are_told_at_once(capsys):
    with Screen(quiet=False, as_json=False, bars=True) as screen:
        observer = screen.watch("fedavg", 0, rounds=2)
        observer.failed(ClientFailed("c7", "lost [/b] [red]"))
    assert "continued without client c7: lost [/b] [red]" in capsys.readouterr().err


def test_a_run_that_fails_leaves_its_bar_where_it_was():
    screen = Screen(quiet=False, as_json=False, bars=True)
    with suppress(Failure), screen:
        screen.watch("fedavg", 0, rounds=9).round_started(4, 1)
        raise Failure("it went wrong")
    assert bars(screen)["fedavg, seed 0"] == (3, 9)


def test_the_keyboard_stops_with_a_sentence():
    with pytest.raises(Failure, match="stopped; nothing is lost"), Screen(True, False):
        raise KeyboardInterrupt


def test_a_quiet_screen_shows_nothing(capsys):
    with Screen(quiet=True, as_json=False) as screen:
        observer = screen.watch("fedavg", 0, rounds=2)
        observer.round_started(1, 1)
        observer.failed(ClientFailed("c7", "dropped out (injected)"))
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "")


def shown_results(runs, page, capsys, **screen):
    Screen(**{"quiet": False, "as_json": False} | screen).results(runs, [], [], page)
    return " ".join(capsys.readouterr().out.split())


def test_models_that_nobody_uses_are_told_below_the_table(tmp_path, capsys):
    notes = {"stuck [b]": model_notes(chosen=0), "lively": model_notes()}
    runs = [
        load_run(tmp_path / name, algorithm=name, notes=rows, rounds=2)
        for name, rows in notes.items()
    ]
    idle = "stuck [b], seed 0: all clients chose the same model in the last round, "
    idle += "the other models are not used"
    shown = shown_results(runs, tmp_path / "report.html", capsys)
    assert shown.count("the other models are not used") == 1
    assert shown.index("MiB and s: per round") < shown.index(idle) < shown.index("report:")
    assert "not used" not in shown_results(runs[1:], tmp_path, capsys)
    assert "not used" not in shown_results(runs, tmp_path, capsys, as_json=True)
