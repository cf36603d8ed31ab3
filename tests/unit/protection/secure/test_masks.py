"""The parts of secure aggregation: keys, locks, shares, masks, whole numbers."""

from __future__ import annotations

import os
import sys
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from consort.errors import Failure, UsageError
from consort.protection.secure import masks

pytest.importorskip("cryptography", reason="pip install 'fedconsort[secure]'")
pytest.importorskip("Crypto", reason="pip install 'fedconsort[secure]'")


def pair() -> tuple[bytes, bytes]:
    private = masks.new_private()
    return private, masks.public_of(private)


def test_two_agree_and_nobody_else_does():
    (mine, my_public), (theirs, their_public), (_, other) = pair(), pair(), pair()
    secret = masks.agreed_seed(mine, their_public)
    assert secret == masks.agreed_seed(theirs, my_public)
    assert secret != masks.agreed_seed(mine, other)
    assert secret != masks.agreed(mine, their_public, "share", masks.SEED)
    assert len(secret) == masks.SEED


def test_what_is_locked_is_read_by_its_owner_under_its_label_alone():
    (mine, my_public), (theirs, their_public), (stranger, _) = pair(), pair(), pair()
    content = os.urandom(masks.SEED + 32)
    sent = masks.locked(mine, their_public, content, "a to b")
    assert len(sent) == masks.LOCKED
    assert content not in sent
    assert masks.unlocked(theirs, my_public, sent, "a to b") == content
    damaged = sent[:-1] + bytes([sent[-1] ^ 1])
    for key, letter, label in (
        (stranger, sent, "a to b"),
        (theirs, sent, "b to a"),
        (theirs, damaged, "a to b"),
    ):
        with pytest.raises(Failure, match=r"a share \(. to .\) was changed in transit"):
            masks.unlocked(key, my_public, letter, label)


@pytest.mark.parametrize("size", [16, 32])
def test_any_so_many_shares_tell_the_secret_and_fewer_do_not(size):
    secret = os.urandom(size)
    shares = dict(enumerate(masks.shares_of(secret, 3, 5)))
    for places in combinations(shares, 3):
        assert masks.secret_of({place: shares[place] for place in places}) == secret
    for places in combinations(shares, 2):
        assert masks.secret_of({place: shares[place] for place in places}) != secret


@pytest.mark.parametrize("length", [0, 1, masks._CHUNK - 1, masks._CHUNK, 2 * masks._CHUNK + 7])
def test_masks_are_the_stream_of_another_library_and_vanish(length):
    from Crypto.Cipher import AES

    seed = os.urandom(masks.SEED)
    numbers = np.arange(length, dtype=np.uint64)
    masks.add_mask(numbers, seed, 1)
    cipher = AES.new(seed, AES.MODE_CTR, nonce=b"", initial_value=0)
    stream = np.frombuffer(cipher.encrypt(bytes(8 * length)), "<u8")
    assert np.array_equal(numbers, np.arange(length, dtype=np.uint64) + stream)
    masks.add_mask(numbers, seed, -1)
    assert np.array_equal(numbers, np.arange(length, dtype=np.uint64))


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=9), st.integers(1, 50))
def test_a_sum_of_whole_numbers_is_the_sum_of_the_numbers(values, clients):
    numbers = masks.fixed_point(torch.tensor(values, dtype=torch.float64), clients)
    total = np.array([numbers.sum(dtype=np.uint64)])
    exact = sum(values)  # of numbers with 24 digits, nearly
    assert float(masks.floating_point(total)[0]) == pytest.approx(
        exact, rel=1e-12, abs=len(values) * 2.0 ** -(masks.PLACES + 1) + 1e-9
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2.0**31 / 3, -(2.0**31)])
def test_what_cannot_be_added_up_is_refused(value):
    with pytest.raises(Failure, match="numbers that \\[secure\\] cannot add up"):
        masks.fixed_point(torch.tensor([0.0, value]), 3)
    masks.fixed_point(torch.tensor([2.0**31 / 3 - 1e-3], dtype=torch.float64), 3)


@pytest.mark.parametrize("library", ["Crypto.Protocol.SecretSharing", "cryptography"])
def test_without_the_libraries_nothing_is_promised(library, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    for name in [name for name in sys.modules if name.startswith("cryptography.")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(UsageError, match=r"pip install 'fedconsort\[secure\]'"):
        masks.require()
