"""Tests that documents name, as `PATH::NAME` or `PATH::CLASS::NAME`, and Flink's scenarios."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cache

from support.documents.pages import ROOT, Page

__all__ = ["missing_tests", "scenarios_without_proof"]

_TEST = re.compile(r"([\w./-]+\.py)::(\w+(?:::\w+)*)")
_GROUP = re.compile(r"## \d+\. ")
_NOT_BUILT = "**Not built**: "


def missing_tests(page: Page) -> list[str]:
    """Tests that there are not: the file is parsed, and nothing is imported."""
    return [
        page.problem(span.line, f"there is no test {span.text}")
        for span in page.spans
        if (match := _TEST.fullmatch(span.text))
        if match[2] not in tests_in(match[1])
    ]


@cache
def tests_in(path: str) -> frozenset[str]:
    """The tests of a file, those in classes behind the name of the class."""
    file = ROOT / path
    return frozenset(_tests(ast.parse(file.read_text("utf-8")).body) if file.is_file() else ())


def _tests(body: Sequence[ast.stmt], prefix: str = "") -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield f"{prefix}{node.name}"
        elif isinstance(node, ast.ClassDef):
            yield from _tests(node.body, f"{prefix}{node.name}::")


def scenarios_without_proof(page: Page) -> list[str]:
    """Rows of the tables of scenarios that name no test, and no reason why there is none."""
    found, is_of_group = [], False
    for piece in page.prose:
        if piece.text.startswith("#"):
            is_of_group = _GROUP.match(piece.text) is not None
        is_row = piece.text.startswith("| ") and not piece.text.startswith("| Scenario ")
        if not is_of_group or not is_row:
            continue
        scenario, promise, proof = (cell.strip() for cell in piece.text.strip("|").split("|"))
        if not _is_proven(promise, proof):
            found.append(page.problem(piece.line, f"neither a test nor a reason: {scenario}"))
    return found


def _is_proven(promise: str, proof: str) -> bool:
    named = proof.strip("`").split("`, `")
    are_tests = all(_TEST.fullmatch(each) for each in named)
    return (bool(promise) and are_tests) or proof.startswith(_NOT_BUILT)
