"""Classification of texts."""

from consort.core.plugins import Plugin

plugin = Plugin(
    datasets={
        "ag_news": "consort.domains.text.ag_news:ag_news",
        "synthetic_news": "consort.domains.text.synthetic:synthetic_news",
    },
    models={"textcnn": "consort.domains.text.textcnn:TextCnn"},
)
