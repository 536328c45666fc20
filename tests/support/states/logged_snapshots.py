"""Snapshots that are a base and logs, made by hand: as a changelog would write them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from holdfast.backends import HashMapStateBackend, StateDescriptor
from holdfast.backends.blocks.changes import Added, Change, Removed, SetHead, encode_set
from holdfast.backends.keys.codec import key_codec_for
from holdfast.backends.snapshots.logs import (
    BASE_HANDLES,
    LOGGED_KIND,
    LoggedAttributes,
    LogInfo,
    LogSegment,
)
from holdfast.backends.snapshots.neutral import TableInfo
from holdfast.backends.snapshots.snapshotter import info_of
from holdfast.backends.state.from_descriptors import shape_of
from holdfast.backends.state.timers import timer_specs
from holdfast.backends.tables.contract import NO_NAMESPACE, Rows, StateKind, TableSpec
from holdfast.storage import Handle, JobStorage, StateSnapshot
from support.states.logged_steps import ALL, GROUPS, NOW_MS, STATES, TIMERS, UID, Step

__all__ = ["TableLog", "logged", "logs_of", "table_log", "timer_log"]


@dataclass
class TableLog:
    """What is logged of one table: sets of changes, in each of which removals come first.

    `log` is the word of the log, `first` the number of its first set, and `rows` how many rows of
    one kind a change has at most.
    """

    spec: TableSpec
    kind: str
    log: str = "log"
    first: int = 0
    rows: int = 1

    def __post_init__(self) -> None:
        self.store = HashMapStateBackend().open_store(UID, ALL, GROUPS)
        self._sets: list[list[Change]] = []
        self._open: list[tuple[Any, Any, Any]] = []
        self._open_kind = ""

    @property
    def info(self) -> TableInfo:
        """How it is written."""
        return info_of(self.spec, self.kind)

    @property
    def sets(self) -> list[list[Change]]:
        """All sets."""
        self._close()
        return self._sets

    def add(
        self,
        key: Any,
        value: Any,
        *,
        namespace: Any = NO_NAMESPACE,
        map_key: Any = None,
        stamp: int = NOW_MS,
    ) -> None:
        """Set a value or an entry, or append to a list."""
        form = self.store.form(self.spec)
        cell = form.encode(value)
        if self.spec.stamped:
            cell = form.stamp(stamp, cell)
        self._note("add", (self.store.address(self.spec, key, namespace), map_key, cell))

    def remove(self, key: Any, *, namespace: Any = NO_NAMESPACE, map_key: Any = None) -> None:
        """Remove what is at an address, or one entry."""
        kind = "remove" if map_key is None else "remove entry"
        self._note(kind, (self.store.address(self.spec, key, namespace), map_key, None))

    def replace(self, key: Any, value: Any, *, namespace: Any = NO_NAMESPACE) -> None:
        """Make a list one of this element."""
        self.remove(key, namespace=namespace)
        self.add(key, value, namespace=namespace)

    def _note(self, kind: str, row: tuple[Any, Any, Any]) -> None:
        if kind != self._open_kind or len(self._open) >= self.rows:
            self._close()
        self._open_kind = kind
        self._open.append(row)

    def _close(self) -> None:
        """Make a set of what is noted; what is added behind removals is in their set."""
        if not self._open:
            return
        addresses, map_keys, cells = map(list, zip(*self._open, strict=True))
        is_added, has_map_keys = self._open_kind == "add", self.spec.map_keys is not None
        has_map_keys &= self._open_kind != "remove"
        rows = Rows(addresses, map_keys if has_map_keys else None, cells if is_added else None)
        blocks = self.store.blocks(self.spec, rows)
        if not (is_added and self._sets and isinstance(self._sets[-1][-1], Removed)):
            self._sets.append([])
        self._sets[-1] += [Added(block) if is_added else Removed(block) for block in blocks]
        self._open.clear()


def table_log(
    descriptor: StateDescriptor,
    namespace_type: Any = None,
    *,
    name: str = "",
    key_type: Any = int,
    **options: Any,
) -> TableLog:
    """A log of a state's table, maybe under another name."""
    shape, keys = shape_of(descriptor, allow_pickle=True), key_codec_for(key_type)
    spec = TableSpec(
        name=name or descriptor.name,
        kind=shape.table,
        key_type=lambda: keys,
        namespaces=None if namespace_type is None else key_codec_for(namespace_type),
        map_keys=shape.map_keys,
        values=shape.values,
        stamped=descriptor.ttl is not None,
    )
    return TableLog(spec, shape.kind, **options)


def timer_log(name: str, *, key_type: Any = int, **options: Any) -> TableLog:
    """A log of timers of event time, with namespaces that are texts."""
    keys = key_codec_for(key_type)
    event, _ = timer_specs(name, lambda: keys, key_codec_for(str))
    return TableLog(event, "timers", **options)


def logs_of(every: Iterable[Step], **options: Any) -> list[TableLog]:
    """The logs of all tables after these steps."""
    logs = {name: table_log(*state, **options) for name, state in STATES.items()}
    logs[TIMERS] = timer_log(TIMERS, **options)
    for each in every:
        log, namespace = logs[each.table], each.namespace
        match each.what:
            case _ if each.table == TIMERS and each.what == "put":
                log.add(each.key, True, namespace=namespace, map_key=each.moment)
            case _ if each.table == TIMERS:
                log.remove(each.key, namespace=namespace, map_key=each.moment)
            case "put" if log.spec.kind is StateKind.LIST:
                log.replace(each.key, each.value, namespace=namespace)
            case "put" | "append":
                log.add(each.key, each.value, namespace=namespace, map_key=each.map_key)
            case "remove":
                log.remove(each.key, namespace=namespace)
            case _:
                log.remove(each.key, namespace=namespace, map_key=each.map_key)
    return list(logs.values())


def logged(
    job: JobStorage,
    number: int,
    base: StateSnapshot,
    logs: Sequence[TableLog],
    *,
    sets: int = 7,
    compression: str = "",
) -> StateSnapshot:
    """The snapshot of this base and these logs, with so many sets in each segment."""
    handles: dict[str, Handle] = {f"{BASE_HANDLES}{name}": h for name, h in base.handles.items()}
    infos = []
    with job.segments(number, "log", compression=compression) as writer:
        for log in logs:
            segments = []
            for start in range(0, len(log.sets), sets):
                name = f"{log.spec.name}/{log.log}/{start}"
                data, segment = _segment(log, start, log.sets[start : start + sets], name)
                handles[name] = writer.add(data)
                segments.append(segment)
            infos.append(LogInfo(info=log.info, log=log.log, segments=tuple(segments)))
    attributes = LoggedAttributes(
        uid=base.attributes["uid"],
        max_parallelism=base.attributes["max_parallelism"],
        keys=base.attributes["keys"] or key_codec_for(int).describe(),
        tables=(),
        base_kind=base.kind,
        base=base.attributes,
        logs=tuple(infos),
    )
    return StateSnapshot(
        kind=LOGGED_KIND,
        handles=handles,
        attributes=msgspec.to_builtins(attributes),
        slot=base.slot,
        key_groups=base.key_groups,
    )


def _segment(
    log: TableLog, start: int, sets: Sequence[Sequence[Change]], handle: str
) -> tuple[bytes, LogSegment]:
    first = log.first + start
    blocks = [change.block for changes in sets for change in changes]
    groups = [int(group) for block in blocks for group in block.group_array]
    data = b"".join(
        encode_set(SetHead(log.log, log.spec.name, first + place), changes)
        for place, changes in enumerate(sets)
    )
    segment = LogSegment(
        handle=handle,
        first=first,
        sets=len(sets),
        first_group=min(groups, default=0),
        last_group=max(groups, default=0),
        rows=len(groups),
    )
    return data, segment
