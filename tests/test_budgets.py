"""Budgets of folders of tests."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from support.budgets import BUDGETS, LEEWAY, Account

FOLDER = "tests/storage"
NODEID = f"{FOLDER}/places/test_local.py::test_it"


def account(workers: int, taken_s: float) -> Account:
    made = Account("slow", workers)
    report: Any = SimpleNamespace(nodeid=NODEID, duration=taken_s)
    made.pytest_runtest_logreport(report)
    return made


def test_a_folder_may_take_half_as_much_again() -> None:
    assert not account(workers=1, taken_s=LEEWAY * BUDGETS["slow"][FOLDER]).exceeded()


def test_a_folder_that_took_more_is_named_with_its_longest_test() -> None:
    made = account(workers=2, taken_s=1_000_000)
    (line,) = made.exceeded()
    assert line.startswith(f"{FOLDER}: expected {BUDGETS['slow'][FOLDER]} s at most")
    assert NODEID in line


def test_a_machine_is_not_faster_than_that_of_the_budgets() -> None:
    assert account(workers=1, taken_s=0).slowness() >= 1
