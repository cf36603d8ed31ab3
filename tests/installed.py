"""Packages for tests, as pip would leave them: a module, and what its metadata declare."""

from __future__ import annotations

from pathlib import Path

IMPORT = "from consort.core.plugins import Plugin\n"


def put_package(site: Path, package: str, source: str) -> None:
    """Writes a package with one module into a folder of packages.

    Args:
        site: The folder, to be put on `sys.path`.
        package: The name of the distribution; its module has `_` in the place of `-`.
        source: The module; the entry point names the object `plugin` in it.
    """
    module = package.replace("-", "_")
    (site / f"{module}.py").write_text(source)
    metadata = site / f"{module}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[consort]\nmine = {module}:plugin\n")
