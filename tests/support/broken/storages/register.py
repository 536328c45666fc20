"""Where each broken storage says which clause it breaks, and what the clause has to say of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from holdfast.storage import Buffer, CheckpointStorage, FileSystemCheckpointStorage, ObjectWriter
from support.broken.register import Register

Opener = TypeVar("Opener", bound=Callable[[str], CheckpointStorage])

Local = FileSystemCheckpointStorage
"""What all of them are, but for one thing."""


BROKEN: Register[Callable[[str], CheckpointStorage]] = Register()
"""By clause, how to open at a path what breaks it."""


def breaks(clause: str, *, says: str) -> Callable[[Opener], Opener]:
    """Note that a storage breaks this clause."""

    def note(opener: Opener) -> Opener:
        BROKEN.note(clause, says, opener)
        return opener

    return note


class Through(ObjectWriter):
    """A writer that passes everything on; a broken one does one thing otherwise."""

    def __init__(self, storage: WithWriter, name: str, inner: ObjectWriter) -> None:
        self.storage = storage
        self.name = name
        self.inner = inner

    def write(self, data: Buffer) -> None:
        self.inner.write(data)

    def commit(self) -> None:
        self.inner.commit()

    def abort(self) -> None:
        self.inner.abort()


class WithWriter(Local):
    """A storage whose writers are of one kind."""

    Writer: type[Through] = Through

    def writer(self, name: str) -> ObjectWriter:
        return self.Writer(self, name, self.sound_writer(name))

    def sound_writer(self, name: str) -> ObjectWriter:
        return super().writer(name)

    def write_soundly(self, name: str, data: Buffer) -> None:
        with self.sound_writer(name) as writer:
            writer.write(data)


class Gathering(Through):
    """A writer that has everything at hand when it commits."""

    def __init__(self, storage: WithWriter, name: str, inner: ObjectWriter) -> None:
        super().__init__(storage, name, inner)
        self.pieces: list[Buffer] = []

    def write(self, data: Buffer) -> None:
        self.inner.write(b"")  # refuses, when the writer has ended
        self.pieces.append(bytes(data))

    def commit(self) -> None:
        for piece in self.pieces:
            self.inner.write(piece)
        self.inner.commit()
