"""Test images with the truth and what every compared method makes of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torch import Tensor

from consort.report.gallery import picture
from consort.report.html import Html, join, tag
from consort.report.numbers import score, words
from consort.report.predictions import ClientPredictions, answers, comparable_runs, drawable_tasks
from consort.report.rendering import RENDERERS
from consort.report.run_set import RunSet

_LONGEST = 160
"""Pixels of a side; of larger pictures only some pixels are drawn."""
_COLOURS = 96
"""Colours of a picture, so that the page stays small."""

_NOTE = (
    "The first test images of one client of each group, and what its model of the last round makes "
    "of them. Classes have the same colour everywhere; normals are drawn by direction, depths from "
    "near (yellow) to far (violet), edges and what stands out by how sure the model is, things in "
    "shades of their class, joints as dots. Where nobody knows the truth it is lilac."
)


def examples(run_set: RunSet) -> Html:
    """One block for every task of every client that is shown."""
    given = answers(run_set)
    blocks = [
        _block(run_set, client, task, answered)
        for client, answered in given.found.items()
        if answered
        for task in drawable_tasks(run_set.first, client)
    ]
    why = [
        tag("p", f"No pictures of {algorithm}: {reason}.", class_="note")
        for algorithm, reason in given.missing.items()
    ]
    shown = [tag("p", _NOTE, class_="note"), tag("div", *blocks, class_="blocks")] if blocks else []
    return join([*shown, *why])


def _block(
    run_set: RunSet, client: str, task: str, answered: Mapping[str, ClientPredictions]
) -> Html:
    columns = (
        _column(name, value, pixels, f"{task}, {name}")
        for name, value, pixels in _pictures(run_set, client, task, answered)
    )
    title = f"{task} of {client}, {words(run_set.tasks[task]['metric'])}"
    return tag("div", tag("h3", title), tag("div", *columns, class_="answers"))


def _pictures(
    run_set: RunSet, client: str, task: str, answered: Mapping[str, ClientPredictions]
) -> Iterator[tuple[str, str, Tensor]]:
    about, runs = run_set.tasks[task], comparable_runs(run_set)
    look, test = RENDERERS[about["kind"]], next(iter(answered.values())).test
    truth = test.targets[task]
    yield "input", "", _stretched(test.inputs)
    yield "truth", "", look.truth(truth, test.inputs.shape[-2:])
    for algorithm, found in answered.items():
        run = runs[algorithm]
        value = run.clients_at(run.last_round, task).get(client)
        told = "" if value is None else str(score(value).text)
        yield algorithm, told, look.answer(found.outputs[task], truth, found.tasks[task])


def _stretched(inputs: Tensor) -> Tensor:
    """Images from black to white, however their values were scaled for the model."""
    low, high = inputs.amin((1, 2, 3), keepdim=True), inputs.amax((1, 2, 3), keepdim=True)
    return (inputs - low) / (high - low).clamp(min=1e-12)


def _column(name: str, value: str, pixels: Tensor, alt: str) -> Html:
    step = -(-max(pixels.shape[-2:]) // _LONGEST)
    images = (
        picture(image, f"{alt}, image {place}", _COLOURS)
        for place, image in enumerate(pixels[:, :, ::step, ::step], start=1)
    )
    return tag("figure", tag("figcaption", _breakable(name), tag("span", value)), *images)


def _breakable(name: str) -> Html:
    """A name that may go on in a second line after any of its words."""
    first, *others = name.split("_")
    return tag("div", first, *(part for word in others for part in ("_", tag("wbr"), word)))
