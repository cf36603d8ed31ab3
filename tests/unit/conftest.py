from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from consort.core import plugins


@pytest.fixture
def real_data() -> Path:
    """The folder with real data sets, for those who have one."""
    if not os.environ.get("CONSORT_DATA"):
        pytest.skip("CONSORT_DATA is not set")
    return Path(os.environ["CONSORT_DATA"])


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of packages that Consort finds: see `tests.installed.put_package`."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    _forget_plugins()
    yield folder
    _forget_plugins()
    for name, module in list(sys.modules.items()):
        if Path(getattr(module, "__file__", None) or "/").is_relative_to(folder):
            del sys.modules[name]


def _forget_plugins() -> None:
    for found in (plugins.entries, plugins._built_in, plugins._installed):
        found.cache_clear()
