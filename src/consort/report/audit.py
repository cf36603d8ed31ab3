"""The page of an audit: what the clients sent, and what attackers can recover from it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

from consort.attacks.audit import Audit, ClientFinding, MembershipResults
from consort.attacks.membership import ENOUGH, Membership
from consort.attacks.recovery import Recovery
from consort.report.document import write_page
from consort.report.gallery import gallery
from consort.report.html import Cell, Content, Html, details, join, table, tag, tiles
from consort.report.numbers import UNKNOWN, count, natural, score
from consort.results.result import Result
from consort.results.table import spent

NO_GUARANTEE = (
    "There is no guarantee. This run has no differential privacy: updates were not clipped and "
    "given noise under a privacy accountant, so there is no ε and no δ. If an attack failed here, "
    "this says only that this attack failed; a better attack, more rounds, or an attacker with "
    "more knowledge may succeed."
)
_GUARANTEE = (
    "Differential privacy per {level}: whoever sees everything that was sent learns about any "
    "single {level} hardly more than if it had not taken part, with ε = {epsilon:.3g} at δ = "
    "{delta:.1g} for the client with the largest ε. This run is a simulation: its noise is drawn "
    "from its seed, and the guarantee holds against everybody who does not know the seed. Clients "
    "on machines of their own draw secret noise. The larger ε, the weaker the guarantee."
)
_HOW = (
    "The last finished round was repeated from the state before it, and its messages were recorded "
    "at the server. "
)
_SAME = (
    "It ended in the same state as in the run, bit for bit: these are the messages that were sent."
)
_OTHER = (
    "It did not end in the same state as in the run (perhaps on another machine, or with other "
    "package versions): the messages of the run were of this kind, but not exactly these."
)
_INVERSION = (
    "Gradient inversion: an attacker who sees a client's messages searches for examples whose "
    "gradient has the direction of the update. The attacker is given more than in reality: the "
    "labels of eight examples, in the proportions of the client's classes. The whole local "
    "training is treated as one step, which is less accurate the more steps there were. The "
    "baseline is the mean of the test examples: an attack that is no closer to the originals has "
    "learnt nothing from the messages."
)
_IMPRINT = (
    "This did not happen in the run. A malicious server could send a model with an additional "
    "layer in front that sorts examples by their mean into bins; one training step on a batch then "
    "reveals every example that is alone in its bin. Clients refuse parameters that their model "
    "does not have, but a client that takes its architecture from the server is vulnerable."
)
_MEMBERSHIP = (
    "Training examples tend to have smaller losses than test examples. An attacker with the model "
    "separates them by the loss, by the loss within a class, and by the difference from the loss "
    "of a reference model of the same architecture trained on validation data, or of several "
    "shadow models. AUC 0.5 and advantage 0 are chance. The 95 % confidence interval of the AUC is "
    "in brackets: an interval that contains 0.5 is inconclusive."
)
_FEW = (
    f"too few examples for a conclusive result: at least {ENOUGH} of each kind must be evaluated, "
    "and half of the examples only choose the threshold"
)
_INFORMATION = (
    "As papers report them, from histograms. Lower numbers do not by themselves mean more privacy."
)
_RESCALE = (
    "The images of this run were obfuscated before training. Outside the patches around minutiae, "
    "one division restores them; the baseline is the obfuscated image."
)


def write_audit(audit: Audit, result: Result, path: Path) -> Path:
    """Writes the results of an audit into one self-contained HTML file.

    Args:
        audit: The results.
        result: The audited run.
        path: The file to write.

    Returns:
        The path.

    Raises:
        Failure: If the file cannot be written.
    """
    about = audit.about
    sections: dict[str, Content] = {
        "Summary": _summary(audit, result),
        "Data sent by the clients": _sent(audit, result),
        "Reconstruction from updates": _recovered(audit, "inversion", _INVERSION),
        "A malicious server": _recovered(audit, "imprint", _IMPRINT),
        "Membership inference": _membership(audit.findings),
        "Mutual information": _information(audit.findings),
        "Undoing the obfuscation": _rescaled(audit.findings),
        "Guarantees": tag("p", _guarantee(audit, result)),
    }
    title = f"Audit: {about['title'] or about['algorithm']}"
    subtitle = f"{about['algorithm']}, seed {about['seed']}, round {audit.round}"
    return write_page(path, title, subtitle, sections)


def _summary(audit: Audit, result: Result) -> Html:
    inverted = [f.inversion for f in audit.findings if isinstance(f.inversion, Recovery)]
    tried = sum(len(found.scores) for found in inverted)
    facts = [
        ("Sent by clients", _size(sum(result.bytes("up").values())), "in all rounds together"),
        (
            "Recovered from updates",
            f"{sum(f.recognised for f in inverted)} of {tried}" if tried else "not possible",
            "examples recovered recognisably from the messages of the attacked clients"
            if tried
            else "inputs cannot be computed from what was sent",
        ),
        ("Membership inference", *_best(_memberships(audit.findings))),
        ("Guarantee", *_tile(audit, result)),
    ]
    how = _HOW + (_SAME if audit.reproduced else _OTHER)
    return join([tiles(facts), tag("p", _guarantee(audit, result)), tag("p", how, class_="note")])


def _epsilon(audit: Audit, result: Result) -> float:
    """The ε that was spent; infinite without a guarantee."""
    return spent(result) if audit.about.get("privacy") and "epsilon" in result.noted else math.inf


def _guarantee(audit: Audit, result: Result) -> str:
    epsilon = _epsilon(audit, result)
    if math.isinf(epsilon):
        return NO_GUARANTEE
    privacy = audit.about["privacy"]
    return _GUARANTEE.format(level=privacy["level"], epsilon=epsilon, delta=privacy["delta"])


def _tile(audit: Audit, result: Result) -> tuple[str, str]:
    epsilon = _epsilon(audit, result)
    if math.isinf(epsilon):
        return "none", "no differential privacy: see the end of this page"
    return f"ε = {epsilon:.3g}", "differential privacy: see the end of this page"


def _best(told: list[Membership]) -> tuple[str, str]:
    """The AUC of the best attack, and how to read it."""
    best = max((one for one in told if one.is_conclusive), key=lambda one: one.auc, default=None)
    if best is not None:
        return f"AUC {_area(best, 2)}", "of the best attack; 0.5 is chance"
    return UNKNOWN, _FEW if told else "not tried"


def _area(told: Membership, digits: int) -> str:
    """The area under the curve and its confidence interval."""
    low, high = told.interval
    return f"{told.auc:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def _memberships(findings: Iterable[ClientFinding]) -> list[Membership]:
    return [
        told
        for finding in findings
        if not isinstance(finding.membership, str)
        for told in finding.membership.values()
        if isinstance(told, Membership)
    ]


def _sent(audit: Audit, result: Result) -> Html:
    roles = list(result.bytes("up"))
    columns = {role: result.bytes("up", "client", role) for role in roles}
    clients = sorted(result.bytes("up", "client"), key=natural)
    if not clients:
        return join([tag("p", "No client sent a tensor."), _entries(audit)])

    def of(role: str, client: str) -> Cell:
        size = columns[role].get(client, 0)
        return Cell(_size(size), size)

    shown = {"client": lambda client: client} | {
        role: (lambda client, role=role: of(role, client)) for role in roles
    }
    note = (
        "Bytes of tensors sent in all rounds, by part of the model; plain numbers are not counted."
    )
    return join([table(clients, shown, note), _entries(audit)])


def _entries(audit: Audit) -> Html:
    rows = [(finding.client, sent) for finding in audit.findings for sent in finding.sent]
    if not rows:
        return tag("p", f"In round {audit.round} the attacked clients sent nothing.")
    listing = table(
        rows,
        {
            "client": lambda row: row[0],
            "method": lambda row: row[1].method,
            "entry": lambda row: row[1].entry,
            "content": lambda row: row[1].kind,
            "parts": lambda row: ", ".join(row[1].roles) or UNKNOWN,
            "bytes": lambda row: count(sum(row[1].roles.values())),
        },
    )
    return details(f"All entries of the replies in round {audit.round}", listing, unfolded=True)


def _recovered(audit: Audit, what: str, explanation: str) -> Html:
    parts: list[Content] = [tag("p", explanation)]
    for finding in audit.findings:
        found: Recovery | str = getattr(finding, what)
        parts.append(tag("h3", finding.client))
        if isinstance(found, str):
            parts.append(tag("p", found))
        else:
            parts += [tag("p", _verdict(found)), gallery(found)]
    return join(parts)


def _verdict(found: Recovery) -> str:
    fit = "" if math.isnan(found.cosine) else f"; cosine to the update {found.cosine:.2f}"
    comparison = f"{found.gain:.1f} dB better" if found.gain > 0 else "no better"
    return (
        f"{len(found.scores)} examples reconstructed for {found.total} originals, "
        f"{found.recognised} of them recognisable; on average {comparison} than the baseline{fit}."
    )


def _membership(findings: Iterable[ClientFinding]) -> Html:
    parts: list[Content] = [tag("p", _MEMBERSHIP)]
    for finding in findings:
        parts.append(tag("h3", finding.client))
        parts.append(tag("p", f"Attacked with {finding.attacked_model}.", class_="note"))
        parts.append(_attacks(finding.membership))
    return join(parts)


def _attacks(told: MembershipResults) -> Html:
    if isinstance(told, str):
        return tag("p", told)
    reasons = [found for found in told.values() if isinstance(found, str)]
    rows = [(name, found) for name, found in told.items() if isinstance(found, Membership)]
    listing = table(
        rows,
        {
            "attack": lambda row: row[0],
            "AUC": lambda row: Cell(_area(row[1], 3), row[1].auc),
            "advantage": lambda row: score(row[1].advantage),
            "members": lambda row: count(row[1].members),
            "non-members": lambda row: count(row[1].others),
        },
    )
    if not all(found.is_conclusive for _, found in rows):
        reasons.append(f"There are {_FEW}.")
    return join([listing, *(tag("p", reason, class_="note") for reason in reasons)])


def _information(findings: Iterable[ClientFinding]) -> Html:
    parts: list[Content] = [tag("p", _INFORMATION)]
    for finding in findings:
        found = finding.information
        text = (
            found
            if isinstance(found, str)
            else f"mutual information of a feature and a cell of the image {found[0]:.3f} bits "
            f"(after subtracting that of shuffled images); entropy of the features {found[1]:.2f} "
            "of 8 bits"
        )
        parts.append(tag("p", tag("b", finding.client), f": {text}"))
    return join(parts)


def _rescaled(findings: Iterable[ClientFinding]) -> Html | None:
    found = [(f.client, f.rescaled) for f in findings if f.rescaled is not None]
    if not found:
        return None
    parts = [join([tag("h3", client), gallery(recovery)]) for client, recovery in found]
    return join([tag("p", _RESCALE), *parts])


def _size(number: int) -> str:
    """A number of bytes in a suitable unit."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number:,} B"
