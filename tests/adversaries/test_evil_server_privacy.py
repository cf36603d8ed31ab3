"""A server that wants to know what one client holds, against clients on machines of their own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator

from consort.core.messages import Call, Payload, Reply
from consort.core.params import Params
from consort.core.randomness import derive
from consort.core.wire import encode
from consort.deployment.credentials import ClientCredentials
from consort.deployment.participant import Participant
from consort.deployment.policy import Policy, StudyLimits
from consort.deployment.privacy_ledger import (
    FILE,
    PrivacyLedger,
    PrivacyLimit,
    epsilon_of,
    uses_of,
)
from consort.deployment.site import Identity
from consort.engines.flower import reply_of
from consort.experiment.loading import recipe_of
from consort.experiment.recipe import Recipe
from consort.federation.site import Use
from consort.protection.accounting import spent
from consort.protection.secure import masks
from consort.protection.secure.client import sign
from consort.protection.secure.masks import as_bytes
from tests.institutions import Institutions, holdings
from tests.letters import PostOffice, engine_for

COVERED = ("fedavg", "fedprox", "fedper", "fedrep", "fedbabu", "ditto", "scaffold", "fedmtl", "cfl")
"""Algorithms of every family that both levels of differential privacy accept."""
LISTED = Policy(approve="listed")
"""The owner approves of everything that Consort brings."""


def limited(limit: PrivacyLimit) -> Policy:
    """The same with a limit."""
    return replace(LISTED, privacy=limit)


def study(algorithm: str, **settings: Any) -> Recipe:
    """A small study of one algorithm."""
    table = {
        "clients": 3,
        "model": {"name": "mlp", "hidden": [8]},
        "run": {"rounds": 3},
        "local": {"lr": 0.1, "batch": 16},
        "algorithms": {algorithm: {}},
    }
    return recipe_of(table | settings, "evil")


class EvilServer:
    """Sends whatever it likes to clients, and keeps what they answer."""

    def __init__(
        self, folder: Path, recipe: Recipe, clients: Sequence[str] = ("a-0",), **owner: Any
    ) -> None:
        self.folder = folder
        self.asked = 0
        self.counted: dict[str, list[tuple[int, int]]] = {}
        self.clients = {
            name: Participant(
                *(name, {"data": holdings(name)}, None, folder / name),
                say=lambda _: 0,
                **({"policy": LISTED} | owner),
            )
            for name in clients
        }
        self.begin(recipe)

    def begin(self, recipe: Recipe, name: str = "server") -> None:
        """Starts a run, perhaps another one with the same clients."""
        self.recipe = recipe
        self.counted = {}
        (self.algorithm,) = recipe.algorithms
        post = PostOffice(self.clients)
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        self.engine = engine_for(self.recipe, self.algorithm, post, folder, deadline=60)

    def send(self, client: str, header: dict[str, Any], payload: Payload) -> Reply:
        """Any message at all."""
        parts = {"shared": encode({}), "own": encode(payload)}
        ((_, answer),) = self.engine.exchange({client: (header, parts)})
        return reply_of(client, answer)

    def ask(
        self,
        client: str,
        method: str,
        payload: Payload,
        at: tuple[int, int] = (1, 0),
        forget: bool = False,
    ) -> Reply:
        """Calls a method, at any time of the run; the client may be told to forget all before."""
        before = [] if forget else [stamp for stamp in self.counted.get(client, []) if stamp < at]
        self.asked += 1  # another turn makes another question: the same one has the same answer
        call = Call(client, method, *at, self.asked, {})
        self.counted[client] = before  # the client goes back to there
        counted = max(before, default=None)
        header = {"kind": "call", "call": call.header, "counted": counted, "companion": None}
        reply = self.send(client, header, payload)
        if reply.error is None and not call.evaluation:
            before.append(at)
        return reply

    def model(self, client: str = "a-0") -> Params:
        """The initial weights of a client."""
        reply = self.send(client, {"kind": "initial", "companion": None, "draw": 0}, {})
        assert reply.error is None, reply.error
        model: Params = reply.content["model"]
        return model

    def question(self, client: str = "a-0") -> Payload:
        """What the algorithm's `train` is sent in the first round."""
        model = self.model(client)
        match self.algorithm:
            case "fedper" | "fedrep" | "fedbabu":
                return {"encoder": model.only("encoder")}
            case "fedmtl":
                return {"mean": model}
            case "scaffold":
                return {"model": model, "control": model.without("buffers").zeros()}
        return {"model": model}


def numbers(content: Payload) -> torch.Tensor:
    """All parameters in an answer, as one vector."""
    found = [value for value in content.values() if isinstance(value, Params)]
    return torch.cat([t.flatten().double() for params in found for t in params.values()])


def given(reply: Reply) -> Payload:
    """The content of an answer, which must be one."""
    assert reply.error is None, reply.error
    return reply.content


def test_the_seed_of_the_run_does_not_tell_the_noise(tmp_path):
    """The server repeats all that a client draws, and subtracts what would be its noise."""
    noise = {"level": "client", "clip": 100.0, "noise": 0.01}
    evil = EvilServer(tmp_path / "evil", study("fedavg", privacy=noise))
    plain = EvilServer(tmp_path / "plain", study("fedavg"))
    question = evil.question()
    answer = given(evil.ask("a-0", "train", question))
    true = given(plain.ask("a-0", "train", question))["model"]
    generator = Generator().manual_seed(derive(0, 1, "a-0", "train", evil.asked) + 1)
    torch.randperm(answer["examples"], generator=generator)  # the order of the training examples
    guess = {n: torch.randn(t.shape, generator=generator) for n, t in true.items()}
    errors = numbers({"": answer["model"] - true - Params(guess)})
    assert float(errors.std()) > 0.9  # the deviation of the noise is 1


@pytest.mark.parametrize("level", ["client", "example"])
@pytest.mark.parametrize("algorithm", COVERED)
def test_the_same_question_never_gets_the_same_noise(algorithm, level, tmp_path):
    """Two answers at one (round, step), of a client that was told to forget all it did between."""
    privacy = {"level": level, "clip": 1.0, "noise": 2.0}
    local = {"lr": 1.0, "batch": 1000, "steps": 1}
    evil = EvilServer(tmp_path, study(algorithm, privacy=privacy, local=local))
    question = evil.question()
    one, two = (given(evil.ask("a-0", "train", question)) for _ in range(2))
    deviation = 2.0 if level == "client" else 2.0 / one.get("examples", 54)
    difference = (numbers(one) - numbers(two)) / math.sqrt(2)
    moved = difference[difference != 0]
    assert len(moved) > 0.5 * len(difference)
    assert float(moved.std()) > 0.7 * deviation


@pytest.mark.parametrize("algorithm", COVERED)
def test_training_cannot_be_asked_for_as_an_evaluation(algorithm, tmp_path):
    """What is an evaluation is known from the method; a header that says more is not believed."""
    privacy = {"level": "client", "clip": 1.0, "noise": 5.0}
    evil = EvilServer(tmp_path, study(algorithm, privacy=privacy))
    question = evil.question()
    header = {"kind": "call", "counted": None, "companion": None}
    call = Call("a-0", "train", 1, 0, 0, {}).header
    for told in ({"call": [*call, True]}, {"call": call, "evaluation": True}):
        reply = evil.send("a-0", header | told, question)
        assert reply.error is not None or float(numbers(reply.content).std()) > 3.0


class Eavesdropper(EvilServer):
    """Goes through the protocol of secure aggregation honestly, and then asks for more."""

    def __init__(self, folder: Path, count: int, policy: Policy = LISTED) -> None:
        names = [f"c{number}" for number in range(count)]
        super().__init__(folder, study("fedavg", secure={}), names, policy=policy)
        self.names = names
        self.needed = max(2, math.ceil(0.6 * count))
        self.masked: dict[str, torch.Tensor] = {}

    def keys(self, at: tuple[int, int] = (1, 0)) -> None:
        """The first step."""
        found = {c: given(self.ask(c, "secure.keys", {}, at)) for c in self.names}
        self.public = {client: content["keys"] for client, content in found.items()}
        self.told: Payload = {"clients": self.names, "keys": torch.stack([*self.public.values()])}

    def shares(self, at: tuple[int, int] = (1, 1)) -> None:
        """The second step."""
        found = {c: given(self.ask(c, "secure.shares", self.told, at)) for c in self.names}
        self.locked = {client: content["shares"] for client, content in found.items()}

    def train(self, client: str, at: tuple[int, int] = (1, 2), **more: Any) -> Reply:
        """The third step of one client."""
        self.start = self.model(client)
        payload = {"model": self.start, "hidden_among": self.names} | more
        return self.ask(client, "train", payload, at)

    def agreed(self) -> Eavesdropper:
        """All steps but the last."""
        self.keys()
        self.shares()
        for client in self.names:
            self.masked[client] = given(self.train(client))["masked"]
        return self

    def open(
        self, client: str, lost: Sequence[str] = (), at: tuple[int, int] = (1, 3), **more: Any
    ) -> Reply:
        """The last step of one client, with any claim about who was lost."""
        answered = [name for name in self.names if name not in lost]
        place = self.names.index(client)
        shares = torch.stack([self.locked[owner][place] for owner in [*answered, *lost]])
        payload = {"answered": answered, "lost": list(lost), "shares": shares}
        return self.ask(client, "secure.open", payload, at, **more)

    def unmasked(self, victim: str, seeds: dict[int, bytes], keys: dict[int, bytes]) -> Any:
        """The answer of one client, from shares of its seed and of its key."""
        numbers = self.masked[victim].numpy().copy().view("u8")
        masks.add_mask(numbers, masks.secret_of(seeds), -1)
        private = masks.secret_of(keys)
        for other in self.names:
            if other != victim:
                seed = masks.agreed_seed(private, as_bytes(self.public[other][1]))
                masks.add_mask(numbers, seed, -sign(victim, other))
        return masks.floating_point(numbers[:-1]) / int(numbers[-1])


def test_an_answer_is_not_hidden_among_fewer_than_the_owner_wants(tmp_path):
    """A server names few clients to one of them, so that it needs the help of fewer."""
    evil = Eavesdropper(tmp_path, 4, replace(LISTED, limits=StudyLimits(hidden_among=4)))
    evil.keys()
    lie = {"clients": evil.names[:3], "keys": evil.told["keys"][:3]}
    told = str(evil.ask("c0", "secure.shares", lie, (1, 1)).error)
    assert "hides its answer among 4 clients at least, by its policy" in told
    evil.shares()
    assert "hides its answer among 4" in str(evil.train("c0", hidden_among=evil.names[:3]).error)
    assert "masked" in given(evil.train("c1"))


@pytest.mark.parametrize("clients", [5, 10])
def test_shares_are_opened_once_whatever_the_server_says_was_lost(clients, tmp_path):
    """Shares of a client's seed and of its key together reveal its answer."""
    evil = Eavesdropper(tmp_path, clients)
    evil.agreed()
    victim, helpers = evil.names[0], evil.names[1 : evil.needed + 1]
    place = evil.names.index(victim)
    seeds, keys = dict[int, bytes](), dict[int, bytes]()
    for helper in helpers:
        seeds[evil.names.index(helper)] = as_bytes(given(evil.open(helper))["seeds"][place])
    for helper in helpers:
        again = evil.open(helper, [victim])
        if again.error is None:
            keys[evil.names.index(helper)] = as_bytes(again.content["keys"][0])
    if len(keys) == evil.needed:
        found = evil.unmasked(victim, seeds, keys)
        plain = EvilServer(tmp_path / "plain", study("fedavg"), [victim])
        plain.asked = 2 * clients  # the victim's was the first call after keys and shares
        true = given(plain.ask(victim, "train", {"model": evil.start}, (1, 0)))["model"]
        error = (found - numbers({"": true})).abs().max()
        pytest.fail(f"the answer of {victim} is known up to {error:.1e}")
    assert keys == {}


@pytest.mark.parametrize("at", [(1, 3), (1, 1), (1, 0), (2, 0)])
@pytest.mark.parametrize("forget", [False, True])
def test_every_step_of_secure_aggregation_is_taken_once(at, forget, tmp_path):
    """At the same time again, at an earlier or a later one, and after "nothing has counted"."""
    evil = Eavesdropper(tmp_path, 3)
    evil.keys()
    evil.shares()
    once = "taken once with the same keys, in order"
    assert once in str(evil.open("c0", at=at, forget=forget).error)  # not before its time
    assert once in str(evil.ask("c0", "secure.shares", evil.told, at, forget).error)
    for client in evil.names:
        evil.masked[client] = given(evil.train(client))["masked"]
    assert once in str(evil.train("c0", at=at).error)
    assert once in str(evil.ask("c0", "secure.shares", evil.told, at, forget).error)
    given(evil.open("c0"))
    for lost in ([], ["c2"]):
        again = evil.open("c0", lost, at=at, forget=forget)
        assert "no keys for secure aggregation" in str(again.error)
    assert "no keys for secure aggregation" in str(evil.train("c0", at=at).error)
    assert "no keys for secure aggregation" in str(
        evil.ask("c0", "secure.shares", evil.told, at, forget).error
    )


def test_opened_keys_are_gone_from_the_disk_and_others_are_for_their_owner_alone(tmp_path):
    evil = Eavesdropper(tmp_path, 3).agreed()
    (kept,) = (tmp_path / "c0").glob("*/one-time")
    assert kept.stat().st_mode & 0o077 == 0
    given(evil.open("c0"))
    assert not list((tmp_path / "c0").glob("*/one-time*"))


def test_a_client_that_is_killed_after_an_answer_does_not_give_it_again(tmp_path):
    """What is on disk decides, not what the process remembers."""
    evil = Eavesdropper(tmp_path, 3).agreed()
    given(evil.open("c0"))
    old = evil.clients["c0"]
    evil.clients["c0"] = Participant(
        "c0", old.brings, None, old.folder, say=lambda _: 0, policy=LISTED
    )
    assert "no keys for secure aggregation" in str(evil.open("c0", ["c2"]).error)


def test_keys_of_clients_that_do_not_exist_are_refused(tmp_path):
    """The server invents companions, to whom it has all keys, for a client that knows nobody."""
    institutions = Institutions(tmp_path / "institutions", ["c0", "c1"])
    identity = {n: credentials(institutions, n) for n in ("c0", "c1")}
    evil = Eavesdropper(tmp_path, 2)
    for name, client in evil.clients.items():
        client.identity = Identity.of(identity[name])
    found = {c: given(evil.ask(c, "secure.keys", {})) for c in evil.names}
    keys = torch.stack([content["keys"] for content in found.values()])
    proofs = [content["proof"] for content in found.values()]
    told = {"clients": evil.names, "keys": keys, "proofs": proofs}
    own = [masks.public_of(masks.new_private()) for _ in range(2)]
    swapped = torch.stack([keys[0], masks.as_rows(own)])
    lies = (
        told | {"keys": swapped},
        told | {"proofs": [proofs[0], proofs[0]]},
        {"clients": evil.names, "keys": keys},
        told | {"clients": ["c0", "c7"]},
        {"clients": ["c0", "invented"], "keys": swapped, "proofs": proofs},
    )
    for lie in lies:
        error = evil.ask("c0", "secure.shares", lie, (1, 1)).error
        assert "are not signed by it" in str(error)
    assert given(evil.ask("c0", "secure.shares", told, (1, 1)))["shares"].shape[0] == 2


def credentials(institutions: Institutions, name: str) -> ClientCredentials:
    return ClientCredentials.open(institutions.folder / name, name)


# What is charged


def charged(evil: EvilServer, client: str = "a-0") -> list[Use]:
    """All uses in the ledger of a client."""
    entries = PrivacyLedger(evil.clients[client].folder / FILE).read()
    return [use for data in entries for use in uses_of(entries, data)]


@pytest.mark.parametrize("level", ["client", "example"])
@pytest.mark.parametrize("algorithm", COVERED)
def test_a_client_that_is_told_to_forget_still_knows_what_it_spent(algorithm, level, tmp_path):
    evil = EvilServer(tmp_path, study(algorithm, privacy={"level": level, "noise": 2.0}))
    question = evil.question()
    for number in range(1, 4):
        given(evil.ask("a-0", "train", question, forget=True))
        (use,) = charged(evil)
        steps = use.count / number
        assert steps == (1 if level == "client" else int(steps))
    scores = given(evil.ask("a-0", "test", evaluated(evil, question), (1, 0), forget=True))
    assert scores["epsilon"] == pytest.approx(spent(charged(evil), 1e-5))
    assert charged(evil)[0].count >= 3 * steps


def evaluated(evil: EvilServer, question: Payload) -> Payload:
    """What `test` is sent."""
    return {key: value for key, value in question.items() if key != "control"}


@pytest.mark.parametrize("algorithm", ["fedavg", "fedavg_ft", "fedbabu", "fedper"])
def test_fine_tuning_for_an_evaluation_is_charged_each_time(algorithm, tmp_path):
    """Finding 12: its steps are steps, whether the run asks for them or the algorithm."""
    tuning = {"rounds": 3, "tuning_epochs": 2}
    recipe = study(algorithm, privacy={"level": "example", "noise": 1.5}, run=tuning)
    evil = EvilServer(tmp_path, recipe)
    question = evil.question()
    examples = given(evil.ask("a-0", "train", question))["examples"]
    epoch = -(-examples // 16)
    own = {"fedavg_ft": 1, "fedbabu": 10}  # the algorithm's own fine-tuning replaces the run's
    tuned = epoch * own.get(algorithm, 2)
    for number in (1, 2):
        scores = given(evil.ask("a-0", "test", question, forget=True))
        exact = [Use("example", 1.5, 16 / examples, epoch + number * tuned)]
        assert charged(evil) == exact
        assert scores["epsilon"] == spent(exact, 1e-5)


@pytest.mark.parametrize(("level", "epsilon"), [("client", 5.5), ("example", 1.0)])
def test_a_limit_holds_over_studies_sessions_and_restarts(level, epsilon, tmp_path):
    limit = PrivacyLimit(epsilon)
    privacy = {"level": level, "noise": 4.0}
    evil = EvilServer(tmp_path, study("fedavg", privacy=privacy), policy=limited(limit))
    answers, refusals = 0, 0
    for number in range(14):
        settings = {"privacy": privacy | {"noise": 4.0 + number % 3}, "run": {"rounds": number + 1}}
        evil.begin(study("fedavg", **settings), f"server {number}")
        old = evil.clients["a-0"]
        evil.clients["a-0"] = Participant(
            "a-0", old.brings, None, old.folder, say=lambda _: 0, policy=limited(limit)
        )
        reply = evil.ask("a-0", "train", evil.question(), forget=True)
        answers += reply.error is None
        refusals += "the limit of its data" in str(reply.error)
        assert epsilon_of(charged(evil), limit.delta) <= limit.epsilon
    assert answers + refusals == 14
    assert answers > 3
    assert refusals > 3
    last = [Use(level, 6.0, 1.0 if level == "client" else 16 / 54, 4)]
    assert epsilon_of([*charged(evil), *last], limit.delta) > 0.9 * limit.epsilon


def test_a_client_with_a_limit_does_not_train_without_noise(tmp_path):
    limit = PrivacyLimit(epsilon=8.0)
    evil = EvilServer(tmp_path / "plain", study("fedavg"), policy=limited(limit))
    reply = evil.send("a-0", {"kind": "describe"}, {})
    assert "takes part only in studies with [privacy]" in str(reply.error)
    for algorithm, tuning in (("fedavg", 1), ("fedbabu", 0)):
        run = {"rounds": 2, "tuning_epochs": tuning}
        recipe = study(algorithm, privacy={"level": "client", "noise": 5.0}, run=run)
        evil = EvilServer(tmp_path / algorithm, recipe, policy=limited(limit))
        question = evil.question()
        given(evil.ask("a-0", "train", question))
        error = evil.ask("a-0", "test", question).error
        assert "does not allow training without noise" in str(error)


def test_tiny_noise_and_a_large_delta_of_the_server_buy_nothing(tmp_path):
    """The ledger has a delta of its own, and noise that hides nothing costs everything."""
    for number, noise in enumerate((1e-300, 1e-9, 0.01)):
        for level in ("client", "example"):
            privacy = {"level": level, "noise": noise, "delta": 0.99}
            folder = tmp_path / f"{number} {level}"
            evil = EvilServer(
                folder, study("fedavg", privacy=privacy), policy=limited(PrivacyLimit(100.0))
            )
            reply = evil.ask("a-0", "train", evil.question())
            assert "the limit of its data" in str(reply.error)
            assert charged(evil) == []


def test_an_algorithm_that_is_not_covered_is_refused_by_the_client_too(tmp_path):
    evil = EvilServer(tmp_path, study("fedala", privacy={"level": "example"}))
    heard = []
    evil.clients["a-0"].say = heard.append
    reply = evil.send("a-0", {"kind": "describe"}, {})
    assert "UsageError (see the client's own log)" in str(reply.error)
    assert "FedALA may learn from its data in other ways" in heard[0]
