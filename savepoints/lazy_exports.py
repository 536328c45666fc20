"""Names of a package that are imported when they are first used.

A package lists its names once, as imports under `if TYPE_CHECKING:`, which type checkers read. At
run time the same lines are read as text:

    if TYPE_CHECKING:
        from holdfast.savepoints.finding import find_snapshot
    else:
        __getattr__ = _lazy_exports(__name__)

This module is here, and not in a lower room, because this room's `__init__` imports nothing else:
whatever uses it starts without Arrow, and without the clients of storages.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

__all__ = ["lazy_exports"]


def lazy_exports(package: str) -> Callable[[str], Any]:
    """A `__getattr__` for a package, for the names that it imports under `if TYPE_CHECKING:`."""
    modules: dict[str, str] = {}

    def get(name: str) -> Any:
        if not modules:
            modules.update(_imported_for_types(package))
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(modules[name]), name)
        setattr(sys.modules[package], name, found)
        return found

    return get


def _imported_for_types(package: str) -> dict[str, str]:
    """The module of each name that is imported for type checkers only."""
    # The loader's own reader, and no path: the package may be in a zip that Spark has shipped.
    source = sys.modules[package].__loader__.get_source(package)  # type: ignore[union-attr]
    return {
        alias.name: str(node.module)
        for block in ast.parse(source).body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
