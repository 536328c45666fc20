"""Who is at a destination: one run at a time, which notices when another one has taken over.

    <destination>/_conversion/running   the machine, the process, when it began, and a token

It is created by whoever begins, so of two only one is in. One whose process has ended is taken over
from. Of processes of other machines nobody knows: they are taken over from if somebody says so, and
if that was wrong, the earlier run finds another token there and ends before it makes a savepoint.

A run looks for its token after each piece and straight before `_metadata` is created, and only the
run that has created that deletes what else is there. So of two runs that take themselves for the
only one, one makes the savepoint, and the other deletes nothing of it.
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
    NotFound,
    SavepointFolder,
    Taken,
)
from holdfast.storage.jobs.decisions import Created, judge_create
from holdfast.storage.jobs.envelope import seal, unseal
from holdfast.storage.processes import identity_of

__all__ = ["ExclusiveRun"]

_KIND, _VERSION = "conversion run", 1

_here: set[str] = set()
"""The tokens of runs of this process."""


class _Running(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    machine: str
    process: int
    begun: str
    """When the process began, as its machine counts; empty if the machine does not tell."""
    token: str


class ExclusiveRun:
    """That of one run at a destination, by the name of the file that says so."""

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
        self._sealed = seal(_KIND, _VERSION, self._mine)

    def enter(self, *, take_over: bool = False) -> None:
        """Note that this run is at it; `take_over` says that one that cannot be seen has ended.

        Raises:
            Taken: another one is at it, or may be.
            Unavailable: the storage did not answer.
        """
        existing = self._create()
        if existing is not None:
            self._check_may_take(existing, take_over=take_over)
            self._folder.storage.delete([self._name])
            if self._create() is not None:
                raise self._taken("another one that has just begun", "Wait for it, or end it")
        _here.add(self._mine.token)

    def check(self) -> None:
        """Make sure that nobody has taken over.

        Raises:
            Fenced: somebody has, so nothing more is to be written.
            Unavailable: the storage did not answer.
        """
        if self._read() != self._sealed:
            raise Fenced(
                "another conversion to this place has taken over",
                where=self._where,
                expected="one conversion at a time",
                fix="Leave it to that one; if there is none, run this again, and it is resumed",
            )

    def leave(self) -> None:
        """Note that this run is not at it any more; what another one has noted stays."""
        try:
            if self._read() == self._sealed:
                self._folder.storage.delete([self._name])
        finally:
            _here.discard(self._mine.token)

    def _create(self) -> bytes | None:
        """What is there of somebody else."""
        existing = self._folder.storage.create(self._name, self._sealed)
        return existing if judge_create(self._sealed, existing) is Created.TAKEN else None

    def _read(self) -> bytes | None:
        try:
            return self._folder.storage.read(self._name)
        except NotFound:
            return None

    def _check_may_take(self, existing: bytes, *, take_over: bool) -> None:
        unknown = "Wait for it, or end it; if it has ended, pass --take-over, and it is resumed"
        try:
            other = unseal(existing, kind=_KIND, version=_VERSION, body=_Running, where=self._where)
        except (Corrupt, Invalid) as error:
            if not take_over:
                raise self._taken(f"one of which nothing is known: {error.what}", unknown) from None
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
            "somebody is just converting to this place",
            where=self._where,
            expected="one conversion at a time",
            found=found,
            fix=fix,
        )


def _lives(other: _Running, mine: _Running) -> bool | None:
    """Whether the other run's process does; None if that cannot be seen from here."""
    if other.machine != mine.machine or not _count_alike(other.begun, mine.begun):
        return None
    begun = _begun(other.process)
    if begun is None or (begun and other.begun and begun != other.begun):
        return False
    if other.process == mine.process:
        return other.token in _here
    return True if begun and other.begun else None


def _count_alike(begun: str, mine: str) -> bool:
    """Whether two processes of one host name have their numbers from one kernel and container.

    Containers may have the name of their host, or of each other, and number 1 is in each of them.
    """
    if not begun or not mine:
        return not begun and not mine
    return begun.rpartition("/")[0] == mine.rpartition("/")[0]


def _begun(process: int) -> str | None:
    """When and where a process of this machine began; None if it has ended, empty if not known."""
    identity = identity_of(process)
    if identity is None or not identity.started:
        return None if identity is None else ""
    return f"{identity.boot}/{identity.space}/{identity.started}"
