"""Data sets by name, imported only when they are loaded."""

from __future__ import annotations

from collections.abc import Callable
from inspect import isfunction, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consort.core.registry import did_you_mean, first_line, load_object
from consort.core.validation import checked_options
from consort.errors import UsageError

if TYPE_CHECKING:
    from consort.data.dataset import Dataset

DATASETS = {
    "ag_news": "consort.domains.text.ag_news:ag_news",
    "bhsig_bengali": "consort.domains.signatures.loaders:bhsig_bengali",
    "bhsig_hindi": "consort.domains.signatures.loaders:bhsig_hindi",
    "casia_fingerprint": "consort.domains.fingerprints.loaders:casia_fingerprint",
    "cedar": "consort.domains.signatures.loaders:cedar",
    "chest_xray": "consort.domains.images.chest_xray:chest_xray",
    "cifar10": "consort.domains.images.cifar10:cifar10",
    "cifar100": "consort.domains.images.cifar100:cifar100",
    "coco": "consort.domains.scenes.coco:coco",
    "femnist": "consort.domains.images.femnist:femnist",
    "fvc2002": "consort.domains.fingerprints.loaders:fvc2002",
    "fvc2004": "consort.domains.fingerprints.loaders:fvc2004",
    "gpds": "consort.domains.signatures.loaders:gpds",
    "isic2019": "consort.domains.images.isic2019:isic2019",
    "kvasir": "consort.domains.images.kvasir:kvasir",
    "nist_sd10": "consort.domains.fingerprints.loaders:nist_sd10",
    "nyud": "consort.domains.scenes.nyud:nyud",
    "pascal_context": "consort.domains.scenes.pascal:pascal_context",
    "signature_folder": "consort.domains.signatures.loaders:signature_folder",
    "socofing": "consort.domains.fingerprints.loaders:socofing",
    "synthetic_fingerprints": "consort.domains.fingerprints.synthetic.prints:synthetic_fingerprints",  # noqa: E501
    "synthetic_images": "consort.domains.images.synthetic.images:synthetic_images",
    "synthetic_news": "consort.domains.text.synthetic:synthetic_news",
    "synthetic_scenes": "consort.domains.scenes.synthetic.scenes:synthetic_scenes",
    "synthetic_shapes": "consort.domains.images.synthetic.images:synthetic_shapes",
    "synthetic_signatures": "consort.domains.signatures.synthetic.signatures:synthetic_signatures",
    "synthetic_vectors": "consort.domains.vectors.synthetic:synthetic_vectors",
    "synthetic_writers": "consort.domains.images.synthetic.writers:synthetic_writers",
    "taskonomy": "consort.domains.scenes.taskonomy:taskonomy",
    "tinyimagenet": "consort.domains.images.tinyimagenet:tinyimagenet",
}
"""Name → "module:function". The function takes `seed`, `folder` or both, and its options."""


def load_dataset(name: str, seed: int, folder: Path | None, /, **options: Any) -> Dataset:
    """Loads or generates a data set; `folder` is where real data sets are looked for.

    The name is one of `DATASETS` or the place of a function of your own, as
    `package.module:function` or `file.py:function` (a file is looked for beside the recipe,
    then in the current folder). Like those here, it takes `seed`, `folder`, both or neither,
    and options that are checked by their annotations; it returns a `Dataset`.
    """
    from consort.data.dataset import Dataset

    loader = _loader(name)
    provided = {"seed": seed, "folder": folder}
    wanted = {key: provided[key] for key in signature(loader).parameters if key in provided}
    dataset = loader(**wanted, **checked_options(f"data set {name!r}", loader, options, provided))
    if not isinstance(dataset, Dataset):
        raise UsageError(f"{name} returns a {type(dataset).__name__} where a Dataset is expected")
    return dataset


def is_drawn(name: str) -> bool:
    """Whether the data set depends on a seed."""
    return "seed" in signature(_loader(name)).parameters


def describe_datasets() -> dict[str, str]:
    """The first line about every data set."""
    return {name: first_line(place) for name, place in DATASETS.items()}


def _loader(name: str) -> Callable[..., Any]:
    if name not in DATASETS and ":" not in name:
        raise UsageError(f"there is no data set {did_you_mean(name, DATASETS)}")
    loader = load_object(DATASETS.get(name, name))
    if not isfunction(loader):
        raise UsageError(f"{name} is not a function that makes a Dataset")
    return loader
