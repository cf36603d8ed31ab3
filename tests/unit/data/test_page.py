import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from consort.data.page import read_page
from consort.errors import Failure


def saved(path, values, dtype=np.uint8):
    Image.fromarray(np.array(values, dtype=dtype)).save(path)
    return path


def test_grey_levels_are_read_as_they_are(tmp_path):
    page = read_page(saved(tmp_path / "a.png", [[0, 7], [200, 255]]))
    assert page.tolist() == [[0, 7], [200, 255]]
    assert page.dtype == np.uint8


def test_a_colour_is_as_grey_as_it_is_bright(tmp_path):
    path = saved(tmp_path / "a.png", [[[255, 255, 255], [0, 255, 0], [0, 0, 255], [0, 0, 0]]])
    assert read_page(path).tolist() == [[255, 150, 29, 0]]


def test_what_is_transparent_is_paper(tmp_path):
    path = saved(tmp_path / "a.png", [[[0, 0, 0, 255], [0, 0, 0, 0], [0, 0, 0, 127]]])
    assert read_page(path).tolist() == [[0, 255, 128]]


def test_sixteen_bits_become_eight(tmp_path):
    path = saved(tmp_path / "a.png", [[0, 256, 65535]], np.uint16)
    assert read_page(path).tolist() == [[0, 1, 255]]


@pytest.mark.parametrize("suffix", ["tif", "bmp", "png"])
def test_one_bit_is_black_or_white(tmp_path, suffix):
    path = saved(tmp_path / f"a.{suffix}", [[True, False]], np.bool_)
    assert read_page(path).tolist() == [[255, 0]]


def test_one_pixel_is_a_page(tmp_path):
    assert read_page(saved(tmp_path / "a.png", [[3]])).tolist() == [[3]]


@pytest.mark.parametrize("content", [b"", b"no picture", b"\x89PNG\r\n\x1a\n"])
def test_a_file_that_is_no_picture_is_named(tmp_path, content):
    path = tmp_path / "bad.png"
    path.write_bytes(content)
    with pytest.raises(Failure, match=r"bad\.png cannot be read as an image"):
        read_page(path)


def test_a_picture_that_breaks_off_is_named(tmp_path):
    path = saved(tmp_path / "half.png", np.random.default_rng(0).integers(0, 256, (50, 50)))
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(Failure, match=r"half\.png cannot be read as an image"):
        read_page(path)


@pytest.mark.parametrize("side", [8200, 60000])
def test_a_huge_picture_is_refused_before_it_is_unpacked(tmp_path, side):
    header = b"IHDR" + struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    chunk = struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header))
    path = tmp_path / "huge.png"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk + b"\0\0\0\0IDAT" + b"\0" * 8)
    with pytest.raises(Failure, match=r"huge\.png has more than 67108864 pixels: scale it down"):
        read_page(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(Failure, match=r"none\.png does not exist"):
        read_page(tmp_path / "none.png")
