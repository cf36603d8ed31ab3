import numpy as np
import pytest
from PIL import Image

from consort.data.pictures import labelled_files, read_pictures, resized
from consort.errors import Failure, UsageError

NOISE = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)


@pytest.fixture
def colour(tmp_path):
    Image.fromarray(NOISE).save(tmp_path / "colour.png")
    return tmp_path / "colour.png"


def test_pictures_keep_the_order_of_their_files(tmp_path):
    paths = []
    for value in range(40):
        paths.append(tmp_path / f"{value}.png")
        Image.fromarray(np.full((4, 4, 3), (value, 2 * value, 3 * value), np.uint8)).save(paths[-1])
    pictures = read_pictures(paths[::-1], 4, "RGB")
    assert pictures.shape == (40, 3, 4, 4)
    assert pictures.dtype == np.uint8
    expected = np.outer(np.arange(40)[::-1], (1, 2, 3))
    assert (pictures == expected[:, :, None, None]).all()


def test_a_picture_of_the_right_size_is_not_touched(tmp_path):
    Image.fromarray(NOISE[:20, :20]).save(tmp_path / "a.png")
    (picture,) = read_pictures([tmp_path / "a.png"], 20, "RGB")
    assert np.array_equal(picture, NOISE[:20, :20].transpose(2, 0, 1))


def test_other_sizes_are_squeezed_to_a_square(tmp_path):
    halves = np.zeros((8, 16, 3), np.uint8)
    halves[:, 8:] = 200
    Image.fromarray(halves).save(tmp_path / "a.png")
    (picture,) = read_pictures([tmp_path / "a.png"], 8, "RGB")
    assert picture[:, :, :3].max() == 0
    assert picture[:, :, 5:].min() == 200, "nothing is cropped"


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "P", "CMYK", "1", "I;16"])
def test_every_kind_of_file_becomes_colour_or_grey(tmp_path, mode):
    grey = Image.fromarray(np.full((6, 6), 255, np.uint8))
    picture = Image.new("I;16", (6, 6), 255) if mode == "I;16" else grey.convert(mode)
    path = tmp_path / ("a.jpg" if mode == "CMYK" else "a.png")
    picture.save(path)
    for wanted, channels in (("RGB", 3), ("L", 1)):
        (read,) = read_pictures([path], 6, wanted)
        assert read.shape == (channels, 6, 6)
        assert read.min() >= 254


def test_arrays_are_squeezed_like_files(tmp_path):
    grey = NOISE[:, :, 0]
    Image.fromarray(grey).save(tmp_path / "a.png")
    assert np.array_equal(resized(grey[None, None], 7), read_pictures([tmp_path / "a.png"], 7, "L"))


@pytest.mark.parametrize("kept", [0, 4, 60, 0.9])
@pytest.mark.parametrize("suffix", [".png", ".jpg"])
def test_a_damaged_file_is_named(tmp_path, colour, suffix, kept):
    damaged = tmp_path / f"damaged{suffix}"
    Image.fromarray(NOISE).save(damaged)
    content = damaged.read_bytes()
    damaged.write_bytes(content[: int(kept * len(content)) if kept < 1 else kept])
    with pytest.raises(Failure, match=rf"damaged{suffix} is damaged: an image is expected"):
        read_pictures([colour, damaged, colour], 8, "RGB")


def test_a_file_that_claims_to_be_enormous_is_named(tmp_path):
    path = tmp_path / "bomb.jpg"
    Image.fromarray(NOISE).save(path)
    content = path.read_bytes()
    header = content.index(b"\xff\xc0") + 5
    path.write_bytes(content[:header] + b"\xff\xff\xff\xff" + content[header + 4 :])
    with pytest.raises(Failure, match=r"bomb\.jpg is damaged"):
        read_pictures([path], 8, "RGB")


def test_a_file_that_vanished_is_named(tmp_path, colour):
    with pytest.raises(Failure, match=r"gone\.png is missing: unpack"):
        read_pictures([colour, tmp_path / "gone.png"], 8, "RGB")


def test_files_get_the_position_of_their_folder(tmp_path):
    for name in ("b/2.png", "b/1.png", "a/3.png", "a/notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    files, labels = labelled_files([tmp_path / "b", tmp_path / "a"], "*.png")
    assert [str(file.relative_to(tmp_path)) for file in files] == ["b/1.png", "b/2.png", "a/3.png"]
    assert labels.tolist() == [0, 0, 1]
    assert labels.dtype == np.int64


@pytest.mark.parametrize("name", ["empty", "absent"])
def test_a_folder_without_files_is_named(tmp_path, name):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=rf"{name} contains no \*\.png: unpack"):
        labelled_files([tmp_path / name], "*.png")
