"""What `consort list` shows, found without importing anything slow."""

from __future__ import annotations

import tomllib

from consort.core.registry import first_line

TASKS = {
    "classification": "consort.tasks.classification:Classification",
    "detection": "consort.domains.signatures.tasks:Detection",
    "identification": "consort.domains.signatures.tasks:Identification",
    "verification": "consort.domains.fingerprints.task:Verification",
}
METRICS = {
    "accuracy": "share of examples with the right label (classification)",
    "balanced_accuracy": "mean recall over the classes a client really has (classification)",
    "eer, auc": "equal error rate, area under the curve (detection, verification)",
    "attack_success": "share of marked test examples called what an attacker wants (back door)",
    "tar_at_1pct, tar_at_1permille": "share of genuine pairs accepted at such a FAR (verification)",
    "precision, recall, f1": "of pairs accepted at the margin (verification)",
    "…_validated": "the same, and accuracy, at a threshold from validation (verification)",
    "loss": "mean loss per example (every task)",
    "bytes_up, bytes_down": "tensors sent by and to a client, by role",
    "seconds": "wall time of a round; CPU time of each client's call",
    "peak_memory_mib": "largest memory of the server process so far",
}


def describe(what: str) -> dict[str, str]:
    """Name → one line, for algorithms, models, data sets, tasks, recipes or metrics."""
    match what:
        case "algorithms":
            from consort.algorithms.registry import describe_algorithms

            return describe_algorithms()
        case "models":
            from consort.models.registry import describe_models

            return describe_models()
        case "datasets":
            from consort.data.registry import describe_datasets

            return describe_datasets()
        case "tasks":
            return {name: first_line(place) for name, place in TASKS.items()}
        case "recipes":
            return _recipes()
    return METRICS


def _recipes() -> dict[str, str]:
    from consort.experiment.shipped import shipped_recipes

    return {
        name: tomllib.loads(path.read_text()).get("title", "")
        for name, path in shipped_recipes().items()
    }
