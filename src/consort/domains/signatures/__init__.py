"""Handwritten signatures: reading, cleaning, balancing, augmenting and verifying them."""

from consort.core.plugins import Plugin

plugin = Plugin(
    datasets={
        "bhsig_bengali": "consort.domains.signatures.loaders:bhsig_bengali",
        "bhsig_hindi": "consort.domains.signatures.loaders:bhsig_hindi",
        "cedar": "consort.domains.signatures.loaders:cedar",
        "gpds": "consort.domains.signatures.loaders:gpds",
        "signature_folder": "consort.domains.signatures.loaders:signature_folder",
        "synthetic_signatures": (
            "consort.domains.signatures.synthetic.signatures:synthetic_signatures"
        ),
    },
    models={
        "htcsignet": "consort.domains.signatures.models.htcsignet:HTCSigNet",
        "octconvnet": "consort.domains.signatures.models.octconv:OctConvNet",
        "signet": "consort.domains.signatures.models.signet:SigNet",
        "signet_s": "consort.domains.signatures.models.signet:SigNetS",
        "vitsignet": "consort.domains.signatures.models.vitsignet:ViTSigNet",
        "vitsignet32": "consort.domains.signatures.models.vitsignet:ViTSigNet32",
    },
    tasks={
        "detection": "consort.domains.signatures.tasks:Detection",
        "identification": "consort.domains.signatures.tasks:Identification",
    },
    augmentations={"signatures": "consort.domains.signatures.training:varied_signatures"},
    evaluations={"verification": "consort.domains.signatures.unseen:Verifying"},
    balancings={"signatures": "consort.domains.signatures.training:balanced_signatures"},
)
