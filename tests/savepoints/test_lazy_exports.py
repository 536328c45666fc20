"""The room's names are imported when they are asked for, and not before."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import holdfast.runtime
from holdfast.savepoints.lazy_exports import lazy_exports

HEAVY = ("pyspark", "pandas", "pyarrow", "numpy", "rocksdict")


def test_every_name_is_what_its_module_has() -> None:
    """What who checks types is told, and what is imported, are the same."""
    tree = ast.parse(Path(holdfast.runtime.__file__).read_text("utf-8"))
    (both,) = [node for node in tree.body if isinstance(node, ast.If)]
    told = {
        alias.name: node.module
        for node in both.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    (made,) = [node for node in ast.walk(both) if isinstance(node, ast.Dict)]
    assert ast.literal_eval(made) == told
    assert sorted(told) == sorted(holdfast.runtime.__all__)
    for name, module in told.items():
        assert getattr(holdfast.runtime, name) is getattr(import_module(str(module)), name)


def test_what_is_not_there_is_missed() -> None:
    with pytest.raises(AttributeError, match=r"module 'holdfast\.runtime' has no attribute 'Nope'"):
        _ = holdfast.runtime.Nope  # type: ignore[attr-defined]
    assert lazy_exports("sys", {"path": "sys"})("path") is sys.path


def test_the_command_starts_without_what_jobs_need() -> None:
    code = f"""
import sys, holdfast.runtime.cli.main
print([name for name in {HEAVY!r} if name in sys.modules])
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
