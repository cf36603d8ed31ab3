"""Which numbers tables and claims can name, before there is a run to ask."""

from __future__ import annotations

import re
from collections.abc import Collection

from consort.results.gains import DELTA_M
from consort.results.values import TUNED

COSTS = ("bytes", "bytes_up", "bytes_down", "seconds", "client_seconds")
AUDITED = re.compile(
    r"(imprint|inversion|rescaled)_(mse|psnr|ssim|lpips|recognised)"
    r"|membership_(accuracy|auc) \(.+\)|mutual_information|entropy"
)
"""The figures of an audit, which papers print as well."""


def known_values(
    own: Collection[str],
    others: Collection[str] = (),
    tuned: bool = False,
    unseen: Collection[tuple[str, str]] = (),
    flops: bool = False,
) -> set[str]:
    """The names that `Result.value` and claims will know.

    Args:
        own: The metrics that stand for tasks.
        others: All other metrics on test data.
        tuned: Whether models are also scored after local training.
        unseen: The (split, metric) pairs of examples that no client trains on.
        flops: Whether operations are counted.
    """
    measured = {*own, *others}
    names = {f"{which}{metric}" for which in ("", "best_") for metric in measured}
    names |= {f"{which}_{metric}" for which in ("worst", "weighted") for metric in own}
    if tuned:
        names |= {f"{TUNED}_{metric}" for metric in measured}
        names |= {f"worst_{TUNED}_{metric}" for metric in own}
    names |= {f"{split}_{metric}" for split, metric in unseen}
    return names | {*COSTS, DELTA_M, *(["flops"] if flops else [])}
