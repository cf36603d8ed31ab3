"""Protections around any algorithm: differential privacy, secure aggregation, robust rules."""

from consort.core.plugins import Plugin

plugin = Plugin(
    protections={
        "attack": "consort.attacks.poisoning:Attack",
        "privacy": "consort.protection.dp:Privacy",
        "refuse_imprints": "consort.protection.imprint:RefuseImprints",
        "robust": "consort.protection.robust:Robust",
        "secure": "consort.protection.secure.settings:Secure",
    }
)
