"""The page of `consort inspect`: a federation before training."""

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
    description: Mapping[str, Any], path: Path, heterogeneity: Content | None = None
) -> Path:
    """Writes a page about a federation that has not been trained yet.

    Args:
        description: The federation, as in `run.json`.
        path: The file to write.
        heterogeneity: A section on the heterogeneity of images.

    Returns:
        The path.

    Raises:
        Failure: If the file cannot be written.
    """
    clients, tasks = description["clients"], description["tasks"]
    return write_page(
        path,
        str(description["title"]) or "A federation",
        f"The federation before training · partition {description['partition']}",
        {
            "Overview": _overview(clients),
            "Data of the clients": data_overview.pictures(clients, tasks),
            "Heterogeneity of images": heterogeneity,
            "Tasks, models and groups": data_overview.tables(clients, tasks),
            "Settings": details("Recipe", tag("pre", json.dumps(description["recipe"], indent=2))),
        },
    )


def _overview(clients: data_overview.Clients) -> Html:
    sizes = [data_overview.size(client) for client in clients.values()]
    labelled = [client["labels"] for client in clients.values() if client["labels"]]
    facts = [
        ("Clients", f"{len(clients):,}", f"with {min(sizes):,} to {max(sizes):,} examples each"),
        ("Examples", f"{sum(sizes):,}", "in all splits together"),
        (
            "Size skew",
            f"{gini(sizes):.2f}",
            "Gini coefficient: 0 if all clients have equally many, near 1 if one has all",
        ),
    ]
    if labelled:
        facts += [
            (
                "Label skew",
                f"{label_distance(labelled):.2f}",
                "mean total variation distance from the label distribution of all data: 0 to 1",
            ),
            (
                "Classes per client",
                f"{fmean(map(len, labelled)):.1f}",
                f"of {len({name for labels in labelled for name in labels})} in the federation",
            ),
        ]
    return tiles(facts)
