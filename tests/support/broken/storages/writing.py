"""Storages that write wrongly, and those of which too much is seen meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.storage import Buffer, Invalid, NotFound, ObjectInfo, ObjectWriter, SystemClock
from support.broken.storages.register import Gathering, Local, Through, WithWriter, breaks

_MIB = 1024 * 1024


@breaks("takes_every_kind_of_buffer", says="writing a view of wider items")
class CountsItems(WithWriter):
    class Writer(Through):
        def write(self, data: Buffer) -> None:
            super().write(bytes(data)[: len(data)])


@breaks("a_buffer_may_be_reused", says="pieces out of one buffer")
@breaks("segments_take_every_kind_of_buffer", says="is truncated")
class KeepsTheBuffer(WithWriter):
    class Writer(Gathering):
        def write(self, data: Buffer) -> None:
            self.pieces.append(data)


@breaks("pieces_join_in_order", says="the joined pieces")
class JoinsBackwards(WithWriter):
    class Writer(Gathering):
        def commit(self) -> None:
            self.pieces.reverse()
            super().commit()


@breaks("a_writer_without_a_write_makes_an_empty_object", says="is missing")
class NeedsAWrite(WithWriter):
    class Writer(Gathering):
        def commit(self) -> None:
            if self.pieces:
                super().commit()
            else:
                self.inner.abort()


class _Stops(Through):
    limit = 0

    def write(self, data: Buffer) -> None:
        taken = bytes(data)[: self.limit]
        self.limit -= len(taken)
        super().write(taken)


@breaks("a_large_object_is_whole", says="its listed size")
@breaks("a_long_segment_is_read_back", says="is truncated")
class StopsAt12MiB(WithWriter):
    class Writer(_Stops):
        limit = 12 * _MIB


@breaks("a_cancelled_segment_harms_no_other", says="is truncated")
class StopsAt50000Bytes(WithWriter):
    class Writer(_Stops):
        limit = 50_000


@breaks("memory_stays_bounded", says="at most 64 MiB may be held, [78]. MiB were")
class HoldsAll(WithWriter):
    class Writer(Gathering):
        def write(self, data: Buffer) -> None:
            self.pieces.append(bytearray(data))


@breaks("abort_leaves_nothing", says="unfinished writes that are left")
class LeavesWhatItAborts(WithWriter):
    class Writer(Through):
        def abort(self) -> None:
            pass


@breaks("an_exception_in_the_block_aborts", says="after an exception in the block")
class CommitsAnyway(WithWriter):
    class Writer(Through):
        def __exit__(self, *_: object) -> None:
            self.commit()


@breaks("a_cancelled_writer_leaves_nothing", says="objects that are left")
class CommitsWhatIsAborted(WithWriter):
    class Writer(Through):
        def abort(self) -> None:
            try:
                self.inner.commit()
            except Invalid:
                self.inner.abort()


@breaks("abort_may_come_at_any_time", says="abort must never raise")
class AbortsOnce(WithWriter):
    class Writer(Through):
        def abort(self) -> None:
            self.inner.write(b"")
            self.inner.abort()


@breaks("abort_survives_a_failed_write", says="abort must never raise")
class NeedsWhatItAborts(WithWriter):
    class Writer(Through):
        def abort(self) -> None:
            if not any(self.storage.unfinished(self.name)):
                raise NotFound("nothing to abort", where=self.name)
            self.inner.abort()


@breaks("a_finished_writer_refuses", says="Invalid is owed, but nothing was raised")
class TakesNoNotice(WithWriter):
    class Writer(Through):
        def write(self, data: Buffer) -> None:
            try:
                self.inner.write(data)
            except Invalid:
                return


@breaks("a_write_replaces_the_whole", says="replacing by 100 bytes")
class WritesOver(WithWriter):
    class Writer(Gathering):
        def commit(self) -> None:
            new = b"".join(self.pieces)
            try:
                self.pieces.append(self.storage.read(self.name)[len(new) :])
            except NotFound:
                self.pieces.append(b"")
            super().commit()


@breaks("a_write_can_be_repeated", says="the second attempt")
class SharesAScratch(WithWriter):
    """All writers of one name fill the same scratch file."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.scratch: dict[str, list[Buffer]] = {}

    class Writer(Gathering):
        storage: SharesAScratch

        def write(self, data: Buffer) -> None:
            self.storage.scratch.setdefault(self.name, []).append(bytes(data))

        def commit(self) -> None:
            self.pieces = self.storage.scratch.get(self.name, [])
            super().commit()


@breaks("writers_of_one_name_do_not_mix", says="the first to commit")
class LastBegunWins(WithWriter):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.newest: dict[str, ObjectWriter] = {}

    def writer(self, name: str) -> ObjectWriter:
        self.newest[name] = super().writer(name)
        return self.newest[name]

    class Writer(Through):
        storage: LastBegunWins

        def commit(self) -> None:
            if self.storage.newest[self.name] is self:
                self.inner.commit()
            else:
                self.inner.abort()


class _InPlace(Gathering):
    """Shows the object as far as it is written."""

    def write(self, data: Buffer) -> None:
        super().write(data)
        self.storage.write_soundly(self.name, b"".join(self.pieces))


@breaks("nothing_is_visible_before_the_commit", says="before the commit")
class ShowsTheBeginning(WithWriter):
    Writer = _InPlace


@breaks("a_reader_never_sees_a_part", says="must see all of an object|must show an object whole")
class ShowsTheFirstPieces(WithWriter):
    class Writer(_InPlace):
        def write(self, data: Buffer) -> None:
            if len(self.pieces) < 2:
                super().write(data)
            else:
                Gathering.write(self, data)


@breaks("the_old_object_stays_until_the_commit", says="before the abort of a new write")
class DeletesBeforeItWrites(WithWriter):
    def writer(self, name: str) -> ObjectWriter:
        self.delete([name])
        return super().writer(name)


@breaks("a_reader_never_sees_a_mixture", says="must see all of an object|must show an object whole")
class WritesInTwoHalves(WithWriter):
    class Writer(Gathering):
        def commit(self) -> None:
            whole = b"".join(self.pieces)
            self.storage.write_soundly(self.name, whole[: len(whole) // 2])
            SystemClock().sleep_s(0.01)
            super().commit()


@breaks(
    "a_reader_never_sees_a_part_of_a_creation",
    says="must see all of an object|must show an object whole",
)
class CreatesInTwoHalves(Local):
    def create(self, name: str, data: Buffer) -> bytes | None:
        existing = super().create(name, bytes(data)[: len(data) // 2])
        SystemClock().sleep_s(0.01)
        if existing is None:
            self.write(name, data)
        return existing


@breaks("a_writer_sees_its_own_writes", says="listing what was just written")
class ListsOnlyOnce(Local):
    """Each storage object believes in the first listing of a prefix for ever."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.known: dict[str, list[ObjectInfo]] = {}

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        if prefix not in self.known:
            self.known[prefix] = [*super().list(prefix)]
        return iter(self.known[prefix])
