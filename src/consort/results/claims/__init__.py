"""Claims about a comparison, such as `eer(FedMH) < eer(each other)`, and their verdicts."""

from consort.results.claims.claim import Claim, Verdict

__all__ = ["Claim", "Verdict"]
