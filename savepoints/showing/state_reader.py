"""`read_state`: the state of a checkpoint or savepoint as Arrow columns, without job or Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa

from holdfast.backends.keys.codec import key_codec_described
from holdfast.backends.state.timers import USER_TIMERS, timer_table
from holdfast.savepoints.finding import KEYED, OPERATOR, StoredSnapshot, find_snapshot, kind_of
from holdfast.savepoints.reading.columns import KeyedColumns, KeySet, StateColumns, UnkeyedColumns
from holdfast.savepoints.reading.tables import KeyedTable, UnkeyedTable
from holdfast.storage import Invalid, load_storage

__all__ = ["read_state", "state_of", "timers_name"]

_DOMAINS = ("event", "processing")


class _NoKey:
    """The default of `key`: None may be a key."""

    def __repr__(self) -> str:
        return "every key"


_EVERY: Final = _NoKey()


def read_state(  # noqa: PLR0913 - all by name, and most are left out
    path: str,
    *,
    operator: str,
    state: str | None = None,
    timers: str | None = None,
    key: Any = _EVERY,
    keys: Iterable[Any] | None = None,
    key_groups: tuple[int, int] | None = None,
    kind: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> pa.RecordBatchReader:
    """The rows of one state of an operator, in the columns of docs/savepoint-format.md.

    Batches are read lazily: `read_all()` makes a table of them, `read_pandas()` a DataFrame of
    pandas. All checksums are verified. Nothing is written and nothing is unpickled.

    Args:
        path: the folder of a savepoint or a checkpoint, a path or a URL.
        operator: the uid of the operator.
        state: the name of the state. Give either this or `timers`.
        timers: "event" or "processing", for the timers of that domain.
        key: only this key; a tuple where several columns make the key.
        keys: only these keys.
        key_groups: only these key groups, first and last inclusive; slots for state without keys.
        kind: "keyed" or "operator", if a keyed state and one without keys share a name.
        storage_options: options of the storage of the path.

    Raises:
        NotFound: there is no such snapshot, operator or state; names the known ones.
        Invalid: an argument is not valid for this state.
        Corrupt: a file is missing or damaged; also while rows are read.
        Unavailable: the storage did not answer; also while rows are read.
    """
    opened = find_snapshot(path, partial(load_storage, **dict(storage_options or {})))
    name = timers_name(state, timers)
    columns = state_of(opened, operator, name, kind=kind)
    if not isinstance(key, _NoKey):
        if keys is not None:
            raise Invalid("both one key and several are given", fix="Leave one of them out")
        keys = (key,)
    wanted = None if keys is None else _key_set(columns, keys, name)
    batches = columns.batches(_places(columns, key_groups), wanted)
    return pa.RecordBatchReader.from_batches(columns.schema, batches)


def timers_name(state: str | None, timers: str | None) -> str:
    """The name of the table of a state, or of the timers of a domain.

    Raises:
        Invalid: none or both are given, or there is no such domain.
    """
    if (state is None) == (timers is None):
        raise Invalid(
            "either a state or timers are to be named",
            expected="the name of a state, or else which timers: event or processing",
            found="neither" if state is None else "both",
        )
    if timers is None:
        assert state is not None
        return state
    if timers not in _DOMAINS:
        raise Invalid("there are no such timers", expected=" or ".join(_DOMAINS), found=timers)
    return timer_table(USER_TIMERS, timers)


def state_of(
    snapshot: StoredSnapshot, uid: str, name: str, *, kind: str | None = None
) -> StateColumns:
    """The rows of one state.

    Raises:
        NotFound: there is no such operator or state; names the known ones.
        Invalid: two states have this name, or the state is stored in two types.
        Corrupt, Unavailable: the state cannot be read.
    """
    keyed, unkeyed = snapshot.keyed(uid), snapshot.unkeyed(uid)
    tables: dict[str, Sequence[KeyedTable | UnkeyedTable]] = {
        KEYED: () if keyed is None else keyed.description.tables,
        OPERATOR: unkeyed.tables(),
    }
    where = str(snapshot.point)
    names = {each: [table.name for table in tables[each]] for each in tables}
    its_kind = kind_of(name, kind, names, uid=uid, where=where)
    found = [table for table in tables[its_kind] if table.name == name]
    if len(found) > 1:
        raise Invalid(
            f"state {name!r} of operator {uid!r} is stored in two types, and a table has one",
            where=where,
            found=" and ".join(str(table.info.values) for table in found),
            fix="Take a savepoint after each slot has accessed the state",
        )
    if isinstance(found[0], UnkeyedTable):
        return UnkeyedColumns(unkeyed, found[0])
    assert keyed is not None
    return KeyedColumns(keyed, found[0])


def _key_set(columns: StateColumns, keys: Iterable[Any], name: str) -> KeySet:
    if not isinstance(columns, KeyedColumns):
        raise Invalid(f"state {name!r} has no keys", found="a key that is asked for")
    codec = key_codec_described(columns.keys)
    return KeySet(columns.keys, columns.max_parallelism, map(codec.encode, keys))


def _places(columns: StateColumns, asked: tuple[int, int] | None) -> tuple[int, int]:
    first, last = columns.places
    if asked is None:
        return first, last
    given: tuple[Any, ...] = tuple(asked)
    whole = len(given) == 2 and all(type(each) is int for each in given)
    if not (whole and first <= given[0] <= given[1] <= last):
        raise Invalid(
            "these key groups do not exist",
            expected=f"the first and the last of some, from {first} to {last}",
            found=repr(asked),
        )
    return asked
