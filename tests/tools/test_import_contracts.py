"""The contracts in pyproject.toml are broken by the imports that they are there to forbid."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("backends", "changelog", "runtime", "runtime/spark", "savepoints", "storage")
LINT = "import sys; from importlinter.cli import lint_imports_command; lint_imports_command()"


def lint(folder: Path, planted: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Check a house of empty rooms, in which the planted modules stand, by our contracts."""
    for room in ROOMS:
        (folder / "holdfast" / room).mkdir(parents=True)
        (folder / "holdfast" / room / "__init__.py").touch()
    for name, source in planted.items():
        (folder / "holdfast" / name).write_text(source)
    shutil.copy(ROOT / "pyproject.toml", folder)
    return subprocess.run(
        [sys.executable, "-c", LINT, "--no-cache"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_imports_that_point_down_and_spark_in_its_room_keep_them(tmp_path: Path) -> None:
    sound = {
        "runtime/job.py": "import holdfast.changelog\nfrom holdfast import storage",
        "runtime/spark/slots.py": "import pyspark.sql\nfrom py4j.protocol import Py4JError",
        "runtime/spark/__init__.py": "from pyspark.sql import SparkSession",
        "backends/heap.py": "from holdfast.storage import names",
    }
    ended = lint(tmp_path, sound)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize(
    ("planted", "source", "broken"),
    [
        ("storage/a.py", "import holdfast.backends", "point down BROKEN"),
        ("backends/a.py", "from holdfast import changelog", "point down BROKEN"),
        ("changelog/a.py", "def f():\n    import holdfast.runtime.spark", "point down BROKEN"),
        ("savepoints/a.py", "import holdfast.runtime", "point down BROKEN"),
        ("changelog/a.py", "from holdfast import savepoints", "point down BROKEN"),
        ("runtime/a.py", "import pyspark", "imports pyspark BROKEN"),
        ("storage/a.py", "def f():\n    from pyspark.sql import Row", "imports pyspark BROKEN"),
    ],
)
def test_an_import_that_is_forbidden_breaks_them(
    tmp_path: Path, planted: str, source: str, broken: str
) -> None:
    ended = lint(tmp_path, {planted: source})
    assert ended.returncode == 1
    assert broken in ended.stdout
