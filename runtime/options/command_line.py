"""What `holdfast run` was told beside the program that it runs: options, and where to begin.

A program that Python runs by itself was told nothing. It belongs to the process, as `sys.argv`
does: it is set once, before the program begins, and read when it makes its environment.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from holdfast.runtime.options.table import RESTORE_PATH, Settings, read_settings
from holdfast.storage import Invalid

__all__ = ["COMMAND_LINE", "CommandLine", "command_line", "running_with"]

COMMAND_LINE = "the command line"
"""What errors call it."""
_LATEST = "latest"


class CommandLine:
    """Safe to use from any thread.

    Raises:
        Invalid: an option does not exist, or cannot be what it is.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self.settings: Settings = read_settings(options, where=COMMAND_LINE)
        self._path = options.get(RESTORE_PATH)
        self._lock = threading.Lock()
        self._first_job: str | None = None
        self.has_environment = False
        """Whether the program has made an environment, which took the options."""

    @property
    def has_job(self) -> bool:
        """Whether the program has started a job."""
        return self._first_job is not None

    def check_start(self, job: str) -> None:
        """A job is about to be started.

        Raises:
            Invalid: the command line says from what to restore, and an earlier job was.
        """
        with self._lock:
            if self._first_job is not None and self._path not in (None, _LATEST):
                raise Invalid(
                    "the program starts several jobs, and only one can be restored from the path",
                    where=f"{COMMAND_LINE}, for job {job!r}",
                    expected="one job",
                    found=f"{self._path} was for job {self._first_job!r}",
                    fix="Let the program say restore=..., or start one job at a time",
                )

    def started(self, job: str) -> None:
        """It was started."""
        with self._lock:
            self._first_job = self._first_job or job


_told = [CommandLine({})]


def command_line() -> CommandLine:
    """What this process was told."""
    return _told[-1]


@contextmanager
def running_with(line: CommandLine) -> Iterator[CommandLine]:
    """What runs inside was told this."""
    _told.append(line)
    try:
        yield line
    finally:
        _told.remove(line)
