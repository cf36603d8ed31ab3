"""Examples that belong together, such as the pairs of one finger, stay together."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from consort.data.partition.share import Numbers, Share

if TYPE_CHECKING:
    from consort.data.dataset import Dataset


def one_per_unit(dataset: Dataset, units: Numbers) -> Dataset:
    """A data set with the labels of one example of every unit, and without any inputs."""
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
    """The examples of the units that a share names by their positions."""
    _, unit = np.unique(units, return_inverse=True)
    train, validation, test = (
        np.flatnonzero(np.isin(unit, part)) for part in (share.train, share.validation, share.test)
    )
    return Share(train, validation, test, share.tasks)
