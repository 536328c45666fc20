"""What the tests of each folder may take: a run that takes half as much again fails, and says so.

A budget is seconds of the run, on two cores that do nothing else: what the tests of a folder take
together, divided by the workers of the run. So the budgets of a part add up to what it may take. A
folder that has none of its own is in that of the folder around it.
"""

from __future__ import annotations

import timeit
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath

import pytest

OPTION = "--budget"
"""Names a part of `make test`."""
LEEWAY = 1.5
BUDGETS: Mapping[str, Mapping[str, float]] = {
    "quick": {
        "tests": 12,
        "tests/backends": 18,
        "tests/changelog": 4,
        "tests/runtime": 22,
        "tests/savepoints": 8,
        "tests/storage": 12,
    },
    "slow": {
        "tests": 8,
        "tests/backends": 60,
        "tests/changelog": 18,
        "tests/runtime": 38,
        "tests/savepoints": 34,
        "tests/storage": 70,
    },
    "spark": {
        "tests": 36,
        "tests/runtime": 256,
    },
}
"""What is wanted of two quiet cores: ten minutes in all."""
_STAT = Path("/proc/stat")
_CALIBRATION_S = 0.018
"""What `_calibrate` takes on the machine of the budgets."""


class Machine:
    """Compares this machine with that of the budgets, from now on."""

    def __init__(self) -> None:
        self._slower = max(1.0, _calibrate() / _CALIBRATION_S)
        self._began = _ticks()

    def slowness(self) -> float:
        """How much longer the same takes here, at least 1.

        A slower processor is measured at the start; what the host takes of the cores of a virtual
        machine to give it to others, over the whole run.
        """
        stolen, passed = (now - then for now, then in zip(_ticks(), self._began, strict=True))
        return self._slower / (1 - min(0.9, stolen / max(1, passed)))


class Account:
    """Adds up what the tests of a run take, where the run is led."""

    def __init__(self, part: str, workers: int, slowness: Callable[[], float]) -> None:
        self._budgets = BUDGETS[part]
        self._workers = workers
        self._slowness = slowness
        self._taken_s: dict[str, float] = defaultdict(float)
        self._tests_s: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Of each of the three phases of each test."""
        taken_s = report.duration / self._workers
        self._taken_s[self.folder(report.nodeid)] += taken_s
        self._tests_s[report.nodeid] += taken_s

    def folder(self, nodeid: str) -> str:
        """The folder whose budget a test uses up."""
        path = PurePosixPath(nodeid.partition("::")[0])
        return next(str(each) for each in path.parents if str(each) in self._budgets)

    def exceeded(self) -> list[str]:
        """A line about each folder whose tests took too long, and which of them the longest."""
        return [
            f"{folder}: expected {budget:g} s at most, and took {self._taken_s[folder]:.0f} s: "
            + ", ".join(f"{nodeid} {taken_s:.1f} s" for nodeid, taken_s in self._longest(folder, 5))
            for folder, budget in self._budgets.items()
            if self._taken_s[folder] > LEEWAY * budget * self._slowness()
        ]

    def _longest(self, folder: str, count: int) -> list[tuple[str, float]]:
        mine = (each for each in self._tests_s.items() if self.folder(each[0]) == folder)
        return sorted(mine, key=lambda each: -each[1])[:count]

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> object:
        """A run that has passed has failed, if it took too long."""
        if exitstatus == pytest.ExitCode.OK and self.exceeded():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        return (yield)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what each folder took, and which took too much."""
        for folder, budget in self._budgets.items():
            terminalreporter.write_line(f"{folder}: {self._taken_s[folder]:.0f} s of {budget:g} s")
        if lines := self.exceeded():
            terminalreporter.section("too long, where nothing else takes the cores")
            for line in lines:
                terminalreporter.write_line(line)
            terminalreporter.write_line(
                "deal out what multiplies (tests/support/dealing.py), or change the budget in "
                "tests/support/budgets.py"
            )


def _calibrate() -> float:
    """Seconds that a fixed piece of Python takes, undisturbed."""
    return min(timeit.repeat("sum(i * i % 7 for i in range(400_000))", number=1, repeat=5))


def _ticks() -> tuple[int, int]:
    """Ticks of all cores since the machine has started: those stolen by its host, and all."""
    if not _STAT.exists():
        return 0, 0
    ticks = [*map(int, _STAT.read_text().partition("\n")[0].split()[1:9])]
    return ticks[7], sum(ticks)


def keep_account(config: pytest.Config) -> None:
    """Where a part of `make test` is run, and this process leads it."""
    part: str | None = config.getoption(OPTION)
    if part is not None and not hasattr(config, "workerinput"):
        workers = config.getoption("numprocesses", None) or 1
        account = Account(part, int(workers), Machine().slowness)
        config.pluginmanager.register(account, "budgets")
