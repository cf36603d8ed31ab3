"""The Flower engine without Flower: what it does when messages are lost, late or damaged."""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.contract.helpers import Listener
from tests.institutions import NAMES, STUDY, Institutions
from tests.kept import kept_states
from tests.letters import PostOffice, ask, engine_for, participants, run_with
from tests.unit.cli.command import measured

from consort.algorithms.registry import find_algorithm
from consort.core import files
from consort.core.wire import encode
from consort.deployment.credentials import ClientCredentials
from consort.deployment.envelope import ClientEnvelopes, ServerEnvelopes
from consort.engines.flower import Flower, Ledger, reply_of
from consort.engines.middleware import Absent, RefusedReply
from consort.errors import ClientFailed, Failure
from consort.experiment.loading import load_recipe
from consort.experiment.recipe import Recipe
from consort.run.schedule import Schedule


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    (tmp_path / "study.toml").write_text(
        STUDY.replace("rounds = 2", "rounds = 3") + "[algorithms.ditto]\n"
    )
    return load_recipe(tmp_path / "study.toml")


def outcome(recipe: Recipe, folder: Path, post: PostOffice, deadline: float = 5.0) -> Any:
    engine = engine_for(recipe, "ditto", post, folder, deadline)
    observer = Listener()
    run_with(recipe, "ditto", engine, folder, observer).go()
    return *kept(folder, engine, post), observer.failures


def kept(folder: Path, engine: Flower, post: PostOffice) -> tuple[list[str], bytes, Any]:
    state = find_algorithm("ditto").state_type()
    last = files.load(max(folder.glob("round-*.ckpt")), {state.__name__: state})
    states = {
        name: kept_states(client.folder / engine.ledger.session)[name]
        for name, client in post.participants.items()
    }
    assert all(states.values())
    return measured(folder), encode(last["server"]), states


def in_round_two(fate: str, times: int = 99):
    left = [times]

    def decide(client: str, header: dict[str, Any]) -> str:
        if client != "b-0" or header["kind"] != "call" or header["call"][2] != 2 or not left[0]:
            return "arrives"
        left[0] -= 1
        return fate

    return decide


def test_a_lost_message_is_sent_again_and_changes_nothing(recipe, tmp_path):
    undisturbed = outcome(recipe, tmp_path / "1", PostOffice(participants(tmp_path / "homes-1")))
    post = PostOffice(participants(tmp_path / "homes-2"), in_round_two("breaks", 3))
    disturbed = outcome(recipe, tmp_path / "2", post)
    assert disturbed == undisturbed
    asked = [
        header["call"][2] for name, header in post.headers if name == "b-0" if "call" in header
    ]
    assert asked == [1, 2, 2, 2, 2, 3, 3]


def test_an_answer_that_comes_too_late_counts_for_nothing(recipe, tmp_path):
    """As if the client had not been asked, even though it worked and remembered."""
    post = PostOffice(participants(tmp_path / "homes-1"), in_round_two("late"))
    late = outcome(recipe, tmp_path / "1", post, deadline=2)
    post = PostOffice(participants(tmp_path / "homes-2"), in_round_two("breaks"))
    never = outcome(recipe, tmp_path / "2", post, deadline=2)
    assert late[:2] == never[:2]
    assert late[2] == never[2]
    assert [str(error) for error in late[3]] == ["client b-0: did not answer within 2 seconds"]
    assert [str(error) for error in never[3]] == [
        "client b-0: did not answer within 2 seconds (its connection broke)"
    ]


def test_a_client_that_is_away_is_waited_for(recipe, tmp_path):
    post = PostOffice(participants(tmp_path), offline={"b-0"})
    engine = engine_for(recipe, "ditto", post, tmp_path, deadline=0.3)
    letters = {name: ({"kind": "describe"}, {}) for name in NAMES}
    answers = dict(engine.exchange(letters))
    assert isinstance(answers["b-0"], Absent)
    assert reply_of("a-0", answers["a-0"]).content["train"] > 0
    post.offline.clear()
    engine._look_again = 0.0
    assert ask(engine, "b-0", kind="describe")["train"] > 0


def test_answers_come_in_the_order_of_the_letters(recipe, tmp_path):
    engine = engine_for(recipe, "ditto", PostOffice(participants(tmp_path)), tmp_path)
    order = ("c-0", "a-0", "b-0")
    answers = engine.exchange({name: ({"kind": "describe"}, {}) for name in order})
    assert tuple(client for client, _ in answers) == order


def test_a_damaged_answer_is_refused_and_the_round_goes_on(recipe, tmp_path):
    post = PostOffice(participants(tmp_path / "homes"), in_round_two("damaged"))
    *_, failures = outcome(recipe, tmp_path / "run", post)
    assert [type(error) for error in failures] == [RefusedReply]
    assert "client b-0: sent a damaged answer" in str(failures[0])


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"header": b"{"},
        {"header": b"[]"},
        {"header": b'{"error":"","seconds":1,"flops":0}'},
        {"header": b'{"error":"","seconds":1}', "content": encode({})},
        {"header": b'{"error":"","seconds":"x","flops":0}', "content": encode({})},
        {"header": b'{"error":"","seconds":1,"flops":"x"}', "content": encode({})},
        {"header": b'{"error":"","seconds":1,"flops":1e999}', "content": encode({})},
        {"header": b'{"error":"","seconds":1,"flops":0}', "content": encode([1])},
    ],
)
def test_whatever_a_client_sends_is_an_answer_or_an_error(parts):
    assert isinstance(reply_of("a-0", parts).error, RefusedReply)


def test_the_error_of_a_client_names_it(recipe, tmp_path):
    post = PostOffice(participants(tmp_path))
    engine = engine_for(recipe, "ditto", post, tmp_path)
    ((_, answer),) = engine.exchange({"a-0": ({"kind": "nonsense"}, {})})
    error = reply_of("a-0", answer).error
    assert type(error) is ClientFailed
    assert str(error).startswith("client a-0: the message is not valid: Input tag 'nonsense'")


def test_a_ledger_goes_on_where_it_was(tmp_path):
    ledger = Ledger.open(tmp_path / "exchanges.json")
    ledger.count("a-0", (3, 1))
    numbers = [ledger.next(), ledger.next()]
    ledger.save()
    again = Ledger.open(tmp_path / "exchanges.json")
    assert again == ledger
    assert [*numbers, again.next()] == [1, 2, 3]
    assert Ledger.open(tmp_path / "other.json").session != ledger.session


def test_what_counted_in_a_round_that_is_run_again_is_void(tmp_path):
    ledger = Ledger.open(tmp_path / "exchanges.json")
    assert ledger.last_counted("a-0", (1, 0)) is None
    for stamp in ((1, 0), (1, 1), (2, 0)):
        ledger.count("a-0", stamp)
    assert ledger.last_counted("a-0", (3, 0)) == (2, 0)
    assert ledger.last_counted("a-0", (2, 0)) == (1, 1)  # round 2 is run again, and
    assert ledger.last_counted("a-0", (3, 0)) == (1, 1)  # this time its answer was late


def test_a_server_that_was_killed_goes_on_with_the_same_numbers(recipe, tmp_path):
    """At every message there is, however much its clients had done by then."""
    post = PostOffice(participants(tmp_path / "homes"))
    engine = engine_for(recipe, "ditto", post, tmp_path / "whole")
    run_with(recipe, "ditto", engine, tmp_path / "whole").go()
    whole = kept(tmp_path / "whole", engine, post)
    calls = sum("call" in header for _, header in post.headers)
    for moment in range(1, calls + 1, 2):
        folder = tmp_path / str(moment)
        post = PostOffice(participants(folder / "homes"), killed_at(moment))
        with pytest.raises(Killed):
            run_with(recipe, "ditto", engine_for(recipe, "ditto", post, folder), folder).go()
        post.fate = lambda *_: "arrives"
        engine = engine_for(recipe, "ditto", post, folder)
        run_with(recipe, "ditto", engine, folder).go()
        assert kept(folder, engine, post) == whole, moment


class Killed(BaseException):
    pass


def killed_at(moment: int):
    seen = []

    def decide(client: str, header: dict[str, Any]) -> str:
        seen.extend([client] * ("call" in header))
        if len(seen) == moment:
            raise Killed
        return "arrives"

    return decide


# The client's side


def test_a_message_is_answered_once(recipe, tmp_path):
    post = PostOffice(participants(tmp_path))
    engine = engine_for(recipe, "ditto", post, tmp_path)
    ask(engine, "a-0", kind="describe")
    engine.ledger.number = 0
    ((_, answer),) = engine.exchange({"a-0": ({"kind": "describe"}, {})})
    assert str(reply_of("a-0", answer).error) == (
        "client a-0: message 1 is repeated or outdated: 1 was already answered"
    )


def test_a_client_that_changed_is_refused(recipe, tmp_path):
    post = PostOffice(participants(tmp_path))
    engine = engine_for(recipe, "ditto", post, tmp_path)
    run_with(recipe, "ditto", engine, tmp_path)
    post.participants |= participants(tmp_path, ["b-0"])
    post.participants["b-0"].brings = {"data": dict(post.participants["a-0"].brings["data"])}
    ((_, answer),) = engine.exchange({"b-0": ({"kind": "describe"}, {})})
    assert "have changed since the run began" in str(reply_of("b-0", answer).error)


def test_a_client_that_lost_its_memory_says_so(recipe, tmp_path):
    post = PostOffice(participants(tmp_path / "homes"))
    engine = engine_for(recipe, "ditto", post, tmp_path)
    run_with(recipe, "ditto", engine, tmp_path).go()
    post.participants |= participants(tmp_path / "new-homes", ["b-0"])
    ((_, answer),) = engine.exchange({"b-0": ({"kind": "describe"}, {})})
    assert "its state of this run is gone" in str(reply_of("b-0", answer).error)


def test_a_new_run_ends_the_memory_of_runs_that_are_long_over(recipe, tmp_path):
    post = PostOffice(participants(tmp_path / "homes"))
    sessions = []
    for days, name in ((31, "over"), (29, "recent"), (0, "new")):
        engine = engine_for(recipe, "ditto", post, tmp_path / name)
        run_with(recipe, "ditto", engine, tmp_path / name).go()
        sessions.append(engine.ledger.session)
        last = post.participants["a-0"].folder / engine.ledger.session / "last-message"
        os.utime(last, (time.time() - days * 86_400,) * 2)
    over, *kept = sessions
    home = post.participants["a-0"].folder
    assert {path.name for path in home.iterdir() if path.is_dir()} == set(kept)
    assert (home / "privacy.ledger").is_file()  # it outlives the runs
    assert all(kept_states(home / session)["a-0"] for session in kept)
    assert (post.participants["b-0"].folder / over).is_dir()


@pytest.mark.parametrize("session", ["../../evil", "", "A" * 32])
def test_the_name_of_a_run_is_no_path(session, recipe, tmp_path):
    engine = engine_for(recipe, "ditto", PostOffice(participants(tmp_path)), tmp_path)
    engine.ledger.session = session
    ((_, answer),) = engine.exchange({"a-0": ({"kind": "describe"}, {})})
    assert "the session id of the run is not valid" in str(reply_of("a-0", answer).error)


def test_a_call_for_somebody_else_is_refused(recipe, tmp_path):
    post = PostOffice(participants(tmp_path))
    engine = engine_for(recipe, "ditto", post, tmp_path)
    header = {"kind": "call", "call": ["b-0", "train", 1, 0, 0]}
    parts = {"shared": encode({}), "own": encode({})}
    letter = {"a-0": (header | {"counted": None, "companion": None}, parts)}
    ((_, answer),) = engine.exchange(letter)
    assert str(reply_of("a-0", answer).error) == "client a-0: the call is for b-0"


def test_only_methods_of_clients_can_be_called(recipe, tmp_path):
    post = PostOffice(participants(tmp_path))
    engine = engine_for(recipe, "ditto", post, tmp_path)
    for method in ("start", "__init__", "no_such_method"):
        header = {"kind": "call", "call": ["a-0", method, 1, 0, 0]}
        parts = {"shared": encode({}), "own": encode({})}
        letter = {"a-0": (header | {"counted": None, "companion": None}, parts)}
        ((_, answer),) = engine.exchange(letter)
        assert "is not a method that clients answer" in str(reply_of("a-0", answer).error)


def test_what_an_error_said_stays_with_the_client(recipe, tmp_path):
    said: list[str] = []
    post = PostOffice(participants(tmp_path))
    client = post.participants["a-0"]
    client.say = said.append
    engine = engine_for(recipe, "ditto", post, tmp_path)
    ask(engine, "a-0", kind="describe")
    header = {"kind": "call", "call": ["a-0", "train", 1, 0, 0]}
    parts = {"shared": encode({}), "own": encode({"patient": "John Smith"})}
    letter = {"a-0": (header | {"counted": None, "companion": None}, parts)}
    ((_, answer),) = engine.exchange(letter)
    error = json.loads(answer["header"])["error"]
    assert error == "TypeError (see the client's own log)"
    assert "Traceback" in said[-1]


def test_nothing_is_answered_after_the_deadline(recipe, tmp_path):
    post = PostOffice(participants(tmp_path))
    engine = engine_for(recipe, "ditto", post, tmp_path)
    ask(engine, "a-0", kind="describe")
    weights = ask(engine, "a-0", kind="initial", companion=None, draw=0)["model"]
    session = {"session": engine.ledger.session, "number": 99, "seconds": 0, "told": None}
    session |= {"known": False}
    header = session | {
        "study": engine.study,
        "kind": "call",
        "call": ["a-0", "train", 1, 0, 0],
        "counted": None,
        "companion": None,
    }
    parts = {"shared": encode({"model": weights}), "own": encode({})}
    answer = post.participants["a-0"].answer({"header": json.dumps(header).encode()} | parts)
    error = reply_of("a-0", answer).error
    assert isinstance(error, Absent)
    assert str(error) == "client a-0: was too late"


def test_a_ledger_that_does_not_name_its_members_yet_is_read(tmp_path: Path):
    path = tmp_path / "exchanges.json"
    path.write_text('{"session": "s", "number": 3, "counted": {"a": [[1, 0]]}}')
    ledger = Ledger.open(path)
    assert (ledger.number, ledger.counted, ledger.members) == (3, {"a": [(1, 0)]}, {})


def test_a_client_with_an_older_state_is_refused(recipe, tmp_path):
    """Its folder is sound in itself, but of an earlier round, as after a restored backup."""
    post = PostOffice(participants(tmp_path / "homes"))
    home = post.participants["b-0"].folder
    engine = engine_for(recipe, "ditto", post, tmp_path / "run")
    run = run_with(recipe, "ditto", engine, tmp_path / "run")
    replace(run, schedule=Schedule(rounds=1)).go()
    shutil.copytree(home, tmp_path / "backup")
    replace(run, schedule=Schedule(rounds=2)).go()
    number = (home / engine.ledger.session / "last-message").read_bytes()
    shutil.rmtree(home)
    shutil.copytree(tmp_path / "backup", home)
    (home / engine.ledger.session / "last-message").write_bytes(number)
    post.participants |= participants(tmp_path / "homes", ["b-0"])
    with pytest.raises(ClientFailed) as caught:
        run.go()
    assert str(caught.value) == (
        "client b-0: the state of b-0 after round 2 is missing, or an older one was put in its "
        "place: start the run again in a new --out"
    )


def test_a_damaged_record_of_exchanges_is_named(recipe, tmp_path):
    ledger = Ledger(tmp_path / "exchanges.json", "a" * 32)
    ledger.count("b-0", (3, 1))
    ledger.save()
    assert Ledger.open(ledger.path).counted == {"b-0": [(3, 1)]}
    ledger.path.write_text(ledger.path.read_text().replace("3,", "2,"))
    with pytest.raises(Failure, match=r"exchanges\.json is damaged or was changed: start the run"):
        Ledger.open(ledger.path)


def signed(recipe: Recipe, folder: Path, fate: Any) -> tuple[Flower, PostOffice]:
    """Three clients and a server that sign what they send."""
    institutions = Institutions(folder / "institutions")
    post = PostOffice(participants(folder / "homes"), fate)
    post.envelopes = {
        name: ClientEnvelopes.of(ClientCredentials.open(institutions.folder / name, name))
        for name in NAMES
    }
    engine = engine_for(recipe, "ditto", post, folder / "run")
    engine.envelopes = ServerEnvelopes.of(institutions.server, institutions.server.admitted())
    return engine, post


def test_an_answer_of_another_client_is_refused_and_the_right_one_is_asked_again(recipe, tmp_path):
    undisturbed = outcome(recipe, tmp_path / "1", PostOffice(participants(tmp_path / "homes-1")))
    engine, post = signed(recipe, tmp_path, in_round_two("c-0", 2))
    observer = Listener()
    run_with(recipe, "ditto", engine, tmp_path / "run", observer).go()
    assert kept(tmp_path / "run", engine, post) == undisturbed[:3]
    assert not observer.failures
    asked = [
        header["call"][2] for name, header in post.headers if name == "b-0" and "call" in header
    ]
    assert asked == [1, 2, 2, 2, 3, 3]


def test_a_client_in_whose_name_others_answer_is_given_up_in_the_end(recipe, tmp_path):
    engine, _ = signed(recipe, tmp_path, in_round_two("c-0"))
    observer = Listener()
    run_with(recipe, "ditto", engine, tmp_path / "run", observer).go()
    assert [type(error) for error in observer.failures] == [RefusedReply]
    assert str(observer.failures[0]) == "client b-0: an answer is not signed by b-0"


def test_an_answer_without_a_signature_is_refused(recipe, tmp_path):
    engine, post = signed(recipe, tmp_path, lambda *_: "arrives")
    post.envelopes.clear()
    engine._look_again = 0.0
    ((_, answer),) = engine.exchange({"a-0": ({"kind": "describe"}, {})})
    assert isinstance(answer, RefusedReply)
    assert str(answer) == "client a-0: a message has no valid envelope"


def test_a_client_that_is_admitted_again_during_an_exchange_is_asked_at_once(recipe, tmp_path):
    """Its first message was under way when its admission was taken back: nobody answers that."""
    post = PostOffice(participants(tmp_path), offline={"a-0"})
    engine = engine_for(recipe, "ditto", post, tmp_path, deadline=60)
    begun = time.monotonic()

    def fate(client: str, header: dict[str, Any]) -> str:
        return "late" if client == "b-0" and time.monotonic() < begun + 0.5 else "arrives"

    def admitted(client: str) -> bool:
        since = time.monotonic() - begun
        if since > 1:
            post.offline.clear()  # b-0's turn comes after that of a-0, who is late
        return client != "b-0" or not 0.5 < since < 1

    post.fate, engine.admitted = fate, admitted
    answers = dict(engine.exchange({name: ({"kind": "describe"}, {}) for name in ("a-0", "b-0")}))
    assert time.monotonic() - begun < 10
    assert reply_of("b-0", answers["b-0"]).content["train"] > 0
    assert sorted(name for name, _ in post.headers) == ["a-0", "b-0", "b-0"]


def test_a_client_that_is_not_admitted_when_its_turn_comes_is_absent(recipe, tmp_path):
    post = PostOffice(participants(tmp_path))
    engine = engine_for(recipe, "ditto", post, tmp_path, deadline=60)
    engine.admitted = lambda client: client != "a-0"
    ((_, answer),) = engine.exchange({"a-0": ({"kind": "describe"}, {})})
    assert str(answer) == "client a-0: is no longer admitted"
    assert not post.headers
