"""Noisy waves, and how often they swing: everything here can be named in recipes.

Keep the module that holds `plugin` quick to import: `consort list` imports it, and nothing else.
"""

from consort.core.plugins import Plugin

plugin = Plugin(
    algorithms={"slow_fedavg": "consort_waves.algorithm:SlowFedAvg"},
    datasets={"waves": "consort_waves.data:waves"},
    models={"spectrum": "consort_waves.model:Spectrum"},
    tasks={"frequency": "consort_waves.task:Frequency"},
    metrics={"error": "mean distance from the true frequency (frequency)"},
)
