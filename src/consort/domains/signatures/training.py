"""A client's signatures as it trains on them: balanced and varied, anew in every round."""

from __future__ import annotations

from dataclasses import replace

from torch import Generator

from consort.data.examples import Examples
from consort.domains.signatures.augment import augmented
from consort.domains.signatures.balance import Repeated, balanced
from consort.domains.signatures.tasks import claimed_user
from consort.errors import UsageError


def varied(
    examples: Examples,
    balance: bool,
    augment: bool,
    generator: Generator,
    repeated: Repeated = "smaller",
) -> Examples:
    """As many genuine signatures as forgeries of each user, and every one a little different."""
    if not {"identify", "detect"} <= examples.targets.keys():
        raise UsageError(
            "local.balance and local.augment are for signatures: data with the tasks identify and "
            "detect"
        )
    if balance:
        users = claimed_user(examples.targets["identify"])
        genuine = examples.targets["detect"]
        examples = examples.take(balanced(users, genuine, generator, repeated))
    if augment:
        examples = replace(examples, inputs=augmented(examples.inputs, generator))
    return examples
