"""General models, data, tasks, and metrics of every run, independent of any domain."""

from consort.core.plugins import Plugin

plugin = Plugin(
    datasets={"tensors": "consort.data.tensor_file:tensors"},
    models={
        "cnn4": "consort.models.cnn4:Cnn4",
        "mlp": "consort.models.mlp:Mlp",
        "resnet": "consort.models.resnet:ResNet",
    },
    tasks={"classification": "consort.tasks.classification:Classification"},
    metrics={
        "accuracy": "share of examples with the correct label (classification)",
        "attack_success": "share of triggered test examples with the attacker's label (backdoor)",
        "balanced_accuracy": "mean recall over the classes a client has (classification)",
        "bytes_up, bytes_down": "tensors sent by and to a client, by role",
        "eer, auc": "equal error rate, area under the curve (detection, verification)",
        "loss": "mean loss per example (every task)",
        "peak_memory_mib": "peak memory of the server process so far",
        "seconds": "wall-clock time of a round; CPU time of each client's call",
    },
)
