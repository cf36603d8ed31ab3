"""What is said between server and clients: nothing changes on the way, and nothing leaks."""

from __future__ import annotations

import pytest
from tests.contract.helpers import (
    NAMES,
    ROUGH,
    every_algorithm,
    finish,
    make,
    overhear,
    run_of,
)
from tests.helpers import assert_same, raw_bytes, tiny_federation

from consort.algorithms.registry import find_algorithm
from consort.core.params import has_role
from consort.core.wire import decode, encode, tensors_in
from consort.engines.states import StateStore

FLOAT = 4
HIDDEN, HEAD = 8 * 16 + 16, 16 * 3 + 3
"""Numbers in the encoder and in the head of the tiny model: weights and biases."""
LAYER, NORM, STATISTICS, SMALL_HEAD = 8 * 6 + 6, 6 + 6, 6 + 6, 6 * 3 + 3
"""Numbers in the rough model: a linear layer, BatchNorm's scale and shift, its statistics."""


def whole(encoder, head, statistics, clients):
    return encoder + head + statistics


def encoder_alone(encoder, head, statistics, clients):
    return encoder + statistics


def parameters_of_encoder(encoder, head, statistics, clients):
    return encoder


def parameters_of_whole(encoder, head, statistics, clients):
    return encoder + head


def model_and_encoder(encoder, head, statistics, clients):
    return 2 * encoder + head + statistics


def model_and_control(encoder, head, statistics, clients):
    return 2 * (encoder + head) + statistics


def two_models(encoder, head, statistics, clients):
    return 2 * (encoder + head + statistics)


def mean_feature(encoder, head, statistics, clients):
    return head // 3 - 1  # of the head's three outputs, each has a bias


def model_and_mean_feature(encoder, head, statistics, clients):
    return whole(encoder, head, statistics, clients) + mean_feature(
        encoder, head, statistics, clients
    )


def encoder_and_two_heads(encoder, head, statistics, clients):
    return encoder + 2 * head + statistics


def head_alone(encoder, head, statistics, clients):
    return head


def sums_of_heads(encoder, head, statistics, clients):
    return clients * head


def head_in_eight_bits(encoder, head, statistics, clients):
    return head / 4 + 2  # a byte for every number, and a unit for the weight and for the bias


def prototypes(encoder, head, statistics, clients):
    return 3 * mean_feature(encoder, head, statistics, clients)


def no_prototypes_yet(encoder, head, statistics, clients):
    return -prototypes(encoder, head, statistics, clients)


def generator_and_labels(encoder, head, statistics, clients):
    features = mean_feature(encoder, head, statistics, clients)
    return (512 + 3 + 1) * 512 + 4 * 512 + (512 + 1) * features + 3


def head_generator_and_labels(encoder, head, statistics, clients):
    return head + generator_and_labels(encoder, head, statistics, clients)


def no_generator_yet(encoder, head, statistics, clients):
    return -generator_and_labels(encoder, head, statistics, clients)


def model_and_prototypes(encoder, head, statistics, clients):
    return whole(encoder, head, statistics, clients) + prototypes(
        encoder, head, statistics, clients
    )


def model_statistics_and_prototypes(encoder, head, statistics, clients):
    both = 2 * prototypes(encoder, head, statistics, clients)
    return whole(encoder, head, statistics, clients) + both + 3


def head_and_labels(encoder, head, statistics, clients):
    return head + 3


def nothing(encoder, head, statistics, clients):
    return 0


FORMULAS = {
    "affr": whole,
    "affr_plus": whole,
    "apfl": whole,
    "centralised": whole,
    "cfl": whole,
    "ditto": whole,
    "ditto_parts": parameters_of_encoder,
    "fedadagrad": whole,
    "fedadam": whole,
    "fedala": whole,
    "fedamp": whole,
    "fedamp_parts": parameters_of_encoder,
    "fedas": encoder_alone,
    "fedavg": whole,
    "fedavg_ft": whole,
    "fedavg_parts": parameters_of_encoder,
    "fedavg_per_task": whole,
    "fedavgm": whole,
    "fedbabu": encoder_alone,
    "feddbe": (model_and_mean_feature, whole),
    "feddf": whole,
    "feddg_ga": whole,
    "feddyn": whole,
    "fedfew": two_models,
    "fedfew_plus": (encoder_and_two_heads, whole),
    "fedgen": (head_generator_and_labels, head_and_labels),
    "fedgh": (head_alone, prototypes),
    "fedhca2": parameters_of_encoder,
    "fedhca2_plus": parameters_of_whole,
    "fedkd": whole,  # matrices this small are no longer than their factors
    "fedmgda": whole,
    "fedmh": (sums_of_heads, head_alone),
    "fedmh_plus": head_in_eight_bits,
    "fedmtl": whole,
    "fednova": whole,
    "fedpac": (model_and_prototypes, model_statistics_and_prototypes),
    "fedper": encoder_alone,
    "fedproto": prototypes,
    "fedprox": whole,
    "fedrep": encoder_alone,
    "fedrod": whole,
    "fedsta": encoder_alone,  # tails come every ten rounds
    "fedtgp": prototypes,
    "fedyogi": whole,
    "fml": whole,
    "ifca": (two_models, whole),
    "lg_fedavg": head_alone,
    "local_everywhere": (nothing, whole),
    "local_only": nothing,
    "matfl": encoder_alone,
    "mfed": (model_and_encoder, whole),
    "mfed_plus": whole,
    "moon": whole,
    "own_or_common": parameters_of_whole,
    "per_fedavg": whole,
    "pfedme": whole,
    "qfedavg": whole,
    "scaffold": model_and_control,
}
"""Numbers that one client receives in a round, and sends; a pair where these are not the same."""

FIRST_ROUND = {
    "feddbe": (whole, mean_feature),
    "fedgen": (no_generator_yet, nothing),
    "fedpac": (no_prototypes_yet, nothing),
    "fedproto": (no_prototypes_yet, nothing),
    "fedtgp": (no_prototypes_yet, nothing),
}
"""Numbers that come on top in the first round."""


def test_every_algorithm_has_a_formula():
    assert FORMULAS.keys() == set(NAMES)


def traffic(rows, metric):
    sums = {}
    for row in rows:
        if row.metric == metric:
            key = row.round, row.client
            sums[key] = sums.get(key, 0) + row.value
    return sums


def expected_traffic(name, clients, numbers):
    """The bytes down and the bytes up, by round and client."""
    formulas = FORMULAS[name] if type(FORMULAS[name]) is tuple else [FORMULAS[name]] * 2
    usual = [FLOAT * formula(*numbers, len(clients)) for formula in formulas]
    more = [
        FLOAT * formula(*numbers, len(clients))
        for formula in FIRST_ROUND.get(name, (nothing, nothing))
    ]
    return [
        {(n, c): total for n in (1, 2, 3) for c in clients if (total := size + (n == 1) * extra)}
        for size, extra in zip(usual, more, strict=True)
    ]


@every_algorithm
def test_bytes_sent_follow_the_formula(name, tmp_path):
    run = run_of(name, tmp_path)
    rows = finish(run).rows
    down, up = expected_traffic(name, run.federation.client_ids, (HIDDEN, HEAD, 0))
    assert traffic(rows, "bytes_down") == down
    assert traffic(rows, "bytes_up") == up


@every_algorithm
@pytest.mark.parametrize("batchnorm", ["average", "local", "recompute"])
def test_statistics_are_counted_where_they_travel(name, batchnorm, tmp_path):
    run = run_of(name, tmp_path, tiny_federation(2, model=ROUGH, batchnorm=batchnorm))
    rows = finish(run).rows
    numbers = (LAYER + NORM, SMALL_HEAD, STATISTICS if batchnorm == "average" else 0)
    down, up = expected_traffic(name, run.federation.client_ids, numbers)
    assert traffic(rows, "bytes_down") == down
    assert traffic(rows, "bytes_up") == up


def names_said(exchanges):
    return {
        name
        for exchange in exchanges
        for content in (exchange.call.payload, exchange.reply.content)
        for name, _ in tensors_in(content)
    }


@every_algorithm
@pytest.mark.parametrize("batchnorm", ["local", "recompute"])
def test_statistics_that_stay_are_never_mentioned(name, batchnorm):
    federation = tiny_federation(3, model=ROUGH, batchnorm=batchnorm)
    exchanges, servers = overhear(make(name), federation)
    assert not any(has_role(said, "buffers") for said in names_said(exchanges))
    kept = {entry for server in servers for entry, _ in tensors_in(vars(server))}
    assert not any(has_role(entry, "buffers") for entry in kept)


@every_algorithm
def test_local_statistics_live_on_the_clients_and_differ(name, tmp_path):
    run = run_of(name, tmp_path, tiny_federation(3, model=ROUGH, batchnorm="local"))
    states = finish(run).states
    statistics = [encode(state["batchnorm statistics"]) for state in states.values()]
    assert len(set(statistics)) == len(run.federation.client_ids)
    mean = next(iter(states.values()))["batchnorm statistics"]["buffers.encoder.norm.running_mean"]
    assert bool((mean != 0).all())


@every_algorithm
def test_what_is_private_is_never_said(name):
    algorithm, federation, store = make(name), tiny_federation(3), StateStore()
    exchanges, _ = overhear(algorithm, federation, store=store)
    assert not any(
        has_role(said, role) for said in names_said(exchanges) for role in algorithm.private
    )
    said = {
        raw_bytes(tensor)
        for exchange in exchanges
        for _, tensor in tensors_in([exchange.call.payload, exchange.reply.content])
    }
    kept = {
        raw_bytes(tensor)
        for client in federation.client_ids
        for entry, tensor in tensors_in(store.load(client, (9, 0)))
        if any(has_role(entry, role) for role in algorithm.private)
    }
    assert not said & kept


def test_private_heads_are_kept_by_the_clients_that_have_them():
    """Without this, the test above could pass because nothing is kept at all."""
    for name in ("fedper", "fedrep", "local_only"):
        store = StateStore()
        overhear(make(name), tiny_federation(3), store=store)
        kept = [entry for entry, _ in tensors_in(store.load("c0", (9, 0)))]
        assert {"heads.classify.weight", "heads.classify.bias"} <= set(kept)


@every_algorithm
@pytest.mark.parametrize("batchnorm", ["average", "local"])
def test_neither_clients_nor_server_change_what_they_were_given(name, batchnorm):
    federation = tiny_federation(3, model=ROUGH, batchnorm=batchnorm)
    exchanges, _ = overhear(make(name), federation)
    for exchange in exchanges:
        assert encode(exchange.call.payload) == exchange.asked
        assert encode(exchange.reply.content) == exchange.answered


@every_algorithm
def test_a_round_leaves_the_state_it_was_given_alone(name):
    _, servers = overhear(make(name), tiny_federation(3), rounds=1, planned=3)
    _, longer = overhear(make(name), tiny_federation(3), rounds=3)
    assert encode(longer[0]) == encode(servers[0])
    assert encode(longer[1]) == encode(servers[1])


@every_algorithm
def test_server_state_survives_the_journey_to_bytes_and_back(name):
    state = find_algorithm(name).state_type()
    _, servers = overhear(make(name), tiny_federation(3))
    for server in servers:
        assert type(server) is state
        assert_same(decode(encode(server), {state.__name__: state}), server)


@every_algorithm
def test_scores_are_finite_numbers_by_model_split_and_task(name):
    algorithm = make(name)
    exchanges, _ = overhear(algorithm, tiny_federation(2))
    for exchange in exchanges:
        if exchange.call.evaluation:
            assert algorithm.reports in exchange.reply.content
            contents = exchange.reply.content.values()
            for splits in (content for content in contents if isinstance(content, dict)):
                assert splits.keys() == {"validation", "test"}
                assert all(scores["n"] == 10 for scores in splits.values())
                assert all(0 < s["tasks"]["classify"]["loss"] < 9 for s in splits.values())
