"""The options that `holdfast run` was given beside the program that it runs, and their file.

They belong to the process, as `sys.argv` does: set once, before the program begins, and read when
it makes its environment. A program that Python runs by itself has none.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from holdfast.runtime.options.environment_options import EXECUTE
from holdfast.runtime.options.table import read_settings
from holdfast.storage import Invalid
from holdfast.storage.options.table import COMMAND_LINE, Settings

__all__ = ["CommandLine", "command_line", "running_with"]

_LATEST = "latest"


class CommandLine:
    """The options, and what the program has made of them. Safe to use from any thread.

    Raises:
        Invalid: an option does not exist, or its value is not accepted.
    """

    def __init__(self, options: Mapping[str, str], file: Settings | None = None) -> None:
        self.settings: Settings = read_settings(
            options, source=COMMAND_LINE, prefix="-D", file=file
        )
        self.file = file
        """What the file of options sets; None if this process was not started by the command, so
        that the environment has not been asked yet."""
        self.restore: str | None = self.settings.values.get(EXECUTE.argument("restore"))
        """From what its one job is restored."""
        self._lock = threading.Lock()
        self._first_job: str | None = None
        self.has_environment = False
        """Whether the program has made an environment, which took the options."""

    @property
    def has_job(self) -> bool:
        return self._first_job is not None

    def check_start(self, job: str) -> None:
        """Refuse to start a job that cannot be restored from the path: a path is for one job.

        Raises:
            Invalid: an earlier job was restored from it.
        """
        with self._lock:
            if self._first_job is not None and self.restore not in (None, _LATEST):
                raise Invalid(
                    "the program starts several jobs, and only one can be restored from the path",
                    where=f"{COMMAND_LINE}, for job {job!r}",
                    expected="one job",
                    found=f"{self.restore} was for job {self._first_job!r}",
                    fix="Let the program say restore=..., or start one job at a time",
                )

    def started(self, job: str) -> None:
        with self._lock:
            self._first_job = self._first_job or job


_lines = [CommandLine({})]


def command_line() -> CommandLine:
    """The options of this process."""
    return _lines[-1]


@contextmanager
def running_with(line: CommandLine) -> Iterator[CommandLine]:
    """Set them for what runs inside."""
    _lines.append(line)
    try:
        yield line
    finally:
        _lines.remove(line)
