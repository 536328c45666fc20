"""Programs of a server that end with this process, and a folder of theirs that goes with them.

Between them stands `guard.py`, a child that notices when this process ends, also by SIGKILL. It is
not the kernel's parent-death signal because that comes when the *thread* ends which started a
program, and tests start servers again in threads.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Self

from holdfast.storage import SystemClock
from support.servers import guard
from support.storages.quick_places import quick_place

_LOG_END_CHARACTERS = 3000
_PAUSE_S = 0.03
_CLOCK = SystemClock()


class ServerFailed(Exception):
    """A test's server cannot be had; the message has the end of its log."""


class Program:
    """One program that was started; it may have ended."""

    def __init__(self, owner: Guarded, name: str, pid: int, log: Path, log_start: int) -> None:
        self.pid = pid
        self._owner = owner
        self._name = name
        self._log = log
        self._log_start = log_start
        self._code: int | None = None

    def wait(self, seconds: float) -> int | None:
        """How it ended, None if it still runs after that time."""
        if self._code is None:
            self._code = self._owner.ask("wait", pid=self.pid, seconds=seconds)
        return self._code

    @property
    def is_running(self) -> bool:
        return self.wait(0) is None

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal; after SIGKILL the program has ended when this returns."""
        if self.is_running:
            self._owner.ask("send", pid=self.pid, number=number)
            if number == signal.SIGKILL:
                self.wait(10)

    def await_that(self, what: str, is_so: Callable[[], bool], *, within_s: float) -> None:
        """Return when it is so.

        Raises:
            ServerFailed: the program ended before, or it took too long.
        """
        end_s = _CLOCK.monotonic_s() + within_s
        while not is_so():
            if not self.is_running:
                raise self.failed(f"ended with {self._code} before {what}")
            if _CLOCK.monotonic_s() > end_s:
                raise self.failed(f"has no {what} after {within_s:.0f} s")
            _CLOCK.sleep_s(_PAUSE_S)

    def log(self) -> str:
        """All that it printed."""
        return self._log.read_bytes()[self._log_start :].decode(errors="replace")

    def failed(self, how: str) -> ServerFailed:
        end = self.log()[-_LOG_END_CHARACTERS:]
        return ServerFailed(f"{self._name} {how}; its log ends with:\n{end}")


class Guarded:
    """A folder, and the programs that work in it; `close` ends both, as does this process's end."""

    def __init__(self, name: str) -> None:
        self.folder = Path(mkdtemp(prefix=f"holdfast-{name}-", dir=quick_place()))
        self._lock = threading.Lock()
        self._guard = subprocess.Popen(
            [sys.executable, guard.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # a Ctrl-C is for the tests, which then end it
        )
        self.own(self.folder)

    def own(self, *paths: Path) -> None:
        """Remove these files and folders too in the end."""
        self.ask("own", paths=[str(path) for path in paths])

    def start(
        self, name: str, command: Sequence[str | Path], env: Mapping[str, str] | None = None
    ) -> Program:
        """Start a program in the folder; what it prints goes to a log there."""
        log = self.folder / f"{name}.log"
        log_start = log.stat().st_size if log.exists() else 0
        words = [str(word) for word in command]
        pid = self.ask(
            "start",
            command=words,
            folder=str(self.folder),
            env={**os.environ, **(env or {})},
            log=str(log),
        )
        return Program(self, name, pid, log, log_start)

    def run(
        self,
        name: str,
        command: Sequence[str | Path],
        env: Mapping[str, str] | None = None,
        *,
        within_s: float = 60,
    ) -> str:
        """Run a program to its end; what it printed.

        Raises:
            ServerFailed: it failed, or took too long.
        """
        program = self.start(name, command, env)
        end_s = _CLOCK.monotonic_s() + within_s
        while program.is_running and _CLOCK.monotonic_s() < end_s:
            _CLOCK.sleep_s(_PAUSE_S)
        code = program.wait(0)
        if code != 0:
            program.kill()
            raise program.failed("takes too long" if code is None else f"ended with {code}")
        return program.log()

    def ask(self, do: str, **request: Any) -> Any:
        """One request of the guard."""
        stdin, stdout = self._guard.stdin, self._guard.stdout
        assert stdin is not None
        assert stdout is not None
        with self._lock:
            stdin.write(json.dumps({"do": do, **request}) + "\n")
            stdin.flush()
            answer = json.loads(stdout.readline())
        if "error" in answer:
            raise ServerFailed(answer["error"])
        return answer["answer"]

    def close(self) -> None:
        """End the programs and remove the folder. Safe to call again."""
        with self._lock, self._guard:  # its input ends here
            assert self._guard.stdin is not None
            self._guard.stdin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
