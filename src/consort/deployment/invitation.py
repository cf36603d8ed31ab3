"""A study that a client is asked to take part in, from its arrival to its approval."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from consort.core.permission import permitting
from consort.core.validation import Table
from consort.deployment.approval import WAITING, Studies, StudyEntry
from consort.deployment.enrolment import Candidate, Enrolment
from consort.deployment.policy import Judge, Policy, own_names
from consort.deployment.schema import Proposal
from consort.deployment.study import Study
from consort.errors import Refused, Tellable
from consort.experiment.recipe import Recipe
from consort.models.registry import ModelSpec


@dataclass(frozen=True)
class Invitation:
    """A study that is permitted at a client, and the judge of all that is named in its course."""

    candidate: Candidate
    judge: Judge
    entry: StudyEntry
    """The study as its owner sees it."""

    @classmethod
    def of(
        cls,
        proposal: Proposal,
        policy: Policy,
        agreed: Recipe | None,
        name: str,
        brings: Table,
        data: Path | None,
    ) -> Invitation:
        """Checks a proposal.

        Args:
            proposal: What arrived.
            policy: The client's policy.
            agreed: The only recipe that the client accepts, code and files included.
            name: The name of the client.
            brings: The client's data, model and tasks.
            data: The folder with the client's data.

        Raises:
            Refused: If the client does not take part in such a study.
            UsageError: If the study and what the client brings do not fit together.
        """
        study = Study(**proposal.model_dump()).accepted(agreed)
        judge = Judge(policy, own_names(brings), trusting=agreed is not None)
        with permitting(judge):
            if agreed is None:
                policy.check(study)
                judge.check_server(study.recipe)
            candidate = Candidate.of(study, name, brings, data)
            policy.check_bytes(sum(candidate.sizes.values()), "the model")
            return cls(candidate, judge, StudyEntry.of(candidate, judge.named))

    @property
    def study(self) -> Study:
        """The study."""
        return self.candidate.study

    def check_approved(
        self, policy: Policy, studies: Studies | None, show: Callable[[str], Any]
    ) -> None:
        """Checks that the client's owner has approved of the study.

        Args:
            policy: The client's policy.
            studies: What the owner said to studies, if he can be asked.
            show: Prints a line for the owner.

        Raises:
            Tellable: If he has not.
        """
        if policy.approve == "listed":
            return
        if studies is None:
            raise Tellable(WAITING)
        studies.check(self.entry, show)

    def check_companion(self, table: Table, policy: Policy) -> None:
        """Checks the companion model that a server has chosen for all clients.

        Args:
            table: The model.
            policy: The client's policy.

        Raises:
            Refused: If the study has none, or another one, or it is too large.
        """
        own = self.candidate.algorithm.companion
        if own is None or own not in ({}, table):
            raise Refused("the companion model is not that of the study")
        policy.check_numbers(table)
        if own != table:
            self.judge.check_server(table)
        if table:
            size = sum(self.candidate.sizes_of(ModelSpec.of(table)).values())
            policy.check_bytes(size, "the companion model")

    def enrolment(self) -> Enrolment:
        """Joins the study; from now on, only what was named so far is the owner's choice."""
        enrolled = Enrolment.of(self.candidate)
        self.judge.trusting = False
        return enrolled
