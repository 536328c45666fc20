"""The contract between Holdfast and a place that keeps finished checkpoints.

A storage is a flat set of named, immutable-once-seen byte objects under one root. Everything
else (checkpoints, owners, retention) is built from these verbs in `holdfast.storage.jobs`. A new
storage subclasses `CheckpointStorage`, which adds only `job` to this page, implements the verbs,
passes `holdfast.storage.testing`, and is done.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self

from holdfast.storage.clock import Clock, SystemClock
from holdfast.storage.entropy import Entropy, SystemEntropy
from holdfast.storage.errors import Invalid, NotFound
from holdfast.storage.options.checks import check_count

__all__ = [
    "Buffer",
    "Capabilities",
    "FinishedOnExit",
    "ObjectInfo",
    "ObjectStorage",
    "ObjectWriter",
    "UnfinishedWrite",
    "check_range",
    "flat",
]

Buffer = bytes | bytearray | memoryview


def flat(data: Buffer) -> Buffer:
    """The same bytes as one contiguous buffer of single bytes, so that `len` counts bytes.

    A view of wider items keeps all their bytes; a strided view keeps the bytes that it shows. Only
    views that are not contiguous are copied.
    """
    if not isinstance(data, memoryview):
        return data
    if data.format == "B" and data.ndim == 1 and data.c_contiguous:
        return data
    try:
        return data.cast("B")
    except (TypeError, ValueError):
        return data.tobytes()


def check_range(name: str, offset: int, length: int | None) -> int | None:
    """The end of the range, None for the object's end.

    Raises:
        Invalid: offset or length is negative.
    """
    if offset < 0 or (length is not None and length < 0):
        raise Invalid(
            f"a range of object {name!r} is not legal",
            expected="offset and length of 0 or more",
            found=f"offset {offset}, length {length}",
        )
    return None if length is None else offset + length


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The guarantees that a storage can prove. At start the runtime warns of missing ones."""

    shared_between_processes: bool
    """Other processes, given the pickled storage, see the same objects."""
    durable: bool
    """Objects that a call has confirmed survive a power loss."""
    atomic_create: bool
    """`create` has one winner, also among clients on different machines."""
    keeps_segment_files: bool = True
    """Slots may write files. If not, their state travels inline, and `inline_limit_bytes` bounds
    each segment of it."""
    ranges_at_once: int = 1
    """How many ranges are best read in parallel: more than one where each answer has a latency, as
    over a network. A local disk gains nothing by it."""
    late_creates: bool = True
    """Whether a `create` without an answer may take effect at any later time, as over a network.
    Then owners write one more small object for each checkpoint that they delete."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One line of a listing."""

    name: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class UnfinishedWrite:
    """The remains of a writer that was neither committed nor aborted, or a write under way."""

    name: str
    """The name by which `ObjectStorage.delete` removes it."""
    target: str
    """The object that would have appeared."""
    size_bytes: int


class FinishedOnExit(ABC):
    """A writer as a context manager: finishes on a normal exit, aborts on an exception.

    It aborts also when finishing fails.
    """

    @abstractmethod
    def abort(self) -> None:
        """Drop what was written. Does nothing after the end."""

    @abstractmethod
    def _finish(self) -> None:
        """Make what was written count."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.abort()
            return
        try:
            self._finish()
        except BaseException:
            self.abort()
            raise


class ObjectWriter(FinishedOnExit):
    """Writes one object in pieces; the object appears whole at `commit`, or never.

    As a context manager it commits on a normal exit and aborts on an exception.
    One thread at a time.
    """

    @abstractmethod
    def write(self, data: Buffer) -> None:
        """Append `data`. The caller may reuse the buffer as soon as the call returns.

        Raises:
            Unavailable: the storage failed or is full; only `abort` may follow.
            Invalid: the writer was committed or aborted before.
        """

    @abstractmethod
    def commit(self) -> None:
        """Make the object visible, whole and durable, replacing one of the same name.

        Raises:
            Unavailable: it is not known whether the object is visible; writing the same bytes
                again under the same name is safe.
            Invalid: the writer was committed or aborted before.
        """

    @abstractmethod
    def abort(self) -> None:
        """Drop what was written; afterwards nothing of it is visible or left over.

        Never raises, and does nothing after `commit` or another `abort`.
        """

    def _finish(self) -> None:
        self.commit()


class ObjectStorage(ABC):
    """The verbs of a checkpoint storage, and what each owes.

    Guarantees that every storage owes, for names that `names.check_name` accepts:

    - **Whole or absent.** A reader sees all bytes of an object or no object, also while it is being
      written and after a writer was killed at any point.
    - **Read your writes.** Once a call has returned, every later `read_range`, `create` and `list`,
      from any process, sees its effect (within one process, if the storage is not
      `shared_between_processes`).
    - **Threads and processes.** All methods may be called from many threads at once. A storage is
      light and picklable: it holds settings, and connects where it is used.
    - **Errors.** Only errors of `holdfast.storage.errors` leave a storage, never those of a library
      below it; each names the place or the object. No secret appears in one.
    - **Buffers.** Any view of bytes is written as the bytes that its `tobytes` returns.

    A name and a longer one that begins with it and `/` never both exist: of `a` and `a/b` the
    second may be refused as `Invalid`, and neither is lost.
    """

    def __init__(
        self,
        *,
        inline_limit_bytes: int = 20 * 1024,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
    ) -> None:
        """Keep the settings that every storage has.

        `inline_limit_bytes`: how much of one slot's checkpoint may travel in its acknowledgement
        and be kept in `_metadata`, instead of in a file of its own.
        """
        check_count(inline_limit_bytes, name="option inline_limit_bytes", least=0)
        self.inline_limit_bytes = inline_limit_bytes
        self.clock = clock or SystemClock()
        self.entropy = entropy or SystemEntropy()

    @property
    @abstractmethod
    def url(self) -> str:
        """The root, as a user would write it, without secrets."""

    def url_of(self, name: str) -> str:
        """The URL of an object or a folder, for people."""
        return f"{self.url}{'' if self.url.endswith('/') else '/'}{name}"

    @property
    def identity(self) -> str:
        """A text that is equal for two storages of one place, however their URLs spell it.

        No other place has it, and none below this one. It is computed without a request to the
        place. Where several URLs lead to one place, a storage makes one text of them; else it is
        the URL.
        """
        return self.url.rstrip("/")

    def at(self, url: str) -> ObjectStorage | None:
        """A storage of another root, with the settings and credentials of this one.

        A URL that `url_of` returns for a folder is such a root. None if these settings do not apply
        to the root: another kind of storage, another bucket or server. Makes no request, and never
        raises.
        """
        return None

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """The guarantees that this storage can prove."""

    @abstractmethod
    def prepare(self) -> None:
        """Make the place ready to be written to, and prove that it is. Safe to call again.

        Raises:
            Invalid: it can never work as it is set up (no permission, the root is a file, …).
            Unavailable: it does not work now.
        """

    @abstractmethod
    def read_range(self, name: str, offset: int, length: int | None) -> bytes:
        """The bytes of `name` from `offset`, at most `length` of them (None: to the end).

        A range past the end answers what is there: fewer bytes, or none.

        Raises:
            NotFound: there is no such object.
            Invalid: offset or length is negative, or the name is not legal.
            Unavailable: the storage did not answer.
        """

    @abstractmethod
    def writer(self, name: str) -> ObjectWriter:
        """Begin to write `name`.

        Memory stays bounded however much is written, unless the storage keeps it in memory.

        Raises:
            Invalid: the name is not legal.
            Unavailable: the storage did not answer.
        """

    @abstractmethod
    def create(self, name: str, data: Buffer) -> bytes | None:
        """Create `name` with `data` if there is no such object; atomic, durable, one winner.

        Returns None when this call created it. Otherwise nothing changed and the result is the
        existing content, so that a caller that retries an ambiguous call can tell its own earlier
        success from another writer's. An object that is deleted meanwhile makes room.

        Raises:
            Invalid: the name is not legal.
            Unavailable: it is not known whether the object was created; call again to find out.
        """

    @abstractmethod
    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """All objects whose name begins with `prefix`, in ascending order of name.

        `prefix` need not end at a `/`; the empty one lists everything. Objects that come or go
        during the call may be missed or shown; all others are shown exactly once. Unfinished writes
        are not objects. A prefix with which no legal name can begin has no objects.

        Raises:
            Unavailable: the storage did not answer.
        """

    @abstractmethod
    def delete(self, names: Iterable[str]) -> None:
        """Delete objects, or unfinished writes by the names from `unfinished`. Absent is fine.

        Goes on past a failure and reports it at the end.

        Raises:
            Unavailable: at least one could not be deleted; calling again is safe.
            Invalid: there is no permission to delete, or a name is not legal.
        """

    @abstractmethod
    def unfinished(self, prefix: str) -> Iterator[UnfinishedWrite]:
        """Writes to names under `prefix` that were begun and neither committed nor aborted.

        Only those that have left something at the place. Writes under way now are among them: the
        caller must know which are dead.

        Raises:
            Unavailable: the storage did not answer.
        """

    def read(self, name: str) -> bytes:
        """The whole object; raises as `read_range` does."""
        return self.read_range(name, 0, None)

    def read_if_there(self, name: str) -> bytes | None:
        """The whole object, None if there is none; raises otherwise as `read_range` does."""
        try:
            return self.read(name)
        except NotFound:
            return None

    def write(self, name: str, data: Buffer) -> None:
        """Write the whole object at once; raises as `writer` and its methods do."""
        with self.writer(name) as writer:
            writer.write(data)
