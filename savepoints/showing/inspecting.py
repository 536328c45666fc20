"""The content of a snapshot: operators, states, types, sizes and skew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from holdfast.backends.snapshots.in_flight import in_flight_parts
from holdfast.backends.values.type_descriptions import Schema
from holdfast.savepoints.finding import StoredSnapshot
from holdfast.savepoints.reading.readers import KeyedReader
from holdfast.savepoints.reading.tables import KeyedTable, UnkeyedTable
from holdfast.storage import CheckpointMetadata

__all__ = [
    "InspectedInFlight",
    "InspectedOperator",
    "InspectedSnapshot",
    "InspectedState",
    "Skew",
    "inspect",
    "type_of",
]

_SHOWN_GROUPS = 3


class Skew(msgspec.Struct, frozen=True):
    """The distribution of rows over key groups, and over the slots of the job."""

    groups_used: int
    fullest: tuple[tuple[int, int], ...]
    """The key groups with most rows, each with the number of its rows."""
    of_mean: float
    """Rows of the fullest key group, divided by the mean over key groups: 1 is even."""
    slot_of_mean: float
    """Rows of the fullest slot, divided by the mean over slots."""


class InspectedState(msgspec.Struct, frozen=True, kw_only=True):
    """A state. `rows` and `size_bytes` are None where they are not known without reading it."""

    name: str
    kind: str
    key: str | None = None
    namespace: str | None = None
    map_key: str | None = None
    value: str | None = None
    ttl: bool = False
    rows: int | None = None
    size_bytes: int | None = None
    skew: Skew | None = None


class InspectedOperator(msgspec.Struct, frozen=True):
    """An operator, and the bytes of its state in storage."""

    uid: str
    parallelism: int
    max_parallelism: int
    forms: tuple[str, ...]
    size_bytes: int
    states: tuple[InspectedState, ...]


class InspectedInFlight(msgspec.Struct, frozen=True):
    """Rows that were on the way to an operator: over all slots, before one of its inputs."""

    uid: str
    input: int
    rows: int
    size_bytes: int


class InspectedSnapshot(msgspec.Struct, frozen=True):
    """A checkpoint or savepoint."""

    path: str
    kind: str
    job: str
    checkpoint: int
    triggered_ms: int
    completed_ms: int
    size_bytes: int
    files: int
    properties: dict[str, Any]
    operators: tuple[InspectedOperator, ...]
    sources: tuple[str, ...]
    in_flight: tuple[InspectedInFlight, ...] = ()


def _silent(rows: int) -> None:
    """Ignore progress."""


def inspect(
    snapshot: StoredSnapshot,
    *,
    is_quick: bool = False,
    tell: Callable[[int], None] = _silent,
) -> InspectedSnapshot:
    """Describe a snapshot. `is_quick` reads no state: then not all numbers are known.

    `tell` is called with the number of rows read since the last call.

    Raises:
        Corrupt: a part is damaged; names it.
        Unavailable: the storage did not answer.
    """
    metadata = snapshot.metadata
    return InspectedSnapshot(
        path=snapshot.path,
        kind=metadata.kind,
        job=metadata.job_id,
        checkpoint=metadata.checkpoint_id,
        triggered_ms=metadata.triggered_ms,
        completed_ms=metadata.completed_ms,
        size_bytes=metadata.size_bytes,
        files=len(metadata.files()),
        properties=metadata.properties,
        operators=tuple(
            _operator(snapshot, uid, is_quick=is_quick, tell=tell)
            for uid in sorted(metadata.operators)
        ),
        sources=tuple(sorted(metadata.sources)),
        in_flight=_in_flight(metadata),
    )


def _in_flight(metadata: CheckpointMetadata) -> tuple[InspectedInFlight, ...]:
    found: dict[str, InspectedInFlight] = {}
    for each in in_flight_parts(metadata.in_flight):
        uid, _, number = each.about.edge.rpartition("/")
        before = found.get(each.about.edge, InspectedInFlight(uid, int(number), 0, 0))
        found[each.about.edge] = msgspec.structs.replace(
            before, rows=before.rows + each.rows, size_bytes=before.size_bytes + each.size_bytes
        )
    return tuple(found[edge] for edge in sorted(found))


def _operator(
    snapshot: StoredSnapshot, uid: str, *, is_quick: bool, tell: Callable[[int], None]
) -> InspectedOperator:
    left = snapshot.metadata.operators[uid]
    states: list[InspectedState] = []
    reader = snapshot.keyed(uid)
    if reader is not None:
        every = reader.description.tables
        counted = [None] * len(every) if is_quick else _counted(reader, tell)
        for table, groups in zip(every, counted, strict=True):
            states.append(_keyed(reader, table, groups, left.parallelism))
    states += map(_unkeyed, snapshot.unkeyed(uid).tables())
    return InspectedOperator(
        uid,
        left.parallelism,
        left.max_parallelism,
        tuple(sorted({part.kind for part in left.parts})),
        left.size_bytes,
        tuple(states),
    )


def _counted(
    reader: KeyedReader, tell: Callable[[int], None]
) -> Sequence[npt.NDArray[np.int64] | None]:
    """The number of rows of each table by key group."""
    found = [np.zeros(0, np.int64) for _ in reader.description.tables]
    for tables in reader.open_each():
        for number, table in enumerate(reader.description.tables):
            for block in tables.blocks(table):
                counted = np.bincount(block.group_array, minlength=len(found[number]))
                counted[: len(found[number])] += found[number]
                found[number] = counted
                tell(block.count)
    return found


def _keyed(
    reader: KeyedReader,
    table: KeyedTable,
    groups: npt.NDArray[np.int64] | None,
    parallelism: int,
) -> InspectedState:
    info, keys = table.info, reader.description.keys
    is_timers = info.kind == "timers"
    return InspectedState(
        name=info.name,
        kind=info.kind,
        key=None if keys is None else type_of(keys),
        namespace=None if info.namespaces is None else type_of(info.namespaces),
        map_key=None if info.map_keys is None or is_timers else type_of(info.map_keys),
        value=None if is_timers else type_of(info.values),
        ttl=info.stamped,
        rows=table.rows if groups is None else int(groups.sum()),
        size_bytes=table.size_bytes,
        skew=None
        if groups is None
        else _skew(groups, reader.description.max_parallelism, parallelism),
    )


def _skew(groups: npt.NDArray[np.int64], max_parallelism: int, parallelism: int) -> Skew | None:
    rows = int(groups.sum())
    if not rows:
        return None
    fullest = np.argsort(-groups, kind="stable")[:_SHOWN_GROUPS].tolist()
    slots = np.bincount(
        np.arange(len(groups)) * parallelism // max_parallelism, groups, parallelism
    )
    return Skew(
        groups_used=int(np.count_nonzero(groups)),
        fullest=tuple((group, int(groups[group])) for group in fullest if groups[group]),
        of_mean=round(float(groups.max()) * max_parallelism / rows, 2),
        slot_of_mean=round(float(slots.max()) * parallelism / rows, 2),
    )


def _unkeyed(table: UnkeyedTable) -> InspectedState:
    return InspectedState(
        name=table.name,
        kind=table.info.mode.value,
        map_key=None if table.info.map_keys is None else type_of(table.info.map_keys),
        value=type_of(table.info.values),
        rows=table.rows,
        size_bytes=table.size_bytes,
    )


def type_of(schema: Schema) -> str:
    """A type as text, such as `list[int]` or `Order(id: int, total: float)`."""
    kind = str(schema["type"])
    if kind in ("enum", "literal", "recursive"):
        name = schema.get("name", "").rpartition(".")[2]
        return name or f"{kind}[{', '.join(map(repr, schema.get('values', ())))}]"
    if kind == "record":
        name = schema.get("name", "").rpartition(".")[2]
        fields = [f"{each['name']}: {type_of(each['schema'])}" for each in schema["fields"]]
        return f"{name}({', '.join(fields)})"
    if kind == "union":
        return " | ".join(map(type_of, schema["members"]))
    parts = schema.get("items", [])
    inner = [type_of(each) for each in (parts if isinstance(parts, list) else [parts])]
    if kind == "sequence":
        return f"tuple[{inner[0]}, ...]"
    if kind == "dict":
        inner = [type_of(schema["keys"]), type_of(schema["values"])]
    shown = "None" if kind == "none" else kind
    return f"{shown}[{', '.join(inner)}]" if inner or kind == "tuple" else shown
