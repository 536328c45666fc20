"""Golden savepoints and retained checkpoints: whole folders, as a user has them.

What they hold is in `golden_content`: the snapshots were made from it, and are compared with it.

`write_golden` makes the snapshots anew, for a new version of a format only: what a released version
wrote stays as it is.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from golden_content import CONTENT, FIRST_MS, GOLDEN, SLOTS, STATES, THEN_MS, Order
from holdfast.backends import (
    KeyedStateBackend,
    ListStateDescriptor,
    MapStateDescriptor,
    OperatorStateBackend,
    SnapshotForm,
    StateBackend,
    ValueStateDescriptor,
    key_groups_of_slots,
    load_backend,
)
from holdfast.backends.operator_state.restores import of_all_slots
from holdfast.changelog import ChangelogStateBackend
from holdfast.runtime.spark.sources.positions import (
    FRAME_KIND,
    QUERY_KIND,
    FramePosition,
    LogKeeper,
    QueryPosition,
    read_position,
)
from holdfast.savepoints import StoredSnapshot
from holdfast.storage import (
    CheckpointMetadata,
    FileSystemCheckpointStorage,
    Invalid,
    JobStorage,
    ManualClock,
    OperatorState,
    SavepointFolder,
    SeededEntropy,
    StateFolder,
    StateSnapshot,
)
from holdfast.storage.testing.example_jobs import retain
from support.states.tried_backends import backend_named

JOB = "clicks by user"
UID = "op/1"
MAX_PARALLELISM = 128
TIMERS = "user-timers"
WAIT_S = 60
_HOUR_MS = 3_600_000
_GONE = "gone"
"""A key, and an entry of maps, that the snapshots no longer have."""


@dataclass(frozen=True)
class Made:
    """How a golden snapshot was made: of which state, for what, and in which form."""

    backend: str
    kind: str
    form: SnapshotForm
    format: str = ""


SNAPSHOTS: dict[str, Made] = {
    "canonical": Made("hashmap", "savepoint", SnapshotForm.CANONICAL, "canonical"),
    **{
        f"native-{name}": Made(name, "savepoint", SnapshotForm.NATIVE, "native")
        for name in ("hashmap", "rocksdb", "sqlite")
    },
    **{
        f"checkpoint-{name}": Made(name, "checkpoint", SnapshotForm.OWN)
        for name in ("hashmap", "changelog-rocksdb")
    },
}


_NUMBERS = ListStateDescriptor("numbers", int)
_UNION = ListStateDescriptor("union", tuple[str, int])
_RULES = MapStateDescriptor("rules", str, dict[str, float])


def golden(name: str, root: Path = GOLDEN) -> Path:
    """The folder with the `_metadata` of a golden snapshot."""
    (found,) = (root / name).rglob("_metadata")
    return found.parent


def restored(
    snapshot: StoredSnapshot, backend: StateBackend, *, now_ms: int = THEN_MS, slots: int = 3
) -> dict[str, Any]:
    """All state, as a job of so many slots finds it that goes on from a snapshot."""
    left = snapshot.metadata.operators[UID]
    keyed: dict[str, Any] = {name: {} for name in STATES}
    timers: dict[str, list[Any]] = {"event": [], "processing": []}
    parts = [part for part in left.parts if part.key_groups is not None]
    clock = ManualClock(now_ms)
    with _opened(backend, clock, slots, left.max_parallelism, parts, snapshot.folder) as fleet:
        for slot in fleet:
            for name, found in _read(slot).items():
                assert not keyed[name].keys() & found.keys()
                keyed[name] |= found
            due = slot.timers(TIMERS, namespace_type=int)
            timers["event"] += [_plain(each) for each in due.due_event_time(2**63 - 1)]
            timers["processing"] += [_plain(each) for each in due.due_processing_time(2**63 - 1)]
    found = {"keyed": keyed, "timers": {domain: sorted(each) for domain, each in timers.items()}}
    return found | _restored_without_keys(snapshot, slots)


def positions(snapshot: StoredSnapshot) -> dict[str, Any]:
    """Where sources go on, in the words of `content.json`."""
    sources = snapshot.metadata.sources
    query = read_position(sources["clicks"], QUERY_KIND, "clicks")
    frame = read_position(sources["prices"], FRAME_KIND, "prices")
    assert isinstance(query, QueryPosition)
    assert isinstance(frame, FramePosition)
    log = {
        name: snapshot.folder.read(handle).decode()
        for name, handle in sources["clicks"].handles.items()
    }
    told = msgspec.to_builtins(frame)
    assert not query.has_ended
    assert not told.pop("has_ended")
    return {"clicks": {"batch": query.batch, "log": log}, "prices": told}


def build(name: str, root: Path, work: Path) -> Path:
    """Make such a snapshot below a folder; answers its own. State in files is in `work`."""
    made = SNAPSHOTS[name]
    storage = FileSystemCheckpointStorage(
        str(root), inline_limit_bytes=600, entropy=SeededEntropy(1)
    )
    clock = ManualClock(FIRST_MS - _HOUR_MS)
    with _opened(_backend(made.backend, work), clock, SLOTS) as fleet:
        clock.advance(_HOUR_MS)  # so that the first checkpoint of a changelog materializes
        for slot in fleet:
            _begin(slot)
        if made.kind == "savepoint":
            _go_on(fleet, clock)
            folder = SavepointFolder.begin(storage, JOB)
            keeper = LogKeeper("clicks", storage.job(JOB))
            folder.commit(_metadata(made, 2, fleet, folder, keeper, None))
            return root / folder.folder
        job = storage.job(JOB)
        owner, keeper = job.take_over(), LogKeeper("clicks", job)
        owner.commit(_metadata(made, 1, fleet, job, keeper, None))
        for slot in fleet:
            slot.notify_checkpoint_complete(1)
        _go_on(fleet, clock)
        owner.commit(_metadata(made, 2, fleet, job, keeper, 1))
        retain(owner, 1)
        return root / job.folder / f"chk-{2:020d}"


def write_golden(work: Path) -> None:
    """Make the snapshots of this version of the formats, with the help of an empty folder."""
    for name in SNAPSHOTS:
        shutil.rmtree(GOLDEN / name, ignore_errors=True)
        build(name, GOLDEN / name, work)


@contextmanager
def _opened(
    backend: StateBackend,
    clock: ManualClock,
    slots: int,
    max_parallelism: int = MAX_PARALLELISM,
    restore: Sequence[StateSnapshot] = (),
    storage: StateFolder | None = None,
) -> Iterator[list[KeyedStateBackend]]:
    """The keyed state of all slots of the operator, with every state asked for."""
    with ExitStack() as stack:
        fleet = [
            stack.enter_context(
                backend.open(
                    uid=UID,
                    key_groups=key_groups,
                    max_parallelism=max_parallelism,
                    key_type=str,
                    restore=restore,
                    storage=storage,
                    clock=clock,
                )
            )
            for key_groups in key_groups_of_slots(slots, max_parallelism)
        ]
        for slot in fleet:
            for name in STATES:
                _state(slot, name)
            slot.timers(TIMERS, namespace_type=int)
        yield fleet


def _backend(name: str, work: Path) -> StateBackend:
    """The backend of a golden snapshot; its changelog as users have it by default."""
    if name.startswith("changelog-"):
        return ChangelogStateBackend(_backend(name.removeprefix("changelog-"), work))
    if name == "rocksdb":  # its files say on which host they were written
        options = {"db_host_id": "golden"}
        return load_backend(name, memory="16m", directories=[str(work)], options=options)
    return backend_named(name, work)


def _state(slot: KeyedStateBackend, name: str) -> Any:
    return slot.get_state(STATES[name], namespace_type=int if name == "windows" else None)


def _begin(slot: KeyedStateBackend) -> None:
    """Write the first half of the keys, and what will have changed or gone with the rest."""
    _write(slot, CONTENT["written at"][str(FIRST_MS)])
    for _ in _mine(slot, CONTENT["keyed"]["value"]):
        _state(slot, "value").update(-99)
    for _ in _mine(slot, CONTENT["keyed"]["map"]):
        _state(slot, "map").put(_GONE, 1.5)
    for _ in _mine(slot, [_GONE]):
        for name in STATES:
            _put(slot, name, CONTENT["keyed"][name]["ann" if name != "distinct" else "eve"])
        slot.timers(TIMERS, namespace_type=int).register_event_time_timer(1, 0)


def _go_on(fleet: Sequence[KeyedStateBackend], clock: ManualClock) -> None:
    """Write the rest, at its time."""
    clock.advance(THEN_MS - FIRST_MS)
    for slot in fleet:
        _write(slot, CONTENT["written at"][str(THEN_MS)])
        for key in _mine(slot, CONTENT["keyed"]["value"]):
            _state(slot, "value").update(CONTENT["keyed"]["value"][key])
        for _ in _mine(slot, CONTENT["keyed"]["map"]):
            _state(slot, "map").remove(_GONE)
        for _ in _mine(slot, [_GONE]):
            for name in STATES:
                state = _state(slot, name)
                if name == "windows":
                    for namespace in CONTENT["keyed"][name]["ann"]:
                        state.set_current_namespace(int(namespace))
                        state.clear()
                else:
                    state.clear()
            slot.timers(TIMERS, namespace_type=int).delete_event_time_timer(1, 0)


def _mine(slot: KeyedStateBackend, keys: Sequence[str]) -> Iterator[str]:
    """Those keys that are a slot's; each is the current one while it is looked at."""
    for key in keys:
        with suppress(Invalid):  # another slot's
            slot.set_current_key(key)
            yield key


def _write(slot: KeyedStateBackend, keys: Sequence[str]) -> None:
    timers = slot.timers(TIMERS, namespace_type=int)
    register: dict[str, Callable[[int, int], None]] = {
        "event": timers.register_event_time_timer,
        "processing": timers.register_processing_time_timer,
    }
    for key in _mine(slot, keys):
        for name in STATES:
            if key in CONTENT["keyed"][name]:
                _put(slot, name, CONTENT["keyed"][name][key])
        for domain, each in CONTENT["timers"].items():
            for time, its_key, namespace in each:
                if its_key == key:
                    register[domain](time, namespace)


def _put(slot: KeyedStateBackend, name: str, content: Any) -> None:
    """Set what a state has of the current key."""
    state = _state(slot, name)
    match STATES[name]:
        case _ if name == "windows":
            for namespace, value in content.items():
                state.set_current_namespace(int(namespace))
                state.update(value)
        case ValueStateDescriptor():
            state.update(msgspec.convert(content, Order) if name == "order" else content)
        case ListStateDescriptor():
            state.update([tuple(each) if name == "list" else each for each in content])
        case MapStateDescriptor():
            state.put_all(content)
        case _:
            for each in content if name == "distinct" else [content]:
                state.add(each)


def _read(slot: KeyedStateBackend) -> dict[str, dict[str, Any]]:
    """What the states of a slot have, by state and key, of what is not past its time."""
    keyed: dict[str, dict[str, Any]] = {name: {} for name in STATES}
    namespaces = {int(each) for by in CONTENT["keyed"]["windows"].values() for each in by}
    for name in STATES:
        state, found = _state(slot, name), keyed[name]
        if name == "windows":
            for namespace in sorted(namespaces):
                for key in sorted(slot.keys(name, namespace)):
                    slot.set_current_key(key)
                    state.set_current_namespace(namespace)
                    found.setdefault(key, {})[str(namespace)] = state.value()
            continue
        for key in sorted(slot.keys(name)):
            slot.set_current_key(key)
            match STATES[name]:
                case ValueStateDescriptor():
                    value = state.value()
                case MapStateDescriptor():
                    value = dict(state.items())
                case _:
                    value = state.get()
            if value is not None and value != []:  # past its time
                found[key] = msgspec.to_builtins(value)
    return msgspec.json.decode(msgspec.json.encode(keyed), type=dict[str, dict[str, Any]])


def _plain(timer: Any) -> list[Any]:
    return [timer.timestamp, timer.key, timer.namespace]


def _restored_without_keys(snapshot: StoredSnapshot, slots: int) -> dict[str, Any]:
    own = of_all_slots(
        [part for part in snapshot.metadata.operators[UID].parts if part.key_groups is None]
    )
    numbers: list[int] = []
    unions, rules = [], []
    for slot in range(slots):
        with OperatorStateBackend.open(
            uid=UID, slot=slot, parallelism=slots, restore=own, storage=snapshot.folder
        ) as state:
            numbers += state.get_list_state(_NUMBERS).get()
            unions.append(sorted(list(each) for each in state.get_union_list_state(_UNION).get()))
            rules.append(dict(state.get_broadcast_state(_RULES).items()))
    assert all(each == unions[0] for each in unions)
    assert all(each == rules[0] for each in rules)
    return {"numbers": sorted(numbers), "union": unions[0], "rules": rules[0]}


def _metadata(
    made: Made,
    number: int,
    fleet: Sequence[KeyedStateBackend],
    folder: JobStorage | SavepointFolder,
    keeper: LogKeeper,
    completed: int | None,
) -> CheckpointMetadata:
    """What a job's coordinator says of a snapshot whose parts are written by that."""
    target: Any = folder
    futures = [slot.snapshot(number, target, form=made.form) for slot in fleet]
    parts = [future.result(WAIT_S) for future in futures]
    left = CONTENT["operator"]
    for slot in range(SLOTS):
        with OperatorStateBackend.open(uid=UID, slot=slot, parallelism=SLOTS) as state:
            state.get_list_state(_NUMBERS).update(left["numbers"][str(slot)])
            pairs = [(text, count) for text, count in left["union"][str(slot)]]
            state.get_union_list_state(_UNION).update(pairs)
            for rule, its in left["rules"].items():
                state.get_broadcast_state(_RULES).put(rule, its)
            parts.append(state.snapshot(number, target, form=made.form).result(WAIT_S))
    clicks, prices = CONTENT["sources"]["clicks"], CONTENT["sources"]["prices"]
    log = {name: text.encode() for name, text in clicks["log"].items()}
    savepoint = folder if isinstance(folder, SavepointFolder) else None
    handles = keeper.keep(number, log, completed=completed, savepoint=savepoint)
    query, frame = QueryPosition(batch=clicks["batch"]), FramePosition(**prices)
    return CheckpointMetadata(
        job_id=JOB,
        checkpoint_id=number,
        kind=made.kind,
        triggered_ms=THEN_MS,
        completed_ms=THEN_MS + 1,
        operators={
            UID: OperatorState(
                parallelism=SLOTS, max_parallelism=MAX_PARALLELISM, parts=tuple(parts)
            )
        },
        sources={
            "clicks": StateSnapshot(
                kind=QUERY_KIND, handles=handles, attributes=msgspec.to_builtins(query)
            ),
            "prices": StateSnapshot(kind=FRAME_KIND, attributes=msgspec.to_builtins(frame)),
        },
        properties={"trigger": "savepoint", "format": made.format, "purpose": "keep running"}
        if savepoint
        else {"trigger": "periodic"},
    )
