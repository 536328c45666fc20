"""What multiplies is dealt out: each value in each run, and all of it in `make soak`."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from support.budgets import BUDGETS, LEEWAY, Account, Machine
from support.dealing import dealt
from support.longest_first import LONGEST, TOGETHER

pytest_plugins = ["pytester"]
BACKENDS = [("hashmap",), ("rocksdb",), ("sqlite",)]


def test_by_turns_every_value_is_tried() -> None:
    turns = [dealt(BACKENDS, turn=turn) for turn in range(6)]
    assert all(len(each) == 1 for each in turns)
    assert {*turns[0], *turns[1], *turns[2]} == {*BACKENDS}
    assert turns[:3] == turns[3:]


def test_several_values_may_be_taken_and_no_more_than_there_are() -> None:
    assert len(dealt(BACKENDS, turn=1, take=2)) == 2
    assert dealt(BACKENDS, turn=1, take=7) == {*BACKENDS}
    assert len(dealt([*itertools.product("abc", "xy")], turn=0, take=2)) == 2


@pytest.mark.parametrize("turn", range(4))
def test_of_two_each_value_is_tried_and_of_more_each_pair(turn: int) -> None:
    two = dealt([*itertools.product(range(6), range(3))], turn=turn)
    assert [{hand[axis] for hand in two} for axis in (0, 1)] == [{*range(6)}, {*range(3)}]
    assert len(two) == 6
    three = dealt([*itertools.product(range(6), range(3), range(4))], turn=turn)
    for one, other in itertools.combinations(range(3), 2):
        pairs = {(hand[one], hand[other]) for hand in three}
        assert pairs == {
            *itertools.product(*((range(6), range(3), range(4))[n] for n in (one, other)))
        }
    assert len(three) < 36, "of 72"


def test_absent_combinations_are_not_dealt() -> None:
    hands = [each for each in itertools.product("abc", "abc", "xy") if each[0] != each[1]]
    kept = dealt(hands, turn=0)
    assert kept < {*hands}
    pairs = {(number, hand[number], hand[number + 1]) for hand in hands for number in (0, 1)}
    assert {(number, hand[number], hand[number + 1]) for hand in kept for number in (0, 1)} == pairs


CONFTEST = """
import pytest
from support import dealing

@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    dealing.deal(items)
"""
SUITE = """
import pytest

class Suite:
    def test_one(self): pass
    def test_two(self): pass
    def test_three(self): pass

@pytest.mark.dealt("class")
class TestHere(Suite): pass

@pytest.mark.dealt("class")
class TestThere(Suite): pass

@pytest.mark.dealt("number")
@pytest.mark.parametrize("name", [["a"], ["b"]])
@pytest.mark.parametrize("number", [1, pytest.param(2, marks=pytest.mark.slow), True])
def test_of(number, name): pass
"""


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeconftest(CONFTEST)
    pytester.makeini("[pytest]\nmarkers =\n  slow\n  soak\n  dealt\n")
    pytester.makepyfile(test_suite=SUITE)
    return pytester


def names(suite: pytest.Pytester, *words: str) -> set[str]:
    """The tests that such a run collects."""
    found = suite.runpytest_inprocess("--collect-only", "-q", "-p", "no:cacheprovider", *words)
    return {line.partition("::")[2] for line in found.outlines if "::" in line}


def test_a_run_and_a_soak_have_all_together_and_nothing_twice(suite: pytest.Pytester) -> None:
    run, soak = names(suite, "-m", "not soak"), names(suite, "-m", "soak")
    assert not run & soak
    everything = run | soak
    assert len(everything) == 12
    for clause in ("one", "two", "three"):
        assert sum(each.endswith(f"::test_{clause}") for each in run) == 1
    assert {each.partition("::")[0] for each in run if "::" in each} == {"TestHere", "TestThere"}
    for name in ("name0", "name1"):
        mine = {each for each in run if each.startswith("test_of") and name in each}
        assert len(mine) == 2, "one of the quick ones, and the slow one"
        assert f"test_of[2-{name}]" in mine


def test_a_test_selected_by_name_runs(suite: pytest.Pytester) -> None:
    left_out = min(names(suite, "-m", "soak"))
    assert names(suite, f"test_suite.py::{left_out}", "-m", "not soak") == {left_out}


def test_a_parameter_that_cannot_be_dealt_is_reported(suite: pytest.Pytester) -> None:
    suite.makepyfile("import pytest\n@pytest.mark.dealt('colour')\ndef test_it(): pass")
    found = suite.runpytest_inprocess("-q", "-p", "no:cacheprovider")
    says = "test_it is dealt over 'colour', which it does not have"
    assert any(says in line for line in found.errlines)


def report(nodeid: str, duration: float) -> pytest.TestReport:
    return pytest.TestReport(nodeid, ("", 0, ""), {}, "passed", None, "call", duration=duration)


def test_a_folder_that_takes_too_long_is_named_with_what_took_longest() -> None:
    account = Account("quick", workers=2, slowness=lambda: 1.0)
    limit_s = 2 * LEEWAY * BUDGETS["quick"]["tests/storage"]
    account.pytest_runtest_logreport(report("tests/storage/jobs/test_a.py::test_b", limit_s - 1))
    assert account.exceeded() == []
    account.pytest_runtest_logreport(report("tests/storage/test_c.py::test_d", 2))
    (line,) = account.exceeded()
    assert line.startswith(
        "tests/storage: expected 12 s at most, and took 18 s: tests/storage/jobs"
    )
    assert account.folder("tests/runtime/spark/test_x.py::test_y[a/b]") == "tests/runtime"
    assert account.folder("tests/support/servers/test_x.py::test_y") == "tests"


@pytest.mark.parametrize(("slowness", "lines"), [(1.9, 1), (2.0, 0)])
def test_a_folder_may_take_longer_on_a_machine_that_is_slower(slowness: float, lines: int) -> None:
    account = Account("slow", workers=1, slowness=lambda: slowness)
    taken_s = 2 * LEEWAY * BUDGETS["slow"]["tests/storage"]
    account.pytest_runtest_logreport(report("tests/storage/test_a.py::test_b", taken_s))
    assert len(account.exceeded()) == lines


def test_no_machine_is_faster_than_that_of_the_budgets() -> None:
    assert Machine().slowness() >= 1


@pytest.mark.parametrize("part", BUDGETS)
def test_every_test_has_a_budget_and_all_fit_into_ten_minutes(part: str) -> None:
    assert "tests" in BUDGETS[part]
    assert sum(sum(each.values()) for each in BUDGETS.values()) <= 600


def test_files_that_begin_first_are_there() -> None:
    root = Path(__file__).parents[1]
    named = {*LONGEST, *itertools.chain(*TOGETHER)}
    assert [file for file in sorted(named) if not (root / file).is_file()] == []
    assert len({*itertools.chain(*TOGETHER)}) == sum(map(len, TOGETHER))
