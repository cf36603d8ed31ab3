import numpy as np
import pytest
from PIL import Image

from consort.data.partition import Cut, partition
from consort.data.registry import load_dataset
from consort.errors import Failure, UsageError

SMALL = {"size": 16}


def draw(path, number, size=(60, 40)):
    """A picture of its own for every number."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows, columns = np.mgrid[: size[1], : size[0]]
    waves = 127 + 120 * np.sin(rows * (0.3 + number / 50) + columns * 0.4)
    Image.fromarray(waves.astype(np.uint8)).save(path)


def draw_all(folder, paths):
    for number, path in enumerate(paths):
        draw(folder / path, number)


FVC = [
    f"DB{s}_{part}/{f}_{i}.tif"
    for s in (1, 2)
    for part, f in (("A", 1), ("B", 101))
    for i in (1, 2, 3)
]
SOCOFING = [
    "Real/1__M_Left_index_finger.BMP",
    "Real/2__F_Right_thumb_finger.BMP",
    "Altered/Altered-Easy/1__M_Left_index_finger_CR.BMP",
    "Altered/Altered-Easy/1__M_Left_index_finger_Zcut.BMP",
    "Altered/Altered-Hard/2__F_Right_thumb_finger_Obl.BMP",
]
CASIA = [
    f"{p:03}/{h}/{p:03}_{h}{f}_{i}.bmp"
    for p in (0, 1)
    for h in "LR"
    for f in (0, 1)
    for i in (0, 1)
]


@pytest.mark.parametrize(
    ("name", "place", "files", "options", "pairs", "fingers"),
    [
        ("fvc2002", "FVC2002", FVC, {}, 12, 4),
        ("fvc2002", "fingerprints/fvc2002", FVC, {"per_finger": 2}, 8, 4),
        ("fvc2004", "FVC2004/Dbs", FVC, {"pairs": "augmented"}, 4, 4),
        ("socofing", "SOCOFing", SOCOFING, {}, 2, 2),
        ("socofing", "SOCOFing", SOCOFING, {"per_finger": 3}, 6, 2),
        ("socofing", "fingerprints/socofing-40", SOCOFING, {"pairs": "altered"}, 3, 2),
        ("socofing", "SOCOFing", SOCOFING, {"pairs": "altered", "per_finger": 1}, 2, 2),
        ("socofing", "SOCOFing", SOCOFING, {"pairs": "altered", "levels": ["Hard"]}, 1, 1),
        ("casia_fingerprint", "CASIA-FingerprintV5(BMP)", CASIA, {}, 8, 8),
        ("nist_sd10", "NIST_SD10", ["a/f0000001.png", "b/f0000002.png"], {}, 2, 2),
    ],
)
def test_published_layouts(name, place, files, options, pairs, fingers, tmp_path):
    draw_all(tmp_path / place, files)
    dataset = load_dataset(name, 0, tmp_path, **SMALL, **options)
    assert dataset.examples.inputs.shape == (pairs, 2, 1, 16, 16)
    assert set(dataset.labels.tolist()) == set(range(fingers))
    assert dataset.units is dataset.labels
    assert dataset.examples.targets["verify"].tolist() == dataset.labels.tolist()


def test_a_pair_shows_two_impressions_of_one_finger_and_sensor(tmp_path):
    draw_all(tmp_path / "FVC2002", FVC)
    dataset = load_dataset("fvc2002", 0, tmp_path, **SMALL)
    assert dataset.domains.tolist() == [0] * 6 + [1] * 6
    images = dataset.examples.inputs[:, :, 0].flatten(2)
    shown = {tuple(image.tolist()) for image in images.flatten(0, 1)}
    assert len(shown) == len(FVC)
    for finger in range(4):
        own = images[dataset.labels == finger]
        assert len({tuple(image.tolist()) for image in own.flatten(0, 1)}) == 3
        assert all((one != other).any() for one, other in own)


def test_an_altered_copy_stands_beside_its_own_print(tmp_path):
    draw_all(tmp_path / "SOCOFing", SOCOFING)
    altered = load_dataset("socofing", 0, tmp_path, **SMALL, pairs="altered")
    real = load_dataset("socofing", 0, tmp_path, **SMALL)
    for row, finger in enumerate(altered.labels):
        assert (altered.examples.inputs[row, 0] == real.examples.inputs[finger, 0]).all()


def test_one_impression_of_each_finger_makes_no_pairs(tmp_path):
    draw(tmp_path / "FVC2002/DB1_B/101_1.tif", 0)
    with pytest.raises(
        UsageError, match=r"'fvc2002' has only one impression.*pairs = \"augmented\""
    ):
        load_dataset("fvc2002", 0, tmp_path)


def test_altered_copies_of_other_prints_only(tmp_path):
    draw_all(tmp_path / "SOCOFing", [SOCOFING[0], SOCOFING[4]])
    with pytest.raises(UsageError, match="no altered copies of its real prints"):
        load_dataset("socofing", 0, tmp_path, pairs="altered")


def test_a_damaged_file_is_named(tmp_path):
    draw_all(tmp_path / "FVC2002", FVC)
    (tmp_path / "FVC2002/DB1_A/1_2.tif").write_bytes(b"no picture")
    with pytest.raises(Failure, match=r"1_2\.tif cannot be read"):
        load_dataset("fvc2002", 0, tmp_path)


def test_sixteen_bits_constant_and_tiny_scans_are_read(tmp_path):
    place = tmp_path / "FVC2002/DB1_B"
    place.mkdir(parents=True)
    Image.fromarray(np.full((30, 20), 51 * 256, dtype=np.uint16)).save(place / "101_1.tif")
    Image.fromarray(np.zeros((1, 1), dtype=np.uint8)).save(place / "101_2.tif")
    dataset = load_dataset("fvc2002", 0, tmp_path, **SMALL, zoom=1.5)
    assert dataset.prepare(dataset.examples.inputs)[0, :, 0, 8, 8].tolist() == pytest.approx(
        [0.2, 0]
    )


def test_real_prints(real_data):
    dataset = load_dataset("fvc2002", 0, real_data, zoom=2)
    assert len(dataset) == 4 * 10 * 28
    shares = partition(dataset, 4, Cut(by="domain", validation=0.2, test=0.2), 0)
    assert [len(share.test) for share in shares] == [2 * 28] * 4
    assert len(load_dataset("socofing", 0, real_data, per_finger=1)) == 400


def test_few_altered_copies_come_from_all_levels(tmp_path):
    levels = ("Easy", "Medium", "Hard")
    copies = [
        f"Altered/Altered-{level}/1__M_Left_index_finger_{change}.BMP"
        for level in levels
        for change in ("CR", "Obl", "Zcut")
    ]
    draw_all(tmp_path / "SOCOFing", [SOCOFING[0], *copies])
    few = load_dataset("socofing", 0, tmp_path, **SMALL, pairs="altered", per_finger=3)
    for row, level in enumerate(sorted(levels)):
        own = load_dataset("socofing", 0, tmp_path, **SMALL, pairs="altered", levels=[level])
        assert (own.examples.inputs[0, 1] == few.examples.inputs[row, 1]).all()
