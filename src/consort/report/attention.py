"""Attention between clients, and the learnt weights with which they use others' updates."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import TypeAlias

from consort.report.drawing import EVEN, LESS, MORE, Trace, height_of, matrix
from consort.report.heatmaps import Rounds, cells, client_map, numbers_of, part_map, thinned
from consort.report.html import Figure, Html, label, plot
from consort.report.numbers import natural
from consort.results.measurements import Notes
from consort.results.result import Result

Table: TypeAlias = list[list[float]]

ATTENTION, WEIGHT_OF_OTHERS = "attention", "weight_of_others"
ARROW = " → "
"""Separates the two names in the part of an attention note."""

_MANY_NUMBERS = 12
_VISIBLE = 0.1
"""The smallest difference, relative to an even share, that is shown in full colour."""
_MAX_STEPS = 25
"""The largest number of rounds on the slider."""


def attention_pictures(run: Result) -> tuple[str, list[Html]]:
    """The attention plots of one run.

    Returns:
        A title, and the plots.
    """
    shares, weights = run.notes(ATTENTION), run.notes(WEIGHT_OF_OTHERS)
    pictures = [*_of_attention(shares), *_of_weights(weights)]
    named = [("attention", shares), ("learnt weights", weights)]
    return " and ".join(name for name, notes in named if notes), pictures


def _of_attention(shares: Notes) -> Iterator[Html]:
    if not shares:
        return
    rounds = thinned({r for of_pair in shares.values() for r in of_pair})
    everybody = names_in(shares)
    note = (
        "Each row attends to the columns, and its sum is 1. If the attention were even, every "
        f"share would be {1 / len(everybody):.3f}: green is more than that, red is less."
    )
    picture = attention_map(shares, everybody, rounds)
    yield plot("Attention matrix", picture, note, wide=True)
    of_others = attention_to_others(shares, everybody)
    if len(of_others) > 1:
        picture = client_map(of_others, everybody, "attention to others", 1.0)
        yield plot(
            "Attention to others", picture, "The attention that does not go to the row itself."
        )


def names_in(shares: Notes) -> list[str]:
    """All names that attend or are attended to."""
    return sorted({name for pair in shares for name in pair.split(ARROW)}, key=natural)


def attention_map(shares: Notes, names: Sequence[str], rounds: Sequence[int]) -> Figure:
    """A heat map of the attention in the last round, with a slider over rounds.

    Args:
        shares: The attention, by pair and round.
        names: The rows (who attends) and columns (who is attended to).
        rounds: The rounds of the slider.
    """
    steps = thinned(rounds, _MAX_STEPS)
    tables = {r: _table(shares, names, r) for r in steps}
    columns = [label(name).replace("/", "/<br>") for name in names]
    trace: Trace = cells(columns, names)
    trace |= numbers_of(tables[steps[-1]], "%{y} attends to %{x}:") | _around_even(tables, names)
    if len(names) <= _MANY_NUMBERS:
        trace["texttemplate"] = "%{z:.3f}"
    drawn = dict(matrix(trace, "", len(names), side="top"))
    drawn["layout"]["height"] = height_of(2 * len(names))
    if len(steps) > 1:
        drawn["layout"] |= {"sliders": [_slider(tables)]}
        drawn["layout"]["height"] += 60
    return drawn


def _around_even(tables: Mapping[int, Table], names: Sequence[str]) -> Trace:
    """A colour scale around the even share, pale where shares are nearly even."""
    even = 1 / len(names)
    known = [v for table in tables.values() for row in table for v in row if math.isfinite(v)]
    most = max([_VISIBLE * even, *(abs(value - even) for value in known)])
    colours = [(0, LESS), (0.5, EVEN), (1, MORE)]
    return {"zmin": even - most, "zmax": even + most, "colorscale": colours}


def _table(shares: Notes, names: Sequence[str], round_: int) -> Table:
    def share(one: str, other: str) -> float:
        return shares.get(f"{one}{ARROW}{other}", {}).get(round_, {}).get("", math.nan)

    return [[share(one, other) for other in names] for one in names]


def _slider(tables: Mapping[int, Table]) -> Trace:
    steps = [
        {"label": str(r), "method": "restyle", "args": [{"z": [of_round]}]}
        for r, of_round in tables.items()
    ]
    current = {"prefix": "round ", "xanchor": "right"}
    return {"active": len(steps) - 1, "steps": steps, "currentvalue": current, "pad": {"t": 10}}


def attention_to_others(shares: Notes, names: Sequence[str]) -> Rounds:
    """By round and name, the share of attention that goes to others."""
    own = {name: shares.get(f"{name}{ARROW}{name}", {}) for name in names}
    rounds = sorted({r for of_pair in shares.values() for r in of_pair})
    return {r: {name: 1 - own[name][r][""] for name in names if r in own[name]} for r in rounds}


def _of_weights(weights: Notes) -> Iterator[Html]:
    """Plots of the encoder and of the decoders over the rounds, and of every layer at the end."""
    clients = sorted(
        {c for rounds in weights.values() for values in rounds.values() for c in values},
        key=natural,
    )
    for title, parts in _kinds(weights).items():
        if parts:
            picture = client_map(_means(parts), clients, "weight of others")
            yield plot(f"Weight of others, {title}", picture)
    layers = {part.removeprefix("decoders."): of_part for part, of_part in weights.items()}
    if len(layers) > 1:
        last = max(r for rounds in layers.values() for r in rounds)
        picture = part_map(layers, last, clients, "weight of others")
        yield plot(f"Weight of others in round {last}", picture, wide=True)


def _kinds(weights: Notes) -> dict[str, Notes]:
    encoder = {part: of_part for part, of_part in weights.items() if part == "encoder"}
    others = {part: of_part for part, of_part in weights.items() if part != "encoder"}
    return {"encoder": encoder, "decoders (mean over layers)": others}


def _means(parts: Notes) -> Rounds:
    found: dict[int, dict[str, list[float]]] = {}
    for rounds in parts.values():
        for round_, values in rounds.items():
            for client, value in values.items():
                found.setdefault(round_, {}).setdefault(client, []).append(value)
    return {
        r: {c: fmean(values) for c, values in of_round.items()} for r, of_round in found.items()
    }
