"""Explains why processes of slots are gone: by Spark's errors and by facts about memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from holdfast.runtime.driver.outcomes import FailureKind, Unsuccessful
from holdfast.runtime.protocol.process_facts import MemoryFacts, memory_facts
from holdfast.storage.processes import ProcessIdentity, my_identity

__all__ = ["Loss", "LostSlots", "loss_in", "shortened"]

_BARRIER_TASK = re.compile(r"barrier task \w+\(\d+, (\d+)\) finished unsuccessfully")
_EXECUTOR = re.compile(r"ExecutorLostFailure \(executor (\S+) [^)]*\)(?: Reason:\s*([^\n]*))?")
_DEAD_WORKER = "Python worker exited unexpectedly"
_FATAL = "Fatal Python error: "
_JVM = re.compile(r"\n\s*at [\w.$]+\(")
_EXIT_CODE = re.compile(r"\b(?:code|status):?(?: is)? (\d+)", re.IGNORECASE)
_WANT_OF_MEMORY = re.compile(
    r"\b(?:code|status):?(?: is)? (?:137|52)\b|\bOOM|out of memory|OutOfMemory"
    r"|(?:exceed|beyond)[^\n]*\bmemory|memory limit",
    re.IGNORECASE,
)
"""Texts and exit codes that mean a lack of memory: SIGKILL, and Spark's code for a full JVM."""
_SIGNALS = {134: "SIGABRT", 135: "SIGBUS", 137: "SIGKILL", 139: "SIGSEGV", 143: "SIGTERM"}
_LINE = "\n"
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Loss:
    """A process that is gone, as Spark's error of the slots' job says."""

    slot: int | None
    """The slot whose end Spark noticed first; None if the error does not say."""
    executor: str | None = None
    """The lost executor; None if only the process of a slot is gone."""
    how: str = ""
    """Spark's reason for the end of the executor."""
    crash: str = ""
    """Python's report of a fatal error, if it wrote one; the first line says why."""


def loss_in(error: str | None) -> Loss | None:
    """The loss that Spark's error describes; None if it describes another failure."""
    if error is None:
        return None
    task = _BARRIER_TASK.search(error)
    slot = None if task is None else int(task[1])
    if found := _EXECUTOR.search(error):
        return Loss(
            slot, found[1], (found[2] or "").strip().removesuffix(".") or "Spark does not say how"
        )
    if _DEAD_WORKER in error:
        return Loss(slot, crash=_crash_in(error))
    return None


def shortened(error: str, most: int) -> str:
    """Spark's error, cut to `most` characters, after the lines that describe a loss."""
    if len(error) <= most:
        return error
    found = [each[0] for pattern in (_BARRIER_TASK, _EXECUTOR) if (each := pattern.search(error))]
    _, worker, told = error.partition(_DEAD_WORKER)
    if worker:
        end = _JVM.search(told)
        crash = told[: end.end()] if end and _FATAL in told[: end.start()] else ""
        found.append(f"{worker}{crash}")
    return "\n".join([*found, f"{error[:most]}…"])


def _crash_in(error: str) -> str:
    _, found, told = error.partition(_FATAL)
    return _JVM.split(told, maxsplit=1)[0].strip() if found else ""


class LostSlots:
    """Facts about the slots of one attempt, kept to explain a loss. Safe to use from any thread."""

    def __init__(self) -> None:
        self._processes: dict[int, ProcessIdentity] = {}
        self._last: dict[int, MemoryFacts] = {}
        """From the latest heartbeat of each slot."""
        self._after: dict[int, MemoryFacts] = {}
        """Memory of the machine, as slots saw it after they lost another slot."""

    def came(self, slot: int, process: ProcessIdentity) -> None:
        self._processes[slot] = process

    def lives(self, slot: int, memory: MemoryFacts) -> None:
        self._last[slot] = memory

    def saw(self, slot: int, memory: MemoryFacts) -> None:
        """A slot has failed, and reports the memory of its machine."""
        self._after[slot] = memory

    def outcome(self, loss: Loss, silent: Iterable[int]) -> Unsuccessful:
        """The outcome of the attempt. `silent` slots have not answered since the loss."""
        if loss.executor is not None:
            is_killed = _WANT_OF_MEMORY.search(loss.how) is not None
            return Unsuccessful(
                self._executor(loss, loss.executor, silent),
                kind=FailureKind.SLOT_KILLED if is_killed else FailureKind.OTHER,
            )
        gone = sorted(silent) if loss.slot is None else [loss.slot]
        names = " and ".join(map(self._name, gone)) or "the process of a slot"
        if loss.crash:
            how = f"has crashed: {loss.crash.partition(_LINE)[0]}"
        else:
            how = f"was killed, or has died{self._hints(gone)}"
        return Unsuccessful(f"{names} {how}", loss.crash, kind=FailureKind.SLOT_KILLED)

    def _hints(self, gone: Sequence[int]) -> str:
        """Facts about memory that may explain the loss, as a part of the message."""
        known = [slot for slot in gone if slot in self._processes]
        hint = ""
        if any(map(self._had_no_memory, known)):
            hint = ": the kernel has killed a process there for want of memory (OOM)"
        used = [memory.used_bytes for slot in known if (memory := self._last.get(slot))]
        told = " and ".join(f"{each // _MIB:,} MiB" for each in used if each)
        return f"{hint}; it had {told} of memory" if told else hint

    def _had_no_memory(self, slot: int) -> bool:
        process = self._processes[slot]
        before = self._last.get(slot, MemoryFacts()).oom_kills
        # A slot may have failed before its registration arrived, and more may fail meanwhile.
        after = [
            seen.oom_kills
            for other, seen in self._after.copy().items()
            if other != slot
            and other in self._processes
            and process.is_beside(self._processes[other])
        ]
        if process.is_beside(my_identity()):
            after.append(memory_facts().oom_kills)
        return before is not None and any(each is not None and each > before for each in after)

    def _executor(self, loss: Loss, executor: str, silent: Iterable[int]) -> str:
        first = None if loss.slot is None else self._processes.get(loss.slot)
        host, slots = "", set[int]()
        if first is not None and loss.slot is not None:
            host = f" on {first.host}"
            slots = {loss.slot, *(slot for slot in silent if self._is_at(slot, first.host))}
        names = ", ".join(map(str, sorted(slots)))
        ran = f", where slot{'s' if len(slots) > 1 else ''} {names} ran" if names else ""
        signal = _signal_in(loss.how)
        return f"executor {executor}{host} is lost{ran}: {loss.how}{f' ({signal})' * bool(signal)}"

    def _is_at(self, slot: int, host: str) -> bool:
        return slot in self._processes and self._processes[slot].host == host

    def _name(self, slot: int) -> str:
        process = self._processes.get(slot)
        return f"slot {slot} ({process})" if process else f"slot {slot}"


def _signal_in(how: str) -> str:
    """The signal that the exit code stands for, unless the text names it."""
    code = _EXIT_CODE.search(how)
    name = _SIGNALS.get(int(code[1]), "") if code else ""
    return "" if name in how else name
