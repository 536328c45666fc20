"""Rows of a state as plain Python values, from any stored form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from holdfast.backends.arrow.values import ENCODING
from holdfast.backends.blocks.block import Block
from holdfast.backends.keys.groups import KeyGroupRange
from holdfast.backends.values.codec import PICKLE
from holdfast.savepoints.finding import KEYED, OPERATOR, StoredSnapshot, check_kind
from holdfast.savepoints.reading.columns import KeySet
from holdfast.savepoints.reading.readers import KeyedReader
from holdfast.savepoints.reading.tables import KeyedTable
from holdfast.savepoints.showing.selections import given_key
from holdfast.storage import Invalid, NotFound
from holdfast.storage.errors import UNREADABLE

__all__ = ["choose_operator", "choose_state", "rows_of", "unpacked"]


def choose_operator(
    snapshot: StoredSnapshot, uid: str | None, state: str | None = None, kind: str | None = None
) -> str:
    """The given operator; without a uid, the only one that fits.

    Given the name or kind of a state, operators with such a state fit. Otherwise those with keyed
    state fit: the state of sinks, which has no keys, is rarely of interest.

    Raises:
        NotFound: there is no operator of this uid; names the known ones.
        Invalid: no uid is given, and several operators fit.
    """
    if uid is not None:
        snapshot.check_uid(uid)
        return uid
    meant = snapshot.uids
    if len(meant) > 1:
        wanted = kind if kind is not None or state is not None else KEYED
        fitting = [
            each
            for each in meant
            if any(
                state in (None, its) and wanted in (None, its_kind)
                for its, its_kind in _states(snapshot, each)
            )
        ]
        meant = fitting or meant
    if len(meant) == 1:
        return meant[0]
    raise Invalid(
        "no operator is named, and several have state",
        where=str(snapshot.point),
        expected=f"--operator with one of {', '.join(map(repr, meant)) or 'none at all'}",
    )


def _states(snapshot: StoredSnapshot, uid: str) -> set[tuple[str, str]]:
    """The names and kinds of the states of an operator."""
    reader = snapshot.keyed(uid)
    keyed = () if reader is None else reader.description.tables
    there = {(table.name, KEYED) for table in keyed}
    return there | {(table.name, OPERATOR) for table in snapshot.unkeyed(uid).tables()}


def choose_state(
    snapshot: StoredSnapshot, uid: str, name: str | None, kind: str | None = None
) -> tuple[str, str]:
    """The name and kind (`keyed`, `operator`) of the given state; without a name, of the only one.

    Raises:
        NotFound: there is no state of this name and kind; names the known ones.
        Invalid: several states fit, or there is no such kind.
    """
    there = _states(snapshot, uid)
    check_kind(kind)
    found = [
        state for state in sorted(there) if name in (None, state[0]) and kind in (None, state[1])
    ]
    if len(found) == 1:
        return found[0]
    if name is not None and found:
        raise Invalid(
            f"operator {uid!r} has two states {name!r}, with keys and without",
            where=str(snapshot.point),
            expected=f"--kind {KEYED} or --kind {OPERATOR}",
        )
    shown = ", ".join(dict.fromkeys(repr(state[0]) for state in found or sorted(there)))
    if name is None and found:
        raise Invalid(
            f"operator {uid!r} has several states, and none is named",
            where=str(snapshot.point),
            expected=f"--state with one of {shown}",
        )
    what = "no state" if name is None else f"no state {name!r}"
    raise NotFound(
        f"operator {uid!r} has {what}" + ("" if kind is None else f" of kind {kind}"),
        where=str(snapshot.point),
        expected=shown or "none at all",
    )


def rows_of(
    snapshot: StoredSnapshot, uid: str, state: tuple[str, str], key: str | None = None
) -> Iterator[dict[str, Any]]:
    """The rows of a state from `choose_state`, by column name (docs/savepoint-format.md).

    With `key`, as text or JSON, only the rows of that key, of which only the key group is read.
    Values stored as MessagePack are decoded, pickles are not. Maps whose keys are not text become
    lists of pairs.

    Raises:
        Invalid: the text is not a key of the state's type, or the state has no keys.
        Corrupt: a file is missing or damaged; names it.
    """
    name, kind = state
    reader = snapshot.keyed(uid)
    if kind == KEYED and reader is not None:
        for table in reader.description.named(name):
            yield from _keyed(reader, table, key)
        return
    if key is not None:
        raise Invalid(f"state {name!r} of operator {uid!r} has no keys", found=f"--key {key}")
    unkeyed = snapshot.unkeyed(uid)
    for each in unkeyed.named(name):
        for slot in unkeyed.slots:
            for batch in unkeyed.batches(each, slot):
                yield from _plain(batch)


def _keyed(reader: KeyedReader, table: KeyedTable, key: str | None) -> Iterator[dict[str, Any]]:
    wanted, encoded = None, None
    if key is not None:
        if reader.description.keys is None:
            return
        encoded = given_key(reader.description.keys, key, is_text=True)
        keys = KeySet(reader.description.keys, reader.description.max_parallelism, [encoded])
        wanted = KeyGroupRange(keys.groups[0], keys.groups[0])
    form = reader.form(table)
    for tables in reader.open_each(wanted):
        for batch in form.batches(_with_key(tables.blocks(table), encoded)):
            yield from _plain(batch)


def _with_key(blocks: Iterable[Block], encoded: bytes | None) -> Iterator[Block]:
    """The rows of one encoded key; None for all rows."""
    for block in blocks:
        if encoded is None:
            yield block
            continue
        keys = block.keys.to_list(block.count)
        places = [place for place, key in enumerate(keys) if key == encoded]
        if places:
            yield block.taken(np.array(places, np.int64))


def _plain(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    names = batch.schema.names
    columns = [_values(batch.column(place), field) for place, field in enumerate(batch.schema)]
    for values in zip(*columns, strict=True):
        yield dict(zip(names, values, strict=True))


def _values(column: pa.Array, field: pa.Field) -> list[Any]:
    encoding = (field.metadata or {}).get(ENCODING.encode(), b"").decode(errors="replace")
    listed: list[Any] = column.to_pylist()
    if encoding == PICKLE:
        return [f"<a pickle of {len(each)} bytes>" for each in listed]
    if encoding:
        return [unpacked(each) for each in listed]
    if pa.types.is_nested(column.type):
        return [_decoded(each, column.type) for each in listed]
    return listed


def _decoded(value: Any, kind: pa.DataType) -> Any:
    """A value with its MessagePack parts decoded, and maps in a form that JSON can express."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: _part(value[field.name], field) for field in kind}
    if pa.types.is_map(kind):
        entries = [(key, _part(each, kind.item_field)) for key, each in value]
        return dict(entries) if pa.types.is_string(kind.key_type) else entries
    return [_part(each, kind.value_field) for each in value]


def _part(value: Any, field: pa.Field) -> Any:
    if value is None:
        return None
    if (field.metadata or {}).get(ENCODING.encode()):
        return unpacked(value)
    return _decoded(value, field.type) if pa.types.is_nested(field.type) else value


def unpacked(data: bytes | None) -> Any:
    """Decode a value that is stored as MessagePack."""
    if data is None:
        return None
    try:
        return _in_pairs(msgspec.msgpack.decode(data))
    except UNREADABLE:  # some map may have maps as keys, which a dict cannot have
        pass
    try:
        return _piece(msgspec.Raw(data))
    except UNREADABLE:
        return f"<{len(data)} bytes that cannot be read>"


def _in_pairs(value: Any) -> Any:
    """Turn dicts with keys that are not text into lists of pairs: JSON has text keys only."""
    if isinstance(value, dict):
        entries = [(_in_pairs(key), _in_pairs(each)) for key, each in value.items()]
        return dict(entries) if all(isinstance(key, str) for key in value) else entries
    if isinstance(value, list | tuple):
        return [_in_pairs(each) for each in value]
    return value


def _piece(data: msgspec.Raw) -> Any:
    """Decode MessagePack with maps as keys, level by level."""
    packed = bytes(data)
    size, width = _map_of(packed)
    if width:
        flat = b"\xdd" + (2 * size).to_bytes(4, "big") + packed[width:]  # as an array
        parts = [_piece(each) for each in _pieces.decode(flat)]
        entries = list(zip(parts[::2], parts[1::2], strict=True))
        return dict(entries) if all(isinstance(key, str) for key in parts[::2]) else entries
    try:
        return [_piece(each) for each in _pieces.decode(packed)]
    except UNREADABLE:  # not an array
        return msgspec.msgpack.decode(packed)


def _map_of(packed: bytes) -> tuple[int, int]:
    """The number of entries of a map and the length of its header; zeros if it is not a map."""
    first = packed[0]
    if _FIX_MAP <= first < _FIX_MAP + 16:
        return first - _FIX_MAP, 1
    width = _MAPS.get(first, 0)
    return (int.from_bytes(packed[1:width], "big"), width) if width else (0, 0)


_FIX_MAP = 0x80
_MAPS = {0xDE: 3, 0xDF: 5}
"""First bytes of maps in MessagePack, and the length of their headers."""
_pieces = msgspec.msgpack.Decoder(list[msgspec.Raw])
