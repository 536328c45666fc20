"""What a process knows of itself and of its machine, where there is a /proc to ask."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path

import msgspec

__all__ = ["MemoryFacts", "ProcessIdentity", "memory_facts", "my_identity"]

_PROC = Path("/proc")
_GROUP_EVENTS = Path("/sys/fs/cgroup/memory.events")
_STARTED = 19
"""Where the start time is in `/proc/<pid>/stat`, behind the name."""


class ProcessIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Tells a process from every other one. Its number alone does so within one machine at best.

    Machines and containers count their processes each for itself, and count anew.
    """

    pid: int
    host: str
    boot: str = ""
    """Of the machine's kernel; empty where that cannot be told."""
    space: str = ""
    """In which the number counts, as containers have one each."""
    started: int = 0
    """When the process began, in ticks of its kernel."""

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    def is_beside(self, other: ProcessIdentity) -> bool:
        """Whether both are known to be on one machine."""
        return bool(self.boot) and (self.boot, self.host) == (other.boot, other.host)


class MemoryFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a process can see of memory at a moment; None is what it cannot see."""

    used_bytes: int | None = None
    """What the process itself has."""
    oom_kills: int | None = None
    """How many processes the kernel has killed for want of memory, ever: in the container, if that
    counts for itself, else on the machine."""


def my_identity() -> ProcessIdentity:
    """The identity of the process that asks."""
    boot, space, started = "", "", 0
    with suppress(OSError, ValueError, IndexError):
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        space = os.readlink(_PROC / "self/ns/pid")
        told = (_PROC / "self/stat").read_text().rpartition(")")[2].split()
        started = int(told[_STARTED])
    return ProcessIdentity(
        pid=os.getpid(), host=socket.gethostname(), boot=boot, space=space, started=started
    )


def memory_facts() -> MemoryFacts:
    """As it is now."""
    return MemoryFacts(used_bytes=_used_bytes(), oom_kills=_oom_kills())


def _used_bytes() -> int | None:
    with suppress(OSError, ValueError, IndexError):
        pages = int((_PROC / "self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    return None


def _oom_kills() -> int | None:
    for path in (_GROUP_EVENTS, _PROC / "vmstat"):
        with suppress(OSError, ValueError):
            for line in path.read_text().splitlines():
                name, _, count = line.partition(" ")
                if name == "oom_kill":
                    return int(count)
    return None
