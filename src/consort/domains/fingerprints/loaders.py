"""Fingerprint data sets in their published layouts.

All loaders take the same arguments:

- `seed`: the seed of augmented pairs;
- `folder`: the data folder;
- `size`: the side of the square images in pixels;
- `zoom`: above 1, only the part of a print with the most detail is kept, enlarged by this factor;
- `pairs`: what a pair is made of, see `Pairing`;
- `per_finger`: the largest number of pairs of one finger, see `Most`.

They return a data set with the task `verify` and raise `UsageError` if the files are not found and
`Failure` if a file is damaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from consort.data.dataset import Dataset
from consort.data.page import read_page
from consort.domains.fingerprints.dataset import Images, Numbers, fingerprint_dataset
from consort.domains.fingerprints.layout import Impression, Layout, find
from consort.domains.fingerprints.pairs import Pairing, paired, spread
from consort.domains.fingerprints.scaling import squared, without_frame
from consort.domains.fingerprints.scan import PrintScan
from consort.errors import UsageError

Size = Annotated[int, Field(ge=16)]
Zoom = Annotated[float, Field(ge=1, allow_inf_nan=False)]
Most = Annotated[int, Field(ge=0)]
"""The largest number of pairs of one finger; 0 for all (one, if pairs are augmented)."""
Level = Literal["Easy", "Medium", "Hard"]
"""How strongly a copy in SOCOFing was altered."""

_SOCOFING = ("SOCOFing", "fingerprints/socofing-40")
_FRAME = (2, 4, 2, 4)
"""Rows and columns of the frame around every image of SOCOFing."""


def socofing(
    seed: int,
    folder: Path | None,
    *,
    size: Size = 96,
    zoom: Zoom = 1.0,
    pairs: Literal["augmented", "altered"] = "augmented",
    per_finger: Most = 0,
    levels: tuple[Level, ...] = ("Easy", "Medium", "Hard"),
) -> Dataset:
    """SOCOFing: 600 people, one print of each finger and altered copies (Shehu et al. 2018).

    See the module for the common arguments.

    Args:
        pairs: Pairs of a print with an augmented or with one of its altered copies.
        levels: The levels of alteration that are used.
    """
    finger = r"(?P<finger>\d+__[MF]_(Left|Right)_[a-z]+_finger)"
    name = "<person>__<M|F>_<hand>_<finger>_finger"
    real = [Layout(place, f"Real/{finger}", f"Real/{name}.BMP") for place in _SOCOFING]
    impressions = find("socofing", folder, real)
    if pairs == "altered":
        pattern = rf"Altered/Altered-({'|'.join(levels)})/{finger}_(CR|Obl|Zcut)"
        shown = f"Altered/Altered-<level>/{name}_<change>.BMP"
        copies = find("socofing", folder, [Layout(p, pattern, shown) for p in _SOCOFING])
        return _altered(impressions, copies, size, zoom, per_finger)
    return _dataset("socofing", impressions, size, zoom, "augmented", per_finger, seed, framed=True)


def fvc2002(
    seed: int,
    folder: Path | None,
    *,
    size: Size = 96,
    zoom: Zoom = 1.0,
    pairs: Pairing = "impressions",
    per_finger: Most = 0,
) -> Dataset:
    """FVC2002: four sensors, each with 110 fingers and 8 impressions of each (Maio et al. 2002).

    See the module for the arguments.
    """
    return _fvc("2002", seed, folder, size, zoom, pairs, per_finger)


def fvc2004(
    seed: int,
    folder: Path | None,
    *,
    size: Size = 96,
    zoom: Zoom = 1.0,
    pairs: Pairing = "impressions",
    per_finger: Most = 0,
) -> Dataset:
    """FVC2004: four sensors, each with 110 fingers and 8 impressions of each (Maio et al. 2004).

    See the module for the arguments.
    """
    return _fvc("2004", seed, folder, size, zoom, pairs, per_finger)


def _fvc(
    year: str,
    seed: int,
    folder: Path | None,
    size: int,
    zoom: float,
    pairs: Pairing,
    per_finger: int,
) -> Dataset:
    pattern = r"(.*/)?(?P<sensor>DB\d)_[AB]/(?P<finger>\d+)_\d+"
    shown = "DB<sensor>_<A|B>/<finger>_<impression>.tif"
    places = f"FVC{year}", f"fingerprints/fvc{year}"
    impressions = find(f"fvc{year}", folder, [Layout(p, pattern, shown) for p in places])
    return _dataset(f"fvc{year}", impressions, size, zoom, pairs, per_finger, seed)


def casia_fingerprint(
    seed: int,
    folder: Path | None,
    *,
    size: Size = 96,
    zoom: Zoom = 1.0,
    pairs: Pairing = "impressions",
    per_finger: Most = 0,
) -> Dataset:
    """CASIA-FingerprintV5: 500 people with eight fingers each and five impressions per finger.

    See the module for the arguments.
    """
    pattern = r"\d+/[LR]/(?P<finger>\d+_[LR]\d)_\d"
    shown = "<person>/<L|R>/<person>_<L|R><finger>_<impression>.bmp"
    places = "CASIA-FingerprintV5(BMP)", "CASIA-FingerprintV5", "fingerprints/casia-v5"
    impressions = find("casia_fingerprint", folder, [Layout(p, pattern, shown) for p in places])
    return _dataset("casia_fingerprint", impressions, size, zoom, pairs, per_finger, seed)


def nist_sd10(
    seed: int,
    folder: Path | None,
    *,
    size: Size = 96,
    zoom: Zoom = 1.0,
    per_finger: Most = 0,
) -> Dataset:
    """NIST Special Database 10: 5,520 rolled prints of 552 cards, converted from .pct to .png.

    See the module for the arguments.
    """
    pattern = r"(.*/)?(?P<finger>[fs]\d+)(_\d+)?"
    places = "NIST_SD10", "sd10", "fingerprints/nist-sd10"
    impressions = find("nist_sd10", folder, [Layout(p, pattern, "f<number>.png") for p in places])
    return _dataset("nist_sd10", impressions, size, zoom, "augmented", per_finger, seed)


def _dataset(
    name: str,
    impressions: Sequence[Impression],
    size: int,
    zoom: float,
    pairing: Pairing,
    per_finger: int,
    seed: int,
    framed: bool = False,
) -> Dataset:
    fingers, sensors = _numbers(impressions)
    if pairing == "augmented":  # only the first impression is used
        _, first = np.unique(fingers, return_index=True)
        impressions, fingers = [impressions[place] for place in first], fingers[first]
    pairs, owners = paired(
        name, _read(impressions, size, zoom, framed), fingers, pairing, per_finger, seed
    )
    scan = PrintScan(size, zoom, _FRAME if framed else (0, 0, 0, 0))
    return fingerprint_dataset(
        name, pairs, owners, sensors[owners] if sensors.any() else None, scan
    )


def _altered(
    real: Sequence[Impression],
    copies: Sequence[Impression],
    size: int,
    zoom: float,
    per_finger: int,
) -> Dataset:
    """Pairs of each real print with its altered copies, at most `per_finger` from all levels."""
    found: dict[str, list[Impression]] = {original.finger: [] for original in real}
    for copy in copies:
        found.get(copy.finger, []).append(copy)
    chosen = [copy for own in found.values() for copy in spread(own, per_finger)]
    if not chosen:
        raise UsageError(
            "data set 'socofing' has no altered copies of its real prints: unpack all of it"
        )
    whole = dict(zip(found, _read(real, size, zoom, framed=True), strict=True))
    originals = np.stack([whole[copy.finger] for copy in chosen])
    pairs = np.stack([originals, _read(chosen, size, zoom, framed=True)], axis=1)
    scan = PrintScan(size, zoom, _FRAME)
    return fingerprint_dataset("socofing", pairs, _numbers(chosen)[0], reader=scan)


def _numbers(impressions: Sequence[Impression]) -> tuple[Numbers, Numbers]:
    """The finger of every impression, numbered from 0, and the sensor of every finger."""
    fingers: dict[tuple[str, str], int] = {}
    for impression in impressions:
        fingers.setdefault((impression.sensor, impression.finger), len(fingers))
    _, sensors = np.unique([sensor for sensor, _ in fingers], return_inverse=True)
    return np.array([fingers[i.sensor, i.finger] for i in impressions]), sensors


def _read(impressions: Sequence[Impression], size: int, zoom: float, framed: bool) -> Images:
    pages = (read_page(impression.path) for impression in impressions)
    if framed:
        pages = (without_frame(page, *_FRAME) for page in pages)
    return np.stack([squared(page, size, zoom) for page in pages])
