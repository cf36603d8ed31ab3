import csv

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw

from consort.data.folder import natural
from consort.data.partition import Cut, partition
from consort.data.registry import load_dataset
from consort.domains.signatures.loaders import _bhsig, first_of_each
from consort.domains.signatures.synthetic.signatures import synthetic_signatures
from consort.domains.signatures.tasks import Detection, Identification, claimed_user
from consort.errors import Failure, UsageError

TINY = {"size": [8, 12]}


def draw(path, number, size=(60, 40)):
    """A picture of its own for every number."""
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = Image.new("L", size, 240)
    ImageDraw.Draw(picture).line([(5, 5), (10 + number % 40, 30), (50, 8)], fill=30, width=3)
    picture.save(path)


def draw_all(folder, *paths):
    for number, path in enumerate(paths):
        draw(folder / path, number)


def held(dataset):
    """(user, genuine) of every example, read from the targets."""
    users = claimed_user(dataset.examples.targets["identify"]).tolist()
    return list(zip(users, dataset.examples.targets["detect"].tolist(), strict=True))


LAYOUTS = {
    "cedar": [
        "signatures/full_org/original_{}_{}.png",
        "signatures/full_forg/forgeries_{}_{}.png",
    ],
    "cedar reduced": [
        "signatures/cedar/{0}/original_{0}_{1}.png",
        "signatures/cedar/{0}/forgeries_{0}_{1}.png",
    ],
    "bhsig_bengali": [
        "BHSig260/Bengali/{0:03}/B-S-{0}-G-{1:02}.tif",
        "BHSig260/Bengali/{0:03}/B-S-{0}-F-{1:02}.tif",
    ],
    "bhsig_bengali reduced": [
        "signatures/bhsig260-bengali/{0}/B-S-{0}-G-{1:02}.png",
        "signatures/bhsig260-bengali/{0}/B-S-{0}-F-{1:02}.png",
    ],
    "bhsig_hindi": [
        "BHSig260/Hindi/{0:03}/H-S-{0}-G-{1:02}.tif",
        "BHSig260/Hindi/{0:03}/H-S-{0}-F-{1:02}.tif",
    ],
    "gpds": [
        "GPDSS10000/{0:03}/c-{0:03}-{1:02}.jpg",
        "GPDSS10000/{0:03}/cf-{0:03}-{1:02}.jpg",
    ],
    "signature_folder": [
        "signatures/{0}/genuine/scan {1}.PNG",
        "signatures/{0}/forged/{1}.bmp",
    ],
    "signature_folder competition": [
        "signatures/Offline Genuine/{0:03}_{1}.PNG",
        "signatures/Offline Forgeries/0119{0:03}_{1:02}.png",
    ],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_published_layouts(layout, tmp_path):
    genuine, forged = LAYOUTS[layout]
    users = (2, 10, 1)
    draw_all(
        tmp_path,
        *(genuine.format(user, number) for user in users for number in (1, 2, 10)),
        *(forged.format(user, number) for user in users for number in (1, 2)),
    )
    dataset = load_dataset(layout.split()[0], 0, tmp_path, **TINY)
    assert held(dataset) == [(user, 1 - (k > 2)) for user in range(3) for k in range(5)]
    assert dataset.labels.tolist() == [user for user in range(3) for _ in range(5)]
    assert dataset.tasks == {"identify": Identification(3), "detect": Detection()}
    assert dataset.examples.inputs.shape == (15, 1, 8, 12)
    assert dataset.examples.inputs.flatten(1).amax(1).gt(0).all()


def test_forgeries_have_negative_targets_and_values_run_from_zero_to_one(tmp_path):
    genuine, forged = LAYOUTS["signature_folder"]
    draw_all(tmp_path, genuine.format("ann", 1), forged.format("ann", 1), genuine.format("bob", 1))
    dataset = load_dataset("signature_folder", 0, tmp_path)
    assert dataset.examples.targets["identify"].tolist() == [0, ~0, 1]
    assert dataset.examples.targets["detect"].tolist() == [1, 0, 1]
    prepared = dataset.prepare(dataset.examples.inputs)
    assert prepared.shape == (3, 1, 256, 256)
    assert torch.equal(prepared, dataset.examples.inputs.float() / 255)


def test_other_files_do_not_matter(tmp_path):
    for path in LAYOUTS["cedar"]:
        draw(tmp_path / path.format(1, 1), 1)
    (tmp_path / "signatures/full_org/Thumbs.db").write_bytes(b"rubbish")
    (tmp_path / "signatures/full_org/original_1_1.txt").write_bytes(b"rubbish")
    assert len(load_dataset("cedar", 0, tmp_path, **TINY)) == 2


def test_the_user_of_bhsig_is_the_folder(tmp_path):
    draw_all(tmp_path, "BHSig260/Hindi/7/H-S-7-G-01.tif", "BHSig260/Hindi/8/H-S-7-G-02.tif")
    assert load_dataset("bhsig_hindi", 0, tmp_path, **TINY).labels.tolist() == [0, 1]


def test_equal_files_of_one_user_and_class_count_once(tmp_path):
    genuine, forged = LAYOUTS["bhsig_bengali"]
    for user in (1, 2):
        for path in (genuine.format(user, 1), genuine.format(user, 2), forged.format(user, 1)):
            draw(tmp_path / path, 7)
    dataset = load_dataset("bhsig_bengali", 0, tmp_path, **TINY)
    assert held(dataset) == [(0, 1), (0, 0), (1, 1), (1, 0)]


def test_some_users_only_are_numbered_anew(tmp_path):
    draw_all(tmp_path, *(LAYOUTS["gpds"][0].format(user, 1) for user in range(1, 13)))
    dataset = load_dataset("gpds", 0, tmp_path, only_users=[9, 11], **TINY)
    whole = load_dataset("gpds", 0, tmp_path, **TINY)
    assert dataset.labels.tolist() == [0, 1]
    assert torch.equal(dataset.examples.inputs, whole.examples.inputs[9:11])
    with pytest.raises(
        UsageError, match=r"'gpds' has the users 0 to 11, .*only_users = \[12, 20\]"
    ):
        load_dataset("gpds", 0, tmp_path, only_users=[12, 20], **TINY)


def test_one_signature_without_forgeries_is_a_data_set(tmp_path):
    draw_all(tmp_path, LAYOUTS["gpds"][0].format(1, 1))
    assert held(load_dataset("gpds", 0, tmp_path, **TINY)) == [(0, 1)]


def test_a_canvas_of_ones_own(tmp_path):
    draw_all(tmp_path, LAYOUTS["gpds"][0].format(1, 1))
    small, large = (
        load_dataset("gpds", 0, tmp_path, canvas=canvas, **TINY).examples.inputs.float().mean()
        for canvas in ([400, 600], [40, 60])
    )
    assert large > 20 * small


@pytest.mark.parametrize("content", [b"", b"rubbish"])
def test_an_unreadable_file_is_named(tmp_path, content):
    draw_all(tmp_path, LAYOUTS["gpds"][0].format(1, 1))
    (tmp_path / "GPDSS10000/001/c-001-02.jpg").write_bytes(content)
    with pytest.raises(Failure, match=r"c-001-02\.jpg cannot be read as an image"):
        load_dataset("gpds", 0, tmp_path, **TINY)


def test_a_folder_that_is_called_like_a_picture_is_named(tmp_path):
    draw_all(tmp_path, LAYOUTS["gpds"][0].format(1, 1))
    (tmp_path / "GPDSS10000/001/c-001-02.jpg").mkdir()
    with pytest.raises(Failure, match=r"c-001-02\.jpg cannot be read: Is a directory"):
        load_dataset("gpds", 0, tmp_path, **TINY)


@pytest.mark.parametrize("options", [{"size": [0, 5]}, {"size": 64}, {"canvas": [10]}])
def test_impossible_sizes_are_refused(options, tmp_path):
    with pytest.raises(UsageError, match=f"cannot have {next(iter(options))}"):
        load_dataset("cedar", 0, tmp_path, **options)


def test_names_are_sorted_by_their_numbers():
    assert sorted(["b10", "10", "b9", "9"], key=natural) == ["b9", "b10", "9", "10"]


def test_label_skew_keeps_each_user_in_one_draw(tmp_path):
    genuine, forged = LAYOUTS["gpds"]
    draw_all(
        tmp_path,
        *(genuine.format(user, number) for user in range(6) for number in range(8)),
        *(forged.format(user, number) for user in range(6) for number in range(8)),
    )
    dataset = load_dataset("gpds", 0, tmp_path, **TINY)
    shares = partition(dataset, 3, Cut(by="dirichlet", alpha=0.01, min_examples=1), seed=1)
    for share in shares:
        index = np.concatenate([share.train, share.validation, share.test])
        truths = dataset.examples.targets["detect"].numpy()[index]
        for user in np.unique(dataset.labels[index]):
            assert set(truths[dataset.labels[index] == user]) == {0, 1}


def test_all_known_repeats_of_real_bengali_signatures_are_left_out(real_data):
    folder = real_data / "signatures/bhsig260-bengali"
    if not (folder / "duplicates.csv").is_file():
        pytest.skip("the reduced BHSig260 is not there")
    layout = next(layout for layout in _bhsig("Bengali", (1, 1)) if "signatures" in layout.place)
    signatures = layout.signatures(real_data)
    kept = {str(signature.path.relative_to(folder)) for signature in first_of_each(signatures)}
    with (folder / "duplicates.csv").open() as file:
        pairs = [tuple(row.values()) for row in csv.DictReader(file)]
    assert len(signatures) == 5400
    assert len(pairs) == 994
    assert not kept & {repeat for _, repeat in pairs}
    assert len(kept) == 4396


def test_splits_keep_genuine_and_forged_of_every_user_in_proportion():
    dataset = synthetic_signatures(0, users=4, genuine=20, forged=30, size=(24, 36))
    (share,) = partition(dataset, 1, Cut(validation=0.1, test=0.3), seed=0)
    detect = dataset.examples.targets["detect"].numpy()
    for user in range(4):
        for kind, count in ((1, 20), (0, 30)):
            mine = (dataset.labels == user) & (detect == kind)
            assert abs(mine[share.test].sum() - 0.3 * count) <= 1
            assert abs(mine[share.validation].sum() - 0.1 * count) <= 1
