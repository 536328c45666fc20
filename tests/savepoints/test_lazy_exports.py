"""The names of lazy packages are imported when they are first used, and not before."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from importlib import import_module
from pathlib import Path

import pytest

import holdfast.runtime
from holdfast.savepoints import lazy_exports

HEAVY = ("pyspark", "pandas", "pyarrow", "numpy", "rocksdict")
PACKAGES = ("runtime", "runtime.spark", "savepoints", "savepoints.conversion")


@pytest.mark.parametrize("name", PACKAGES)
def test_every_public_name_is_found(name: str) -> None:
    package = import_module(f"holdfast.{name}")
    declared = lazy_exports._imported_for_types(package.__name__)
    assert sorted(declared) == sorted(package.__all__)
    for each, module in declared.items():
        assert getattr(package, each) is getattr(import_module(module), each)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'holdfast\.runtime' has no attribute 'Nope'"):
        _ = holdfast.runtime.Nope  # type: ignore[attr-defined]


def test_a_lazy_package_works_from_a_zip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "shipped.zip", "w") as shipped:
        shipped.writestr(
            "lazy_in_zip/__init__.py",
            "from typing import TYPE_CHECKING\n"
            "from holdfast.savepoints.lazy_exports import lazy_exports\n"
            "if TYPE_CHECKING:\n    from pathlib import PurePath\n"
            "else:\n    __getattr__ = lazy_exports(__name__)\n",
        )
    monkeypatch.syspath_prepend(tmp_path / "shipped.zip")
    assert import_module("lazy_in_zip").PurePath.__name__ == "PurePath"


def test_the_command_starts_without_what_jobs_need() -> None:
    code = f"""
import sys, holdfast.runtime.cli.main
print([name for name in {HEAVY!r} if name in sys.modules])
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
