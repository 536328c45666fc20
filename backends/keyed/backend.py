"""Keyed state of one operator in one slot: written once, over the tables of any backend."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from threading import get_ident
from typing import Any, TypeVar

from holdfast.backends.keyed.current_key import NoKey, OperatorKeys
from holdfast.backends.keyed.other_backends import OpenStore, OtherStores
from holdfast.backends.keyed.undeclared_state import UndeclaredState
from holdfast.backends.keys.base import KeyCodec
from holdfast.backends.keys.codec import key_codec_for
from holdfast.backends.keys.groups import KeyGroupRange, check_max_parallelism
from holdfast.backends.snapshots.file_restores import FilesRestored, restore_files
from holdfast.backends.snapshots.migration import Loader, Reading
from holdfast.backends.snapshots.neutral import (
    SnapshotForm,
    SnapshotFuture,
    SnapshotTarget,
    TableInfo,
    restoring,
)
from holdfast.backends.snapshots.restores import Restored, read_snapshots
from holdfast.backends.snapshots.snapshotter import (
    FrozenTable,
    Restoration,
    SnapshotContent,
    SnapshotRequest,
    Snapshots,
    Snapshotter,
    info_of,
)
from holdfast.backends.state.base import State
from holdfast.backends.state.descriptors import StateDescriptor
from holdfast.backends.state.from_descriptors import (
    Shape,
    check_descriptor,
    is_same_state,
    make_state,
    shape_of,
    with_ttl,
)
from holdfast.backends.state.one_thread import OwnedByOneThread
from holdfast.backends.state.timers import TimerService, timer_queue, timer_specs
from holdfast.backends.state.ttl import oldest_alive_ms
from holdfast.backends.tables.contract import NO_NAMESPACE, Table, TableSpec, TableStore
from holdfast.backends.tables.metrics import StateMetrics
from holdfast.backends.tables.timer_queues import TimerQueue
from holdfast.storage import Clock, Handle, Invalid, JobStorage, StateFolder, StateSnapshot

__all__ = ["EarlyFiles", "KeyedStateBackend", "Opening"]

_Filled = TypeVar("_Filled", Table, TimerQueue)


@dataclass(frozen=True, slots=True)
class _Registered:
    """A state that the job has declared."""

    descriptor: StateDescriptor
    namespace_type: Any
    shape: Shape
    spec: TableSpec
    table: Table
    state: State[Any]


@dataclass(frozen=True, slots=True)
class EarlyFiles:
    """Where files may be written before a snapshot refers to them.

    The folder is the one of snapshots; files are numbered from `first_checkpoint_id` on, and
    compressed as snapshots are.
    """

    job: JobStorage
    first_checkpoint_id: int = 1
    compression: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """How keyed state is opened; `StateBackend.open` says what each part means."""

    uid: str
    key_groups: KeyGroupRange
    max_parallelism: int
    key_type: Any
    restore: Sequence[StateSnapshot]
    storage: StateFolder | None
    clock: Clock
    allow_pickle: bool
    open_store: OpenStore
    early: EarlyFiles | None = None


class KeyedStateBackend(OwnedByOneThread):
    """Live keyed state of one operator in one slot; from `StateBackend.open`.

    Methods raise `Invalid` in a thread other than the one that opened it, and after `close`.
    """

    def __init__(
        self,
        make_store: Callable[[], TableStore],
        opening: Opening,
        make_snapshots: Callable[[TableStore, str, KeyGroupRange, int], Snapshots] = Snapshotter,
    ) -> None:
        uid, key_groups = opening.uid, opening.key_groups
        max_parallelism = opening.max_parallelism
        check_max_parallelism(max_parallelism)
        super().__init__(f"operator {uid!r}")
        self._uid = uid
        if key_groups.last >= max_parallelism:
            raise Invalid(
                "key groups are out of range",
                where=self._where,
                expected=f"below {max_parallelism}, the max parallelism",
                found=str(key_groups),
            )
        self._keys = OperatorKeys(uid, key_groups, max_parallelism, opening.key_type)
        restored = read_snapshots(
            opening.restore,
            opening.storage,
            uid=uid,
            key_groups=key_groups,
            max_parallelism=max_parallelism,
        )
        if restored.keys is not None:
            self._keys.written(restored.keys)
        self._clock = opening.clock
        self._allow_pickle = opening.allow_pickle
        self._states: dict[str, _Registered] = {}
        self._timers: dict[str, TimerService] = {}
        self._timer_namespaces: dict[str, Any] = {}
        self._timer_specs: list[TableSpec] = []
        self.store = make_store()
        self._undeclared = UndeclaredState(self.store, self._where)
        self._others = OtherStores(
            lambda name: opening.open_store(name, uid, key_groups, max_parallelism)
        )
        try:
            self._restored = Restoration(opening.restore, self._take_in(restored, opening))
            self._snapshots = make_snapshots(self.store, uid, key_groups, max_parallelism)
        except BaseException:
            self._others.close()
            self.store.close()
            raise
        self._plain_key: Any = self._keys.plain
        self.key: Any = NoKey(
            "there is no current key",
            where=self._where,
            # Summaries of failures cut off the end, so the less important part comes last
            fix="In open only declare state; use it in process_element or on_timer, for the key of "
            "the row or timer in hand. For many keys at once there are get_many and put_many. Code "
            "that has opened a backend itself calls set_current_key first",
        )

    @property
    def uid(self) -> str:
        return self._uid

    @property
    def key_groups(self) -> KeyGroupRange:
        return self._keys.key_groups

    def set_current_key(self, key: Any) -> None:
        """Choose the key for the calls that follow.

        Raises:
            Invalid: the key is not of the operator's type of keys, or belongs to another slot;
                the current key is unchanged.
        """
        if key.__class__ is self._plain_key and get_ident() == self._thread:
            # Fast path of most calls. Literals, since a global name costs a look-up each time.
            if key.__class__ is int:
                if -0x8000_0000_0000_0000 <= key <= 0x7FFF_FFFF_FFFF_FFFF:
                    self.key = key
                    return
            elif key.isascii():
                self.key = key
                return
        self.check_thread()
        self.key = self._keys.admit(key)
        self._plain_key = self._keys.plain

    def get_state(self, descriptor: StateDescriptor, *, namespace_type: Any = None) -> Any:
        """The state of a descriptor: the same object for the same descriptor.

        With `namespace_type` each key has the state once for every namespace of that type.

        Raises:
            Invalid: there is a state of this name with another descriptor; a type is not
                supported; or the stored state of this name cannot be read as declared.
            Corrupt: a file of the snapshot is missing or damaged; names it.
        """
        self.check_thread()
        check_descriptor(descriptor)
        there = self._states.get(descriptor.name)
        if there is not None:
            same = is_same_state(there.descriptor, descriptor)
            if not same or there.namespace_type != namespace_type:
                raise Invalid(
                    f"state {descriptor.name!r} is declared twice, differently",
                    where=self._where,
                    expected=f"{there.descriptor}, namespaces {there.namespace_type}",
                    found=f"{descriptor}, namespaces {namespace_type}",
                )
            return there.state
        shape = shape_of(descriptor, allow_pickle=self._allow_pickle)
        spec = TableSpec(
            name=descriptor.name,
            kind=shape.table,
            key_type=self._key_codec,
            namespaces=None if namespace_type is None else key_codec_for(namespace_type),
            map_keys=shape.map_keys,
            values=shape.values,
            stamped=descriptor.ttl is not None,
        )
        names = (*reversed(descriptor.aliases), spec.name)
        inner = self._filled(spec, shape.kind, names, self.store.table)
        table = with_ttl(inner, self.store.form(spec), descriptor.ttl, self._clock)
        state = make_state(self, descriptor, spec, table)
        self._states[descriptor.name] = _Registered(
            descriptor, namespace_type, shape, spec, inner, state
        )
        return state

    def timers(self, name: str, *, namespace_type: Any = None) -> TimerService:
        """The timers of a service, of event and of processing time; the same for the same name.

        Raises:
            Invalid: there is a service of this name with other namespaces; or the stored timers
                cannot be read as declared.
            Corrupt: a file of the snapshot is missing or damaged; names it.
        """
        self.check_thread()
        if name not in self._timers:
            namespaces = None if namespace_type is None else key_codec_for(namespace_type)
            event, processing = timer_specs(name, self._key_codec, namespaces)
            queues = [
                (spec, self._filled(spec, "timers", [spec.name], partial(timer_queue, self.store)))
                for spec in (event, processing)
            ]
            self._timer_specs += [event, processing]
            self._timers[name] = TimerService(self, *queues)
            self._timer_namespaces[name] = namespace_type
        if self._timer_namespaces[name] != namespace_type:
            raise Invalid(
                f"timers {name!r} are asked for twice, differently",
                where=self._where,
                expected=f"namespaces {self._timer_namespaces[name]}",
                found=f"namespaces {namespace_type}",
            )
        return self._timers[name]

    def keys(self, state_name: str, namespace: Any = NO_NAMESPACE) -> Iterator[Any]:
        """The keys that have this state, in one namespace if it has namespaces.

        Keys of expired entries may be among them.

        Raises:
            Invalid: no such state was declared, or the namespace does not fit it.
        """
        self.check_thread()
        registered = self._states.get(state_name)
        if registered is None:
            raise Invalid(
                f"there is no state {state_name!r}",
                where=self._where,
                expected=f"one of {', '.join(sorted(self._states)) or 'none so far'}",
            )
        codec = registered.spec.namespaces
        if (codec is None) != (namespace is NO_NAMESPACE):
            has = "no namespaces" if codec is None else "namespaces, and none is named"
            raise Invalid(f"state {state_name!r} has {has}", where=self._where)
        if codec is not None:
            namespace = codec.canonical(namespace)
        for key, its_namespace in registered.table.addresses():
            if (its_namespace,) == (namespace,):  # tuples compare by identity first: NaN is found
                yield key

    def apply_to_all_keys(
        self,
        descriptor: StateDescriptor,
        function: Callable[[Any, Any], None],
        *,
        namespace: Any = NO_NAMESPACE,
        namespace_type: Any = None,
    ) -> None:
        """Call `function(key, state)` under each key that has the state; it may change state."""
        state = self.get_state(descriptor, namespace_type=namespace_type)
        before, before_namespace = self.key, state.namespace
        if namespace is not NO_NAMESPACE:
            state.set_current_namespace(namespace)
        try:
            for key in list(self.keys(descriptor.name, namespace)):
                self.key = key
                function(key, state)
        finally:
            self.key, state.namespace = before, before_namespace

    def snapshot(
        self,
        checkpoint_id: int,
        target: SnapshotTarget,
        *,
        compression: str = "",
        form: SnapshotForm = SnapshotForm.OWN,
    ) -> SnapshotFuture:
        """Begin a snapshot of the state as it is now.

        Processing waits for this call only; the rest is done in the background. The future has the
        snapshot, and can be cancelled. The canonical form has a compression of its own. A native
        snapshot needs no notification that it is complete or aborted.

        Raises:
            Corrupt: a file of the restored snapshot with state that is not declared yet is missing
                or damaged.
            Unavailable: the storage did not answer.
        """
        self.check_thread()
        return self._snapshots.begin(
            self._request(checkpoint_id, target, compression=compression, form=form)
        )

    def tend(self) -> bool:
        """Do work that is due between two checkpoints, quickly; call it after each batch or so.

        Answers whether state may be changed further: if not, earlier changes must be uploaded
        first; call again soon.

        Raises:
            HoldfastError: the work between checkpoints cannot be done any more.
        """
        self.check_thread()
        return self._snapshots.tend(self._request)

    def build_on_restored(self) -> None:
        """Let later snapshots refer to files of the restored snapshots.

        These files must lie in the folder of new snapshots, and their checkpoint must be kept until
        a later one is known to be completed. Call it before the first snapshot.
        """
        self.check_thread()
        self._snapshots.build_on(self._restored)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """The checkpoint is completed: later snapshots may refer to its files."""
        self.check_thread()
        self._snapshots.completed(checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """The checkpoint will not be completed: its files will be deleted."""
        self.check_thread()
        self._snapshots.aborted(checkpoint_id)

    def metrics(self) -> StateMetrics:
        """Metrics of the state, from the backend; timers are listed under their tables."""
        self.check_thread()
        metrics = self.store.metrics()
        more = self._snapshots.metrics()
        return StateMetrics({**metrics.store, **more}, metrics.states) if more else metrics

    def keys_of(self, keys: Any) -> Sequence[Any]:
        """Canonical keys of a column or a sequence; see `OperatorKeys.admit_many`."""
        return self._keys.admit_many(keys)

    def _key_codec(self) -> KeyCodec[Any]:
        return self._keys.codec

    def _release(self) -> None:
        self.key = NoKey("the state backend is closed", where=self._where, fix="Open another one")
        self._snapshots.close()
        self._others.close()
        self.store.close()

    def _take_in(self, restored: Restored, opening: Opening) -> Mapping[str, Handle]:
        """Take over the content of the snapshots; answers handles of files that stay in use."""
        self._undeclared.add_tables(restored.tables)
        found = FilesRestored()
        if restored.files and opening.storage is not None:
            format_here = self.store.files and self.store.files.format
            own = [each for each in restored.files if each.attributes.format == format_here]
            others = [each for each in restored.files if each.attributes.format != format_here]
            with restoring(self._where):
                found = restore_files(own, self.store, opening.storage)
                self._undeclared.add_tables(self._others.restore(others, opening.storage))
        self._undeclared.add_tables(found.tables)
        self._undeclared.add_changes(restored.changes)
        return found.handles

    def _request(
        self,
        checkpoint_id: int,
        target: SnapshotTarget,
        *,
        compression: str = "",
        form: SnapshotForm = SnapshotForm.OWN,
    ) -> SnapshotRequest:
        return SnapshotRequest(
            checkpoint_id=checkpoint_id,
            target=target,
            content=self._content,
            infos=self._infos,
            keys=self._keys.description,
            changed=self._undeclared.changed,
            compression=compression,
            form=form,
        )

    def _content(self) -> SnapshotContent:
        pending = self._undeclared.hold(self._keys.description)
        return SnapshotContent(self._tables_now(), pending)

    def _infos(self) -> Mapping[str, TableInfo]:
        infos = {name: info_of(each.spec, each.shape.kind) for name, each in self._states.items()}
        return infos | {spec.name: info_of(spec, "timers") for spec in self._timer_specs}

    def _tables_now(self) -> list[FrozenTable]:
        """All tables of the store, for a snapshot."""
        now_ms = self._clock.now_ms()
        tables = []
        for each in self._states.values():
            ttl = each.descriptor.ttl
            keep_from = oldest_alive_ms(ttl, now_ms) if ttl and ttl.cleanup_in_snapshot else None
            tables.append(FrozenTable(each.spec, info_of(each.spec, each.shape.kind), keep_from))
        tables += [FrozenTable(spec, info_of(spec, "timers")) for spec in self._timer_specs]
        tables += [FrozenTable(spec, info) for spec, info in self._undeclared.in_store()]
        return tables

    def _filled(
        self, spec: TableSpec, kind: str, names: Iterable[str], make: Callable[[TableSpec], _Filled]
    ) -> _Filled:
        """The table that `make` makes, with the state of the snapshots under these names."""
        reading = Reading(spec.name, self._where, self._allow_pickle)
        loader = Loader(spec, kind, reading, self._clock.now_ms())
        return self._undeclared.fill(loader, names, make)
