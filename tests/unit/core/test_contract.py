"""Entries of answers: what each accepts, what it refuses, and how large it can be."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from consort.aggregation.eight_bits import Shortened, shorten
from consort.aggregation.low_rank import compress
from consort.core.contract import Count, Model, Number, Same, Whole
from consort.core.contract_groups import (
    ByClass,
    ByTask,
    Features,
    LabelCounts,
    Maybe,
    Optional,
    Several,
)
from consort.core.known import Form, Known
from consort.core.params import Params
from consort.core.wire import decode, encode
from consort.errors import Refused

MODEL = Params({
    "encoder.weight": torch.zeros(8, 6),
    "encoder.bias": torch.zeros(8),
    "heads.sign.weight": torch.zeros(3, 8),
    "heads.sign.bias": torch.zeros(3),
    "buffers.encoder.mean": torch.zeros(8),
})  # fmt: skip
KNOWN = Known(Form(MODEL), ("sign", "shape"), lambda: 20, features=8)
VECTOR = torch.zeros(8)


def changed(**tensors):
    return MODEL | {name.replace("_", "."): tensor for name, tensor in tensors.items()}


ENCODER = MODEL.only("encoder")
HALF = Params({name: tensor.half() for name, tensor in MODEL.items()})
DOUBLE = Params({name: tensor.double() for name, tensor in MODEL.items()})
TURNED = Params(dict(reversed(MODEL.items())))
LOW_RANK = compress(Params({"encoder.weight": torch.ones(8, 6)}), 0.9)
EIGHT_BITS = shorten(MODEL.only("heads"))

ACCEPTED = [
    (Model(), MODEL),
    (Model(), TURNED),
    (Model("encoder"), ENCODER),
    (Model("encoder", without=("buffers",)), ENCODER.without("buffers")),
    (Model(without=("encoder",)), MODEL.only("heads")),
    (Model("decoders"), Params({})),
    (Model(factors=True), MODEL),
    (Model(factors=True), MODEL.without("encoder.weight") | LOW_RANK),
    (Same(ENCODER), ENCODER),
    (Shortened(Model("heads")), EIGHT_BITS),
    (Count(), 0),
    (Count(), 20),
    (Count(4), 80),
    (Whole(-1, 3), -1),
    (Number(), 3),
    (Number(), -1e15),
    (Number(), np.float64(0.5)),
    (Number(0, 1, finite=False), math.nan),
    (Number(0, 1, finite=False), -math.inf),
    (Maybe(Number()), None),
    (Maybe(Number()), 1.0),
    (Optional(Number()), 1.0),
    (Several(Number(), 2), [1, 2.5]),
    (Several(Model(), 1), [MODEL]),
    (ByTask(Number()), {}),
    (ByTask(Number()), {"sign": 1}),
    (ByTask(Number(), every=True), {"shape": 2, "sign": 1}),
    (ByTask(ByClass(Features())), {"sign": {0: VECTOR, 99: VECTOR}}),
    (ByTask(ByClass(Features(of_head=True), of_head=True)), {"sign": {2: VECTOR}}),
    (Features(maps=True), VECTOR),
    (ByTask(LabelCounts()), {"sign": torch.tensor([20.0, 0.0, 0.0])}),
]
REFUSED = [
    (Model(), None),
    (Model(), dict(MODEL)),
    (Model(), [MODEL]),
    (Model(), MODEL.without("heads.sign.bias")),
    (Model(), MODEL | {"heads.more": torch.zeros(1)}),
    (Model(), MODEL.without("heads.sign.bias") | {"heads.sign.bais": torch.zeros(3)}),
    (Model(), HALF),
    (Model(), DOUBLE),
    (Model(), changed(encoder_bias=torch.zeros(9))),
    (Model(), changed(encoder_bias=torch.zeros(8, 1))),
    (Model(), changed(encoder_bias=torch.zeros(8, dtype=torch.int64))),
    (Model(), changed(encoder_bias=torch.zeros(8, dtype=torch.bool))),
    (Model(), MODEL.without("encoder.weight") | LOW_RANK),
    (Model("encoder"), MODEL),
    (Model("encoder"), Params({})),
    (Model("decoders"), MODEL.only("heads")),
    (Model(factors=True), MODEL | LOW_RANK),
    (Model(factors=True), MODEL.without("encoder.weight") | {"encoder.weight/factors": VECTOR}),
    *[(Model(factors=True), MODEL.without("encoder.weight") | {"encoder.weight/factors": t})
      for t in (torch.zeros(0, 14), torch.zeros(4, 14), torch.zeros(1, 13), torch.tensor(1.0),
                torch.zeros(1, 14).half())],
    (Model(factors=True), MODEL.without("encoder.bias") | {"encoder.bias/factors": VECTOR[None]}),
    (Same(ENCODER), MODEL),
    (Shortened(Model("heads")), MODEL.only("heads")),
    (Shortened(Model("heads")), {}),
    (Shortened(Model("heads")), EIGHT_BITS | {"more": EIGHT_BITS["heads.sign.bias"]}),
    *[(Shortened(Model("heads")), EIGHT_BITS | {"heads.sign.bias": part})
      for part in (
          None,
          {"counts": torch.zeros(3, dtype=torch.int8)},
          {"counts": torch.zeros(3), "unit": torch.tensor(1.0)},
          {"counts": torch.zeros(4, dtype=torch.int8), "unit": torch.tensor(1.0)},
          {"counts": torch.zeros(3, dtype=torch.int8), "unit": torch.tensor(-1.0)},
          {"counts": torch.zeros(3, dtype=torch.int8), "unit": torch.tensor(math.nan)},
          {"counts": torch.zeros(3, dtype=torch.int8), "unit": torch.tensor(1.0).double()},
          {"counts": torch.zeros(3, dtype=torch.int8), "unit": 1.0})],
    *[(Count(), value)
      for value in (-1, 21, 10**12, 10**400, True, 3.0, math.nan, math.inf, "3", None, [3],
                    torch.tensor(3), np.int64(3))],
    *[(Number(), value)
      for value in (math.nan, math.inf, 1e16, 10**400, True, "1", None, [1], torch.tensor(1.0))],
    (Number(0, 1), 1.1),
    (Number(0, 1, finite=False), 2.0),
    (Number(0, 1, finite=False), "nan"),
    (Maybe(Number()), "x"),
    (Optional(Number()), None),
    (Several(Number(), 2), [1]),
    (Several(Number(), 2), [1, 2, 3]),
    (Several(Number(), 2), (1, 2)),
    (Several(Number(), 2), {0: 1, 1: 2}),
    (Several(Number(), 2), "12"),
    (Several(Number(), 2), [1, [2]]),
    (ByTask(Number()), None),
    (ByTask(Number()), [1]),
    (ByTask(Number()), {"other": 1}),
    (ByTask(Number(), every=True), {}),
    (ByTask(Number(), every=True), {"sign": 1}),
    (ByTask(Number(), every=True), {"sign": 1, "other": 1}),
    (ByTask(Number()), {1: 1}),
    (ByTask(Number()), {"sign": "high"}),
    (ByTask(ByClass(Features())), {"sign": {-1: VECTOR}}),
    (ByTask(ByClass(Features())), {"sign": {"0": VECTOR}}),
    (ByTask(ByClass(Features())), {"sign": dict.fromkeys(range(21), VECTOR)}),
    (ByTask(ByClass(Features())), {"sign": [VECTOR]}),
    (ByTask(ByClass(Features())), {"sign": {0: torch.zeros(7)}}),
    (ByTask(ByClass(Features())), {"sign": {0: torch.zeros(8, 1)}}),
    (ByTask(ByClass(Features())), {"sign": {0: VECTOR.half()}}),
    (ByTask(ByClass(Features())), {"sign": {0: torch.tensor(1.0)}}),
    (ByTask(ByClass(Features())), {"sign": {0: 1.0}}),
    (ByTask(ByClass(Features(of_head=True), of_head=True)), {"sign": {3: VECTOR}}),
    (Features(maps=True), torch.zeros(8, 3, 3)),
    *[(ByTask(LabelCounts()), {"sign": counts})
      for counts in (torch.zeros(4), torch.tensor([-1.0, 1, 1]), torch.tensor([20.0, 1, 0]),
                     torch.tensor([math.nan, 1, 1]), torch.zeros(3, dtype=torch.int64))],
]  # fmt: skip


@pytest.mark.parametrize(("entry", "value"), ACCEPTED)
def test_honest_values_are_accepted_and_fit_the_size(entry, value):
    entry.check(value, "here", KNOWN)
    if not isinstance(value, np.floating):
        decode(encode({"here": value}), limits=entry.size(KNOWN).limits)


@pytest.mark.parametrize(("entry", "value"), REFUSED)
def test_everything_else_is_refused_in_a_short_sentence(entry, value):
    with pytest.raises(Refused) as refusal:
        entry.check(value, "here", KNOWN)
    assert len(str(refusal.value)) < 200


def test_a_limit_grows_with_the_model_and_not_more():
    size = Several(Model(), 5).size(KNOWN)
    assert size.data == 5 * sum(tensor.nbytes for tensor in MODEL.values())
    assert size.tensors == 5 * len(MODEL)


def test_the_number_of_examples_is_found_out_once_and_when_it_is_needed():
    asked = []
    known = Known(Form(MODEL), (), lambda: asked.append(1) or 7)
    Model().check(MODEL, "here", known)
    assert asked == []
    Count().check(7, "here", known)
    Count().check(3, "here", known)
    assert asked == [1]


def test_features_of_unknown_length_have_any_reasonable_one():
    known = Known(Form(MODEL), ("sign",), lambda: 20)
    ByTask(ByClass(Features())).check({"sign": {0: torch.zeros(5)}}, "here", known)
    with pytest.raises(Refused):
        Features().check(torch.zeros((1 << 20) + 1), "here", known)


def test_features_are_maps_only_where_kernels_follow():
    kernels = Form(MODEL | {"decoders.sign.weight": torch.zeros(4, 8, 3, 3)})
    known = Known(kernels, ("sign",), lambda: 20, features=8)
    for shape in ((8,), (8, 3), (8, 3, 3)):
        Features(maps=True).check(torch.zeros(shape), "here", known)
    for shape in ((7, 3, 3), (8, 2, 2, 2)):
        with pytest.raises(Refused):
            Features(maps=True).check(torch.zeros(shape), "here", known)
    with pytest.raises(Refused):
        Features().check(torch.zeros(8, 3), "here", known)
