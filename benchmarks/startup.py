"""How long the command takes to start."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
from pathlib import Path

from measure import Report, timed

COMMANDS = {("--help",): "<=0.5", ("list", "algorithms"): "<=1.0"}


def main() -> None:
    report = Report()
    command = shutil.which("consort", path=str(Path(sys.executable).parent)) or "consort"
    for arguments, target in COMMANDS.items():
        times = [
            timed(
                lambda a=arguments: subprocess.run([command, *a], check=True, capture_output=True)
            )
            for _ in range(7)
        ]
        seconds = statistics.median(turn["wall"] for turn in times)
        report.line(f"consort {' '.join(arguments)}, seconds", seconds, target)
    report.finish()


if __name__ == "__main__":
    main()
