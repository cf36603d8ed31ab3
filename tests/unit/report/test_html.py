"""Escaping, tables and embedded figures."""

from __future__ import annotations

import json
import math
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from consort.report.html import Cell, Html, join, label, plot, table, tag

HOSTILE = """</script><script>alert("1")</script>&'"""


def figure(**data):
    return {"data": [data], "layout": {"height": 100}}


def embedded(page):
    (text,) = re.findall(r'<script type="application/json">(.*?)</script>', page, re.DOTALL)
    return json.loads(text)


def test_an_element_with_attributes():
    assert tag("a", "x < y", href="?a&b", data_value=3, class_="big") == (
        '<a href="?a&amp;b" data-value="3" class="big">x &lt; y</a>'
    )


def test_safe_html_is_not_escaped_again():
    assert tag("p", tag("b", "x"), 3, None) == "<p><b>x</b>3</p>"
    assert isinstance(join([tag("b")]), Html)


def test_elements_without_an_end():
    assert tag("meta", charset="utf-8") == '<meta charset="utf-8">'


@settings(max_examples=50, deadline=None)
@given(st.text())
def test_text_brings_no_tags_with_it(text):
    inner = tag("p", text, title=text).removeprefix("<p ").removesuffix("</p>")
    assert inner.count("<") == 0
    assert inner.count('"') == 2


def test_a_table_keeps_its_numbers_for_sorting():
    columns = {"Name": str, "Value": lambda name: Cell("0.50", 0.5, best=True)}
    page = table(["<a>"], columns, "how & why")
    assert '<td>&lt;a&gt;</td><td class="number best" data-value="0.5">0.50</td>' in page
    assert page.count("<th ") == 2
    assert "how &amp; why" in page


def test_an_unknown_number_has_no_value_to_sort_by():
    page = table([1], {"Value": lambda _: Cell("none", math.nan)})
    assert '<td class="number">none</td>' in page


def test_a_figure_survives_hostile_names():
    page = plot(HOSTILE, figure(name=HOSTILE))
    assert embedded(page)["data"][0]["name"] == HOSTILE
    assert page.count("<script") == 1
    assert "alert" not in re.sub(r"<script.*?</script>", "", page).replace("&gt;alert", "")


def test_figures_hold_only_finite_numbers_of_few_digits():
    page = plot("title", figure(y=[math.nan, math.inf, 1 / 3, 7, None], z=((2 / 3,),)))
    data = embedded(page)["data"][0]
    assert data == {"y": [None, None, 0.333333, 7, None], "z": [[0.666667]]}


def test_labels_are_text_to_plotly():
    assert label("<b>bold</b> & 'quoted'") == "&lt;b&gt;bold&lt;/b&gt; &amp; 'quoted'"
