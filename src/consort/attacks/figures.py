"""The figures of an audit that papers print, so that several runs can stand side by side."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import fmean

from consort.attacks.audit import Audit, Finding
from consort.attacks.membership import Membership
from consort.attacks.recovery import Recovery


def figures(audit: Audit) -> dict[str, float]:
    """Each the mean over the clients attacked; what could not be tried or told is left out."""
    found: dict[str, list[float]] = {}
    for finding in audit.findings:
        for name, value in _of(finding):
            if not math.isnan(value):
                found.setdefault(name, []).append(value)
    return {name: fmean(values) for name, values in found.items()}


def _of(finding: Finding) -> Iterator[tuple[str, float]]:
    for name in ("imprint", "rescaled", "inversion"):
        yield from _recovered(name, getattr(finding, name))
    if not isinstance(finding.membership, str):
        for way, told in finding.membership.items():
            if isinstance(told, Membership) and told.tells:
                yield f"membership_accuracy ({way})", (1 + told.advantage) / 2
                yield f"membership_auc ({way})", told.auc
    if not isinstance(finding.information, str):
        yield "mutual_information", finding.information[0]
        yield "entropy", finding.information[1]


def _recovered(name: str, found: Recovery | str | None) -> Iterator[tuple[str, float]]:
    if isinstance(found, Recovery):
        for score in ("mse", "psnr", "ssim", "lpips"):
            yield f"{name}_{score}", fmean(getattr(one, score) for one in found.scores)
        yield f"{name}_recognised", found.recognised / found.sought


def published(audit: Audit) -> dict[str, float]:
    """What the run's recipe says that a paper found for its algorithm, by the same names."""
    tables = audit.about["recipe"].get("published") or []
    name = audit.about["algorithm"]
    return {table["metric"]: table["values"][name] for table in tables if name in table["values"]}
