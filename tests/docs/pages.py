"""Reads what the pages of the documentation are made of: links, headings, tables, fenced blocks."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[2]

Table = list[list[str]]


@dataclass(frozen=True)
class Block:
    """A fenced piece of a page; `title` is a file, `output`, a machine or empty."""

    language: str
    title: str
    text: str

    @property
    def is_file(self) -> bool:
        """Whether the page brings this file; one with a folder is the repository's."""
        return "." in self.title and not self.is_of_the_repository

    @property
    def is_of_the_repository(self) -> bool:
        return "/" in self.title


@dataclass(frozen=True)
class Page:
    """One Markdown file."""

    path: Path

    def __str__(self) -> str:
        return self.path.name

    @cached_property
    def text(self) -> str:
        return self.path.read_text()

    @cached_property
    def blocks(self) -> list[Block]:
        fence = r"^```(\w+)(?: title=\"([^\"\n]+)\")?\n(.*?)^```$"
        found = re.findall(fence, self.text, re.MULTILINE | re.DOTALL)
        return [Block(*parts) for parts in found]

    @property
    def prose(self) -> str:
        return re.sub(r"^```.*?^```$", "", self.text, flags=re.MULTILINE | re.DOTALL)

    @property
    def links(self) -> list[str]:
        return re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", self.prose)

    @property
    def anchors(self) -> set[str]:
        headings = re.findall(r"^#+ (.*)$", self.prose, re.MULTILINE)
        return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}

    def section(self, heading: str) -> str:
        parts = re.split(r"^## (.*)\n", self.text, flags=re.MULTILINE)
        return dict(zip(parts[1::2], parts[2::2], strict=True))[heading]

    def lay_out(self, folder: Path) -> list[Path]:
        """Writes the files that the page shows."""
        files = [block for block in self.blocks if block.is_file]
        for block in files:
            (folder / block.title).write_text(block.text)
        return [folder / block.title for block in files]

    def programs(self) -> Iterator[tuple[str, str]]:
        """Every Python file with what it prints, if the page shows that."""
        for block, after in pairwise([*self.blocks, Block("", "", "")]):
            if block.language == "python" and block.is_file:
                yield block.title, after.text if after.title == "output" else ""

    def commands(self) -> Iterator[list[str]]:
        """The words of every command that the page names or shows."""
        shown = (b.text.splitlines() for b in self.blocks if b.language == "console")
        for line in [*quoted(self.prose), *(line for lines in shown for line in lines)]:
            if line.startswith(("consort ", "make ")):
                yield shlex.split(line)


def tables(text: str) -> list[Table]:
    """The cells of every table, without its head."""
    found = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    return [[_cells(line) for line in table.splitlines()[2:]] for table in found]


def quoted(text: str) -> list[str]:
    """What is between backticks."""
    return re.findall(r"`([^`\n]+)`", text)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


PAGES = [Page(path) for path in [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md"))]]


def page(name: str) -> Page:
    """The page with this file name."""
    (found,) = (page for page in PAGES if page.path.name == name)
    return found
