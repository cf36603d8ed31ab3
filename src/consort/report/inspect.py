"""The federation before training: who holds what, on one page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from consort.report import data_overview
from consort.report.document import write_page
from consort.report.html import Content, Html, details, tag, tiles
from consort.report.skew import gini, label_distance


def write_inspection(
    description: Mapping[str, Any], path: Path, unlike: Content | None = None
) -> Path:
    """Writes a page about a federation that has not been trained yet."""
    clients, tasks = description["clients"], description["tasks"]
    return write_page(
        path,
        str(description["title"]) or "A federation",
        f"The federation before training · partition {description['partition']}",
        {
            "Overview": _overview(clients),
            "Who holds what": data_overview.pictures(clients, tasks),
            "How unlike pictures are": unlike,
            "Tasks, models, groups": data_overview.tables(clients, tasks),
            "Settings": details("Recipe", tag("pre", json.dumps(description["recipe"], indent=2))),
        },
    )


def _overview(clients: data_overview.Clients) -> Html:
    sizes = [data_overview.size(client) for client in clients.values()]
    labelled = [client["labels"] for client in clients.values() if client["labels"]]
    facts = [
        ("Clients", f"{len(clients):,}", f"with {min(sizes):,} to {max(sizes):,} examples each"),
        ("Examples", f"{sum(sizes):,}", "in all splits together"),
        ("Size skew", f"{gini(sizes):.2f}", "Gini: 0 if all have the same, near 1 if one has all"),
    ]
    if labelled:
        facts += [
            (
                "Label skew",
                f"{label_distance(labelled):.2f}",
                "share of a client's examples out of place in the mix of the whole: 0 is none",
            ),
            (
                "Classes per client",
                f"{fmean(map(len, labelled)):.1f}",
                f"of {len({name for labels in labelled for name in labels})} in the federation",
            ),
        ]
    return tiles(facts)
