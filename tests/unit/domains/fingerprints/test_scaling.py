import numpy as np

from consort.domains.fingerprints.scaling import squared, without_frame


def test_the_sides_keep_their_proportion_and_the_margin_is_paper():
    scan = np.full((40, 20), 200, dtype=np.uint8)
    scan[10:30, 5:15] = 0
    image = squared(scan, 40)
    assert (image[:, :9] == 200).all()
    assert (image[:, 31:] == 200).all()
    assert (image[12:28, 17:23] == 0).all()
    assert (image == 0).sum() == 200


def test_zooming_goes_where_something_is():
    scan = np.full((90, 90), 255, dtype=np.uint8)
    scan[10:30:2, 60:80] = 0
    image = squared(scan, 30, zoom=3)
    assert abs(image.astype(float).mean(1)[::29] - 255).max() < 1
    assert (image < 100).sum() > 50
    rows, columns = np.nonzero(image < 200)
    assert abs(rows.mean() - 14.5) < 1.5
    assert abs(columns.mean() - 14.5) < 1.5


def test_scans_with_nothing_on_them():
    for shape in ((1, 1), (3, 50), (20, 20)):
        scan = np.full(shape, 9, dtype=np.uint8)
        assert (squared(scan, 16, zoom=2) == 9).all()


def test_a_frame_is_taken_off_unless_there_is_nothing_else():
    scan = np.arange(80, dtype=np.uint8).reshape(8, 10)
    assert np.array_equal(without_frame(scan, 2, 4, 2, 4), scan[2:4, 2:6])
    assert without_frame(scan, 4, 4, 0, 0) is scan
