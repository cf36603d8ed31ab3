"""Secure aggregation: the server sees means alone, and loses nothing with those it loses."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from tests.contract.helpers import Listener
from tests.helpers import assert_same, tiny_federation
from torch import Generator

from consort.algorithms.fedavg import FedAvg, Server
from consort.algorithms.fedprox import FedProx
from consort.algorithms.qfedavg import QFedAvg
from consort.algorithms.scaffold import Scaffold
from consort.attacks.poisoning import Attack
from consort.core.algorithm import Clients, on_client
from consort.core.messages import Call, Payload, Replies, Reply
from consort.core.params import Params
from consort.engines.embedded import Embedded
from consort.engines.host import ClientHost
from consort.engines.middleware import Absent, Wrapper
from consort.engines.states import StateStore
from consort.errors import ClientFailed, Failure, Refused, UsageError
from consort.experiment.loading import recipe_of
from consort.experiment.preflight import preflight
from consort.experiment.preparation import prepare_run, resume_run
from consort.federation.protection import Request
from consort.federation.site import ONCE
from consort.protection.dp import Privacy
from consort.protection.robust import Robust
from consort.protection.secure import client as secure_client
from consort.protection.secure.masks import as_bytes, as_rows, secret_of
from consort.protection.secure.server import Exchange, Secured
from consort.protection.secure.settings import Secure
from consort.run.run import Run
from consort.run.schedule import Schedule
from consort.training.client import Client
from consort.training.local import LocalTraining

pytest.importorskip("cryptography", reason="pip install 'fedconsort[secure]'")
pytest.importorskip("Crypto", reason="pip install 'fedconsort[secure]'")

LOCAL = LocalTraining(lr=0.1, batch=16)
CLIENTS = 5
MEANS = {"model": "examples"}


@dataclass
class Losing(Wrapper):
    """Some clients do not answer some questions; what others say is kept."""

    lost: dict[str, str]
    """By client: the method of the first call that it does not answer."""
    gone: set[str] = field(default_factory=set)
    heard: list[tuple[Call, Reply]] = field(default_factory=list)

    def deliver(self, calls: Sequence[Call]) -> Iterator[Reply]:
        for call, reply in zip(calls, self.engine.deliver(calls), strict=True):
            if not call.evaluation and self.lost.get(call.client) == call.method:
                self.gone.add(call.client)
            if call.client in self.gone and not call.evaluation:
                reply = Reply(call.client, error=Absent(call.client, "is gone"))
            self.heard.append((call, reply))
            yield reply


def finished(*protections, algorithm=None, lost=None, clients=CLIENTS, rounds=1, **run):
    engines, observer = [], Listener()

    def engine(host: ClientHost) -> Losing:
        engines.append(Losing(Embedded(host), lost or {}))
        return engines[0]

    federation = tiny_federation(clients).protected(*protections)
    made = Run(
        federation,
        algorithm or FedAvg(LOCAL),
        Schedule(rounds),
        engine=engine,
        observer=observer,
        **run,
    )
    made.go()
    return made, engines[0].heard, [str(error) for error in observer.failures]


@pytest.mark.parametrize("algorithm", [FedAvg(LOCAL), FedProx(LOCAL), Scaffold(LOCAL)])
def test_means_are_the_plain_ones_up_to_their_last_digits(algorithm):
    plain, _, _ = finished(algorithm=algorithm)
    hidden, _, _ = finished(Secure(), algorithm=algorithm)
    for entry, params in vars(plain.server).items():
        for name, tensor in params.items():
            # Half a unit of 2^-32 per client over at least as many examples, and fp32's own.
            near = torch.allclose(getattr(hidden.server, entry)[name], tensor, 1e-6, 2**-33 + 1e-7)
            assert near, name


class Office:
    """Clients without models: their memories, and the four steps of one exchange."""

    def __init__(self, *clients: str, secure: Secure | None = None) -> None:
        self.secure = secure = secure or Secure()
        self.states: dict[str, dict] = {client: {} for client in clients}
        self.exchange = Exchange(self, secure.needed, lambda _: None, {})
        self.contents: dict[str, Payload] = {}
        self.lost: set[str] = set()

    def deliver(self, calls: Sequence[Call]) -> Iterator[Reply]:
        for call in calls:
            request = self.request(call)
            if call.method in secure_client.STEPS:
                step = secure_client.STEPS[call.method]
                content = step(self.secure.needed, request, **call.payload)
            else:
                among, content = call.payload["hidden_among"], self.contents[call.client]
                secure_client.ready(self.secure.needed, request, among)
                content = secure_client.hidden(request, among, content, MEANS)
            late = call.method == "train" and call.client in self.lost
            yield Reply(call.client, content, Absent(call.client, "is gone") if late else None)

    def request(self, call: Call) -> Request:
        """A request that changes the client's memory."""
        return Request(call, self.states[call.client], Generator())

    def close(self) -> None:
        pass

    def mean(self, contents: dict[str, Payload], lost: Sequence[str] = ()) -> Params:
        self.contents, self.lost = contents, set(lost)
        calls = [Call(client, "train", 1, 0, 0, {}) for client in contents]
        replies = Secured(self, self.secure.needed, FedAvg(), lambda _: None).deliver(calls)
        return Replies({r.client: r.content for r in replies if not r.error}).mean(
            "model", "examples"
        )


def answer(weight: int, *numbers: float) -> Payload:
    return {"model": Params({"w": torch.tensor(numbers)}), "examples": weight}


def test_a_mean_has_every_bit():
    answers = {"a": answer(3, 1.5, -2.0), "b": answer(1, 0.25, 8.0), "c": answer(0, 1e9, 7.0)}
    assert_same(Office(*answers).mean(answers), Params({"w": torch.tensor([1.1875, 0.5])}))


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_a_mean_over_those_who_stay_is_that_of_fractions(data):
    count = data.draw(st.integers(2, 7))
    ids = [f"c{number}" for number in range(count)]
    numbers = st.floats(-1e3, 1e3, width=32)
    answers = {c: answer(data.draw(st.integers(1, 9999)), data.draw(numbers)) for c in ids}
    secure = Secure(data.draw(st.sampled_from([0.51, 0.6, 1.0])))
    most = count - secure.needed(count)
    lost = data.draw(st.lists(st.sampled_from(ids), max_size=most, unique=True))
    found = Office(*ids, secure=secure).mean(answers, lost)
    stay = [answers[client] for client in ids if client not in lost]
    total = sum(one["examples"] for one in stay)
    exact = sum(Fraction(float(one["model"]["w"])) * one["examples"] for one in stay) / total
    assert float(found["w"]) == pytest.approx(float(exact), rel=1e-7, abs=2.0**-33)


def test_without_any_weight_there_is_no_mean():
    answers = {"a": answer(0, 1.0), "b": answer(0, 2.0)}
    with pytest.raises(UsageError, match="must have a positive sum, found 0"):
        Office(*answers).mean(answers)


def test_what_the_server_gets_of_one_client_looks_like_nothing_at_all():
    """Each of four million bits of equal answers is 0 or 1, whatever stands beside it."""
    numbers = [1.0] * 2**13
    answers = {"a": answer(5, *numbers), "b": answer(7, *numbers)}
    office = Office(*answers)
    heard = []
    office.deliver = lambda calls, plain=office.deliver: heard_by(heard, plain(calls))
    for _ in range(4):
        office.mean(answers)
    masked = [r.content["masked"].numpy() for r in heard if "masked" in r.content]
    assert len(masked) == 8
    for array in masked:
        for place in range(8):
            counts = np.bincount(array.view(np.uint8)[place::8], minlength=256)
            assert chisquare(counts).pvalue > 1e-9
        assert len(set(array.tolist())) == len(array)
    assert len({array.tobytes() for array in masked}) == 8  # other masks every time
    both = masked[0].view(np.uint64) + masked[1].view(np.uint64)
    assert len(set(both.tolist())) == len(both)  # own masks are still on the sum of both


def heard_by(heard: list[Reply], replies: Iterator[Reply]) -> Iterator[Reply]:
    for reply in replies:
        heard.append(reply)
        yield reply


def test_nothing_but_masked_answers_and_locked_shares_leaves_a_client():
    _, heard, _ = finished(Secure())
    sent = {
        call.method: {key for other, reply in heard if other.method == call.method for key in
                      reply.content} for call, _ in heard if not call.evaluation
    }  # fmt: skip
    assert sent == {
        "secure.keys": {"keys"},
        "secure.shares": {"shares"},
        "train": {"masked", "layout"},
        "secure.open": {"seeds"},
    }
    layouts = {str(r.content["layout"]) for c, r in heard if c.method == "train"}
    assert len(layouts) == 1
    for call, reply in heard:
        if call.method == "train":
            assert reply.content["masked"].dtype == torch.int64


STEPS = ("secure.keys", "secure.shares", "train", "secure.open")


@pytest.mark.parametrize("method", STEPS)
def test_two_who_are_lost_at_any_step_are_missing_and_nothing_else(method):
    lost = dict.fromkeys(("c1", "c3"), method)
    hidden, heard, told = finished(Secure(), lost=lost)
    assert sum(call.method == "secure.open" and not r.error for call, r in heard) == 3
    assert any("client c1: is gone" in line for line in told)
    here = {} if method == "secure.open" else dict.fromkeys(lost, "train")
    plain, _, _ = finished(lost=here)
    assert (hidden.server.model - plain.server.model).norm() < 1e-6


@pytest.mark.parametrize("method", ["train", "secure.open"])
def test_a_round_in_which_too_few_stay_is_skipped_and_says_so(method):
    run, _, told = finished(Secure(), lost=dict.fromkeys(("c0", "c1", "c3"), method))
    assert_same(run.server, run.algorithm.start(run.federation.roster))
    assert told[-1] == (
        "client (all): round 1 is skipped: [secure] needs 3 of 5 clients until the end of a round, "
        "but 2 are left"
    )


def test_seeds_and_keys_of_a_run_do_not_matter():
    one, heard, _ = finished(Secure(), algorithm=Scaffold(LOCAL), rounds=2)
    two, others, _ = finished(Secure(), algorithm=Scaffold(LOCAL), rounds=2)
    assert_same(one.server, two.server)
    assert not torch.equal(heard[0][1].content["keys"], others[0][1].content["keys"])


def test_keys_are_forgotten_after_an_exchange():
    run, _, _ = finished(Secure(), algorithm=Scaffold(LOCAL))
    host = ClientHost(run.federation, run.algorithm, 0, 1, StateStore())
    call = Call("c0", "secure.keys", 1, 0, 0, {})
    (reply,) = host.answer([call])
    assert reply.error is None
    assert ONCE in host.store.load("c0", (1, 1))
    answers = {"a": answer(1, 1.0), "b": answer(1, 2.0)}
    office = Office(*answers)
    office.mean(answers)
    assert office.states == {"a": {}, "b": {}}


def exchanged(*clients: str) -> Office:
    """An office in which everybody has given shares and has hidden an answer."""
    office = agreed(*clients)
    for client in clients:
        hide(office, client, clients)
    return office


def agreed(*clients: str) -> Office:
    """An office in which everybody has given shares."""
    office = Office(*clients)
    office.exchange.calls = {c: Call(c, "train", 1, 0, 0, {}) for c in clients}
    office.exchange.agree()
    return office


def hide(office: Office, client: str, among: Sequence[str]) -> Payload:
    request = office.request(Call(client, "train", 1, 2, 0, {}))
    secure_client.ready(office.secure.needed, request, among)
    return secure_client.hidden(request, among, answer(1, 1.0), MEANS)


def opened(office: Office, client: str, answered: Sequence[str], lost: Sequence[str]) -> Payload:
    place = list(office.states).index(client)
    shares = torch.stack([office.exchange.shares[owner][place] for owner in [*answered, *lost]])
    request = office.request(Call(client, "secure.open", 1, 3, 0, {}))
    return secure_client.open_shares(office.secure.needed, request, answered, lost, shares)


def test_a_client_never_opens_both_shares_of_another_nor_a_sum_of_few():
    office = exchanged("a", "b", "c", "d")
    for lost in (["c"], [], ["c", "d"]):
        with pytest.raises(Refused, match="clients among which it masked its answer"):
            opened(office, "a", ["a", "b", "c"], lost)
    with pytest.raises(Refused, match="opens no shares for a sum over 2 clients"):
        opened(office, "a", ["a", "b"], ["c", "d"])
    with pytest.raises(Refused, match="opens no shares for a sum over 3 clients"):
        opened(office, "a", ["b", "c", "d"], ["a"])
    assert opened(office, "a", ["a", "b", "c"], ["d"]).keys() == {"seeds", "keys"}
    with pytest.raises(Refused, match="no keys for secure aggregation"):
        opened(office, "a", ["a", "b", "c"], ["d"])


def test_a_client_hides_one_answer_and_among_enough_others():
    """Else a server could ask for its masks one by one, or for an answer that has none."""
    office = agreed("a", "b", "c", "d")
    with pytest.raises(Refused, match="clients whose keys it does not have"):
        hide(office, "a", ["a", "b", "e"])
    for few in (["a"], ["a", "b"], ["a", "b", "b"]):
        with pytest.raises(Refused, match="to mask its answer among only"):
            hide(office, "a", few)
    hide(office, "a", ["a", "b", "c"])
    with pytest.raises(Refused, match="taken once with the same keys, in order"):
        hide(office, "a", ["a", "b", "c", "d"])


def test_fewer_than_needed_cannot_open_what_one_client_has_sent():
    """Two of four with the server's part have nothing but a wrong seed."""
    office = agreed("a", "b", "c", "d")
    secret = as_bytes(office.states["b"][ONCE]["seed"])
    for client in "abcd":
        hide(office, client, "abcd")
    seeds = {}
    for place, client in enumerate("abc"):
        seeds[place] = as_bytes(opened(office, client, list("abcd"), [])["seeds"][1])
    assert secret_of(seeds) == secret
    assert secret_of({place: seeds[place] for place in (0, 2)}) != secret


@pytest.mark.parametrize(("content", "reason"), [
    (answer(1, 1.0) | {"loss": 2.0}, "'loss' is in only one of them"),
    ({"model": answer(1, 1.0)["model"]}, "its weight 'examples' is None"),
    (answer(1, 1.0) | {"examples": 0.5}, "needs a whole number"),
    (answer(1, 1.0) | {"model": torch.zeros(2)}, "'model' in its answer is not `Params`"),
    (answer(1, float("nan")), "cannot add up"),
])  # fmt: skip
def test_an_answer_that_cannot_be_added_up_stays_with_its_client(content, reason):
    with pytest.raises(Failure, match=reason):
        secure_client.laid_out(content, MEANS, 3)


@dataclass(frozen=True)
class Odd(FedAvg):
    """FedAvg in which c1 answers something else."""

    @on_client
    def train(self, client: Client, model: Params) -> Payload:
        found = super().train(client, model)
        return found | {"model": found["model"].only("heads")} if client.id == "c1" else found


def test_an_answer_of_another_shape_is_refused_and_the_round_goes_on():
    hidden, _, told = finished(Secure(), algorithm=Odd(LOCAL))
    assert told == ["client c1: its answer has other parameters than most answers"]
    plain, _, _ = finished(lost={"c1": "train"})
    assert (hidden.server.model - plain.server.model).norm() < 1e-6


@dataclass
class Garbling(Wrapper):
    """Client c1 answers one question with nonsense."""

    method: str

    def deliver(self, calls: Sequence[Call]) -> Iterator[Reply]:
        for call, reply in zip(calls, self.engine.deliver(calls), strict=True):
            bad = call.client == "c1" and call.method == self.method
            yield replace(reply, content={"keys": as_rows([b"?"]), "layout": 3}) if bad else reply


@pytest.mark.parametrize("method", STEPS)
def test_nonsense_is_refused_and_the_round_goes_on(method):
    observer = Listener()
    federation = tiny_federation(CLIENTS).protected(Secure())
    run = Run(federation, FedAvg(LOCAL), Schedule(1), observer=observer,
              engine=lambda host: Garbling(Embedded(host), method))  # fmt: skip
    run.go()
    assert [error.client for error in observer.failures] == ["c1"]
    assert "not valid in the protocol of [secure]" in str(observer.failures[0])


@dataclass(frozen=True)
class Careless(FedAvg):
    """Says that it needs the mean model alone, and looks at what it should not."""

    look: str = ""

    averages: ClassVar = {"model": "examples"}

    def round(self, server: Server, clients: Clients) -> Server:
        replies = clients.ask(self.train, model=server.model)
        match self.look:
            case "each":
                replies.each("examples")
            case "iterate":
                [list(reply) for reply in replies.values()]
            case "length":
                [len(reply) for reply in replies.values()]
            case "some":
                Replies(dict(list(replies.items())[1:])).mean("model", "examples")
        return Server(replies.mean("model"))


@pytest.mark.parametrize(("look", "what"), [
    ("each", "'examples' of single clients"),
    ("iterate", "the answers of single clients"),
    ("length", "the answers of single clients"),
    ("some", "another mean of 'model' than the one it has declared"),
    ("", "another mean of 'model' than the one it has declared"),
])  # fmt: skip
def test_single_answers_cannot_be_looked_at(look, what):
    with pytest.raises(UsageError, match=f"Careless needs {what}, which secure aggregation hides"):
        finished(Secure(), algorithm=Careless(LOCAL, look=look))


@dataclass(frozen=True)
class Talkative(FedAvg):
    """Sends what it promises to keep."""

    private: ClassVar = ("heads",)


def test_what_is_private_is_not_sent_in_a_mask_either():
    with pytest.raises(ClientFailed, match="is private in this algorithm and was not sent"):
        finished(Secure(), algorithm=Talkative(LOCAL))


class Leaking(FedAvg):
    """Its evaluation sends the model back."""

    @on_client
    def test(self, client, model):
        return {"model": model}


def test_an_answer_in_the_clear_is_not_given():
    federation = tiny_federation(2).protected(Secure())
    host = ClientHost(federation, Leaking(LOCAL), 0, 1, StateStore())
    payload = {"model": federation.initial("c0")}
    for method, reason in (("train", "it sends only masked answers"), ("test", "only scores")):
        (reply,) = host.answer([Call("c0", method, 1, 0, 0, payload)])
        assert reason in str(reply.error)


def test_who_was_not_told_to_hide_answers_gives_none_to_a_server_that_does():
    federation = tiny_federation(2)
    host = ClientHost(federation, FedAvg(LOCAL), 0, 1, StateStore())
    payload = {"model": federation.initial("c0"), "hidden_among": ["c0", "c1"]}
    for method, asked in (("train", payload), ("secure.keys", {})):
        (reply,) = host.answer([Call("c0", method, 1, 0, 0, asked)])
        assert reply.error is not None


def test_what_needs_single_answers_is_refused_before_the_first_round():
    for arguments, reason in (
        ({"other": Robust("median")}, r"\[robust\] needs single answers"),
        ({"other": Robust(clip=1.0)}, r"\[robust\] needs single answers"),
        ({"other": Attack(["sign_flip"])}, r"\[attack\] needs single answers"),
        ({"clients": 1}, "only one takes part"),
        ({"algorithm": QFedAvg(LOCAL)}, "for QFedAvg they are not enough"),
    ):
        others = [arguments.pop("other")] if "other" in arguments else []
        with pytest.raises(UsageError, match=reason):
            finished(Secure(), *others, **arguments)


def test_attackers_who_learn_from_wrong_labels_are_hidden_too():
    finished(Secure(), Attack(["label_flip"]))


def test_noise_is_added_before_the_masks():
    privacy = Privacy("client", noise=0.5)
    runs = [finished(privacy, *secure, clients=2)[0] for secure in ([], [Secure()])]
    plain, hidden = runs
    assert (hidden.server.model - plain.server.model).norm() < 1e-6
    spent = [[row.value for row in run.history if row.metric == "epsilon"] for run in runs]
    assert spent[0] == spent[1] != []


RECIPE = """
clients = 3
secure = { threshold = 0.9 }
data = { name = "synthetic_vectors", classes = 3, features = 4, examples = 60 }
model = { name = "mlp", hidden = [4] }
run = { rounds = 1 }
[algorithms.fedavg]
[algorithms.ours]
kind = "fedavg"
secure = { threshold = 0.7 }
[algorithms.fedamp]
"""


def test_a_recipe_asks_for_it_and_a_comparison_refuses_it_at_once(tmp_path):
    recipe = recipe_of(tomllib.loads(RECIPE), "recipe")
    assert recipe.protections("fedavg") == (Secure(0.9),)
    assert recipe.protections("ours") == (Secure(0.7),)
    empty = recipe_of(tomllib.loads(RECIPE) | {"secure": {}}, "recipe")
    assert empty.protections("fedavg") == (Secure(),)
    none = {k: v for k, v in tomllib.loads(RECIPE).items() if k != "secure"}
    assert recipe_of(none, "recipe").protections("fedavg") == ()
    with pytest.raises(UsageError, match=r"fedamp: \[secure\] shows the server nothing but means"):
        preflight(recipe, ["fedavg", "fedamp"], 0, None)
    run = prepare_run(recipe, "ours", 0, tmp_path)
    assert run.federation.protections == (Secure(0.7),)
    assert json.loads((tmp_path / "run.json").read_text())["secure"] == {"threshold": 0.7}
    run.go()
    assert resume_run(tmp_path).federation.protections == (Secure(0.7),)
    with pytest.raises(UsageError, match=r"key secure\.threshold"):
        recipe_of(tomllib.loads(RECIPE) | {"secure": {"threshold": 0.5}}, "recipe")


def test_a_subclass_with_a_round_of_its_own_says_anew_what_it_needs():
    assert FedProx.needed_means() == FedAvg.averages
    assert QFedAvg.needed_means() == {}
    assert Careless.needed_means() == Careless.averages
