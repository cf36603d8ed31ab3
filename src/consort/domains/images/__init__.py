"""Classification of natural and medical images."""

from consort.core.plugins import Plugin

plugin = Plugin(
    datasets={
        "chest_xray": "consort.domains.images.chest_xray:chest_xray",
        "cifar10": "consort.domains.images.cifar10:cifar10",
        "cifar100": "consort.domains.images.cifar100:cifar100",
        "image_folder": "consort.data.image_folder:image_folder",
        "femnist": "consort.domains.images.femnist:femnist",
        "isic2019": "consort.domains.images.isic2019:isic2019",
        "kvasir": "consort.domains.images.kvasir:kvasir",
        "synthetic_images": "consort.domains.images.synthetic.images:synthetic_images",
        "synthetic_shapes": "consort.domains.images.synthetic.images:synthetic_shapes",
        "synthetic_writers": "consort.domains.images.synthetic.writers:synthetic_writers",
        "tinyimagenet": "consort.domains.images.tinyimagenet:tinyimagenet",
    },
)
