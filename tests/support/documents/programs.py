"""Programs of documents, made ready for a type checker.

Users leave the types of `ctx` and its like out, and so do documents. Here they are put in from the
base class, so that a name which a context does not have is found.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
from collections.abc import Iterator

LENIENT = """\
# mypy: check-untyped-defs, strict-optional=False, allow-redefinition
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-calls=False
# mypy: disallow-subclassing-any=False, disallow-any-generics=False, warn-unreachable=False
# mypy: disable-error-code="import-untyped, no-untyped-call, var-annotated"
"""
"""As users write: names, arguments and values count, and types that are left out do not."""

PACKAGES = ("holdfast.backends", "holdfast.changelog", "holdfast.runtime", "holdfast.storage")


def with_types(source: str) -> str:
    """The same program, each line where it was, with arguments typed as those of the base class."""
    tree = ast.parse(source)
    lines = source.splitlines()
    # The last ones first, so that places that were found before stay right.
    for line, column, text in sorted(_insertions(tree), reverse=True):
        before = lines[line - 1].encode()
        lines[line - 1] = (before[:column] + text.encode() + before[column:]).decode()
    # At the end: a type checker finds them there too, and no line moves.
    modules = sorted({f"import {base.__module__}" for base in _bases(tree)})
    return "\n".join([*lines, *modules, LENIENT])


def _bases(tree: ast.Module) -> Iterator[type]:
    """The classes of the house that classes of a program are made from."""
    for made in ast.walk(tree):
        if isinstance(made, ast.ClassDef):
            yield from _bases_of(made, tree)


def _bases_of(made: ast.ClassDef, tree: ast.Module) -> list[type]:
    imported = {
        alias.asname or alias.name: getattr(importlib.import_module(node.module), alias.name, None)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in PACKAGES
        for alias in node.names
    }
    # A base with type arguments is a subscript of its name.
    plain = [base.value if isinstance(base, ast.Subscript) else base for base in made.bases]
    named = [imported.get(base.id) for base in plain if isinstance(base, ast.Name)]
    return [base for base in named if isinstance(base, type)]


def _insertions(tree: ast.Module) -> Iterator[tuple[int, int, str]]:
    for made in ast.walk(tree):
        if isinstance(made, ast.ClassDef):
            for base in _bases_of(made, tree):
                for method in made.body:
                    if isinstance(method, ast.FunctionDef):
                        yield from _of_method(method, base)


def _of_method(method: ast.FunctionDef, base: type) -> Iterator[tuple[int, int, str]]:
    inherited = getattr(base, method.name, None)
    if not inspect.isfunction(inherited):
        return
    theirs = inspect.signature(inherited).parameters.values()
    for argument, parameter in zip(method.args.args, theirs, strict=False):
        kind = _type_name(parameter.annotation, inherited.__globals__, base.__module__)
        if argument.annotation is None and kind and argument.end_lineno and argument.end_col_offset:
            yield argument.end_lineno, argument.end_col_offset, f": {kind}"


def _type_name(annotation: object, known: dict[str, object], module: str) -> str:
    """A name by which the program can say a plain type; nothing for other types."""
    if not isinstance(annotation, str):
        return ""
    if isinstance(getattr(builtins, annotation, None), type):
        return annotation
    kind = known.get(annotation)
    is_own = isinstance(kind, type) and kind.__module__ == module
    return f"{module}.{annotation}" if is_own else ""
