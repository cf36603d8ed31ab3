"""What the checks of pictures refuse: real signatures and prints, and pictures of something else.

Needs the real data in CONSORT_DATA. The bounds were chosen with samples of these same pictures, so
this says how they behave on them, and is no independent test.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import numpy as np
from measure import Report
from PIL import Image

from consort.data.page import Grey, read_page
from consort.domains.fingerprints.quality import LEAST, quality
from consort.domains.signatures.quality import complaint

SIZE = (64, 96)
SENSORS = ("DB1_B", "DB2_B", "DB3_B", "DB4_B")


def files(folder: Path) -> Iterator[Grey]:
    return map(read_page, sorted(folder.rglob("*.png")))


def colours(file: Path, key: str) -> Iterator[Grey]:
    for picture in np.load(file)[key]:
        yield np.asarray(Image.fromarray(picture).convert("L"))


def main() -> None:
    data, report = Path(os.environ["CONSORT_DATA"]), Report()
    pictures = {
        "CEDAR": files(data / "signatures/cedar"),
        "BHSig260 Bengali": files(data / "signatures/bhsig260-bengali"),
        "rooms": colours(data / "dense/taskonomy_96.npz", "rgb"),
        "CIFAR-10": colours(data / "images/cifar10_7500.npz", "x_train"),
        "FVC2002": files(data / "fingerprints/fvc2002"),
    }
    for name, pages in pictures.items():
        refused = [complaint(page, SIZE) is not None for page in pages]
        text = f"as signatures, {len(refused):,} pictures of {name}: refused, percent"
        report.line(text, 100 * sum(refused) / len(refused))
    for sensor in SENSORS:
        found = [quality(page) for page in files(data / "fingerprints/fvc2002" / sensor)]
        report.line(f"as prints, {len(found)} of FVC2002 {sensor}: median quality", median(found))
        refused = [q < LEAST for q in found]
        text = f"as prints, {len(found)} of FVC2002 {sensor}: refused, percent"
        report.line(text, 100 * sum(refused) / len(refused))
    report.finish()


if __name__ == "__main__":
    main()
