import numpy as np
import pytest
import torch
from PIL import Image

from consort.domains.images.tinyimagenet import tinyimagenet
from consort.errors import Failure, UsageError

NAMES = ["n02124075", "n01443537", "n04067472"]


def save(path, red, mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((64, 64, 3), red, np.uint8)).convert(mode).save(path, quality=95)


@pytest.fixture
def published(tmp_path):
    root = tmp_path / "tiny-imagenet-200"
    for number, name in enumerate(NAMES):
        for copy in range(2):
            save(root / "train" / name / f"images/{name}_{copy}.JPEG", 40 * number + copy * 100)
    save(root / "val/images/val_0.JPEG", 7)
    save(root / "val/images/val_1.JPEG", 90, mode="L")
    (root / "wnids.txt").write_text("\n".join(NAMES))
    (root / "val/val_annotations.txt").write_text(
        "val_0.JPEG\tn04067472\t0\t32\t44\t62\nval_1.JPEG\tn02124075\t52\t55\t57\t59\n"
    )
    return root


def test_the_published_layout(published):
    dataset = tinyimagenet(published.parent)
    assert dataset.labels.tolist() == [0, 0, 1, 1, 2, 2, 2, 0]
    assert dataset.labels.dtype == np.int64
    assert dataset.tasks["classify"].classes == 3
    assert dataset.examples.inputs.shape == (8, 3, 64, 64)
    assert dataset.examples.inputs.dtype == torch.uint8
    shades = dataset.examples.inputs[:, :, 30, 30].float()
    expected = torch.tensor([0.0, 100, 40, 140, 80, 180, 7, 90])[:, None].expand(-1, 3)
    assert torch.allclose(shades, expected, atol=2), "the grey one too has three channels"


def test_a_missing_class_is_named(published):
    (published / "wnids.txt").write_text("\n".join([*NAMES, "n07749582"]))
    with pytest.raises(UsageError, match=r"train/n07749582/images contains no \*\.JPEG"):
        tinyimagenet(published.parent)


def test_a_list_without_classes_is_refused(published):
    (published / "wnids.txt").write_text("n02124075\n")
    with pytest.raises(Failure, match=r"wnids\.txt is damaged: the names of classes are expected"):
        tinyimagenet(published.parent)


def test_lists_that_are_not_text_are_refused(published):
    (published / "val/val_annotations.txt").write_bytes(b"\xff\xfe \xff")
    with pytest.raises(Failure, match=r"val_annotations\.txt, line 1: a file and a class"):
        tinyimagenet(published.parent)
    (published / "wnids.txt").write_bytes(b"\xff\xfe \xff")
    with pytest.raises(UsageError, match=r"tiny-imagenet-200/train/.* contains no"):
        tinyimagenet(published.parent)


@pytest.mark.parametrize("line", ["val_1.JPEG", "val_1.JPEG\tn07749582\t0\t0\t1\t1", ""])
def test_a_damaged_annotation_is_named(published, line):
    (published / "val/val_annotations.txt").write_text(f"val_0.JPEG\tn04067472\n{line}\n")
    with pytest.raises(Failure, match=r"val_annotations\.txt, line 2: a file and a class of wnids"):
        tinyimagenet(published.parent)


def test_an_annotated_picture_that_is_not_there_is_named(published):
    (published / "val/images/val_1.JPEG").unlink()
    with pytest.raises(Failure, match=r"val/images/val_1\.JPEG is missing"):
        tinyimagenet(published.parent)


@pytest.mark.parametrize("name", ["wnids.txt", "val/val_annotations.txt"])
def test_a_missing_list_is_named(published, name):
    (published / name).unlink()
    with pytest.raises(UsageError, match=f"does not contain .*tiny-imagenet-200/{name}"):
        tinyimagenet(published.parent)
