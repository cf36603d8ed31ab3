"""The colours of answers and of truths."""

from __future__ import annotations

import math

import pytest
import torch

from consort.domains.scenes.tasks.dense import IGNORED
from consort.domains.scenes.tasks.keypoints import KeyPoints
from consort.domains.scenes.tasks.panoptic import Panoptic
from consort.report.page import DRAWN
from consort.report.rendering import RENDERERS, UNKNOWN, class_colour


def colours(pixels):
    """The colour of every pixel of the first image, row by row."""
    return [tuple(pixel) for pixel in pixels[0].movedim(0, -1).flatten(0, 1).tolist()]


def close(*expected):
    return [pytest.approx(colour, abs=1e-6) for colour in expected]


LILAC = tuple(UNKNOWN.tolist())
BLACK, WHITE = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)


def test_every_class_has_a_colour_of_its_own():
    found = [class_colour(number) for number in range(40)]
    apart = [math.dist(a, b) for i, a in enumerate(found) for b in found[:i]]
    assert min(apart) > 0.1
    assert min(math.dist(colour, LILAC) for colour in found) > 0.1


def test_classes_are_those_with_the_largest_output():
    look = RENDERERS["Segmentation"]
    target = torch.tensor([[[0, 2], [1, IGNORED]]], dtype=torch.uint8)
    output = torch.tensor([[[[3.0, 0], [0, 0]], [[0, 1], [0, 5]], [[0, 0], [9, 0]]]])
    zero, one, two = map(class_colour, range(3))
    assert colours(look.truth(target, target.shape[-2:])) == close(zero, two, one, LILAC)
    assert colours(look.prediction(output, target, None)) == close(zero, one, two, one)


def test_what_stands_out_is_as_bright_as_the_model_is_sure():
    look = RENDERERS["Saliency"]
    target = torch.tensor([[[0, 1, IGNORED]]], dtype=torch.uint8)
    chances = torch.tensor([0.25, 0.5, 1.0])
    output = torch.stack([1 - chances, chances]).log()[None, :, None]
    assert colours(look.truth(target, target.shape[-2:])) == close(BLACK, WHITE, LILAC)
    greys = [(chance,) * 3 for chance in chances.tolist()]
    assert colours(look.prediction(output, target, None)) == close(*greys)


def test_edges_likewise():
    look = RENDERERS["Edges"]
    target = torch.tensor([[[1, 0]]], dtype=torch.uint8)
    output = torch.tensor([0.8, 0.1]).logit().view(1, 1, 1, 2)
    assert colours(look.truth(target, target.shape[-2:])) == close(WHITE, BLACK)
    assert colours(look.prediction(output, target, None)) == close((0.8,) * 3, (0.1,) * 3)


def test_normals_are_colours_whatever_their_length():
    look = RENDERERS["Normals"]
    target = torch.tensor([[1.0, 0, 0], [0, 0, 1], [IGNORED] * 3]).half().T.reshape(1, 3, 1, 3)
    output = torch.tensor([[0.0, -7, 0], [0.3, 0, 0], [0, 0, 2]]).T.reshape(1, 3, 1, 3)
    assert colours(look.truth(target, target.shape[-2:])) == close(
        (1, 0.5, 0.5), (0.5, 0.5, 1), LILAC
    )
    expected = close((0.5, 0, 0.5), (1, 0.5, 0.5), (0.5, 0.5, 1))
    assert colours(look.prediction(output, target, None)) == expected


def test_depths_have_the_range_of_the_truth():
    look = RENDERERS["Depth"]
    target = torch.tensor([[[2.0, 5.0, 0.0]]]).half()
    output = torch.tensor([-1.0, 3.5, 99.0]).view(1, 1, 1, 3)
    near, far, unknown = colours(look.truth(target, target.shape[-2:]))
    assert unknown == close(LILAC)[0]
    assert near[0] > 0.9 > 0.3 > far[0]  # from yellow to violet
    first, middle, last = colours(look.prediction(output, target, None))
    assert (first, last) == (near, far)
    assert middle == pytest.approx([(53 + 49) / 510, (183 + 104) / 510, (121 + 142) / 510])


def test_depths_of_which_none_is_known_are_drawn_all_the_same():
    look = RENDERERS["Depth"]
    target = torch.zeros(1, 2, 2)
    assert colours(look.truth(target, target.shape[-2:])) == close(*[LILAC] * 4)
    assert bool(look.prediction(torch.ones(1, 1, 2, 2), target, None).isfinite().all())


def test_things_of_one_class_have_shades_of_its_colour():
    look, task = RENDERERS["Panoptic"], Panoptic(classes=3, stuff=1)
    target = torch.tensor([[[0, 2001], [2002, 255000]]], dtype=torch.int32)
    stuff, one, two, unknown = colours(look.truth(target, (2, 2)))
    assert (stuff, unknown) == (*close(class_colour(0)), *close(LILAC))
    assert one != two
    for shade in (one, two):
        ratios = [a / b for a, b in zip(shade, class_colour(2), strict=True)]
        assert ratios == pytest.approx([ratios[0]] * 3)
    logits = torch.full((3, 2, 2), -9.0)
    logits[0, 0], logits[2, 1] = 9.0, 9.0
    output = torch.cat([logits, torch.zeros(3, 2, 2)])[None]
    output[0, 3, 1, 0] = 1.0  # a middle
    top, thing = colours(look.prediction(output, target, task))[::2]
    assert (top, thing) == (stuff, one)


def test_joints_are_dots_where_the_figures_are():
    look, task = RENDERERS["KeyPoints"], KeyPoints(sigmas=(0.1, 0.1), mirrored=(0, 1))
    target = torch.zeros(1, 2, 2, 4)
    target[0, 0] = torch.tensor([[2.5, 1.5, 2, 9], [0, 0, 0, 9]])  # one joint is not known
    ground, dot = class_colour(0), class_colour(1)
    picture = look.truth(target, (6, 8))
    assert colours(picture[:, :, 1:2, 2:3]) == close(dot)
    assert (picture - torch.tensor(ground)[:, None, None] != 0).any(1).sum() == 9
    output = torch.zeros(1, 4, 6, 8)
    output[0, 0, 1, 2] = 1.0
    assert colours(look.prediction(output, target, task)[:, :, 1:2, 2:3]) == close(dot)


def test_the_page_knows_what_has_a_look():
    assert RENDERERS.keys() == DRAWN
