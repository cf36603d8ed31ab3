"""Partitioning by units, such as all pairs of one finger, that must not be split up."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from consort.data.partition.share import Numbers, Share

if TYPE_CHECKING:
    from consort.data.dataset import Dataset


def one_per_unit(dataset: Dataset, units: Numbers) -> Dataset:
    """Reduces a data set to one example per unit, without inputs.

    Args:
        dataset: The data set to partition.
        units: The unit of each example.

    Returns:
        A data set whose examples stand for the units; only its labels can be used.
    """
    import torch

    from consort.data.examples import Examples

    _, first = np.unique(units, return_index=True)
    return replace(
        dataset,
        examples=Examples(torch.empty(len(first), 0), {}),
        labels=dataset.labels[first],
        strata=None if dataset.strata is None else dataset.strata[first],
        owners=None if dataset.owners is None else dataset.owners[first],
        domains=None if dataset.domains is None else dataset.domains[first],
        units=None,
    )


def all_of_units(share: Share, units: Numbers) -> Share:
    """Converts a share of units to a share of examples.

    Args:
        share: Units, as positions in the result of `one_per_unit`.
        units: The unit of each example.

    Returns:
        All examples of these units.
    """
    _, unit = np.unique(units, return_inverse=True)
    train, validation, test = (
        np.flatnonzero(np.isin(unit, part)) for part in (share.train, share.validation, share.test)
    )
    return Share(train, validation, test, share.tasks)
