"""How good features are: a small classifier for every user, trained on a few references of theirs.

The protocol of Hafemann et al. (2017) that FedMH's tables use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import ClassVar, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from consort.core.bounds import Count, CountOrNone, Positive
from consort.errors import Failure
from consort.metrics.biometric import (
    Scores,
    area_under_curve,
    equal_error_rate,
    equal_error_threshold,
    equal_errors_of_users,
    mean_area_under_curve,
    true_acceptance_rate,
)

Features: TypeAlias = NDArray[np.floating]
Kernel: TypeAlias = Callable[[Features], Scores]


@dataclass(frozen=True)
class Signatures:
    """Features, and for each row the user it claims to be from and whether that is true."""

    features: Features
    users: NDArray[np.int64]
    genuine: NDArray[np.bool_]

    def __post_init__(self) -> None:
        if not len(self.features) == len(self.users) == len(self.genuine):
            raise ValueError("every signature needs features, a user and a truth")
        if not np.isfinite(self.features).all():
            raise Failure(
                "the encoder's features are not finite, so no signature can be verified with them: "
                "try a lower learning rate"
            )

    def of(self, user: int, genuine: bool) -> Features:
        """The features of one user's genuine signatures, or of the forgeries of them."""
        rows: Features = self.features[(self.users == user) & (self.genuine == genuine)]
        return rows


class Draw(NamedTuple):
    """Features by user."""

    references: dict[int, Features]
    genuine: dict[int, Features]
    """Tests; none of them is a reference."""
    skilled: dict[int, Features]
    """Forgeries to test with."""


@dataclass(frozen=True)
class UserScores:
    """What a user's classifier gave to the user's own test signatures, and to those of others."""

    genuine: Scores
    skilled: Scores
    """Forgeries of this user's signature."""
    random: Scores
    """Genuine signatures of other users."""


UsersScores: TypeAlias = Mapping[int, UserScores]

CURVE = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)
"""The false acceptance rates at which a DET curve is kept."""


@dataclass(frozen=True)
class WriterDependent:
    """Support vector machines on frozen features: a user's references against everybody else's.

    A user with few genuine signatures gives fewer references and fewer tests, in the same
    proportion. A user without a reference, a genuine test or a forgery cannot be judged and is
    counted as skipped; references of skipped users still teach the classifiers of the others.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    references: Count = 12
    """Genuine signatures of each user that classifiers are trained on."""
    tests: Count = 10
    """Genuine signatures of each user that they are tested on."""
    forgeries: CountOrNone = 0
    """Forgeries of each user that they are tested on; all, if 0."""
    repetitions: Count = 5
    """How often signatures are drawn; the metrics are means over all draws."""
    c: Positive = 1.0
    gamma: Positive = 2.0**-11

    def metrics(
        self, tested: Signatures, enrolled: Signatures | None = None, seed: int = 0
    ) -> dict[str, float]:
        """EER, FAR, FRR, AUC and the like; only the number of users, if none can be judged.

        References come from `enrolled`, or else from `tested` and are then not tested. `eer`,
        `far`, `frr`, `far_random`, `precision` and `recall` are taken with a threshold for each
        user, `eer_global` and `tar_at_1pct` (at a FAR of at most 1 %) with one for all; `auc` is
        the mean of the users' own, `auc_global` that of all scores together.
        """
        return self.summary(tested, self.draws(tested, enrolled, seed))

    def summary(self, tested: Signatures, draws: Sequence[UsersScores]) -> dict[str, float]:
        """The means over draws of what `metrics` lists."""
        found = list(map(summary, draws))
        means = {name: fmean(metrics[name] for metrics in found) for name in found[0]}
        return means | {"skipped": len(np.unique(tested.users)) - means["users"]}

    def draws(
        self, tested: Signatures, enrolled: Signatures | None = None, seed: int = 0
    ) -> list[UsersScores]:
        """The scores of every repetition."""
        return [
            self.scores(tested, enrolled, np.random.default_rng([seed, repetition]))
            for repetition in range(self.repetitions)
        ]

    def scores(
        self, tested: Signatures, enrolled: Signatures | None, generator: np.random.Generator
    ) -> UsersScores:
        """One draw of references and tests: the scores of every user that can be judged."""
        references, genuine, skilled = self.draw(tested, enrolled, generator)
        if len(references) < 2:
            return {}
        known, owners = _joined(references)
        tests, writers = _joined(genuine)
        forged, imitated = _joined(skilled)
        kernel = kernel_to(known, self.gamma)
        among, of_tests, of_forged = map(kernel, (known, tests, forged))
        found = {}
        for user in references:
            if len(genuine[user]) and len(skilled[user]):
                score = trained(among, owners == user, self.c)
                scores, own = score(of_tests), writers == user
                skilled_scores = score(of_forged[imitated == user])
                found[user] = UserScores(scores[own], skilled_scores, scores[~own])
        return found

    def draw(
        self, tested: Signatures, enrolled: Signatures | None, generator: np.random.Generator
    ) -> Draw:
        """Who is tested with what, at random; only users with references are there."""
        drawn = Draw({}, {}, {})
        for user in map(int, np.unique((enrolled or tested).users)):
            genuine = generator.permutation(tested.of(user, True))
            forged = generator.permutation(tested.of(user, False))
            if enrolled is not None:
                known = generator.permutation(enrolled.of(user, True))[: self.references]
            else:
                known, genuine = np.split(genuine, [self._share(len(genuine))])
            if len(known):
                drawn.references[user] = known
                drawn.genuine[user] = genuine[: self.tests]
                drawn.skilled[user] = forged[: self.forgeries or None]
        return drawn

    def _share(self, available: int) -> int:
        """How many of a user's genuine signatures become references."""
        share = available * self.references // (self.references + self.tests)
        return min(self.references, max(share, 1))


def kernel_to(references: Features, gamma: float) -> Kernel:
    """The RBF kernel between queries and references, in units of the references' deviations.

    Computed by torch, whose threads a recipe decides: other libraries take as many as they like,
    and the bits with them.
    """
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler(with_mean=False)
    known = torch.from_numpy(scaler.fit_transform(references.astype(np.float64)))

    def kernel(queries: Features) -> Scores:
        if not len(queries):
            return np.empty((0, len(known)))
        scaled = torch.from_numpy(scaler.transform(queries.astype(np.float64)))
        similar: Scores = torch.cdist(scaled, known).square_().mul_(-gamma).exp_().numpy()
        return similar

    return kernel


def trained(kernel: Scores, positive: NDArray[np.bool_], c: float) -> Callable[[Scores], Scores]:
    """A machine in which both classes weigh the same: kernels to the references in, scores out.

    It is scikit-learn's SVC without its checks, which take several times as long as all the rest.
    """
    from sklearn.svm import _libsvm

    weights = np.array([1, np.sum(~positive) / np.sum(positive)])
    options = {"kernel": "precomputed", "gamma": 0.0, "cache_size": 200.0}
    _libsvm.set_verbosity_wrap(0)
    machine = _libsvm.fit(kernel, positive.astype(float), C=c, class_weight=weights, **options)

    def score(queries: Scores) -> Scores:
        scores: Scores = -_libsvm.decision_function(queries, *machine[:7], **options).ravel()
        return scores

    return score


def summary(users: UsersScores) -> dict[str, float]:
    """The metrics of one draw, as `WriterDependent.metrics` lists them."""
    if not users:
        return {"users": 0}
    pairs = [(scores.genuine, scores.skilled) for scores in users.values()]
    genuine, skilled = pooled(users)
    errors = equal_errors_of_users(pairs)
    return {
        "eer": errors.mean,
        "far": errors.far,
        "frr": errors.frr,
        "precision": errors.precision,
        "recall": errors.recall,
        "auc": mean_area_under_curve(pairs),
        "eer_global": equal_error_rate(genuine, skilled),
        "auc_global": area_under_curve(genuine, skilled),
        "tar_at_1pct": true_acceptance_rate(genuine, skilled, 0.01),
        "users": len(users),
    } | _random(users)


def pooled(users: UsersScores) -> tuple[Scores, Scores]:
    """The scores of all users' genuine tests, and of all skilled forgeries."""
    genuine = np.concatenate([scores.genuine for scores in users.values()])
    return genuine, np.concatenate([scores.skilled for scores in users.values()])


def det_curve(draws: Sequence[UsersScores]) -> dict[float, float]:
    """The mean FRR at each FAR of `CURVE`, one threshold for all users; empty without users."""
    tests = [pooled(users) for users in draws if users]
    return {
        far: fmean(1 - true_acceptance_rate(*scores, far) for scores in tests)
        for far in (CURVE if tests else ())
    }


def _random(users: UsersScores) -> dict[str, float]:
    """How often signatures of other users are accepted, if there are any to try."""
    accepted = [
        scores.random >= equal_error_threshold(scores.genuine, scores.skilled)
        for scores in users.values()
    ]
    tried = np.concatenate(accepted)
    return {"far_random": float(tried.mean())} if len(tried) else {}


def _joined(by_user: Mapping[int, Features]) -> tuple[Features, NDArray[np.int64]]:
    """All rows, and whose they are."""
    sizes = [len(rows) for rows in by_user.values()]
    return np.concatenate(list(by_user.values())), np.repeat(list(by_user), sizes)
