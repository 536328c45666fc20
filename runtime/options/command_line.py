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
_PATH = EXECUTE.argument("restore")


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
        self.restore: str | None = self.settings.values.get(_PATH)
        """From what its one job is restored."""
        self._lock = threading.Lock()
        self._restored: dict[str, str] = {}
        """The job that was restored from a path of options, by the path."""
        self.has_job = False
        """Whether the program has started a job."""
        self.has_environment = False
        """Whether the program has made an environment, which took the options."""

    def check_start(self, job: str, source: Settings | None) -> None:
        """Refuse to start a job that cannot be restored from the path: a path is for one job.

        `source` are the options whose path the job is restored from; None: the program says it.

        Raises:
            Invalid: an earlier job was restored from it.
        """
        if source is None or source.values[_PATH] == _LATEST:
            return
        path = source.values[_PATH]
        with self._lock:
            first = self._restored.get(path)
            # In a notebook the same job may be started again, with the same file or session.
            if first is not None and (first != job or source is self.settings):
                raise Invalid(
                    "the program starts several jobs, and only one can be restored from the path",
                    where=f"{source.where(source.keys[_PATH])}, for job {job!r}",
                    expected="one job",
                    found=f"{path} was for job {first!r}",
                    fix="Let the program say restore=..., or start one job at a time",
                )

    def started(self, job: str, source: Settings | None) -> None:
        """A job has been started; `source` as for `check_start`."""
        with self._lock:
            self.has_job = True
            if source is not None:
                self._restored.setdefault(source.values[_PATH], job)


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
