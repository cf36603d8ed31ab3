"""What errors may say."""

from __future__ import annotations

import pickle

from consort.errors import Refused


def test_a_refusal_never_quotes_what_acts_on_a_terminal():
    error = Refused("the type \x1b[2J\x00\ud800 is not known" + "!" * 9999)
    assert str(error).isprintable()
    assert str(error).startswith("the type [2J is not known!")
    assert len(str(error)) <= 500
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
