"""The house is tidy, and each check that says so can fail."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from support import tidy
from support.tidy import Check, Module

ROOT = Path(__file__).resolve().parent.parent
PLACES = [folder for folder in (*tidy.ROOMS, *tidy.SIDES) if (ROOT / folder).is_dir()]


def paths(*tops: str) -> list[str]:
    return sorted(
        path.relative_to(ROOT).as_posix()
        for top in tops
        for path in (ROOT / top).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    )


def modules() -> list[Module]:
    names = [path for path in paths(*PLACES) if path.endswith(".py")]
    return [Module(name, (ROOT / name).read_text("utf-8")) for name in names]


@pytest.fixture(scope="module")
def house() -> list[Module]:
    return modules()


@pytest.fixture(scope="module")
def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


@pytest.mark.parametrize("check", tidy.CHECKS, ids=lambda check: check.__name__)
def test_the_house_keeps_the_rule(check: Check, house: list[Module]) -> None:
    problems = [problem for module in house for problem in check(module)]
    assert not problems, "\n".join(problems)


def test_no_document_names_another_project() -> None:
    names = [path.relative_to(ROOT).as_posix() for path in ROOT.glob("*.*") if path.is_file()]
    texts = [*names, *paths("docs"), "Makefile"]
    found = [
        problem
        for name in texts
        if name.endswith((".md", ".py", ".toml", "Makefile"))
        for problem in tidy.other_project_is_not_named(Module(name, (ROOT / name).read_text()))
    ]
    assert "pyproject.toml" in texts
    assert not found, "\n".join(found)


def test_the_checks_see_every_room_and_this_test(house: list[Module]) -> None:
    seen = {module.path for module in house}
    assert {f"{room}/__init__.py" for room in tidy.ROOMS} <= seen
    assert {"tests/test_tidy.py", "tests/support/tidy.py", "tools/bootstrap.py"} <= seen


def test_every_package_is_listed(pyproject: dict[str, Any]) -> None:
    setuptools = pyproject["tool"]["setuptools"]
    assert sorted(setuptools["packages"]) == sorted(setuptools["package-dir"])
    problems = tidy.packages_match(setuptools["package-dir"], paths(*tidy.ROOMS))
    assert not problems, "\n".join(problems)


def test_every_folder_of_code_is_known() -> None:
    hidden_or_made = {"build", "dist"}
    with_code = {
        path.parent.name for path in ROOT.glob("*/*.py") if path.parent.name not in hidden_or_made
    }
    assert {name for name in with_code if not name.startswith(".")} <= {*tidy.ROOMS, *tidy.SIDES}


def test_the_tools_know_every_room(pyproject: dict[str, Any]) -> None:
    tool = pyproject["tool"]
    rooms = [f"holdfast.{room}" for room in tidy.ROOMS]
    contracts = {each["name"]: each for each in tool["importlinter"]["contracts"]}
    order = contracts["Imports between the rooms point down"]
    spark = contracts["Only holdfast.runtime.spark imports pyspark"]
    assert sorted(tool["mypy"]["packages"]) == rooms
    assert sorted(tool["importlinter"]["root_packages"]) == rooms
    assert sorted(order["layers"]) == rooms
    assert sorted(spark["source_modules"]) == rooms
    assert set(tidy.ROOMS) <= set(tool["ruff"]["lint"]["flake8-tidy-imports"]["banned-api"])


def lines(count: int) -> str:
    return "x = 1\n" * count


def function(count: int) -> str:
    return "def f():\n" + "    pass\n" * (count - 1)


def lazy_package(otherwise: str) -> str:
    return (
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n"
        "    from holdfast.storage.a import f\n"
        "else:\n"
        f"    {otherwise}\n"
        "__all__ = ['f']"
    )


OTHER = "hold" + "fast"
"""As it is, this file would name it."""

BROKEN: list[tuple[Check, str, str]] = [
    (tidy.files_are_short, "storage/a.py", lines(501)),
    (tidy.functions_are_short, "tests/a.py", function(71)),
    (tidy.functions_are_short, "tests/a.py", "async " + function(71)),
    (tidy.functions_are_short, "tests/a.py", "class A:\n  " + function(71).replace("\n", "\n  ")),
    (tidy.lines_are_short, "tools/a.py", "x" * 101),
    (tidy.imports_name_the_house, "tests/a.py", "import storage"),
    (tidy.imports_name_the_house, "tests/a.py", "import storage.names as names"),
    (tidy.imports_name_the_house, "tests/a.py", "from backends import load_backend"),
    (tidy.imports_name_the_house, "runtime/a.py", "def f():\n    from changelog.log import Log"),
    (tidy.imports_name_the_house, "runtime/a.py", "from .b import c"),
    (tidy.imports_name_the_house, "runtime/a.py", "from . import c"),
    (tidy.imports_name_the_house, "tests/a.py", "importlib.import_module('runtime.spark')"),
    (tidy.spark_stays_in_its_room, "runtime/a.py", "import pyspark.sql"),
    (tidy.spark_stays_in_its_room, "backends/a.py", "def f():\n    from pyspark.sql import Row"),
    (tidy.spark_stays_in_its_room, "tools/a.py", "import py4j"),
    (tidy.none_is_found_by_identity, "backends/a.py", "if None not in cells:\n    pass"),
    (
        tidy.users_objects_are_pickled_in_one_place,
        "runtime/spark/a.py",
        "from pyspark import cloudpickle",
    ),
    (tidy.time_comes_from_the_clock, "storage/a.py", "import time\ntime.time()"),
    (tidy.time_comes_from_the_clock, "storage/a.py", "import time as t\nf = t.monotonic"),
    (tidy.time_comes_from_the_clock, "tests/a.py", "from time import sleep as nap\nnap(1)"),
    (tidy.time_comes_from_the_clock, "runtime/a.py", "import time\ntime.perf_counter()"),
    (tidy.time_comes_from_the_clock, "benchmarks/a.py", "import time\ntime.time()"),
    (tidy.time_comes_from_the_clock, "tools/a.py", "import datetime\ndatetime.datetime.now()"),
    (tidy.time_comes_from_the_clock, "tests/a.py", "from datetime import date\ndate.today()"),
    (tidy.time_comes_from_the_clock, "tests/a.py", "from datetime import datetime as d\nd.now(z)"),
    (tidy.files_are_deleted_in_known_places, "storage/a.py", "path.unlink()"),
    (tidy.files_are_deleted_in_known_places, "runtime/a.py", "map(os.unlink, paths)"),
    (tidy.files_are_deleted_in_known_places, "runtime/a.py", "import os\nos.remove(p)"),
    (
        tidy.files_are_deleted_in_known_places,
        "runtime/a.py",
        "from shutil import rmtree\nrmtree(p)",
    ),
    (tidy.files_are_deleted_in_known_places, "changelog/a.py", "files.rm_file(name)"),
    (
        tidy.files_are_deleted_in_known_places,
        "storage/places/local.py",
        "from tempfile import mkdtemp\nmkdtemp()",
    ),
    (tidy.chance_comes_from_entropy, "storage/a.py", "import random\nrandom.Random(1)"),
    (tidy.chance_comes_from_entropy, "tests/a.py", "import random\nrandom.Random()"),
    (tidy.chance_comes_from_entropy, "tests/a.py", "from random import choice\nchoice('ab')"),
    (tidy.chance_comes_from_entropy, "tests/a.py", "import uuid\nuuid.uuid4()"),
    (tidy.chance_comes_from_entropy, "tests/a.py", "import secrets\nsecrets.token_hex()"),
    (tidy.chance_comes_from_entropy, "tests/a.py", "import os\nread = os.urandom"),
    (tidy.nothing_that_comes_in_is_run, "runtime/a.py", "import pickle\npickle.loads(data)"),
    (tidy.nothing_that_comes_in_is_run, "runtime/a.py", "from pickle import loads as l\nl(data)"),
    (tidy.nothing_that_comes_in_is_run, "runtime/a.py", "import pickle\nmap(pickle.loads, d)"),
    (
        tidy.nothing_that_comes_in_is_run,
        "runtime/spark/a.py",
        "from pyspark import cloudpickle\ncloudpickle.load(file)",
    ),
    (tidy.nothing_that_comes_in_is_run, "storage/a.py", "import marshal\nmarshal.loads(d)"),
    (tidy.nothing_that_comes_in_is_run, "backends/a.py", "eval(text)"),
    (tidy.nothing_that_comes_in_is_run, "runtime/operators/user_code.py", "exec(text)"),
    (
        tidy.what_cannot_be_read_is_foreseen,
        "storage/a.py",
        "try:\n    m.json.decode(d)\nexcept msgspec.MsgspecError:\n    pass",
    ),
    (
        tidy.what_cannot_be_read_is_foreseen,
        "backends/a.py",
        "try:\n    x.decode(d)\nexcept (TypeError, DecodeError) as e:\n    pass",
    ),
    (tidy.all_is_what_is_public, "storage/a.py", "def f(): ..."),
    (tidy.all_is_what_is_public, "storage/a.py", "__all__ = []\ndef f(): ..."),
    (tidy.all_is_what_is_public, "storage/a.py", "__all__ = []\nif x:\n    LIMIT = 1"),
    (tidy.all_is_what_is_public, "storage/a.py", "__all__ = []\na, b = 1, 2"),
    (tidy.all_is_what_is_public, "storage/a.py", "__all__ = ['g']\n"),
    (tidy.all_is_what_is_public, "storage/a.py", "from b import g\n__all__ = ['g']"),
    (tidy.all_is_what_is_public, "storage/a.py", "__all__ = ['f', 'f']\ndef f(): ..."),
    (tidy.all_is_what_is_public, "storage/a.py", "__all__ = names()\n"),
    (tidy.all_is_what_is_public, "storage/__init__.py", "from holdfast.storage.a import f"),
    (
        tidy.all_is_what_is_public,
        "storage/__init__.py",
        "from holdfast.storage.a import f\n__all__ = []",
    ),
    (tidy.packages_only_re_export, "storage/__init__.py", "def f(): ..."),
    (tidy.packages_only_re_export, "storage/__init__.py", "LIMIT = 1"),
    (tidy.packages_only_re_export, "storage/__init__.py", "import os"),
    (tidy.packages_only_re_export, "storage/__init__.py", "from os import path"),
    (tidy.packages_only_re_export, "storage/__init__.py", "if TYPE_CHECKING:\n    f = 1"),
    (
        tidy.packages_only_re_export,
        "storage/__init__.py",
        lazy_package("g = 1"),
    ),
    (
        tidy.all_is_what_is_public,
        "storage/__init__.py",
        "if TYPE_CHECKING:\n    from holdfast.storage.a import f\n__all__ = []",
    ),
    (tidy.other_project_is_not_named, "storage/a.py", f"'{OTHER}[s3]'"),
    (tidy.other_project_is_not_named, "tests/a.py", f"r'{OTHER}\\[s3]'"),
    (tidy.other_project_is_not_named, "runtime/a.py", f"version('{OTHER}')"),
    (tidy.other_project_is_not_named, "README.md", f"pip install pyspark {OTHER}`"),
]

SOUND: list[tuple[Check, str, str]] = [
    (tidy.files_are_short, "storage/a.py", lines(500)),
    (tidy.functions_are_short, "tests/a.py", function(70)),
    (tidy.lines_are_short, "tools/a.py", "x" * 100),
    (tidy.imports_name_the_house, "tests/a.py", "import holdfast.storage\nimport runtimes"),
    (tidy.imports_name_the_house, "tests/a.py", "from holdfast import storage"),
    (tidy.spark_stays_in_its_room, "runtime/spark/a.py", "import pyspark"),
    (tidy.spark_stays_in_its_room, "tests/a.py", "from pyspark.sql import SparkSession"),
    (tidy.spark_stays_in_its_room, "storage/a.py", "import pysparkling"),
    (tidy.none_is_found_by_identity, "backends/a.py", "if has_none(cells):\n    pass"),
    (
        tidy.users_objects_are_pickled_in_one_place,
        "runtime/spark/launching/pickling.py",
        "from pyspark import cloudpickle",
    ),
    (tidy.time_comes_from_the_clock, "storage/clock.py", "import time\ntime.time()"),
    (tidy.time_comes_from_the_clock, "benchmarks/a.py", "import time\ntime.perf_counter()"),
    (tidy.time_comes_from_the_clock, "storage/a.py", "clock.time.sleep()\nself.time.time()"),
    (tidy.time_comes_from_the_clock, "tests/a.py", "import datetime\ndatetime.datetime(1, 1, 1)"),
    (tidy.files_are_deleted_in_known_places, "storage/places/local.py", "path.unlink()"),
    (tidy.files_are_deleted_in_known_places, "storage/testing/a.py", "path.unlink()"),
    (tidy.files_are_deleted_in_known_places, "tests/a.py", "path.unlink()"),
    (
        tidy.files_are_deleted_in_known_places,
        "runtime/a.py",
        "from tempfile import gettempdir\nstates.remove(key)\ngettempdir()",
    ),
    (tidy.chance_comes_from_entropy, "storage/entropy.py", "import secrets\nsecrets.randbits(8)"),
    (tidy.chance_comes_from_entropy, "tests/a.py", "import random\nrandom.Random(7).random()"),
    (tidy.chance_comes_from_entropy, "tests/a.py", "from random import Random\nRandom(x=7)"),
    (tidy.chance_comes_from_entropy, "tests/a.py", "import random\ndef f(r: random.Random): ..."),
    (tidy.chance_comes_from_entropy, "tests/a.py", "import uuid\nuuid.UUID(int=1)"),
    (tidy.nothing_that_comes_in_is_run, "runtime/a.py", "import pickle\npickle.dumps(data)"),
    (tidy.nothing_that_comes_in_is_run, "backends/values/codec.py", "import pickle\npickle.loads"),
    (tidy.nothing_that_comes_in_is_run, "tests/a.py", "import pickle\npickle.loads(data)"),
    (tidy.nothing_that_comes_in_is_run, "runtime/cli/program.py", "exec(code)\nself.eval()"),
    (
        tidy.what_cannot_be_read_is_foreseen,
        "storage/a.py",
        "try:\n    m.json.decode(d)\nexcept (*UNREADABLE, TypeError):\n    pass",
    ),
    (
        tidy.what_cannot_be_read_is_foreseen,
        "storage/a.py",
        "try:\n    m.convert(d, A)\nexcept msgspec.ValidationError:\n    pass",
    ),
    (tidy.all_is_what_is_public, "tests/a.py", "def f(): ..."),
    (tidy.all_is_what_is_public, "storage/a.py", "__all__ = ['f']\ndef f(): ...\n_x = 1"),
    (
        tidy.all_is_what_is_public,
        "storage/__init__.py",
        "from __future__ import annotations\nfrom holdfast.a import b as c\n__all__ = ['c']",
    ),
    (
        tidy.packages_only_re_export,
        "storage/__init__.py",
        "'''Room.'''\nfrom holdfast.storage.a import f\n__all__ = ['f']",
    ),
    (tidy.packages_only_re_export, "storage/a.py", "LIMIT = 1"),
    (
        tidy.packages_only_re_export,
        "storage/__init__.py",
        lazy_package("__getattr__ = lazy({'f': 'holdfast.storage.a'})"),
    ),
    (tidy.other_project_is_not_named, "storage/a.py", "install('holdfast-spark[s3]')"),
    (
        tidy.other_project_is_not_named,
        "README.md",
        "pip install holdfast-spark`, `holdfast list",
    ),
    (tidy.other_project_is_not_named, "README.md", "pip install dist/holdfast_spark-0.1.whl"),
]


def case(value: object) -> str | None:
    return value.__name__ if callable(value) and hasattr(value, "__name__") else None


@pytest.mark.parametrize(("check", "path", "source"), BROKEN, ids=case)
def test_a_check_finds_what_breaks_its_rule(check: Check, path: str, source: str) -> None:
    found = check(Module(path, source))
    assert found
    assert all(problem.startswith(f"{path}:") for problem in found)


@pytest.mark.parametrize(("check", "path", "source"), SOUND, ids=case)
def test_a_check_leaves_alone_what_keeps_its_rule(check: Check, path: str, source: str) -> None:
    assert check(Module(path, source)) == []


def test_every_check_has_cases_of_both_kinds() -> None:
    assert {each for each, _, _ in BROKEN} == {each for each, _, _ in SOUND} == set(tidy.CHECKS)


FOUND = ("a/__init__.py", "a/py.typed", "a/b/__init__.py", "a/b/py.typed", "a/b/c.py")
LISTED = {"holdfast.a": "a", "holdfast.a.b": "a/b"}


def test_packages_match_when_list_and_folders_agree() -> None:
    assert tidy.packages_match(LISTED, FOUND) == []


@pytest.mark.parametrize(
    ("listed", "found", "problem"),
    [
        ({"holdfast.a": "a"}, FOUND, "a/b: not listed in pyproject.toml"),
        ({**LISTED, "holdfast.z": "z"}, FOUND, "z: listed in pyproject.toml, has no code"),
        (LISTED, [*FOUND[:2], *FOUND[3:]], "a/b: has no __init__.py"),
        (LISTED, [FOUND[0], *FOUND[2:]], "a: has no py.typed"),
        ({"holdfast.a": "a", "holdfast.b": "a/b"}, FOUND, "holdfast.b: maps to a/b"),
    ],
)
def test_packages_that_do_not_match_are_found(
    listed: dict[str, str], found: list[str], problem: str
) -> None:
    assert problem in tidy.packages_match(listed, found)
