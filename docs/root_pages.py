"""A hook of MkDocs: files of the repository's root become pages of the site, with their links."""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages; their links into `docs` are relative to the root."""
    root = Path(config.config_file_path).parent
    for file, page in PAGES.items():
        text = (root / file).read_text("utf-8").replace("](docs/", "](")
        files.append(File.generated(config, page, content=_linked(text, "")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Turns links to files of the root, which GitHub follows, into links to their pages."""
    return _linked(markdown, "../" * (page.file.src_uri.count("/") + 1))


def _linked(text: str, up: str) -> str:
    for file, page in PAGES.items():
        text = text.replace(f"]({up}{file}", f"]({up.removeprefix('../')}{page}")
    return text
