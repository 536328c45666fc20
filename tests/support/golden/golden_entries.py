"""The state of the golden snapshots: every kind, keys of several types, the same in every run.

`write_golden` makes the files anew, for a new version of the format only: what a released version
wrote stays as it is.
"""

from __future__ import annotations

import datetime as dt
import operator
import tempfile
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from holdfast.backends import (
    AggregateFunction,
    AggregatingStateDescriptor,
    KeyedStateBackend,
    KeyGroupRange,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateBackend,
    StateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
    load_backend,
)
from holdfast.storage import (
    FileSystemCheckpointStorage,
    JobStorage,
    ManualClock,
    SeededEntropy,
    StateSnapshot,
)

GOLDEN = Path(__file__).parents[2] / "golden" / "keyed-entries-v1"
SEGMENT_BYTES = 2048
START_MS = 1_700_000_000_000
NOW_MS = START_MS + 4000
MAX_PARALLELISM = 128


@dataclass
class Account:
    owner: str
    amounts: list[int] = field(default_factory=list)
    limit: Decimal | None = None


class Place(NamedTuple):
    city: str
    number: int | None


class Distinct(AggregateFunction[str, list[str], int]):
    def create_accumulator(self) -> list[str]:
        return []

    def add(self, value: str, accumulator: list[str]) -> list[str]:
        return accumulator if value in accumulator else [*accumulator, value]

    def get_result(self, accumulator: list[str]) -> int:
        return len(accumulator)


@dataclass(frozen=True)
class Golden:
    """One snapshot: its keys, how it is compressed, and how many rows it has on top."""

    key_type: Any
    keys: tuple[Any, ...]
    compression: str = ""
    rows: int = 0


_DAYS = tuple(map(dt.datetime.fromisoformat, ("1970-01-01", "2024-02-29T23:59:59.999999")))
CASES: dict[str, Golden] = {
    "int": Golden(int, (-(2**63), -1, 0, 1, 300, 2**63 - 1), rows=1000),
    "str": Golden(str, ("", "a", "a\x00b", "\x01", "kéy", "鍵🗝")),
    "bytes": Golden(bytes, (b"", b"\x00", b"\x00\xff", b"\xff")),
    "tuple": Golden(tuple[str, int | None], (("", 0), ("a", None), ("a\x00", -5))),
    "class": Golden(Place, (Place("Ulm", None), Place("Żory", 7))),
    "datetime": Golden(dt.datetime, _DAYS),
    "lz4": Golden(int, (-1, 0, 1), compression="lz4", rows=1000),
}

_LIVES = StateTtlConfig(ttl=dt.timedelta(seconds=10))
DESCRIPTORS: tuple[tuple[StateDescriptor, Any, tuple[Any, ...]], ...] = (
    (ValueStateDescriptor("count", int), None, ()),
    (ValueStateDescriptor("account", Account), str, ("", "b\x00")),
    (ValueStateDescriptor("any", dict[str, Any]), None, ()),
    (ValueStateDescriptor("pickled", object, pickle=True), None, ()),
    (ValueStateDescriptor("mortal", str, ttl=_LIVES), None, ()),
    (ListStateDescriptor("texts", str), None, ()),
    (ListStateDescriptor("accounts", Account, ttl=_LIVES), tuple[int, int], ((-5, 0), (0, 5))),
    (MapStateDescriptor("numbers", str, int), None, ()),
    (MapStateDescriptor("lists", tuple[int, str], list[float], ttl=_LIVES), int, (-1, 1)),
    (ReducingStateDescriptor("sum", operator.add, int), None, ()),
    (AggregatingStateDescriptor("distinct", Distinct(), list[str]), None, ()),
)
Content = dict[tuple[Any, ...], Any]


def written(place: int) -> dict[str, Any]:
    """What each state holds under the key at a place: the arguments of its one call."""
    accounts = [Account("ann", [place, 2**40]), Account("ü", limit=Decimal("-1.50"))]
    return {
        "count": place * 1000 - 1,
        "account": accounts[place % 2],
        "any": {"a": [1, 2.5, None, "x", b"y", True], "b": {}},
        "pickled": (1 + 2j, frozenset({place})),
        "mortal": "x" * place * 20,
        "texts": ["", "a", "a", "鍵"],
        "accounts": accounts,
        "numbers": {"": None, "z": place, "a\x00": -(2**63)},
        "lists": {(place, "a"): [0.5, -0.0], (-1, ""): None},
        "sum": -place,
        "distinct": f"v{place}",
    }


_CALLS = {"texts": "add_all", "accounts": "add_all", "numbers": "put_all", "lists": "put_all"}


def opened(
    case: Golden,
    backend: StateBackend,
    job: JobStorage,
    clock: ManualClock,
    *snapshots: StateSnapshot,
) -> KeyedStateBackend:
    """The operator of a golden snapshot."""
    return backend.open(
        uid="golden",
        key_groups=KeyGroupRange(0, MAX_PARALLELISM - 1),
        max_parallelism=MAX_PARALLELISM,
        key_type=case.key_type,
        restore=snapshots,
        storage=job,
        clock=clock,
        allow_pickle=True,
    )


def declare(backend: KeyedStateBackend) -> None:
    """Ask for every state and the timers, in the order of the golden files."""
    for descriptor, namespace_type, _ in DESCRIPTORS:
        backend.get_state(descriptor, namespace_type=namespace_type)
    backend.get_state(ValueStateDescriptor("rows", int))
    backend.timers("user", namespace_type=str)


def fill(backend: KeyedStateBackend, case: Golden, clock: ManualClock) -> None:
    """Write everything; each key a second after the one before, up to four."""
    declare(backend)
    for place, key in enumerate(case.keys):
        backend.set_current_key(key)
        for descriptor, namespace_type, namespaces in DESCRIPTORS:
            state = backend.get_state(descriptor, namespace_type=namespace_type)
            single = "update" if isinstance(descriptor, ValueStateDescriptor) else "add"
            write = getattr(state, _CALLS.get(descriptor.name, single))
            for namespace in namespaces or (None,):
                if namespace is not None:
                    state.set_current_namespace(namespace)
                write(written(place)[descriptor.name])
        timers = backend.timers("user", namespace_type=str)
        timers.register_event_time_timer(place * 10 - 5, "w")
        timers.register_event_time_timer(2**62, "")
        timers.register_processing_time_timer(NOW_MS + place, "")
        clock.advance(1000 if clock.now_ms() < NOW_MS else 0)
    clock.advance(NOW_MS - clock.now_ms())
    rows = backend.get_state(ValueStateDescriptor("rows", int))
    rows.put_many(list(range(case.rows)), list(range(case.rows)))


def expected(case: Golden) -> Content:
    """What reading all of it answers."""
    content: Content = {}
    for place, key in enumerate(case.keys):
        values = {**written(place), "distinct": 1}
        for descriptor, _, namespaces in DESCRIPTORS:
            for namespace in namespaces or (None,):
                content[descriptor.name, key, namespace] = values[descriptor.name]
        content["event", place * 10 - 5, key, "w"] = True
        content["event", 2**62, key, ""] = True
        content["processing", NOW_MS + place, key, ""] = True
    return content | {("rows", row): row for row in range(case.rows)}


def content_of(backend: KeyedStateBackend, case: Golden) -> Content:
    """Everything in an operator; its timers are gone afterwards."""
    content: Content = {}
    for descriptor, namespace_type, namespaces in DESCRIPTORS:
        state = backend.get_state(descriptor, namespace_type=namespace_type)
        read = {"value": "value", "map": "items"}.get(_kind(descriptor), "get")
        for key in case.keys:
            backend.set_current_key(key)
            for namespace in namespaces or (None,):
                if namespace is not None:
                    state.set_current_namespace(namespace)
                found = getattr(state, read)()
                content[descriptor.name, key, namespace] = dict(found) if read == "items" else found
    timers = backend.timers("user", namespace_type=str)
    for timer in timers.due_event_time(2**63 - 1):
        content["event", timer.timestamp, timer.key, timer.namespace] = True
    for timer in timers.due_processing_time(2**63 - 1):
        content["processing", timer.timestamp, timer.key, timer.namespace] = True
    rows = backend.get_state(ValueStateDescriptor("rows", int))
    listed = sorted(backend.keys("rows")) if case.rows else []
    return content | {
        ("rows", row): value
        for row, value in zip(listed, rows.get_many(listed).to_pylist(), strict=True)
    }


def job_at(folder: Path) -> JobStorage:
    """A job whose snapshots are files with the names that golden ones have."""
    storage = FileSystemCheckpointStorage(
        str(folder), inline_limit_bytes=0, entropy=SeededEntropy(1)
    )
    return storage.job("job")


def as_first_described(description: bytes) -> bytes:
    """JSON of descriptions without the word that they did not have at first: `whole`."""
    return description.replace(b',"whole":true', b"")


def build(name: str, backend: StateBackend, job: JobStorage) -> StateSnapshot:
    """Write a case's snapshot from nothing."""
    case, clock = CASES[name], ManualClock(START_MS)
    with opened(case, backend, job, clock) as state:
        fill(state, case, clock)
        return state.snapshot(1, job, compression=case.compression).result(60)


def write_golden() -> None:
    """Make the files of this version of the format."""
    GOLDEN.mkdir(exist_ok=True)
    for name in CASES:
        with tempfile.TemporaryDirectory() as folder:
            snapshot = build(name, load_backend("hashmap"), job_at(Path(folder)))
            (data,) = (path for path in Path(folder).rglob("golden-*") if path.is_file())
            (GOLDEN / f"{name}.bin").write_bytes(data.read_bytes())
        document = msgspec.json.format(msgspec.json.encode(snapshot), indent=1)
        (GOLDEN / f"{name}.json").write_bytes(document + b"\n")


def _kind(descriptor: StateDescriptor) -> str:
    return type(descriptor).__name__.removesuffix("StateDescriptor").lower()
