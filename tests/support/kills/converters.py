"""A process that converts, to be killed or interrupted: its work is in many small pieces."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from holdfast.runtime.cli.main import main
from holdfast.savepoints.conversion import (
    PiecePhase,
    PieceResult,
    PieceTask,
    PieceWorker,
    WorkerProcesses,
    plan,
)
from holdfast.savepoints.conversion.plan import OperatorPlan

DEAF, REACHED = "deaf", "reached"


def begin(*arguments: str) -> list[str]:
    """The command that runs `holdfast savepoint convert` with these arguments."""
    return [sys.executable, __file__, "savepoint", "convert", *arguments]


def note_arrivals(folder: Path, *, interrupted: bool) -> list[str]:
    """The command whose workers note in a folder whether Ctrl-C reaches them as they begin.

    It is interrupted while it begins them, or when all is done, and then exits with 130.
    """
    return [sys.executable, __file__, str(folder), str(interrupted)]


@dataclass(frozen=True)
class Arrivals:
    """A worker of which each process notes whether it could be interrupted when it got it."""

    folder: str
    interrupted: bool = False

    def __reduce__(self) -> tuple[Callable[[str], Arrivals], tuple[str]]:
        if self.interrupted:
            os.kill(os.getpid(), signal.SIGINT)
        return _arrive, (self.folder,)

    def do(self, task: PieceTask) -> PieceResult:
        """Nothing."""
        del task
        return PieceResult()


def _arrive(folder: str) -> Arrivals:
    blocked = signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    is_deaf = blocked or signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    (Path(folder) / str(os.getpid())).write_text(DEAF if is_deaf else REACHED)
    return Arrivals(folder)


def _note_arrivals(folder: str, *, interrupted: bool) -> None:
    operator = OperatorPlan(uid="spend", parallelism=1, max_parallelism=1)
    tasks = [PieceTask(PiecePhase.WRITE, number, operator, number) for number in range(8)]
    work: Any = converters.Arrivals(folder, interrupted)
    try:
        done = list(WorkerProcesses(2).run(cast("PieceWorker", work), tasks))
        assert not interrupted
        assert len(done) == len(tasks)
        os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    from support.kills import converters  # its classes are found by this name in other processes

    if len(sys.argv) == 3:
        _note_arrivals(sys.argv[1], interrupted=sys.argv[2] == "True")
    plan._PIECE_BYTES = 60_000
    main()
