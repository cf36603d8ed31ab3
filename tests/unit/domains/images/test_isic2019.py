import numpy as np
import pytest
import torch
from PIL import Image

from consort.domains.images.isic2019 import CENTRES, CLASSES, isic2019
from consort.errors import Failure, UsageError

LESIONS = [
    ("ISIC_0000001", "NV", "HAM_rosendahl"),
    ("ISIC_0000002_downsampled", "SCC", "MSK4nan"),
    ("ISIC_0000003", "MEL", "BCN_nan"),
    ("ISIC_0000004", "NV", "HAM_vienna_dias"),
]
COLUMNS = (*CLASSES, "UNK")


def marks(label):
    return ",".join("1.0" if label == name else "0.0" for name in COLUMNS)


def truth(lesions):
    rows = [f"{image},{marks(label)}" for image, label, _ in lesions]
    return "\n".join([f"image,{','.join(COLUMNS)}", *rows, ""])


def metadata(lesions):
    rows = [f"{image},55.0,anterior torso,female,{centre}" for image, _, centre in lesions]
    return "\n".join(["image,age_approx,anatom_site_general,sex,dataset", *rows, ""])


def split(lesions):
    rows = [
        f"{image},{marks(label)},{CLASSES.index(label)},{(number := CENTRES.index(centre))},"
        f"train,train_{number}"
        for image, label, centre in lesions
    ]
    return "\n".join([f"image,{','.join(COLUMNS)},target,center,fold,fold2", *rows, ""])


def save_images(folder, height=225):
    folder.mkdir()
    for number, (image, _, _) in enumerate(LESIONS):
        picture = np.full((height, 300, 3), (50 * number, 80, 80), np.uint8)
        Image.fromarray(picture).save(folder / f"{image}.jpg", quality=95)


@pytest.fixture
def published(tmp_path):
    root = tmp_path / "fed_isic2019"
    root.mkdir()
    save_images(root / "ISIC_2019_Training_Input")
    unknown = [("ISIC_0000000", "DF", "")]
    (root / "ISIC_2019_Training_GroundTruth.csv").write_text(truth(LESIONS[::-1] + unknown))
    (root / "ISIC_2019_Training_Metadata_FL.csv").write_text(metadata(LESIONS))
    return root


def assert_as_published(dataset):
    assert dataset.labels.tolist() == [1, 7, 0, 1]
    assert dataset.owners.tolist() == [3, 4, 0, 5]
    assert dataset.labels.dtype == dataset.owners.dtype == np.int64
    assert dataset.tasks["classify"].classes == 8
    red = dataset.examples.inputs[:, 0].float().mean(dim=(1, 2))
    assert torch.allclose(red, torch.tensor([0.0, 50, 100, 150]), atol=4)


def test_lesions_belong_to_their_centres(published):
    dataset = isic2019(published.parent)
    assert_as_published(dataset)
    assert dataset.examples.inputs.shape == (4, 3, 224, 224)
    assert dataset.examples.inputs.dtype == torch.uint8


def test_the_list_of_folds_does_as_well(published):
    (published / "ISIC_2019_Training_GroundTruth.csv").unlink()
    (published / "ISIC_2019_Training_Metadata_FL.csv").unlink()
    (published / "train_test_split").write_text(split(LESIONS))
    assert_as_published(isic2019(published.parent, size=16))


def test_preprocessed_images_come_first(published):
    save_images(published / "ISIC_2019_Training_Input_preprocessed", height=224)
    for file in (published / "ISIC_2019_Training_Input").iterdir():
        file.unlink()
    assert_as_published(isic2019(published.parent, size=16))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("GroundTruth", truth(LESIONS[1:]), "image ISIC_0000001 has '' where one of MEL, NV"),
        (
            "GroundTruth",
            truth([("ISIC_0000001", "UNK", "")]),
            "image ISIC_0000001 has '' where one of MEL, NV",
        ),
        (
            "GroundTruth",
            truth(LESIONS).replace("0.0,1.0", "1.0,1.0", 1),
            "image ISIC_0000001 has 'MEL and NV' where one of",
        ),
        (
            "GroundTruth",
            truth(LESIONS).replace("VASC", "VAS"),
            "the columns image, MEL, .* are exp",
        ),
        ("Metadata_FL", metadata(LESIONS).replace("BCN_", "BCM_"), "0003 has 'BCM_nan' where one"),
        ("Metadata_FL", metadata(LESIONS).replace("dataset", "set"), "columns image, dataset are"),
        ("Metadata_FL", "image,dataset\nISIC_0000001\n", "ISIC_0000001 has '' where one of BCN"),
        ("Metadata_FL", metadata([]), "lists no image"),
        ("Metadata_FL", "", "lists no image"),
    ],
)
def test_a_damaged_table_is_named(published, name, content, message):
    (published / f"ISIC_2019_Training_{name}.csv").write_text(content)
    with pytest.raises(Failure, match=f"ISIC_2019_Training_{name}.csv.*{message}"):
        isic2019(published.parent)


def test_a_class_beyond_the_last_is_refused(published):
    (published / "train_test_split").write_text(split(LESIONS).replace("7,4,train", "8,4,train"))
    with pytest.raises(Failure, match=r"train_test_split: image ISIC_0000002_.* has '8' where"):
        isic2019(published.parent)


def test_a_missing_table_is_named(published):
    (published / "ISIC_2019_Training_Metadata_FL.csv").unlink()
    with pytest.raises(UsageError, match=r"Metadata_FL\.csv is missing: .* or train_test_split"):
        isic2019(published.parent)


def test_a_missing_picture_is_named(published):
    (published / "ISIC_2019_Training_Input/ISIC_0000003.jpg").unlink()
    with pytest.raises(Failure, match=r"ISIC_0000003\.jpg is missing"):
        isic2019(published.parent)
