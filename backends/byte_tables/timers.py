"""Timers as ordered keys in a store of bytes: only those that are due first are in memory.

A timer's key is `key group | moment | key | namespace`, with a moment of 8 ordered bytes, the map
key of a table of timers. So the timers of each key group are in order of time.

A queue keeps the first timers of each group in memory, and remembers up to which key it knows all
of them. It reads on from there, since in many stores removed keys leave traces that a scan from the
beginning would have to skip each time. A timer behind that key is only written.

Added and removed timers are buffered. The buffer is merged when it is large, or when one of its
timers may be due first: encoding a column of timers and writing it in order costs far less than one
by one. Timers that were merged or fired may still have to be written; that happens before each read
of the table.

A snapshot contains timers as a map table, like other backends, so they move like all state. Timers
of one moment fire here in the order of their keys, and on the heap in that of their registration.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any

from holdfast.backends.blocks.block import Block, Column
from holdfast.backends.blocks.columns import encode_keys, split_values
from holdfast.backends.byte_tables.contract import ByteTable
from holdfast.backends.byte_tables.keys import KeyLayout, listed_with_groups, past, with_groups
from holdfast.backends.keys.groups import key_groups
from holdfast.backends.tables.contract import TableSpec
from holdfast.backends.tables.timer_queues import Timer, TimerQueue
from holdfast.backends.values.normalizing import INT64_MAX, INT64_MIN

__all__ = ["ByteTimerQueue", "TimeLayout", "TimerPages"]

_GROUP_BYTES = 2
_MOMENT_BYTES = 8
_SIGN_64 = 1 << 63
_WORTH_COLUMNS = 24
"""Fewer timers are encoded faster one by one."""
_moment = struct.Struct(">Q")
# All groups together keep about so many timers in memory, but each at least a short page, so that
# many groups do not read one timer at a time.
_MOST_CACHED = 32 * 1024
_LEAST_PAGE = 16
# The heap keeps outdated marks, and is made anew only when they are far more than the groups.
_SPARE_MARKS = 64
_NEVER = b"\xff" * 16
"""Above every mark."""


class TimeLayout(KeyLayout):
    """The keys of a table of timers, in which the rows of one address are not neighbours."""

    name = "by-time"
    start = _GROUP_BYTES + _MOMENT_BYTES

    def __init__(self, spec: TableSpec, groups: Sequence[bytes]) -> None:
        super().__init__(spec, groups)
        self._address = b""
        self._of_key: Any = object()
        self._of_namespace: Any = None

    def stored(self, moment: int, key: Any, namespace: Any) -> bytes:
        """The key under which a timer is kept."""
        if key is not self._of_key or namespace is not self._of_namespace:
            self._address = self.address(key, namespace)
            self._of_key, self._of_namespace = key, namespace
        address = self._address
        return address[:_GROUP_BYTES] + _moment.pack(moment + _SIGN_64) + address[_GROUP_BYTES:]

    def stored_many(self, timers: Collection[tuple[int, Any, Any]]) -> list[bytes]:
        """`stored` for each moment, key and namespace."""
        if len(timers) < _WORTH_COLUMNS:
            return [self.stored(*timer) for timer in timers]
        moments, keys, namespaces = zip(*timers, strict=True)
        codec = self.spec.keys
        groups = key_groups(codec.hash_many(keys), len(self._groups))
        assert self.spec.map_keys is not None
        columns = [encode_keys(self.spec.map_keys, moments), encode_keys(codec, keys)]
        if self.spec.namespaces is not None:
            columns.append(encode_keys(self.spec.namespaces, namespaces))
        return listed_with_groups(groups, columns)

    def timer(self, stored: bytes) -> Timer:
        """The timer that is kept under a key."""
        key, namespace, _ = self.read(stored)
        (moment,) = _moment.unpack_from(stored, _GROUP_BYTES)
        return Timer(moment - _SIGN_64, key, namespace)

    def of_block(self, block: Block) -> Column:
        parts = (block.map_keys, block.keys, block.namespaces)
        return with_groups(block.group_array, [each for each in parts if each is not None])

    def map_keys_of(self, stored: Sequence[bytes], ends: Iterable[int]) -> Column:
        return Column.of([key[_GROUP_BYTES : self.start] for key in stored])


@dataclass(frozen=True, slots=True)
class TimerPages:
    """How many timers a queue takes at once.

    It keeps up to twice `read` of each key group in memory, or fewer where there are many groups.
    """

    read: int = 128
    write: int = 512


class _Group:
    """The first timers of a key group, in order: all of them before the key `unread`.

    `mark` is the mark of the first timer; once all are used up, that of an earlier one.
    """

    __slots__ = ("cached", "end", "mark", "unread")

    def __init__(self, prefix: bytes) -> None:
        self.cached: list[bytes] = []
        self.unread = self.end = past(prefix)
        self.mark = b""


class ByteTimerQueue(TimerQueue):
    """Timers of one moment are in order of key groups, then of the bytes of keys and namespaces.

    A mark is a moment and a key group, as bytes. The least mark of the heap that is still the
    current mark of its group gives the group of the first timer.
    """

    def __init__(self, layout: TimeLayout, entries: ByteTable, pages: TimerPages) -> None:
        self._layout = layout
        self._entries = entries
        self._page = pages.read
        self._most = pages.write
        self._cell = layout.spec.values.encode(True)
        self._noted: dict[tuple[int, Any, Any], bool] = {}
        self._first_noted = INT64_MAX + 1
        self._noted_from = _NEVER
        self._unwritten: dict[bytes, bool] = {}
        self._groups: dict[bytes, _Group] = {}
        self._marks: list[bytes] = []
        self._is_read = False

    def add(self, moment: int, key: Any, namespace: Any) -> None:
        noted = self._noted
        noted[moment, key, namespace] = True
        if moment < self._first_noted:
            self._note_first(moment)
        if len(noted) >= self._most:
            self._take_up()

    def remove(self, moment: int, key: Any, namespace: Any) -> None:
        noted = self._noted
        noted[moment, key, namespace] = False
        if moment < self._first_noted:
            self._note_first(moment)
        if len(noted) >= self._most:
            self._take_up()

    def first_moment(self) -> int | None:
        group = self._first_group(_mark_up_to(INT64_MAX))
        return None if group is None else _moment_of(group.mark)

    def due(self, until: int) -> Iterator[Timer]:
        timer, last = self._layout.timer, _mark_up_to(until)
        while (group := self._first_group(last)) is not None:
            stored = group.cached[0]
            found = timer(stored)
            del group.cached[0]
            if group.cached:
                group.mark = _mark_of(group.cached[0])
                heapreplace(self._marks, group.mark)
            self._unwritten[stored] = False
            if len(self._unwritten) >= self._most:
                self._write()
            yield found

    def load(self, block: Block) -> None:
        self.flush()
        cells = split_values(self._layout.spec.values, block.values, "timers")
        self._entries.put_many(self._layout.of_block(block).to_list(block.count), cells)
        self._groups, self._marks, self._is_read = {}, [], False

    def flush(self) -> None:
        """Write all buffered changes, so that the table equals the queue."""
        self._take_up()
        self._write()

    def _first_group(self, last: bytes) -> _Group | None:
        """The group of the first timer, if its mark is not above `last`."""
        if not self._is_read:
            self._read()
        while True:
            marks = self._marks
            mark = marks[0] if marks else _NEVER
            if min(mark, last) >= self._noted_from:
                self._take_up()
            elif mark > last:
                return None
            else:
                group = self._groups[mark[-_GROUP_BYTES:]]
                if mark is not group.mark:
                    heappop(marks)
                elif group.cached:
                    return group
                elif group.unread != group.end:
                    self._read_on(group)
                else:
                    heappop(marks)

    def _note_first(self, moment: int) -> None:
        self._first_noted = moment
        self._noted_from = _mark_from(moment)

    def _take_up(self) -> None:
        """Merge the buffered timers."""
        if not self._noted:
            return
        if not self._is_read:
            self._read()
        noted, self._noted = self._noted, {}
        self._first_noted, self._noted_from = INT64_MAX + 1, _NEVER
        groups, unwritten = self._groups, self._unwritten
        for stored, is_there in zip(self._layout.stored_many(noted), noted.values(), strict=True):
            group = groups.get(stored[:_GROUP_BYTES]) or self._new_group(stored)
            if stored < group.unread:
                change = self._put_in if is_there else self._take_out
                if not change(group, stored):
                    continue
            unwritten[stored] = is_there
        if len(unwritten) >= self._most:
            self._write()

    def _put_in(self, group: _Group, stored: bytes) -> bool:
        """Add a timer to the first ones of its group; whether it was not there."""
        cached = group.cached
        place = bisect_left(cached, stored)
        if place < len(cached) and cached[place] == stored:
            return False
        cached.insert(place, stored)
        if place == 0:
            self._mark(group)
        if len(cached) > 2 * self._page:
            group.unread = cached[self._page]
            del cached[self._page :]
        return True

    def _take_out(self, group: _Group, stored: bytes) -> bool:
        """Remove a timer from the first ones of its group; whether it was there."""
        cached = group.cached
        place = bisect_left(cached, stored)
        if place == len(cached) or cached[place] != stored:
            return False
        del cached[place]
        if place == 0 and cached:
            self._mark(group)
        return True

    def _mark(self, group: _Group) -> None:
        """Set the mark of a group to that of its first timer."""
        group.mark = _mark_of(group.cached[0])
        heappush(self._marks, group.mark)
        if len(self._marks) > 2 * len(self._groups) + _SPARE_MARKS:
            self._marks = [each.mark for each in self._groups.values() if each.mark]
            heapify(self._marks)

    def _read(self) -> None:
        """Read the first timers of each group that has some."""
        first, is_cut = b"", True
        while is_cut:
            page = self._entries.page(first, None, self._page)
            is_cut = len(page) == self._page
            found = [stored for stored, _ in page]
            while found:
                group = self._new_group(found[0])
                count = bisect_left(found, group.end)
                group.cached, found = found[:count], found[count:]
                self._mark(group)
                if is_cut and not found:
                    group.unread = group.cached[-1] + b"\x00"
                    first = group.end
        self._is_read = True

    def _read_on(self, group: _Group) -> None:
        """Read the next timers of a group, all known timers of which are used up."""
        self._write()
        page = self._entries.page(group.unread, group.end, self._page)
        is_cut = len(page) == self._page
        group.cached = [stored for stored, _ in page]
        group.unread = group.cached[-1] + b"\x00" if is_cut else group.end
        if page:
            self._mark(group)

    def _new_group(self, stored: bytes) -> _Group:
        """The group of a stored timer, which is the first one of it."""
        prefix = stored[:_GROUP_BYTES]
        group = self._groups[prefix] = _Group(prefix)
        fair = max(_LEAST_PAGE, _MOST_CACHED // len(self._groups))
        self._page = min(self._page, fair)
        return group

    def _write(self) -> None:
        """Write timers that were merged or have fired."""
        changes = sorted(self._unwritten.items())
        added = [stored for stored, is_there in changes if is_there]
        removed = [stored for stored, is_there in changes if not is_there]
        if added:
            self._entries.put_many(added, [self._cell] * len(added))
        if removed:
            self._entries.remove_many(removed)
        self._unwritten.clear()


def _mark_of(stored: bytes) -> bytes:
    """The mark of a timer: its moment and its key group, as ordered bytes."""
    return stored[_GROUP_BYTES : _GROUP_BYTES + _MOMENT_BYTES] + stored[:_GROUP_BYTES]


def _moment_of(mark: bytes) -> int:
    """The moment of a mark."""
    (moment,) = _moment.unpack_from(mark)
    return int(moment) - _SIGN_64


def _mark_from(moment: int) -> bytes:
    """A bound above every mark before a moment, and below all others."""
    return _moment.pack(moment + _SIGN_64)


def _mark_up_to(moment: int) -> bytes:
    """A bound above every mark up to a moment, and below all later ones."""
    if moment < INT64_MIN:
        return b""
    return _moment.pack(min(moment, INT64_MAX) + _SIGN_64) + b"\xff" * _GROUP_BYTES
