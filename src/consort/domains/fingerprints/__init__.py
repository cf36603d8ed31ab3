"""Fingerprints: reading, scaling, pairing, matching and obfuscating them."""

from consort.core.plugins import Plugin

plugin = Plugin(
    datasets={
        "casia_fingerprint": "consort.domains.fingerprints.loaders:casia_fingerprint",
        "fvc2002": "consort.domains.fingerprints.loaders:fvc2002",
        "fvc2004": "consort.domains.fingerprints.loaders:fvc2004",
        "nist_sd10": "consort.domains.fingerprints.loaders:nist_sd10",
        "socofing": "consort.domains.fingerprints.loaders:socofing",
        "synthetic_fingerprints": (
            "consort.domains.fingerprints.synthetic.prints:synthetic_fingerprints"
        ),
    },
    models={"siamese": "consort.domains.fingerprints.siamese:Siamese"},
    tasks={"verification": "consort.domains.fingerprints.task:Verification"},
    obfuscations={"fp_dfsn": "consort.domains.fingerprints.obfuscation:FpDfsn"},
    metrics={
        "precision, recall, f1": "of the pairs accepted at the margin (verification)",
        "tar_at_1pct, tar_at_1permille": "genuine pairs accepted at this FAR (verification)",
        "…_validated": "the same and accuracy, at a threshold from validation (verification)",
    },
)
