import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from torch import nn
from torch.nn import functional as F

from consort.data.registry import load_dataset
from consort.domains.signatures.synthetic.autograph import autograph
from consort.domains.signatures.synthetic.signatures import imitated, signed, synthetic_signatures
from consort.domains.signatures.synthetic.strokes import Strokes, unsteady, written
from consort.domains.signatures.tasks import claimed_user
from consort.errors import UsageError


@pytest.fixture(scope="module")
def collection():
    return synthetic_signatures(0, users=24, genuine=14, forged=14, size=(48, 72))


def truths_of(dataset):
    return dataset.examples.targets["detect"].numpy()


# Pen movements


def single(**changes):
    values = {"length": 2, "angle": 0, "curl": 0, "gap": 0.1, "spread": 0.3} | changes
    arrays = {name: np.array([value], dtype=float) for name, value in values.items()}
    return Strokes(**arrays, down=np.array([True]))


def test_a_stroke_goes_as_far_as_its_length_in_its_direction():
    line = written(single(length=2, angle=np.pi / 3), 200)
    end = line.x[-1] - line.x[0], line.y[-1] - line.y[0]
    assert end == pytest.approx((2 * np.cos(np.pi / 3), 2 * np.sin(np.pi / 3)), abs=0.05)


def test_a_curled_stroke_is_an_arc():
    line = written(single(length=np.pi, curl=np.pi), 400)
    assert np.hypot(line.x[-1] - line.x[0], line.y[-1] - line.y[0]) == pytest.approx(2, abs=0.1)
    assert abs(line.y - line.y[0]).max() == pytest.approx(1, abs=0.1)


def test_points_are_equally_far_apart_and_a_stroke_is_fastest_in_between():
    line = written(single(), 200)
    steps = np.hypot(np.diff(line.x), np.diff(line.y))
    assert steps.std() < 0.05 * steps.mean()
    assert 20 < line.speed.argmax() < 180
    assert line.speed.max() > 3 * line.speed[[0, -1]].max()


def test_unsteadiness_is_smooth_and_as_large_everywhere():
    curves = np.stack([unsteady(np.random.default_rng(seed), 300, 20) for seed in range(200)])
    assert abs(np.diff(curves)).max() < 0.5
    spread = curves.std(0)
    assert spread.min() > 0.5
    assert spread.max() < 1


def test_a_forger_writes_at_a_more_even_speed_and_less_smoothly():
    rng = np.random.default_rng(0)
    evenness, roughness = [], []
    for _ in range(10):
        strokes = autograph(rng)
        lines = [make(rng, strokes, 600) for make in (signed, imitated) for _ in range(6)]
        speeds = [np.log(line.speed[line.touch > 0.5].clip(0.05)).std() for line in lines]
        bends = [np.hypot(np.diff(line.x[::4], 2), np.diff(line.y[::4], 2)) for line in lines]
        turns = [np.median(bend) for bend in bends]
        evenness.append(np.mean(speeds[6:]) / np.mean(speeds[:6]))
        roughness.append(np.mean(turns[6:]) / np.mean(turns[:6]))
    assert np.mean(evenness) < 0.8
    assert np.mean(roughness) > 1.3


def test_better_forgers_write_more_smoothly():
    def roughness(best: float) -> float:
        rng = np.random.default_rng(0)
        strokes = autograph(rng)
        lines = [imitated(rng, strokes, 600, best) for _ in range(20)]
        bends = [np.hypot(np.diff(line.x[::4], 2), np.diff(line.y[::4], 2)) for line in lines]
        return float(np.mean([np.median(bend) for bend in bends]))

    assert roughness(0.0) > 1.2 * roughness(1.0)


# The data set


def test_everyone_has_as_many_as_asked_for():
    dataset = synthetic_signatures(1, users=3, genuine=4, forged=2, size=(32, 40))
    assert dataset.examples.inputs.shape == (18, 1, 32, 40)
    assert dataset.labels.tolist() == np.repeat([0, 1, 2], 6).tolist()
    assert truths_of(dataset).tolist() == [1, 1, 1, 1, 0, 0] * 3
    users = claimed_user(dataset.examples.targets["identify"])
    assert users.tolist() == dataset.labels.tolist()


def test_forgeries_are_not_needed():
    assert truths_of(synthetic_signatures(0, users=2, genuine=2, forged=0)).all()
    with pytest.raises(UsageError, match="genuine = 0"):
        load_dataset("synthetic_signatures", 0, None, genuine=0)


def test_bright_ink_on_black_with_its_mass_in_the_middle(collection):
    ink = collection.examples.inputs[:, 0].double()
    share = (ink > 0).double().mean((1, 2))
    assert 0.02 < share.min() < share.max() < 0.4
    assert (ink.amax((1, 2)) > 100).all()
    total = ink.sum((1, 2))
    rows = (ink.sum(2) * torch.arange(48)).sum(1) / total
    columns = (ink.sum(1) * torch.arange(72)).sum(1) / total
    assert (rows - 23.5).abs().max() < 4
    assert (columns - 35.5).abs().max() < 6


def test_users_are_told_apart_by_their_signatures(collection):
    genuine = truths_of(collection) == 1
    small = F.avg_pool2d(collection.examples.inputs.float(), 4).flatten(1).numpy()[genuine]
    users = collection.labels[genuine]
    centres = np.stack([small[users == user][::2].mean(0) for user in range(24)])
    queries = np.concatenate([small[users == user][1::2] for user in range(24)])
    nearest = ((queries[:, None] - centres) ** 2).sum(-1).argmin(1)
    assert (nearest == np.repeat(np.arange(24), 7)).mean() > 0.8


def test_a_forgery_is_nearer_to_its_model_than_another_user_is(collection):
    small = F.avg_pool2d(collection.examples.inputs.float(), 4).flatten(1).numpy()
    genuine = truths_of(collection) == 1
    centres = [small[genuine & (collection.labels == user)].mean(0) for user in range(24)]
    for user in range(24):
        forgeries = small[~genuine & (collection.labels == user)]
        distances = [((forgeries - centre) ** 2).sum(1).mean() for centre in centres]
        assert np.argmin(distances) == user


# How hard it is


def probe_by_pixels(dataset, seen):
    pixels, truths = dataset.examples.inputs.flatten(1).numpy() / 255, truths_of(dataset)
    probes = (LogisticRegression(C=c, max_iter=300) for c in (1e-3, 1e-1))
    fitted = (probe.fit(pixels[seen], truths[seen]) for probe in probes)
    return max(roc_auc_score(truths[~seen], f.decision_function(pixels[~seen])) for f in fitted)


def probe_by_convolutions(dataset, seen, epochs=8):
    images, truths = dataset.prepare(dataset.examples.inputs), truths_of(dataset)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(
            *(nn.Conv2d(1, 16, 5, 2, 2), nn.BatchNorm2d(16), nn.ReLU()),
            *(nn.Conv2d(16, 24, 3), nn.BatchNorm2d(24), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(24, 24, 3), nn.BatchNorm2d(24), nn.ReLU()),
            *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 1), nn.Flatten(0)),
        )
        optimizer = torch.optim.Adam(net.parameters(), 5e-3)
        target, rows = torch.from_numpy(truths).float(), torch.from_numpy(np.flatnonzero(seen))
        for _ in range(epochs):
            for batch in rows[torch.randperm(len(rows))].split(32):
                loss = F.binary_cross_entropy_with_logits(net(images[batch]), target[batch])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    with torch.no_grad():
        return roc_auc_score(truths[~seen], net.eval()(images[torch.from_numpy(~seen)]).numpy())


def test_forgeries_of_unseen_users_take_more_than_pixels(collection):
    """Nearly a coin toss for a linear probe; strokes have to be looked at."""
    seen = collection.labels < 16
    linear = probe_by_pixels(collection, seen)
    assert linear < 0.65
    assert probe_by_convolutions(collection, seen) > linear + 0.1


def test_no_trivial_statistic_gives_forgeries_away(collection):
    ink = collection.examples.inputs.flatten(1).numpy() / 255
    statistics = ink.mean(1), (ink > 0).mean(1), ink.max(1), ink.sum(1) / (ink > 0).sum(1)
    areas = [roc_auc_score(truths_of(collection), values) for values in statistics]
    assert max(abs(area - 0.5) for area in areas) < 0.1
