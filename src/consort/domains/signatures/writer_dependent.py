"""Evaluates features of signatures by a small classifier per user, trained on a few references.

This is the writer-dependent protocol of Hafemann et al. (2017), which FedMH's tables use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import ClassVar, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from consort.core.bounds import NonNegativeInt, PositiveFloat, PositiveInt
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
"""One row of features per signature."""
Kernel: TypeAlias = Callable[[Features], Scores]
"""Computes the kernel between queries and the references."""


@dataclass(frozen=True)
class Signatures:
    """Features of signatures, with the claimed user of each row and whether the claim is true.

    Raises:
        ValueError: If the three differ in length.
        Failure: If a feature is not finite.
    """

    features: Features
    users: NDArray[np.int64]
    genuine: NDArray[np.bool_]

    def __post_init__(self) -> None:
        if not len(self.features) == len(self.users) == len(self.genuine):
            raise ValueError("features, users and genuine must have the same length")
        if not np.isfinite(self.features).all():
            raise Failure(
                "the encoder's features are not finite, so no signature can be verified with them: "
                "try a lower learning rate"
            )

    def of(self, user: int, genuine: bool) -> Features:
        """Selects rows.

        Args:
            user: The claimed user.
            genuine: Whether to select genuine signatures or forgeries.

        Returns:
            The features of these signatures.
        """
        rows: Features = self.features[(self.users == user) & (self.genuine == genuine)]
        return rows


class Draw(NamedTuple):
    """One random choice of references and tests: features by user."""

    references: dict[int, Features]
    """Genuine signatures to train on."""
    genuine: dict[int, Features]
    """Genuine signatures to test with; none of them is a reference."""
    skilled: dict[int, Features]
    """Forgeries to test with."""


@dataclass(frozen=True)
class UserScores:
    """The scores that the classifier of one user gives to the test signatures."""

    genuine: Scores
    """Genuine signatures of this user."""
    skilled: Scores
    """Forgeries of this user's signature."""
    random: Scores
    """Genuine signatures of other users."""


UsersScores: TypeAlias = Mapping[int, UserScores]

CURVE = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)
"""The false acceptance rates at which DET curves are recorded."""


@dataclass(frozen=True)
class WriterDependent:
    """One SVM per user on frozen features: the user's references against those of all others.

    A user with few genuine signatures has fewer references and fewer tests, in the same
    proportion. A user without a reference, a genuine test signature or a forgery cannot be
    evaluated and is counted as skipped; references of skipped users are still negative examples
    for the other classifiers.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    references: PositiveInt = 12
    """Genuine signatures per user to train on."""
    tests: PositiveInt = 10
    """Genuine signatures per user to test with."""
    forgeries: NonNegativeInt = 0
    """Forgeries per user to test with; 0 for all."""
    repetitions: PositiveInt = 5
    """How often references and tests are drawn; metrics are averaged over the draws."""
    c: PositiveFloat = 1.0
    """The SVM's penalty C."""
    gamma: PositiveFloat = 2.0**-11
    """The width parameter of the RBF kernel."""

    def metrics(
        self, tested: Signatures, enrolled: Signatures | None = None, seed: int = 0
    ) -> dict[str, float]:
        """Evaluates the features.

        `eer`, `far`, `frr`, `far_random`, `precision` and `recall` use a threshold per user,
        `eer_global` and `tar_at_1pct` (at a FAR of at most 1 %) one threshold for all users; `auc`
        is the mean of the users' AUCs, `auc_global` the AUC of all scores together.

        Args:
            tested: The signatures to test with.
            enrolled: The signatures to draw references from; by default some of `tested`, which are
                then not tested.
            seed: The seed of the draws.

        Returns:
            The metrics by name; only the number of users if none can be evaluated.
        """
        return self.summary(tested, self.draws(tested, enrolled, seed))

    def summary(self, tested: Signatures, draws: Sequence[UsersScores]) -> dict[str, float]:
        """Averages the metrics over draws.

        Args:
            tested: The signatures that were tested.
            draws: The scores of each draw.

        Returns:
            The metrics that `metrics` lists.
        """
        found = list(map(summary, draws))
        means = {name: fmean(metrics[name] for metrics in found) for name in found[0]}
        return means | {"skipped": len(np.unique(tested.users)) - means["users"]}

    def draws(
        self, tested: Signatures, enrolled: Signatures | None = None, seed: int = 0
    ) -> list[UsersScores]:
        """Computes the scores of all repetitions.

        Args:
            tested: The signatures to test with.
            enrolled: The signatures to draw references from; by default some of `tested`.
            seed: The seed of the draws.

        Returns:
            For each repetition the scores of each user.
        """
        return [
            self.scores(tested, enrolled, np.random.default_rng([seed, repetition]))
            for repetition in range(self.repetitions)
        ]

    def scores(
        self, tested: Signatures, enrolled: Signatures | None, generator: np.random.Generator
    ) -> UsersScores:
        """Computes the scores of one draw.

        Args:
            tested: The signatures to test with.
            enrolled: The signatures to draw references from; None for some of `tested`.
            generator: The source of randomness.

        Returns:
            The scores of each user that can be evaluated.
        """
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
        """Draws references and tests.

        Args:
            tested: The signatures to test with.
            enrolled: The signatures to draw references from; None for some of `tested`.
            generator: The source of randomness.

        Returns:
            The references and tests of all users that have references.
        """
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
        """The number of references among `available` genuine signatures of a user."""
        share = available * self.references // (self.references + self.tests)
        return min(self.references, max(share, 1))


def kernel_to(references: Features, gamma: float) -> Kernel:
    """Builds the RBF kernel to the references, on features scaled by their standard deviation.

    It is computed by torch, whose number of threads the recipe sets; other libraries choose their
    own, which changes the bits of the result.

    Args:
        references: The features of all references.
        gamma: The width parameter of the kernel.

    Returns:
        A function from queries to their kernel values, queries x references.
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
    """Trains an SVM in which both classes have the same total weight.

    This calls scikit-learn's SVC without its input checks, which take several times as long as
    the training itself.

    Args:
        kernel: The kernel among the references.
        positive: Which references are the user's own.
        c: The penalty C.

    Returns:
        A function from kernel values, queries x references, to scores.
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
    """The metrics of one draw, as listed in `WriterDependent.metrics`.

    Args:
        users: The scores of each user.

    Returns:
        The metrics by name.
    """
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
    """The scores of all `users` together: of genuine tests and of skilled forgeries."""
    genuine = np.concatenate([scores.genuine for scores in users.values()])
    return genuine, np.concatenate([scores.skilled for scores in users.values()])


def det_curve(draws: Sequence[UsersScores]) -> dict[float, float]:
    """The mean false rejection rate at each rate of `CURVE`, with one threshold for all users.

    Args:
        draws: The scores of each draw.

    Returns:
        The FRR by FAR; empty if no user was evaluated.
    """
    tests = [pooled(users) for users in draws if users]
    return {
        far: fmean(1 - true_acceptance_rate(*scores, far) for scores in tests)
        for far in (CURVE if tests else ())
    }


def _random(users: UsersScores) -> dict[str, float]:
    """The rate at which genuine signatures of other users are accepted, if there are any."""
    accepted = [
        scores.random >= equal_error_threshold(scores.genuine, scores.skilled)
        for scores in users.values()
    ]
    tried = np.concatenate(accepted)
    return {"far_random": float(tried.mean())} if len(tried) else {}


def _joined(by_user: Mapping[int, Features]) -> tuple[Features, NDArray[np.int64]]:
    """All rows, and the user of each."""
    sizes = [len(rows) for rows in by_user.values()]
    return np.concatenate(list(by_user.values())), np.repeat(list(by_user), sizes)
