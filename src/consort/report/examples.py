"""Test images with the ground truth and the predictions of all compared algorithms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torch import Tensor

from consort.report.gallery import picture
from consort.report.html import Html, join, tag
from consort.report.numbers import score, words
from consort.report.predictions import (
    ClientPredictions,
    comparable_runs,
    drawable_tasks,
    predictions,
)
from consort.report.rendering import RENDERERS
from consort.report.run_set import RunSet

_LONGEST = 160
"""The longest side in pixels; larger images are subsampled."""
_COLOURS = 96
"""The largest number of colours of an image, so that the page stays small."""

_NOTE = (
    "The first test images of one client of each group, and the predictions of its model in the "
    "last round. Classes have the same colour in all images; normals are coloured by direction, "
    "depths from near (yellow) to far (violet), edges and saliency by confidence, instances in "
    "shades of their class, key points as dots. Lilac means that the ground truth is unknown."
)


def examples(run_set: RunSet) -> Html:
    """One block for each task of each client shown."""
    given = predictions(run_set)
    blocks = [
        _block(run_set, client, task, predicted)
        for client, predicted in given.found.items()
        if predicted
        for task in drawable_tasks(run_set.first, client)
    ]
    why = [
        tag("p", f"No predictions of {algorithm}: {reason}.", class_="note")
        for algorithm, reason in given.missing.items()
    ]
    shown = [tag("p", _NOTE, class_="note"), tag("div", *blocks, class_="blocks")] if blocks else []
    return join([*shown, *why])


def _block(
    run_set: RunSet, client: str, task: str, predicted: Mapping[str, ClientPredictions]
) -> Html:
    columns = (
        _column(name, value, pixels, f"{task}, {name}")
        for name, value, pixels in _pictures(run_set, client, task, predicted)
    )
    title = f"{task} of {client}, {words(run_set.tasks[task]['metric'])}"
    return tag("div", tag("h3", title), tag("div", *columns, class_="predictions"))


def _pictures(
    run_set: RunSet, client: str, task: str, predicted: Mapping[str, ClientPredictions]
) -> Iterator[tuple[str, str, Tensor]]:
    about, runs = run_set.tasks[task], comparable_runs(run_set)
    renderer, test = RENDERERS[about["kind"]], next(iter(predicted.values())).test
    truth = test.targets[task]
    yield "input", "", _stretched(test.tensor)
    yield "ground truth", "", renderer.truth(truth, test.tensor.shape[-2:])
    for algorithm, found in predicted.items():
        run = runs[algorithm]
        value = run.clients_at(run.last_round, task).get(client)
        told = "" if value is None else str(score(value).text)
        yield algorithm, told, renderer.prediction(found.outputs[task], truth, found.tasks[task])


def _stretched(inputs: Tensor) -> Tensor:
    """Images scaled to the range from 0 to 1, whatever range the model uses."""
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
    """A name that may be broken into lines after any of its words."""
    first, *others = name.split("_")
    return tag("div", first, *(part for word in others for part in ("_", tag("wbr"), word)))
