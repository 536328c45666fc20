"""What tells a process from every other one, on any machine and in any container."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path

import msgspec

__all__ = ["ProcessIdentity", "identity_of", "my_identity"]

_PROC = Path("/proc")
_STATE, _STARTED = 0, 19
"""Fields of `/proc/<pid>/stat`, counted behind the name in parentheses."""
_ZOMBIE = "Z"


class ProcessIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Tells a process from every other one.

    A pid alone does not: each machine and each container has pids of its own, and uses them again.
    """

    pid: int
    host: str
    boot: str = ""
    """The boot id of the machine's kernel; empty where there is no /proc."""
    space: str = ""
    """The pid namespace: each container has one."""
    started: int = 0
    """The start time in ticks of the kernel; 0 where it is not known."""

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    def is_beside(self, other: ProcessIdentity) -> bool:
        """Whether both are known to run on one machine."""
        return bool(self.boot) and (self.boot, self.host) == (other.boot, other.host)


def my_identity() -> ProcessIdentity:
    """The identity of this process."""
    return _identity(os.getpid(), "self")[0]


def identity_of(pid: int) -> ProcessIdentity | None:
    """The identity of a process in this pid namespace; None if it has ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except (PermissionError, OverflowError):
        pass
    identity, state = _identity(pid, str(pid))
    return None if state == _ZOMBIE else identity


def _identity(pid: int, folder: str) -> tuple[ProcessIdentity, str]:
    boot, space, started, state = "", "", 0, ""
    with suppress(OSError, ValueError, IndexError):
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        space = os.readlink(_PROC / "self/ns/pid")
        fields = (_PROC / folder / "stat").read_text().rpartition(")")[2].split()
        state, started = fields[_STATE], int(fields[_STARTED])
    host = socket.gethostname()
    return ProcessIdentity(pid=pid, host=host, boot=boot, space=space, started=started), state
