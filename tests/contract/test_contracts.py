"""What clients answer is declared by every algorithm, and honest answers are as declared."""

from __future__ import annotations

import dataclasses

import pytest
from tests.contract.helpers import NAMES, ROUGH, every_algorithm, make, overhear
from tests.helpers import (
    TWO_TASKS,
    tiny_federation,
    two_task_federation,
    unlike_labels_federation,
    unlike_models_federation,
)

from consort.algorithms.registry import find_algorithm
from consort.core.clients import answers_of, is_on_client
from consort.core.wire import decode
from consort.engines.answers import Answers
from consort.errors import UsageError

FEDERATIONS = {
    "alike": lambda: tiny_federation(3),
    "two tasks": lambda: tiny_federation(3, tasks=TWO_TASKS),
    "other tasks": lambda: two_task_federation(3),
    "other labels": lambda: unlike_labels_federation(3),
    "other models": lambda: unlike_models_federation(3),
    "BatchNorm": lambda: tiny_federation(3, model=ROUGH),
    "own BatchNorm": lambda: tiny_federation(3, model=ROUGH, batchnorm="local"),
}
VARIANTS = {
    "affr": [{"gap": "loss"}, {"gap": "relative_loss"}],
    "fedfew": [{"mode": "gradient"}, {"loss": "received"}],
    "fedfew_plus": [
        {"sample": False},
        {"share_encoder": False, "own_head": False, "regret": False},
    ],
    "fedhca2_plus": [{"as_one": False}, {"guard": False}],
    "fedmh": [{"one_by_one": True}, {"search": "all"}],
    "fedmh_plus": [{"eight_bits": False}, {"weighting": "exact"}],
    "fedsta": [{"every": 1}],
    "mfed_plus": [{"guard": False}],
    "per_fedavg": [{"approximation": "hessian_free"}],
}


def client_methods(name):
    cls = find_algorithm(name)
    methods = {key: getattr(cls, key) for key in dir(cls)}
    return {key: method for key, method in methods.items() if is_on_client(method)}


@every_algorithm
def test_every_method_of_clients_declares_what_it_answers(name):
    methods = client_methods(name)
    assert methods
    assert [key for key, method in methods.items() if answers_of(method) is None] == []


def assert_honest(algorithm, federation):
    """Two rounds; every answer is accepted, and is within the limits of its message."""
    try:
        exchanges, _ = overhear(algorithm, federation)
    except UsageError:
        return False
    federation = federation.pooled() if algorithm.pools_data else federation
    table = algorithm.companion
    answers = Answers.sent(
        federation if table is None else federation.accompanied(table), algorithm
    )
    for exchange in exchanges:
        call, reply = exchange.call, exchange.reply
        answers.check(call, reply.content, reply.tensors)
        decode(exchange.answered, limits=answers.limits(call))
    return True


@every_algorithm
def test_honest_answers_are_accepted_whatever_the_clients_are_like(name):
    taken = [kind for kind, clients in FEDERATIONS.items() if assert_honest(make(name), clients())]
    assert "alike" in taken


@pytest.mark.parametrize(
    ("name", "options"), [(name, one) for name, many in VARIANTS.items() for one in many], ids=str
)
def test_honest_answers_are_accepted_with_every_option_that_changes_them(name, options):
    algorithm = dataclasses.replace(make(name), **options)
    assert assert_honest(algorithm, tiny_federation(3, tasks=TWO_TASKS))


def test_limits_are_not_far_above_what_is_sent():
    exchanges, _ = overhear(make("fedavg"), tiny_federation(2))
    answers = Answers.sent(tiny_federation(2), make("fedavg"))
    trained = [exchange for exchange in exchanges if exchange.call.method == "train"]
    for exchange in trained:
        assert answers.limits(exchange.call).bytes < len(exchange.answered) + (1 << 17)


def test_there_are_algorithms():
    assert len(NAMES) >= 58
