"""Sections about numbers that algorithms record with `note`, for any algorithm that does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from consort.report.assignment import CHOSEN, MODEL_WEIGHT, Assignment
from consort.report.attention import ATTENTION, WEIGHT_OF_OTHERS, attention_pictures
from consort.report.curves import over_seeds
from consort.report.drawing import DASHES, Style, Trace, band, colour, line, over_rounds
from consort.report.heads import TAKEN, WEIGHT, WEIGHT_NOTE, WEIGHT_TITLE, head_pictures
from consort.report.heatmaps import choices, client_map, part_map
from consort.report.html import Figure, Html, details, grid, join, plot
from consort.report.numbers import natural, words
from consort.report.run_set import RunSet
from consort.results.measurements import Notes
from consort.results.result import Point, Result
from consort.results.summary import middle

_WEIGHTS = {
    "client_weight": "The weight of every client in a round.",
    MODEL_WEIGHT: "The weight of every model for a client.",
}


def model_use(run_set: RunSet) -> Html:
    """Which client uses which of several models, for every run that recorded it."""
    return _by_run(run_set, _use_of_models)


def _use_of_models(run: Result) -> tuple[str, list[Html]]:
    assignment = Assignment.of(run)
    if assignment is None:
        return "", []
    pictures = [plot("Model of every client", choices(assignment))]
    for name, meaning in _WEIGHTS.items():
        pictures += _maps(run, name, assignment.clients, meaning)
    return str(assignment), pictures


def attention_between_clients(run_set: RunSet) -> Html:
    """Attention between clients and learnt weights, for every run that recorded them."""
    return _by_run(run_set, attention_pictures)


def other_notes(run_set: RunSet) -> Html:
    """Curves of numbers recorded once per round, and heat maps of numbers per client."""
    names = sorted({name for run in run_set.runs for name in run.noted})
    drawn = (
        (name, noted_curves(run_set, name)) for name in names if name not in (TAKEN, ATTENTION)
    )
    several = any(len(runs) > 1 for runs in run_set.groups.values())
    note = "Lines are means over seeds; the area shows one standard deviation." if several else ""
    pictures = [
        plot(WEIGHT_TITLE, figure, f"{WEIGHT_NOTE} {note}")
        if name == WEIGHT
        else plot(_title(name), figure, note)
        for name, figure in drawn
        if figure["data"]
    ]
    return join([grid(*pictures) if pictures else None, _by_run(run_set, _other_maps)])


def _other_maps(run: Result) -> tuple[str, list[Html]]:
    elsewhere = [
        WEIGHT,
        TAKEN,
        WEIGHT_OF_OTHERS,
        *((CHOSEN, *_WEIGHTS) if Assignment.of(run) else ()),
    ]
    maps = {name: _maps(run, name) for name in run.noted if name not in elsewhere}
    heads = list(head_pictures(run))
    named = [words(name) for name, pictures in maps.items() if pictures]
    title = ", ".join(["tasks and heads"] * bool(heads) + named)
    return title, heads + [picture for pictures in maps.values() for picture in pictures]


def _by_run(run_set: RunSet, describe: Callable[[Result], tuple[str, list[Html]]]) -> Html:
    """The plots of every run; of several seeds only the first is unfolded."""

    def parts() -> Iterator[Html]:
        for algorithm, runs in run_set.groups.items():
            for place, run in enumerate(runs):
                text, pictures = describe(run)
                if pictures:
                    title = f"{algorithm}, seed {run.seed}: {text}"
                    yield details(title, grid(*pictures), unfolded=place == 0)

    return join(parts())


def _maps(run: Result, name: str, order: Sequence[str] = (), note: str = "") -> list[Html]:
    noted = _of_clients(run.notes(name))
    clients = order or sorted({c for _, _, c in _places(noted)}, key=natural)
    over_time, parts = noted.pop("", {}), noted
    pictures = []
    if over_time:
        pictures.append(plot(_title(name), client_map(over_time, clients, words(name)), note))
    if parts:
        last = max(round_ for _, round_, _ in _places(parts))
        across = "model" if name == MODEL_WEIGHT else ""
        picture = part_map(parts, last, clients, words(name), across)
        pictures.append(plot(f"{_title(name)} in round {last}", picture, note))
    return pictures


def _of_clients(notes: Notes) -> Notes:
    """Only the numbers that belong to a client."""
    kept: Notes = {}
    for part, round_, client in _places(notes):
        if client:
            rounds = kept.setdefault(part, {})
            rounds.setdefault(round_, {})[client] = notes[part][round_][client]
    return kept


def _places(notes: Notes) -> Iterable[tuple[str, int, str]]:
    return ((p, r, c) for p, rounds in notes.items() for r, cs in rounds.items() for c in cs)


def noted_curves(run_set: RunSet, name: str) -> Figure:
    """A number recorded once per round, for every algorithm and part."""
    traces: list[Trace] = []
    for algorithm, runs in run_set.groups.items():
        parts = sorted({part for run in runs for part in run.notes(name)}, key=natural)
        for place, part in enumerate(parts):
            every = [points for run in runs if (points := _points(run, name, part))]
            if every:
                style = _style(run_set, algorithm, part, place)
                spread = len(every) > 1 or (name == WEIGHT and run_set.one_run)
                traces += _curve(over_seeds(every), style, with_band=spread)
    return over_rounds(traces, words(name))


def _points(run: Result, name: str, part: str) -> list[Point]:
    rounds = run.notes(name).get(part, {})
    if name == WEIGHT:
        return [Point(r, *middle(list(clients.values()))) for r, clients in sorted(rounds.items())]
    values = {r: clients[""] for r, clients in sorted(rounds.items()) if "" in clients}
    return [Point(r, value, value, value) for r, value in values.items()]


def _curve(points: Sequence[Point], style: Style, with_band: bool) -> list[Trace]:
    return [*(band(points, style) if with_band else ()), line(points, style, ".4~g")]


def _style(run_set: RunSet, algorithm: str, part: str, place: int) -> Style:
    """Colours distinguish algorithms or, if there is only one, its parts."""
    if run_set.one_algorithm:
        return Style(part or algorithm, colour(place))
    name = f"{algorithm}, {part}" if part else algorithm
    return Style(name, run_set.colours[algorithm], DASHES[place % len(DASHES)])


def _title(name: str) -> str:
    return words(name).capitalize()
