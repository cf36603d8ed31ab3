"""Connections within this machine never go through a proxy."""

from __future__ import annotations

import pytest

from consort.deployment.link import without_local_proxy

HERE = "localhost,127.0.0.1,::1"


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ({}, HERE),
        ({"NO_PROXY": "example.org"}, f"example.org,{HERE}"),
        ({"no_proxy": "a,b", "NO_PROXY": "c"}, f"a,b,{HERE}"),
    ],
)
def test_exceptions_of_the_user_stay(given, made):
    assert without_local_proxy(given) == {"no_proxy": made, "NO_PROXY": made}


def test_who_wants_no_proxy_at_all_gets_none():
    assert without_local_proxy({"NO_PROXY": "*"}) == {}
