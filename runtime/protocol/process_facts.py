"""What a process can see of the memory of its machine, where there is a /proc."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec

__all__ = ["MemoryFacts", "memory_facts"]

_PROC = Path("/proc")
_GROUP_EVENTS = Path("/sys/fs/cgroup/memory.events")


class MemoryFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a process can see of memory at a moment; None is what it cannot see."""

    used_bytes: int | None = None
    """What the process itself has."""
    oom_kills: int | None = None
    """How many processes the kernel has killed for want of memory, ever: in the container, if that
    counts for itself, else on the machine."""


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
