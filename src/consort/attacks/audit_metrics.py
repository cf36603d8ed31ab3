"""The metrics of an audit that papers report, to compare several runs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import fmean

from consort.attacks.audit import Audit, ClientFinding
from consort.attacks.membership import Membership
from consort.attacks.recovery import Recovery


def audit_metrics(audit: Audit) -> dict[str, float]:
    """The metrics of an audit, each the mean over the attacked clients.

    Attacks that could not be tried, or were inconclusive, are left out.
    """
    found: dict[str, list[float]] = {}
    for finding in audit.findings:
        for name, value in _of(finding):
            if not math.isnan(value):
                found.setdefault(name, []).append(value)
    return {name: fmean(values) for name, values in found.items()}


def _of(finding: ClientFinding) -> Iterator[tuple[str, float]]:
    for name in ("imprint", "rescaled", "inversion"):
        yield from _recovered(name, getattr(finding, name))
    if not isinstance(finding.membership, str):
        for way, told in finding.membership.items():
            if isinstance(told, Membership) and told.is_conclusive:
                yield f"membership_accuracy ({way})", (1 + told.advantage) / 2
                yield f"membership_auc ({way})", told.auc
    if not isinstance(finding.information, str):
        yield "mutual_information", finding.information[0]
        yield "entropy", finding.information[1]


def _recovered(name: str, found: Recovery | str | None) -> Iterator[tuple[str, float]]:
    if isinstance(found, Recovery):
        for score in ("mse", "psnr", "ssim", "lpips"):
            yield f"{name}_{score}", fmean(getattr(one, score) for one in found.scores)
        yield f"{name}_recognised", found.recognised / found.total


def published_metrics(audit: Audit) -> dict[str, float]:
    """The published numbers for the run's algorithm in its recipe, under the same names."""
    tables = audit.about["recipe"].get("published") or []
    name = audit.about["algorithm"]
    return {table["metric"]: table["values"][name] for table in tables if name in table["values"]}
