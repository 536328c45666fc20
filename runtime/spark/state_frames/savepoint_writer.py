"""Writing savepoints from DataFrames: new ones, or changed ones of what is stored."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Self

import msgspec
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from holdfast.backends import MapStateDescriptor, StateDescriptor, default_max_parallelism
from holdfast.backends.keys.groups import check_max_parallelism, check_parallelism
from holdfast.backends.snapshots.neutral import KeyedAttributes, TableInfo
from holdfast.backends.state.timers import USER_TIMERS
from holdfast.runtime.api.functions import TimeDomain
from holdfast.runtime.protocol.error_data import ERROR_KINDS
from holdfast.runtime.spark.launching.pickling import ByValue
from holdfast.runtime.spark.launching.tagged_jobs import TaggedJobs
from holdfast.runtime.spark.sessions.session_checks import check_classic
from holdfast.runtime.spark.state_frames.frame_columns import (
    check_frame,
    column_of,
    is_packed,
    key_schema,
    last_used_of,
    selected,
)
from holdfast.runtime.spark.state_frames.state_writing import (
    SHUFFLED_DDL,
    WRITTEN_DDL,
    Carrier,
    Maker,
    OperatorTarget,
    Writer,
)
from holdfast.runtime.spark.storage_settings import SessionStorages
from holdfast.savepoints import find_snapshot
from holdfast.savepoints.writing.assembly import (
    UnkeyedTableRows,
    clean_and_commit,
    copy_part,
    join_parts,
    write_unkeyed,
)
from holdfast.savepoints.writing.changes import NewState, OperatorChanges, SavepointChanges
from holdfast.savepoints.writing.keyed_rows import (
    SORTED_BY,
    RowColumns,
    RowEncoder,
    table_of_state,
    table_of_timers,
)
from holdfast.savepoints.writing.unkeyed_rows import UnkeyedRows
from holdfast.storage import (
    CheckpointMetadata,
    HoldfastError,
    Invalid,
    OperatorState,
    SavepointFolder,
    StateSnapshot,
    SystemClock,
    Unavailable,
)
from holdfast.storage.jobs.savepoint import SAVEPOINT
from holdfast.storage.registry import whole_url

__all__ = ["SavepointWriter"]

_logger = logging.getLogger(__name__)
_RAISED = re.compile(r"holdfast\.storage\.errors\.(\w+): (.+)")


class SavepointWriter:
    """A savepoint to be written by Spark: say what is in it, then `write`.

    `new` begins with nothing, `from_existing` with all that a checkpoint or savepoint has. What is
    written is canonical, and a whole savepoint of its own: what it was made from is only read.
    """

    def __init__(
        self,
        spark: SparkSession,
        changes: SavepointChanges,
        *,
        job: str,
        parallelism: int | None,
        max_parallelism: int,
    ) -> None:
        """Take `new` or `from_existing`."""
        check_classic(spark)
        check_max_parallelism(max_parallelism)
        if parallelism is None:
            parallelism = min(spark.sparkContext.defaultParallelism, max_parallelism)
        check_parallelism(parallelism, max_parallelism)
        self._spark = spark
        self._changes = changes
        self._job = job
        self._parallelism, self._max_parallelism = parallelism, max_parallelism

    @classmethod
    def new(
        cls,
        spark: SparkSession,
        *,
        job: str = "bootstrap",
        parallelism: int | None = None,
        max_parallelism: int | None = None,
    ) -> Self:
        """One that has nothing yet.

        Args:
            spark: the session that writes it.
            job: the job that it says it is of. Any job may be restored from it.
            parallelism: how many tasks write, each a range of key groups; None: as many as the
                session has task slots. The job that is restored has its own.
            max_parallelism: how many key groups there are; None: what a job has by default.

        Raises:
            Invalid: a number is out of range, or it is a session of Spark Connect.
        """
        if max_parallelism is None:
            max_parallelism = default_max_parallelism(1)
        return cls(
            spark,
            SavepointChanges(),
            job=job,
            parallelism=parallelism,
            max_parallelism=max_parallelism,
        )

    @classmethod
    def from_existing(
        cls,
        spark: SparkSession,
        path: str,
        *,
        parallelism: int | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Self:
        """One that has all that is at this path: operators, states, timers, sources' positions.

        Args:
            spark: the session that writes it.
            path: the folder of a savepoint or a checkpoint, a path or a URL; of any backend.
            parallelism: how many tasks write; None: as many as the session has task slots.
            storage_options: for the storage that the path is in, before what the session says.

        Raises:
            NotFound, Corrupt, Unavailable: there is none, it is damaged, or cannot be reached.
            Invalid: it has state that cannot be carried on.
        """
        check_classic(spark)
        source = find_snapshot(path, SessionStorages.of(spark, storage_options))
        operators = source.metadata.operators.values()
        groups = max((each.max_parallelism for each in operators), default=None)
        if groups is None:
            groups = default_max_parallelism(1)
        if parallelism is None:
            parallelism = min(spark.sparkContext.defaultParallelism, groups)
        return cls(
            spark,
            SavepointChanges(source),
            job=source.metadata.job_id,
            parallelism=parallelism,
            max_parallelism=groups,
        )

    def with_state(  # noqa: PLR0913 - all by name, and most are left out
        self,
        uid: str,
        descriptor: StateDescriptor,
        frame: DataFrame,
        *,
        key: str | Sequence[str] = "key",
        value: str = "value",
        map_key: str | None = None,
        position: str | None = None,
        last_used: str | None = None,
        packed: bool | None = None,
    ) -> Self:
        """Let a keyed state of an operator be the rows of a DataFrame, whatever it was before.

        Columns have by default the names that `spark.read.format("holdfast")` gives them.

        Args:
            uid: the operator's, which may be new.
            descriptor: the state's, as the job declares it.
            frame: its rows: one a key; of a list one an element, or one a key with a column of
                lists; of a map one an entry, or one a key with a column of maps.
            key: the key column, or several: those of the job's `key_by`, in its order.
            value: the column of values, elements, or accumulators.
            map_key: the column of a map's keys; None: `map_key`, if there is such a column.
            position: the column that elements of a list are in order of; None: `position`, if
                there is such a column.
            last_used: when the time to live of a row began, a timestamp or milliseconds; None:
                `last_used_ms`, if there is such a column, else now.
            packed: whether binary values are MessagePack, as they are read of types that have no
                column of their own, such as `Any`; False: they are values of type bytes. None: what
                was read is known to be, unless it was computed.

        Raises:
            Invalid: a column is missing, or its type does not fit; the state has no use for an
                argument; or it would lose its times of last use.
        """
        info, name = table_of_state(descriptor), descriptor.name
        columns = RowColumns(
            key=(key,) if isinstance(key, str) else tuple(key),
            value=value,
            map_key=column_of(frame, "map_key", map_key, when=info.kind == "map", state=name),
            position=column_of(frame, "position", position, when=info.kind == "list", state=name),
            last_used=last_used_of(frame, last_used, has_ttl=info.stamped, state=name),
            is_packed=is_packed(frame, value, given=packed, values=info.values, state=name),
        )
        return self._with(
            uid, NewState(frame=frame, table=info, columns=columns, descriptor=descriptor)
        )

    def with_timers(
        self,
        uid: str,
        frame: DataFrame,
        *,
        key: str | Sequence[str] = "key",
        time: str = "time",
        domain: TimeDomain = TimeDomain.EVENT_TIME,
    ) -> Self:
        """Let the timers of an operator, of one domain, be the rows of a DataFrame.

        `time` is a column of timestamps, or of milliseconds since 1970.

        Raises:
            Invalid: a column is missing, or its type does not fit.
        """
        columns = RowColumns(key=(key,) if isinstance(key, str) else tuple(key), map_key=time)
        info = table_of_timers(USER_TIMERS, domain.value)
        return self._with(uid, NewState(frame=frame, table=info, columns=columns))

    def with_operator_state(
        self,
        uid: str,
        descriptor: StateDescriptor,
        frame: DataFrame,
        *,
        value: str = "value",
        map_key: str | None = None,
        position: str | None = None,
        union: bool = False,
        packed: bool | None = None,
    ) -> Self:
        """Let a state without keys be the rows of a DataFrame, which must fit in memory.

        A list is dealt out to the slots, or with `union` each slot gets all of it; a map is a
        broadcast state, which each slot has. `packed` is as of `with_state`.

        Raises:
            Invalid: a column is missing, the descriptor is none of such a state, or the state has
                no use for an argument.
        """
        name, is_map = descriptor.name, isinstance(descriptor, MapStateDescriptor)
        rows = UnkeyedRows(descriptor, union=union, where=f"operator {uid!r}")
        columns = RowColumns(
            key=(),
            value=value,
            map_key=column_of(frame, "map_key", map_key, when=is_map, state=name),
            position=column_of(frame, "position", position, when=not is_map, state=name),
            is_packed=is_packed(frame, value, given=packed, values=rows.table.values, state=name),
        )
        check_frame(frame, columns, f"state {descriptor.name!r} of operator {uid!r}")
        state = NewState(
            frame=frame, table=rows.table, columns=columns, descriptor=descriptor, rows=rows
        )
        self._changes.operator_for(uid).put(state)
        return self

    def drop_state(self, uid: str, state: str, *, kind: str | None = None) -> Self:
        """Leave out a state; timers are `_timers/user-timers/event` or `processing`.

        `kind` is "keyed" or "operator", where a state with keys and one without have one name.

        Raises:
            NotFound: there is no such operator or state; names those that there are.
            Invalid: there are two of this name, or there is no such kind.
        """
        self._changes.operator(uid).drop(state, kind)
        return self

    def rename_state(self, uid: str, old: str, new: str, *, kind: str | None = None) -> Self:
        """Have a stored state be called otherwise; `kind` as of `drop_state`.

        Raises:
            NotFound: there is no such operator or state; names those that there are.
            Invalid: there is one of the new name, stored or new; there are two of the old one; or
                it is written from a DataFrame, and so is called as its descriptor says.
        """
        self._changes.operator(uid).rename(old, new, kind)
        return self

    def remove_operator(self, uid: str) -> Self:
        """Leave out an operator with all its state, or the position of a source.

        Raises:
            NotFound: there is none; names those that there are.
            Invalid: rows in flight wait before the operator, or, of a source, before any.
        """
        self._changes.remove(uid)
        return self

    def change_operator_uid(self, old: str, new: str) -> Self:
        """Have an operator, or a source, be called otherwise.

        Raises:
            NotFound: there is none; names those that there are.
            Invalid: there is one of the new uid, or rows in flight wait before the operator.
        """
        self._changes.change_uid(old, new)
        return self

    def write(self, directory: str, *, storage_options: Mapping[str, Any] | None = None) -> str:
        """Write it, and answer its URL: a folder of a new name in a directory.

        It is a savepoint from the last step on. What fails before is deleted. Nothing that was
        said is forgotten by it: it can be written again.

        Args:
            directory: a path or a URL, on any storage that keeps files.
            storage_options: for its storage, before what the session says.

        Raises:
            Invalid: a row does not fit its state, a key is there twice, there is nothing to write,
                or no savepoint can be kept there.
            Corrupt: what it is made from is damaged; names the file.
            Unavailable: a storage did not answer.
        """
        storage = SessionStorages.of(self._spark, storage_options)(whole_url(directory))
        folder = SavepointFolder.begin(storage, self._job)
        tag = f"holdfast-{folder.folder}"
        try:
            with TaggedJobs(self._spark.sparkContext, tag):
                metadata = self._written(folder)
        except BaseException as error:
            _discard(folder)
            if isinstance(error, PySparkException):
                raise _error_of_task(error) from error
            raise
        clean_and_commit(folder, metadata)
        return folder.url

    def _with(self, uid: str, state: NewState) -> Self:
        where = f"state {state.name!r} of operator {uid!r}"
        check_frame(state.frame, state.columns, where)
        arrow = to_arrow_schema(state.frame.select(*selected(state.columns)).schema, timezone="UTC")
        operator = self._changes.operator_for(uid)
        keys = operator.keys or key_schema(arrow, state.columns.key, uid)
        assert isinstance(state.table, TableInfo)
        maker = RowEncoder(
            state.table,
            keys,
            state.columns,
            parallelism=1,
            max_parallelism=1,
            descriptor=state.descriptor,
        )
        none = [pa.array([], field.type) for field in arrow]
        maker.rows(
            pa.RecordBatch.from_arrays(none, schema=arrow)
        )  # refuses columns that do not fit
        operator.put(state)
        operator.keys = keys
        return self

    def _written(self, folder: SavepointFolder) -> CheckpointMetadata:
        changes, clock = self._changes, SystemClock()
        source = changes.source
        began_ms, number = clock.now_ms(), 1 if source is None else source.metadata.checkpoint_id
        operators: dict[str, OperatorState] = {}
        for uid, operator in sorted(changes.operators.items()):
            groups = self._groups_of(operator)
            parallelism = min(self._parallelism, groups)
            parts = [
                *self._keyed(operator, folder, number, parallelism, groups),
                *write_unkeyed(operator, _unkeyed_rows(operator), folder, number),
            ]
            if parts:
                operators[uid] = OperatorState(
                    parallelism=parallelism, max_parallelism=groups, parts=tuple(parts)
                )
        if not operators and not changes.sources:
            raise Invalid(
                "there is nothing to write",
                expected="state of an operator, or the position of a source",
                fix="Call with_state, with_timers or with_operator_state first",
            )
        positions, others = {}, {}
        if source is not None:
            copy = partial(copy_part, source=source.folder, target=folder, checkpoint_id=number)
            positions = {uid: copy(each) for uid, each in changes.sources.items()}
            others = {name: copy(each) for name, each in source.metadata.parts.items()}
        return CheckpointMetadata(
            job_id=self._job,
            checkpoint_id=number,
            kind=SAVEPOINT,
            triggered_ms=began_ms,
            completed_ms=clock.now_ms(),
            operators=operators,
            sources=positions,
            parts=others,
            properties={"format": "canonical", "trigger": "savepoint-writer"},
        )

    def _groups_of(self, operator: OperatorChanges) -> int:
        if operator.keyed is None:
            return self._max_parallelism
        return operator.keyed.description.max_parallelism

    def _keyed(
        self,
        operator: OperatorChanges,
        folder: SavepointFolder,
        number: int,
        parallelism: int,
        max_parallelism: int,
    ) -> Sequence[StateSnapshot]:
        kept, new = operator.kept_tables, operator.new_keyed.values()
        if not kept and not new:
            return ()
        made = [each.table for each in new if isinstance(each.table, TableInfo)]
        attributes = KeyedAttributes(
            uid=operator.uid,
            max_parallelism=max_parallelism,
            keys=operator.keys,
            tables=(*(info for _, info in kept), *made),
        )
        written: dict[int, list[StateSnapshot]] = {}
        to = OperatorTarget(
            uid=operator.uid,
            keys=operator.keys or {},
            parallelism=parallelism,
            max_parallelism=max_parallelism,
            folder=folder,
            checkpoint_id=number,
        )
        reader = operator.keyed
        if kept and reader is not None and reader.description.keys is not None:
            parts = self._spark.range(0, parallelism, 1, parallelism)
            _collect(parts.mapInArrow(Carrier(to, reader, tuple(kept)), WRITTEN_DDL), written)
        for state in new:
            sent = ByValue(replace(state, frame=None))
            rows = state.frame.select(*selected(state.columns))
            rows = rows.mapInArrow(Maker(to, sent), SHUFFLED_DDL)
            rows = rows.repartitionById(parallelism, "part").sortWithinPartitions(*SORTED_BY)
            _collect(rows.mapInArrow(Writer(to, sent), WRITTEN_DDL), written)
        return join_parts(attributes, list(map(to.key_groups, range(parallelism))), written)


def _unkeyed_rows(operator: OperatorChanges) -> list[UnkeyedTableRows]:
    return [
        (state.rows, state.frame.select(*selected(state.columns)).toArrow(), state.columns)
        for state in operator.new_unkeyed.values()
        if state.rows is not None
    ]


def _collect(frame: DataFrame, written: dict[int, list[StateSnapshot]]) -> None:
    for row in frame.collect():
        snapshot = msgspec.msgpack.decode(bytes(row.snapshot), type=StateSnapshot)
        written.setdefault(row.part, []).append(snapshot)


def _discard(folder: SavepointFolder) -> None:
    """Delete the files. A failure is only logged: the error that led here matters more."""
    try:
        folder.discard()
    except HoldfastError as error:
        _logger.warning("files of an uncommitted savepoint could not be deleted: %s", error)


def _error_of_task(error: PySparkException) -> Exception:
    """The error of Holdfast that a task has raised; any other error as it is."""
    found = _RAISED.search(str(error))
    if found is None:
        return error
    kind = ERROR_KINDS.get(found[1], Unavailable)
    return kind(found[2])
