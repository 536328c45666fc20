"""Admission of one run at a time to a destination.

    <destination>/_conversion/running   machine, process, start of the process, and a token

A run creates this marker if it is absent, so of two runs only one gets in. A run whose process has
ended is replaced. Processes of other machines cannot be observed: their runs are replaced only with
`take_over`. If that was wrong, the replaced run finds another token and stops before it commits.

A run checks its token after each piece and directly before `_metadata` is created, and only the run
that has created `_metadata` deletes other files. So if two runs both believe to be admitted, one
makes the savepoint and the other deletes nothing of it.

This is not the ownership of a job (`storage.jobs.owner`). A new owner fences the old one at once,
because a driver that restarts must win. A second conversion must not: it would end hours of work.
"""

from __future__ import annotations

import os
import socket

import msgspec

from holdfast.storage import (
    Corrupt,
    Fenced,
    HoldfastError,
    Invalid,
    SavepointFolder,
    Taken,
)
from holdfast.storage.jobs.decisions import Created, judge_create
from holdfast.storage.jobs.envelope import DocumentType
from holdfast.storage.processes import identity_of

__all__ = ["ExclusiveRun"]

_here: set[str] = set()
"""The tokens of the active runs of this process."""


class _Running(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    machine: str
    process: int
    begun: str
    """Boot id, pid namespace and start time of the process; empty if there is no /proc."""
    token: str


_RUNNING = DocumentType("conversion run", 1, _Running)


class ExclusiveRun:
    """The marker of one run at a destination, in a file of the given name."""

    def __init__(self, folder: SavepointFolder, file: str) -> None:
        self._folder = folder
        self._name = folder.name_of(file)
        self._where = f"{folder.url}/{file}"
        process = os.getpid()
        self._mine = _Running(
            machine=socket.gethostname(),
            process=process,
            begun=_begun(process) or "",
            token=folder.storage.entropy.token(),
        )
        self._sealed = _RUNNING.seal(self._mine)

    def enter(self, *, take_over: bool = False) -> None:
        """Create the marker; `take_over` states that a run that cannot be observed has ended.

        Raises:
            Taken: another run is active, or may be.
            Unavailable: the storage did not answer.
        """
        existing = self._create()
        if existing is not None:
            self._check_may_take(existing, take_over=take_over)
            self._folder.storage.delete([self._name])
            if self._create() is not None:
                raise self._taken("a run that has just begun", "Wait for it, or end it")
        _here.add(self._mine.token)

    def check(self) -> None:
        """Make sure that no other run has taken over.

        Raises:
            Fenced: another run has; this one must write nothing more.
            Unavailable: the storage did not answer.
        """
        if self._folder.storage.read_if_there(self._name) != self._sealed:
            raise Fenced(
                "another conversion to this place has taken over",
                where=self._where,
                expected="one conversion at a time",
                fix="Leave it to that one; if there is none, run this again, and it is resumed",
            )

    def leave(self) -> None:
        """Remove the marker of this run; that of another run stays."""
        try:
            if self._folder.storage.read_if_there(self._name) == self._sealed:
                self._folder.storage.delete([self._name])
        finally:
            _here.discard(self._mine.token)

    def _create(self) -> bytes | None:
        """Create the marker; returns that of another run if there is one."""
        existing = self._folder.storage.create(self._name, self._sealed)
        return existing if judge_create(self._sealed, existing) is Created.TAKEN else None

    def _check_may_take(self, existing: bytes, *, take_over: bool) -> None:
        unknown = "Wait for it, or end it; if it has ended, pass --take-over, and it is resumed"
        try:
            other = _RUNNING.unseal(existing, where=self._where)
        except (Corrupt, Invalid) as error:
            if not take_over:
                raise self._taken(
                    f"a run whose marker cannot be read: {error.what}", unknown
                ) from None
            return
        lives = _lives(other, self._mine)
        if lives:
            raise self._taken(
                f"process {other.process} of this machine",
                "Wait for it, or end it; then run this again, and it is resumed",
            )
        if lives is None and not take_over:
            raise self._taken(f"process {other.process} of machine {other.machine!r}", unknown)

    def _taken(self, found: str, fix: str) -> HoldfastError:
        return Taken(
            "another run is converting to this place",
            where=self._where,
            expected="one conversion at a time",
            found=found,
            fix=fix,
        )


def _lives(other: _Running, mine: _Running) -> bool | None:
    """Whether the process of the other run is alive; None if that cannot be observed here."""
    if other.machine != mine.machine or not _count_alike(other.begun, mine.begun):
        return None
    begun = _begun(other.process)
    if begun is None or (begun and other.begun and begun != other.begun):
        return False
    if other.process == mine.process:
        return other.token in _here
    return True if begun and other.begun else None


def _count_alike(begun: str, mine: str) -> bool:
    """Whether the pids of two processes on hosts of one name come from one kernel and namespace.

    Containers may share the name of their host or of each other, and each of them has a pid 1.
    """
    if not begun or not mine:
        return not begun and not mine
    return begun.rpartition("/")[0] == mine.rpartition("/")[0]


def _begun(process: int) -> str | None:
    """The `begun` text of a process of this machine; None if it has ended, empty if unknown."""
    identity = identity_of(process)
    if identity is None or not identity.started:
        return None if identity is None else ""
    return f"{identity.boot}/{identity.space}/{identity.started}"
