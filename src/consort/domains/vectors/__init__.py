"""Classification of vectors, for tiny models and very many clients."""

from consort.core.plugins import Plugin

plugin = Plugin(
    datasets={"synthetic_vectors": "consort.domains.vectors.synthetic:synthetic_vectors"},
)
