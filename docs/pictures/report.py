"""Draws report.png: the curves in the demonstration's report, in a real browser.

python docs/pictures/report.py  (needs Chromium; takes a minute)
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

HERE = Path(__file__).parent
SIZE = (1300, 1090)
STYLE = "<style>section, details { display: none } #learning-curves { display: block }</style>"


def main() -> None:
    """Runs the demonstration, hides most of its report and keeps a picture of the rest."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([Path(sys.executable).with_name("consort"), "demo"], cwd=folder, check=True)
        report = Path(folder) / "runs" / "demo" / "report.html"
        text = report.read_text("utf-8")
        report.write_text(text.replace("</head>", STYLE + "</head>"), "utf-8")
        raw = Path(folder) / "report.png"
        photograph(report, raw)
        with Image.open(raw) as picture:
            small = picture.convert("RGB").quantize(64, dither=Image.Dither.NONE)
            small.save(HERE / "report.png", optimize=True)


def photograph(page: Path, to: Path) -> None:
    """Lets Chromium show a page and saves what it shows."""
    chromium = shutil.which("chromium") or "chromium"
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    options += ["--hide-scrollbars", f"--window-size={SIZE[0]},{SIZE[1]}"]
    options += ["--virtual-time-budget=8000", f"--screenshot={to}", page.as_uri()]
    subprocess.run([chromium, *options], check=True, capture_output=True)


if __name__ == "__main__":
    main()
