"""Data sets by name, imported only when they are loaded."""

from __future__ import annotations

from collections.abc import Callable
from inspect import isfunction, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consort.errors import UsageError
from consort.options import checked_options
from consort.registry import did_you_mean, first_line, load_object

if TYPE_CHECKING:
    from consort.data.dataset import Dataset

DATASETS = {
    "ag_news": "consort.data.ag_news:ag_news",
    "bhsig_bengali": "consort.data.signatures.loaders:bhsig_bengali",
    "bhsig_hindi": "consort.data.signatures.loaders:bhsig_hindi",
    "casia_fingerprint": "consort.data.fingerprints.loaders:casia_fingerprint",
    "cedar": "consort.data.signatures.loaders:cedar",
    "chest_xray": "consort.data.chest_xray:chest_xray",
    "cifar10": "consort.data.cifar10:cifar10",
    "cifar100": "consort.data.cifar100:cifar100",
    "coco": "consort.data.dense.coco:coco",
    "femnist": "consort.data.femnist:femnist",
    "fvc2002": "consort.data.fingerprints.loaders:fvc2002",
    "fvc2004": "consort.data.fingerprints.loaders:fvc2004",
    "gpds": "consort.data.signatures.loaders:gpds",
    "isic2019": "consort.data.isic2019:isic2019",
    "kvasir": "consort.data.kvasir:kvasir",
    "nist_sd10": "consort.data.fingerprints.loaders:nist_sd10",
    "nyud": "consort.data.dense.nyud:nyud",
    "pascal_context": "consort.data.dense.pascal:pascal_context",
    "signature_folder": "consort.data.signatures.loaders:signature_folder",
    "socofing": "consort.data.fingerprints.loaders:socofing",
    "synthetic_fingerprints": "consort.data.synthetic.fingerprints:synthetic_fingerprints",
    "synthetic_images": "consort.data.synthetic.images:synthetic_images",
    "synthetic_news": "consort.data.synthetic.news:synthetic_news",
    "synthetic_scenes": "consort.data.synthetic.scenes:synthetic_scenes",
    "synthetic_shapes": "consort.data.synthetic.images:synthetic_shapes",
    "synthetic_signatures": "consort.data.synthetic.signatures:synthetic_signatures",
    "synthetic_vectors": "consort.data.synthetic.vectors:synthetic_vectors",
    "synthetic_writers": "consort.data.synthetic.writers:synthetic_writers",
    "taskonomy": "consort.data.taskonomy:taskonomy",
    "tinyimagenet": "consort.data.tinyimagenet:tinyimagenet",
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
