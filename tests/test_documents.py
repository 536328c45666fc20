"""What documents name and show is there, and each check that says so can fail."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.documents import commands, named_tests, names, pages
from support.documents.pages import ROOT, Page, documents, programs
from support.documents.programs import with_types

Check = Callable[[Page], list[str]]


def broken_links(page: Page) -> list[str]:
    return pages.broken_links(page, {each.path: each for each in documents()})


CHECKS: list[Check] = [
    broken_links,
    pages.untrue_quotes,
    pages.wide_lines,
    commands.wrong_commands,
    named_tests.missing_tests,
    named_tests.scenarios_without_proof,
    names.unknown_arguments,
    names.unknown_extras,
    names.unknown_files,
    names.unknown_options,
    names.unknown_targets,
    names.unknown_words,
]


def name_of(value: object) -> str | None:
    return value.__name__ if callable(value) and hasattr(value, "__name__") else None


def test_the_checks_see_every_document() -> None:
    seen = {page.path for page in documents()}
    assert {"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs/write-a-job.md"} <= seen


def test_flink_s_scenarios_are_in_seventeen_groups() -> None:
    """Each with a table, in order."""
    (page,) = [page for page in documents() if page.path == "docs/flink-scenarios.md"]
    groups = re.findall(r"^## (\d+)\. .*\n(?:[^#|].*\n|\n)*\| Scenario \|", page.text, re.MULTILINE)
    assert groups == [str(number) for number in range(1, 18)]


def test_the_architecture_is_read_in_one_sitting() -> None:
    """The reasons for a piece of code stand at that code."""
    (page,) = [page for page in documents() if page.path == "ARCHITECTURE.md"]
    assert len(page.text.splitlines()) < 250


@pytest.mark.parametrize("check", CHECKS, ids=name_of)
def test_documents_keep_the_rule(check: Check) -> None:
    problems = [problem for page in documents() for problem in check(page)]
    assert not problems, "\n".join(problems)


def checked(folder: Path, *shown: Page) -> str:
    """What the type checker says of the programs of these pages."""
    for page in shown:
        for number, program in enumerate(programs(page)):
            name = re.sub(r"\W", "_", page.path.removesuffix(".md"))
            (folder / f"page_{name}_{number}.py").write_text(with_types(program))
    files = sorted(map(str, folder.glob("page_*.py")))
    # Side by side with another mypy, which may have the house's cache: what is read of it is whole.
    command = [sys.executable, "-m", "mypy", "--no-error-summary", *files]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    # A problem that mypy has remembered is told with the folder of an earlier run.
    return re.sub(r"^\S*/page_", "", ended.stdout + ended.stderr, flags=re.MULTILINE)


@pytest.mark.slow
def test_programs_of_documents_fit_the_packages(tmp_path: Path) -> None:
    said = checked(tmp_path, *documents())
    assert not said, said


def page_of(program: str) -> Page:
    return Page("docs/a.md", f"# A\n```python\n{program}\n```\n")


def method(name: str, argument: str, line: str) -> str:
    arguments = ", ".join(filter(None, ("self", argument, "ctx")))
    return f"class Spend(KeyedProcessFunction):\n    def {name}({arguments}):\n        {line}"


PLANTED_PROGRAMS = [
    (
        "env = StreamEnvironment()\nenv.from_stream(env.spark.table('t'), is_bounded=True)",
        'Unexpected keyword argument "is_bounded"',
    ),
    ("from holdfast.runtime import SessionWindows", '"SessionWindows"'),
    ("env = StreamEnvironment()\nenv.execute('a').colected('out')", '"colected"'),
    ("CheckpointConfig(interval='1s', retain=3)", '"retain"'),
    ("env = StreamEnvironment()\nenv.execute('a', restore=7)", '"restore"'),
    (
        method("process_element", "order", "ctx.timer_service().register_timer(1)"),
        '"register_timer"',
    ),
    (
        method("open", "", "ctx.get_state(ValueStateDescriptor('spent', int)).set(1)"),
        '"set"',
    ),
]
BEFORE = (
    "from holdfast.backends import ValueStateDescriptor\n"
    "from holdfast.runtime import CheckpointConfig, KeyedProcessFunction, StreamEnvironment\n"
)


@pytest.mark.slow
def test_the_type_checker_finds_what_is_planted_in_programs(tmp_path: Path) -> None:
    planted = [
        Page(f"docs/p{number}.md", page_of(BEFORE + program).text)
        for number, (program, _) in enumerate(PLANTED_PROGRAMS)
    ]
    said = checked(tmp_path, *planted)
    for number, (_, expected) in enumerate(PLANTED_PROGRAMS):
        found = [line for line in said.splitlines() if line.startswith(f"docs_p{number}_0.py:")]
        assert any(expected in line for line in found), f"{number}\n{said}"


def test_a_line_of_a_program_is_where_it_is_in_its_page() -> None:
    page = Page("a.md", "One\n<!-- names: spark = 1 -->\n```python\nx = spark\n```\n")
    assert list(programs(page)) == ["\nspark = 1\n\nx = spark\n\n"]


def test_another_program_knows_nothing_of_the_one_before() -> None:
    block = "```python\nx = 1\n```\n"
    page = Page("a.md", f"{block}{block}<!-- another program -->\n{block}")
    assert [program.count("x = 1") for program in programs(page)] == [2, 1]


BROKEN: list[tuple[Check, str]] = [
    (broken_links, "[a](b.md)"),
    (broken_links, "[a](write-a-job.md#no-such-heading)"),
    (broken_links, "# One\n[a](#two)"),
    (
        pages.untrue_quotes,
        "<!-- quoted: tests/support/tidy.py -->\n```python\nMAX_COLUMNS = 101\n```",
    ),
    (pages.untrue_quotes, "<!-- quoted: tests/no_such.py -->\n```python\nx = 1\n```"),
    (pages.wide_lines, "word " * 21),
    (pages.wide_lines, f"```\n{'x' * 101}\n```"),
    (commands.wrong_commands, "`holdfast begin orders.py`"),
    (commands.wrong_commands, "`holdfast cancel --savepoint-path x orders`"),
    (commands.wrong_commands, "```\nholdfast stop orders --drained\n```"),
    (commands.wrong_commands, "```sh\nls && holdfast list orders\n```"),
    (commands.wrong_commands, "```\nholdfast stop|halt [-x] JOB    ends it\n```"),
    (commands.wrong_commands, "```\n$ holdfast savepoint convert A B --parallelism many\n```"),
    (named_tests.missing_tests, "`tests/test_tidy.py::test_nothing`"),
    (named_tests.missing_tests, "`tests/test_nothing.py::test_every_package_is_listed`"),
    (named_tests.missing_tests, "`tests/test_tidy.py::Checks::test_every_package_is_listed`"),
    (named_tests.missing_tests, "`tests/support/tidy.py::check`, a function and no test"),
    (named_tests.scenarios_without_proof, "## 1. A\n| a | it works | we tried |"),
    (named_tests.scenarios_without_proof, "## 1. A\n| a | | `tests/test_a.py::test_b` |"),
    (named_tests.scenarios_without_proof, "## 1. A\n| a | | |"),
    (names.unknown_arguments, "pass `is_bounded=True`"),
    (names.unknown_arguments, "pass `retain=`"),
    (names.unknown_arguments, "say `CheckpointConfig(every='1s')`"),
    (names.unknown_extras, 'pip install "holdfast-spark[nosuch]"'),
    (names.unknown_extras, 'pip install "holdfast-spark[s3, nosuch]"'),
    (names.unknown_extras, "the extra `rocksdb`"),
    (names.unknown_files, "look into `tests/no_such.py`"),
    (names.unknown_options, "set `execution.checkpointing.every`"),
    (names.unknown_options, "set `spark.holdfast.state.backing=rocksdb`"),
    (names.unknown_options, "```\nholdfast run -Dstate.backing=rocksdb a.py\n```"),
    (names.unknown_options, "```\nspark-submit --conf spark.holdfast.no.such=1 a.py\n```"),
    (names.unknown_options, "set `execution.savepoint.path`"),
    (names.unknown_options, "those of `restart-policy.` and `restart-strategy.never.`"),
    (names.unknown_targets, "`make coffee`"),
    (names.unknown_targets, "```\nmake coffee\n```"),
    (names.unknown_words, "call `stop_with_a_bang()`"),
    (names.unknown_words, "a `TumblingEventWindows` of"),
]

SOUND: list[tuple[Check, str]] = [
    (broken_links, "[a](write-a-job.md#event-time), [b](https://a.org/b), `[c](d.md)`"),
    (
        pages.untrue_quotes,
        "<!-- quoted: tests/support/tidy.py -->\n```python\nMAX_COLUMNS = 100\n```",
    ),
    (pages.wide_lines, f"{'x' * 100}\n\n| {'y' * 100} |"),
    (commands.wrong_commands, "`holdfast run -D`, `holdfast stop`, `holdfast`, `holdfast.runtime`"),
    (commands.wrong_commands, "```\nholdfast cancel [-s [DIR]] JOB    end one as it is\n```"),
    (commands.wrong_commands, "```\nholdfast savepoint convert A B --parallelism N\n```"),
    (named_tests.missing_tests, "`tests/test_tidy.py::test_every_package_is_listed`"),
    (
        named_tests.missing_tests,
        "`storage/testing/clauses/creates.py::CreateClauses::test_create_can_be_repeated`",
    ),
    (
        named_tests.scenarios_without_proof,
        "## 1. A\n| Scenario |\n|---|\n| a | b | `a.py::c` |",
    ),
    (
        named_tests.scenarios_without_proof,
        "## 1. A\n| a | | **Not built**: so |\n## B\n| c |",
    ),
    (names.unknown_arguments, "`available_now=True`, `x = f()`, `timedelta(days=1)`"),
    (names.unknown_extras, 'pip install "holdfast-spark[s3,hdfs]"'),
    (names.unknown_files, "`tests/support/tidy.py`, `tests/`"),
    (names.unknown_options, "`-Dparallelism.default=8`, `state.changelog.enabled`, `dstl.dfs.`"),
    (names.unknown_targets, "`make check`, `make PYTHON=python3.13 test`, make sure"),
    (names.unknown_words, "`process_element` of a `KeyedProcessFunction`"),
    (names.unknown_words, "<!-- other names: flat_maps -->\n`flat_maps`"),
]


@pytest.mark.parametrize(("check", "text"), BROKEN)
def test_a_check_finds_what_is_planted(check: Check, text: str) -> None:
    found = check(Page("docs/a.md", text))
    assert found
    assert all(problem.startswith("docs/a.md:") for problem in found)


@pytest.mark.parametrize(("check", "text"), SOUND)
def test_a_check_leaves_alone_what_is_there(check: Check, text: str) -> None:
    assert check(Page("docs/a.md", text)) == []


def test_every_check_has_cases_of_both_kinds() -> None:
    assert {check for check, _ in BROKEN} == {check for check, _ in SOUND} == set(CHECKS)
