"""Names in the code of documents: arguments, options, extras, targets of make, files, others."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import tomllib
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from holdfast.runtime.options.table import OPTIONS
from support import tidy
from support.documents.pages import ROOT, Page
from support.documents.programs import PACKAGES

_TOPS = (*tidy.ROOMS, *tidy.SIDES, "docs")
_KEY = re.compile(
    r"(?:-D|--conf )?(spark\.holdfast\.)?([a-z][a-z0-9-]*(?:\.[a-z0-9-]+)+\.?)(?:=.*)?"
)
# Others, such as `endpoint.`, begin names of files and of Hadoop's options too.
_TOPS_OF_OPTIONS = ("dstl", "execution", "parallelism", "pipeline", "restart-strategy", "state")
_KEYS = {
    key for option in (*OPTIONS.options, *OPTIONS.refused) for key in (option.key, *option.aliases)
}
_MORE = (
    "holdfast.storage.places.s3.options",
    "holdfast.storage.places.s3.hadoop_settings",
    "holdfast.backends.testing",
)
_GROUPS = ("holdfast.checkpoint_storages", "holdfast.state_backends", "holdfast.changelog_storages")


def unknown_arguments(page: Page) -> list[str]:
    """Keyword arguments in spans of code that nothing of the house takes."""
    if page.path == "CHANGELOG.md":  # it tells of what was, too
        return []
    return [
        page.problem(span.line, f"nothing takes an argument {name}: {span.text}")
        for span in page.spans
        for name in _arguments_in(span.text)
        if name not in known_arguments()
    ]


def _arguments_in(text: str) -> Iterator[str]:
    try:
        tree = ast.parse(text.replace("…", "..."))
    except SyntaxError:
        # Several of them, or one without its value, such as `retained=`.
        if re.fullmatch(r"[a-z_]\w*=", text):
            yield text[:-1]
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and not _is_foreign(node.func):
            yield from (keyword.arg for keyword in node.keywords if keyword.arg is not None)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if not isinstance(node.value, ast.Call) and not name.isupper():
                yield name


def _is_foreign(function: ast.expr) -> bool:
    """Whether it is a plain name that is not the house's, such as `timedelta`."""
    ours = {name for package in PACKAGES for name in importlib.import_module(package).__all__}
    return isinstance(function, ast.Name) and function.id not in ours


@cache
def known_arguments() -> frozenset[str]:
    """Of all public functions, methods and settings, and of parts that are registered."""
    found: set[str] = set()
    for thing in _public_things():
        found |= _parameters(thing)
        if inspect.isclass(thing):
            for name, member in inspect.getmembers(thing, inspect.isroutine):
                if not name.startswith("_"):
                    found |= _parameters(member)
            if is_dataclass(thing):
                found |= {field.name for field in fields(thing)}
    return frozenset(found)


def _public_things() -> Iterator[Any]:
    for name in (*PACKAGES, *_MORE):
        package = importlib.import_module(name)
        yield from (getattr(package, each) for each in package.__all__)
    for group in _GROUPS:
        yield from (point.load() for point in entry_points(group=group))


def _parameters(thing: Any) -> set[str]:
    try:
        return set(inspect.signature(thing).parameters)
    except (TypeError, ValueError):
        return set()


def unknown_options(page: Page) -> list[str]:
    """Options in code, by their keys, that there are not, or that warn of an older name."""
    problems = [
        page.problem(line, f"there is no option {key}")
        for line, key in _keys_in(page)
        if not is_option(key)
    ]
    if page.path == "docs/options.md":  # it lists older names
        return problems
    older = {name: each.key for each in OPTIONS.options for name in each.aliases}
    return problems + [
        page.problem(line, f"{key} is an older name: write {older[key]}")
        for line, key in _keys_in(page)
        if key in older
    ]


def _keys_in(page: Page) -> Iterator[tuple[int, str]]:
    for span in page.spans:
        match = _KEY.fullmatch(span.text)
        if match and (match[1] or match[2].partition(".")[0] in _TOPS_OF_OPTIONS):
            yield span.line, match[2]
    for block in page.blocks:
        for offset, line in enumerate(block.text.splitlines()):
            for match in re.finditer(r"(?:\s-D|spark\.holdfast\.)([a-z][a-z0-9.-]*)", line):
                yield block.line + offset, match[1]


def is_option(key: str) -> bool:
    """Whether there is an option of this name, or some that begin so where it ends with a dot.

    One that is refused with what to do instead is known, too.
    """
    if key.endswith("."):
        return any(each.startswith(key) for each in _KEYS)
    return key in _KEYS


def unknown_extras(page: Page) -> list[str]:
    """Extras of the package that it has not."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    named = r"\bholdfast(?:-spark)?\[([a-z0-9, -]+)\]|[Ee]xtra `([a-z0-9-]+)`"
    return [
        page.problem(number, f"there is no extra {extra}")
        for number, line in enumerate(page.text.splitlines(), start=1)
        for match in re.finditer(named, line)
        for extra in re.split(r", ?", match[1] or match[2])
        if extra not in project["optional-dependencies"]
    ]


def unknown_targets(page: Page) -> list[str]:
    """Targets of make that there are not."""
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    lines = [(block.line, line) for block in page.blocks for line in block.text.splitlines()]
    lines += [(span.line, span.text) for span in page.spans]
    return [
        page.problem(line, f"there is no target {match[1]}")
        for line, text in lines
        if (match := re.match(r"make (?:[A-Z]+=\S+ )?([a-z]+)(?:\s|$)", text))
        if match[1] not in targets
    ]


def unknown_files(page: Page) -> list[str]:
    """Files and folders of the repository that there are not."""
    return [
        page.problem(span.line, f"there is no {span.text}")
        for span in page.spans
        if re.fullmatch(rf"({'|'.join(_TOPS)})/[\w./-]*", span.text)
        if not (ROOT / span.text).exists()
    ]


def unknown_words(page: Page) -> list[str]:
    """Names in spans of code that stand nowhere in the sources."""
    return [
        page.problem(span.line, f"{word} is nowhere in the sources: {span.text}")
        for span in page.spans
        for word in re.findall(r"[A-Za-z_][A-Za-z0-9_]*", span.text)
        if _is_name(word) and word not in known_words() | page.other_names
    ]


def _is_name(word: str) -> bool:
    """Whether it is written as a name of Python, and not as a word."""
    return bool(
        re.fullmatch(r"[a-z]+(_[a-z0-9]+)+|([A-Z][a-z0-9]+){2,}|[A-Z0-9]+(_[A-Z0-9]+)+", word)
    )


@cache
def known_words() -> frozenset[str]:
    found: set[str] = set()
    for top in _TOPS:
        for path in (ROOT / top).rglob("*.*"):
            found.add(path.stem)
            if path.suffix == ".py" and "documents" not in path.stem:
                found.update(re.findall(r"[A-Za-z_][A-Za-z0-9_]*", path.read_text("utf-8")))
    return frozenset(found)
