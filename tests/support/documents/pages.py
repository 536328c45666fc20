"""What documents show: fenced blocks with their lines, spans of code, links, and headings.

A page shows one program, in pieces, unless it says otherwise in a comment before a block:

    <!-- another program -->        the blocks from here on know nothing of those before
    <!-- quoted: PATH -->           the block is text of a file, and is compared with it
    <!-- names: ... -->             lines of Python that a reader takes for granted, such as `spark`
    <!-- other names: a, b -->      names in spans of code that are of other projects, or computed
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

MAX_COLUMNS = 100
_TABLES = ("|", "┏", "┃", "┡", "│", "└")

_FENCE = re.compile(r"^```(\w*)$")
_MARK = re.compile(r"<!-- (another program|quoted|names|other names)(?:: ?(.*?))? ?-->", re.DOTALL)
_SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_LINK = re.compile(r"\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Piece:
    """Some text of a page, and the number of its first line."""

    line: int
    text: str


@dataclass(frozen=True)
class Block(Piece):
    """A fenced block."""

    language: str
    quoted: str | None = None
    begins_program: bool = False
    names: tuple[Piece, ...] = ()


@dataclass(frozen=True)
class Page:
    """One document: its path from the root of the repository, and its text."""

    path: str
    text: str

    @cached_property
    def blocks(self) -> list[Block]:
        found: list[Block] = []
        lines = self.text.splitlines()
        begun: int | None = None
        before = 0
        language = ""
        for number, line in enumerate(lines):
            fence = _FENCE.match(line)
            if fence is None:
                continue
            if begun is None:
                begun, language = number, fence[1]
                continue
            found.append(self._block(lines, before, begun, number, language))
            begun, before = None, number + 1
        if begun is not None:
            raise ValueError(f"{self.path}:{begun + 1}: a block without an end")
        return found

    def _block(self, lines: list[str], before: int, begun: int, end: int, language: str) -> Block:
        prose = "\n".join(lines[before:begun])
        marks = list(_MARK.finditer(prose))
        quoted = [mark[2].strip() for mark in marks if mark[1] == "quoted"]
        names = tuple(
            Piece(before + 1 + prose.count("\n", 0, mark.start(2)), mark[2])
            for mark in marks
            if mark[1] == "names"
        )
        return Block(
            line=begun + 2,
            text="\n".join(lines[begun + 1 : end]),
            language=language,
            quoted=quoted[-1] if quoted else None,
            begins_program=any(mark[1] == "another program" for mark in marks),
            names=names,
        )

    @cached_property
    def prose(self) -> list[Piece]:
        """The lines outside of blocks."""
        found = []
        in_block = False
        for number, line in enumerate(self.text.splitlines(), start=1):
            if _FENCE.match(line):
                in_block = not in_block
            elif not in_block:
                found.append(Piece(number, line))
        return found

    @property
    def spans(self) -> Iterator[Piece]:
        """Code between backticks."""
        for piece in self.prose:
            for span in _SPAN.finditer(piece.text):
                yield Piece(piece.line, span[1])

    @cached_property
    def other_names(self) -> set[str]:
        marks = [mark for mark in _MARK.finditer(self.text) if mark[1] == "other names"]
        return {name for mark in marks for name in re.split(r"[,\s]+", mark[2])}

    @property
    def links(self) -> Iterator[Piece]:
        for piece in self.prose:
            for link in _LINK.finditer(_SPAN.sub("", piece.text)):
                yield Piece(piece.line, link[1])

    @cached_property
    def anchors(self) -> set[str]:
        """Those of headings, as they are made where such pages are shown."""
        titles = [piece.text for piece in self.prose if re.match(r"#+ ", piece.text)]
        kept = (re.sub(r"[^\w\- ]", "", title.lstrip("#").strip().lower()) for title in titles)
        return {title.replace(" ", "-") for title in kept}

    def problem(self, line: int, what: str) -> str:
        return f"{self.path}:{line}: {what}"


def documents() -> list[Page]:
    """Every document of the repository that people read."""
    paths = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
    return [Page(path.relative_to(ROOT).as_posix(), path.read_text("utf-8")) for path in paths]


def programs(page: Page) -> Iterator[str]:
    """The programs of a page: each line stands where it stands in the page."""
    height = page.text.count("\n") + 1
    lines = [""] * height
    begun = False
    for block in page.blocks:
        if block.language != "python" or block.quoted is not None:
            continue
        if block.begins_program and begun:
            yield "\n".join(lines)
            lines = [""] * height
        begun = True
        for piece in (*block.names, block):
            texts = piece.text.splitlines()
            lines[piece.line - 1 : piece.line - 1 + len(texts)] = texts
    if begun:
        yield "\n".join(lines)


def broken_links(page: Page, pages: dict[str, Page]) -> list[str]:
    """Links to files and headings that there are not."""
    found = []
    for link in page.links:
        target, _, anchor = link.text.partition("#")
        if "://" in target:
            continue
        path = ((ROOT / page.path).parent / target).resolve() if target else ROOT / page.path
        if not path.exists():
            found.append(page.problem(link.line, f"there is no {target}"))
        elif anchor:
            linked = pages.get(path.relative_to(ROOT).as_posix())
            if linked is None or anchor not in linked.anchors:
                found.append(page.problem(link.line, f"there is no heading {link.text}"))
    return found


def wide_lines(page: Page) -> list[str]:
    """Lines that do not fit the page's columns; tables, and what programs print as such, may."""
    return [
        page.problem(number, f"{len(line)} columns")
        for number, line in enumerate(page.text.splitlines(), start=1)
        if len(line) > MAX_COLUMNS and not line.startswith(_TABLES)
    ]


def untrue_quotes(page: Page) -> list[str]:
    """Blocks that are said to be in a file, and are not."""
    return [
        page.problem(block.line, f"this is not in {block.quoted}")
        for block in page.blocks
        if block.quoted is not None
        and not (
            (ROOT / block.quoted).is_file() and block.text in (ROOT / block.quoted).read_text()
        )
    ]
