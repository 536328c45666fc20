"""The child side of `guarded.py`: runs the programs of one server, and outlives the test run.

`python guard.py` reads one JSON request a line and answers each with a line. When its input ends,
because the test run has ended in whatever way, it kills what still runs and removes what was left
on the disk. So a run that is killed leaves neither programs nor files.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

_BURIAL_S = 20


class Guard:
    """Programs by process id, and what to remove in the end."""

    def __init__(self) -> None:
        self.programs: dict[int, subprocess.Popen[bytes]] = {}
        self.leavings: list[str] = []

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"answer": getattr(self, request.pop("do"))(**request)}
        except Exception as error:  # noqa: BLE001 - the parent must hear of anything
            return {"error": f"{type(error).__name__}: {error}"}

    def own(self, paths: list[str]) -> None:
        self.leavings += paths

    def start(self, command: list[str], folder: str, env: dict[str, str], log: str) -> int:
        with Path(log).open("ab") as output:
            program = subprocess.Popen(
                command,
                cwd=folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.programs[program.pid] = program
        return program.pid

    def send(self, pid: int, number: int) -> None:
        self.programs[pid].send_signal(number)

    def wait(self, pid: int, seconds: float) -> int | None:
        try:
            return self.programs[pid].wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def end(self) -> None:
        for program in self.programs.values():
            program.kill()
        for program in self.programs.values():
            program.wait(_BURIAL_S)
        for path in map(Path, self.leavings):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    guard = Guard()
    try:
        for line in sys.stdin:
            sys.stdout.write(json.dumps(guard.answer(json.loads(line))) + "\n")
            sys.stdout.flush()
    finally:
        guard.end()


if __name__ == "__main__":
    main()
