import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from consort.core.plugins import descriptions, entries
from consort.data.registry import load_dataset
from consort.errors import UsageError
from consort.tasks import Classification

DATASETS = entries("datasets")
SYNTHETIC = sorted(name for name in DATASETS if name.startswith("synthetic_"))
TWINS = {
    "chest_xray": "synthetic_images",
    "cifar10": "synthetic_images",
    "cifar100": "synthetic_images",
    "isic2019": "synthetic_images",
    "kvasir": "synthetic_images",
    "tinyimagenet": "synthetic_images",
    "femnist": "synthetic_writers",
    "ag_news": "synthetic_news",
    "bhsig_bengali": "synthetic_signatures",
    "bhsig_hindi": "synthetic_signatures",
    "cedar": "synthetic_signatures",
    "gpds": "synthetic_signatures",
    "signature_folder": "synthetic_signatures",
    "casia_fingerprint": "synthetic_fingerprints",
    "fvc2002": "synthetic_fingerprints",
    "fvc2004": "synthetic_fingerprints",
    "nist_sd10": "synthetic_fingerprints",
    "socofing": "synthetic_fingerprints",
    "taskonomy": "synthetic_scenes",
}
LAYOUTS = {
    "chest_xray": r"COVID-19_Radiography_Dataset/<class>/images/\*\.png or medical/covid_radio",
    "cifar100": r"cifar-100-binary/train\.bin beside cifar-100-binary/test\.bin",
    "isic2019": r"fed_isic2019/ISIC_2019_Training_Input_preprocessed/\*\.jpg or fed_isic2019/ISIC",
    "kvasir": r"kvasir-dataset-v2/<class>/\*\.jpg",
    "tinyimagenet": r"tiny-imagenet-200/wnids\.txt beside tiny-imagenet-200/val/val_annotations",
    "cifar10": r"cifar-10-batches-bin/\*\.bin or images/cifar10_7500.npz",
    "femnist": r"femnist/data/\{train,test\}/\*\.json or images/femnist_digits_12clients.npz",
    "ag_news": "ag_news_csv/train.csv .* or text/ag_news/train_subset12000.tsv",
    "bhsig_bengali": r"BHSig260/Bengali/<user>/B-S-<user>-\{G,F\}-<number>\.tif or signatures",
    "bhsig_hindi": r"BHSig260/Hindi/<user>/H-S-<user>-\{G,F\}-<number>\.tif or signatures/bhsig260",
    "cedar": r"signatures/full_\{org,forg\}/\{original,forgeries\}_<user>_<number>\.png or signat",
    "gpds": r"GPDSS10000/<user>/\{c,cf\}-<user>-<number>\.jpg",
    "signature_folder": r"signatures/<user>/\{genuine,forged\}/\*\.png or signatures/\{Gen",
    "casia_fingerprint": r"CASIA-FingerprintV5\(BMP\)/<person>/<L\|R>/<person>_<L\|R><finger>_",
    "fvc2002": r"FVC2002/DB<sensor>_<A\|B>/<finger>_<impression>\.tif or fingerprints/fvc2002",
    "fvc2004": r"FVC2004/DB<sensor>_<A\|B>/<finger>_<impression>\.tif or fingerprints/fvc2004",
    "nist_sd10": r"NIST_SD10/f<number>\.png or sd10/f<number>\.png",
    "socofing": r"SOCOFing/Real/<person>__<M\|F>_<hand>_<finger>_finger\.BMP or fingerprints",
    "taskonomy": "dense/taskonomy_96.npz",
}
FEW = {"synthetic_scenes": {"examples": 20}}
"""Options for tests of those that take seconds."""


@pytest.mark.parametrize("name", SYNTHETIC)
def test_same_seed_same_data_other_seed_other_data(name):
    once, again, other = (load_dataset(name, seed, None, **FEW.get(name, {})) for seed in (3, 3, 4))
    assert torch.equal(once.examples.inputs, again.examples.inputs)
    assert np.array_equal(once.labels, again.labels)
    assert not torch.equal(once.examples.inputs, other.examples.inputs)


DENSE = {"Depth", "Edges", "Normals", "Saliency", "Segmentation"}
OTHER_TARGETS = {
    "Instances": [torch.int32],
    "KeyPoints": [torch.float32],
    "Panoptic": [torch.int32],
}


@pytest.mark.parametrize("name", SYNTHETIC)
def test_what_a_data_set_promises(name):
    dataset = load_dataset(name, 0, None, **FEW.get(name, {}))
    assert dataset.name == name
    assert len(dataset) == len(dataset.labels) == len(dataset.examples.inputs)
    assert dataset.labels.dtype == np.int64
    assert dataset.examples.targets.keys() == dataset.tasks.keys()
    for task, target in dataset.examples.targets.items():
        kind = type(dataset.tasks[task]).__name__
        maps = (torch.uint8, torch.float16) if kind in DENSE else (torch.int64,)
        assert target.dtype in OTHER_TARGETS.get(kind, maps)
        if isinstance(dataset.tasks[task], Classification):
            assert set(target.tolist()) == set(range(dataset.tasks[task].classes))
    prepared = dataset.prepare(dataset.examples.inputs[:3])
    assert prepared.dtype in (torch.float32, torch.int64)
    assert prepared.shape == dataset.examples.inputs[:3].shape


def test_a_misspelt_name_is_answered_with_the_nearest_and_all_names():
    with pytest.raises(UsageError, match=r"'synthetic_image'.*mean 'synthetic_images'") as caught:
        load_dataset("synthetic_image", 0, None)
    assert all(name in str(caught.value) for name in DATASETS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clases": 3}, r"no option 'clases': did you mean 'classes'\? .*per_class.*domains"),
        ({"seed": 3}, "no option 'seed'"),
        ({"classes": "3"}, "classes = '3': input should be a valid integer"),
        ({"classes": 2.5}, "classes = 2.5: input should be a valid integer"),
        ({"per_class": True}, "per_class = True: input should be a valid integer"),
        ({"classes": 1}, "classes = 1: input should be greater than or equal to 2"),
        ({"classes": 1000}, "classes = 1000: input should be less than or equal to 40"),
        ({"noise": float("inf")}, "noise = inf: input should be a valid number"),
    ],
)
def test_a_wrong_option_is_named_with_what_is_allowed(options, message):
    with pytest.raises(UsageError, match=message):
        load_dataset("synthetic_images", 0, None, **options)


def test_a_whole_number_will_do_for_a_fraction():
    assert len(load_dataset("synthetic_vectors", 0, None, noise=1, examples=20)) == 20


@pytest.mark.parametrize("name", TWINS)
def test_without_a_folder_the_way_out_is_named(name):
    expected = f"--data or CONSORT_DATA to the folder .*{LAYOUTS[name]}.*, or use '{TWINS[name]}'"
    with pytest.raises(UsageError, match=expected):
        load_dataset(name, 0, None)


@pytest.mark.parametrize("name", TWINS)
def test_a_folder_without_the_data_is_named_with_the_layouts(name, tmp_path):
    expected = f"'{name}': .*{tmp_path.name} does not contain .*{LAYOUTS[name]}.*{TWINS[name]}"
    with pytest.raises(UsageError, match=expected):
        load_dataset(name, 0, tmp_path)
    expected = f"nowhere does not exist: it should contain .*{LAYOUTS[name]}"
    with pytest.raises(UsageError, match=expected):
        load_dataset(name, 0, tmp_path / "nowhere")


def test_descriptions_are_the_first_docstring_lines():
    described = descriptions("datasets")
    assert list(described) == list(DATASETS)
    for name, line in described.items():
        module, function = DATASETS[name].place.split(":")
        loader = getattr(__import__(module, fromlist=[function]), function)
        assert line == loader.__doc__.splitlines()[0]
        assert line.endswith(".")


def test_describing_imports_no_torch():
    code = (
        "import sys; from consort.core.plugins import descriptions; "
        "from consort.data.partition import Cut; "
        "descriptions('datasets'); sys.exit('torch' in sys.modules)"
    )
    source = Path(sys.modules["consort.data.registry"].__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", code], cwd=source, check=False).returncode == 0


# Data sets of one's own

OWN = """
import numpy as np
import torch

from consort.data.dataset import Dataset
from consort.data.examples import Examples
from consort.tasks import Classification


def parity(seed: int, *, examples: int = 6, sizes: tuple[int, ...] = (2,)) -> Dataset:
    labels = (np.arange(examples) + seed) % 2
    inputs = torch.zeros(examples, *sizes)
    targets = {"odd": torch.from_numpy(labels)}
    return Dataset("parity", Examples(inputs, targets), {"odd": Classification(2)}, labels)


def of_folder(folder):
    return parity(len(folder.name))


def number():
    return 3


NOT_A_FUNCTION = 3
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "own_data.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "own_data.py"


@pytest.mark.parametrize("place", ["own_data.py:parity", "{file}:parity", "own_data:parity"])
def test_a_function_of_ones_own_is_a_data_set(place, own, monkeypatch):
    monkeypatch.syspath_prepend(own.parent)
    dataset = load_dataset(place.format(file=own), 1, None, examples=4, sizes=[3, 5])
    assert dataset.labels.tolist() == [1, 0, 1, 0]
    assert dataset.examples.inputs.shape == (4, 3, 5)


@pytest.mark.usefixtures("own")
def test_a_function_of_ones_own_gets_only_what_it_asks_for():
    assert load_dataset("own_data.py:of_folder", 0, Path("abc")).labels[0] == 1


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("own_data.py:parity", {"example": 4}, "no option 'example': did you mean 'examples'"),
        ("own_data.py:parity", {"examples": 0.5}, "examples = 0.5: input should be a valid int"),
        (
            "own_data.py:number",
            {},
            "data set 'own_data.py:number': a int is no data: give a pair of inputs",
        ),
        ("own_data.py:NOT_A_FUNCTION", {}, "NOT_A_FUNCTION is not a function that makes a Dataset"),
        ("own_data.py:party", {}, "own_data.py defines no 'party'"),
        ("other.py:parity", {}, "there is no file other.py"),
        ("no_such_package.data:f", {}, "there is no module 'no_such_package'"),
    ],
)
def test_what_is_wrong_with_ones_own_data_set_is_said(name, options, message):
    with pytest.raises(UsageError, match=message):
        load_dataset(name, 0, None, **options)
