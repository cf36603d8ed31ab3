"""The site builds without warnings and without network, and its API reference is complete."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.pages import ROOT

import consort

pytest.importorskip("mkdocs", reason="MkDocs is not installed: pip install 'fedconsort[docs]'")

LOADED = re.compile(r"""<(?:script|link|img|iframe)[^>]*(?:src|href)=["']?(https?:)?//""")


OFFLINE = """
import socket
def refuse(*_): raise SystemExit("the build wants to reach the network")
socket.socket.connect = socket.getaddrinfo = refuse
from mkdocs.__main__ import cli
cli()
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; whoever wants to reach another machine ends the build."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-c", OFFLINE, "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_built(site: Path):
    inside = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    for path in [*inside, *map(Path, ("changelog.md", "contributing.md", "security.md"))]:
        assert (site / path.with_suffix(".html")).is_file(), path


def test_pages_load_nothing_from_elsewhere(site: Path):
    for path in site.rglob("*.html"):
        text = path.read_text("utf-8")
        assert not LOADED.search(text), path
        assert "mermaid" not in text, path


def test_search_finds_pages_and_public_names(site: Path):
    index = (site / "search" / "search_index.json").read_text("utf-8")
    assert "guide/concepts.html" in index
    assert "api/algorithm.html#consort.Params" in index


def test_the_reference_has_every_public_name():
    pages = (path.read_text("utf-8") for path in sorted((ROOT / "docs" / "api").glob("*.md")))
    named = [name for text in pages for name in re.findall(r"^::: consort\.(\w+)$", text, re.M)]
    assert sorted(named) == sorted(consort.__all__)
