"""The selections of the documentation are those there are."""

from __future__ import annotations

import dataclasses
import tomllib

from tests.docs.pages import page, quoted, tables

from consort.federation.selection import SELECTIONS


def test_every_selection_is_listed_with_its_options():
    (table,) = tables(page("runs.md").section("Who takes part"))
    assert [cells[0].strip("`") for cells in table] == list(SELECTIONS)
    for name, options, _ in table:
        fields = dataclasses.fields(SELECTIONS[name.strip("`")])
        expected = {field.name: field.default for field in fields}
        assert tomllib.loads("\n".join(quoted(options))) == expected
