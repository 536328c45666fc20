"""Measuring honestly: ratios from one run, several repetitions, median and spread.

A benchmark is a function that takes a `Scale` and yields `Result`s. The full scale is what the
figures are stated for; the tiny one runs in every test run, to show that the benchmark works and
that its answer is right.
"""

from __future__ import annotations

import os
import platform
import re
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

__all__ = [
    "Result",
    "Scale",
    "compare",
    "peak_memory_bytes",
    "rate",
    "reset_peak_memory",
    "result_line",
    "seconds",
]

_REPETITIONS = 5
_VERSIONS = ("numpy", "pyarrow", "msgspec", "xxhash", "lz4", "rocksdict", "pyspark")


class Scale(Enum):
    """How much to do."""

    FULL = "full"
    TINY = "tiny"

    def pick(self, full: int, tiny: int) -> int:
        """`full` or `tiny`, by the scale."""
        return full if self is Scale.FULL else tiny

    @property
    def repetitions(self) -> int:
        """How often to measure."""
        return _REPETITIONS if self is Scale.FULL else 1


@dataclass(frozen=True)
class Result:
    """One figure: its samples, the target that an issue states for it, and a hash of the answer."""

    name: str
    unit: str
    samples: tuple[float, ...]
    answer: str
    target: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def median(self) -> float:
        """The figure."""
        return statistics.median(self.samples)


def seconds(action: Callable[[], object]) -> float:
    """How long the action takes."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def compare(
    ours: Callable[[], object],
    peer: Callable[[], object],
    scale: Scale,
    *,
    clean: Callable[[], object] = lambda: None,
) -> tuple[float, ...]:
    """How fast ours is, as a share of the peer's speed: one ratio a repetition.

    The two take turns, and take turns in going first, so that noise and warm caches favour none.
    `clean` runs before each, outside of the measured time.
    """
    ratios = []
    for repetition in range(scale.repetitions):
        taken = {}
        for action in (ours, peer) if repetition % 2 else (peer, ours):
            clean()
            taken[action] = seconds(action)
        ratios.append(taken[peer] / taken[ours])
    return tuple(ratios)


def rate(action: Callable[[], object], count: int, scale: Scale) -> tuple[float, ...]:
    """How many of `count` things a second the action does: one rate a repetition."""
    return tuple(count / seconds(action) for _ in range(scale.repetitions))


def peak_memory_bytes() -> int:
    """The most memory that this process has had resident since its program began.

    `getrusage` would answer the parent's peak where that was higher, so it serves only where the
    system tells nothing better.
    """
    status = Path("/proc/self/status")
    if status.exists():
        found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text())
        if found:
            return int(found[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def reset_peak_memory() -> None:
    """Let the peak begin anew from what is resident now, where the system can."""
    switch = Path("/proc/self/clear_refs")
    if switch.exists():
        switch.write_text("5")


def result_line(result: Result, scale: Scale) -> str:
    """The result as one JSON line, with the machine and the versions it was measured on."""
    line = {
        "benchmark": result.name,
        "unit": result.unit,
        "median": _short(result.median),
        "low": _short(min(result.samples)),
        "high": _short(max(result.samples)),
        "repetitions": len(result.samples),
        "target": result.target,
        "scale": scale.value,
        "parameters": dict(result.parameters),
        "answer": result.answer,
        "machine": dict(_machine()),
    }
    return msgspec.json.encode(line).decode()


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def _machine() -> Iterator[tuple[str, Any]]:
    yield "cores", len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    yield "memory_gib", round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
    yield "system", f"{platform.system()} {platform.machine()}"
    yield "python", ".".join(map(str, sys.version_info[:3]))
    for name in _VERSIONS:
        yield name, version(name)
