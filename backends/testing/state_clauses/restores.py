"""Clauses about restore: any key groups, from any snapshots, of this backend or another one."""

from __future__ import annotations

from typing import Any

from holdfast.backends.interface import StateBackend, load_backend
from holdfast.backends.keys.groups import KeyGroupRange
from holdfast.backends.snapshots.neutral import SnapshotForm
from holdfast.backends.state.descriptors import ValueStateDescriptor
from holdfast.backends.testing.place import Place
from holdfast.backends.testing.samples import KEYS
from holdfast.backends.testing.scenes import (
    ALL,
    MAX_PARALLELISM,
    STATES,
    churn,
    content,
    files,
    keyed,
    keys_of,
    memory,
    owners_of,
    slots,
    taken,
    timers_of,
)
from holdfast.storage import FileHandle, Invalid, JobStorage, StateSnapshot
from holdfast.storage.testing.checks import owed, require, same

__all__ = ["ExchangeClauses", "RestoreClauses"]

_KEYS = list(range(300))
_TOTAL = ValueStateDescriptor("total", int)
_NEUTRAL = "hashmap"
_MOVING = (SnapshotForm.NEUTRAL, SnapshotForm.CANONICAL)


class RestoreClauses:
    """Clauses about a restore."""

    def test_key_groups_may_be_spread_anew(self, place: Place) -> None:
        """Up and down, evenly and not: each key's state is in one slot, and all of it is there."""
        job, backend = memory(), place.open()
        snapshots: list[StateSnapshot] = []
        before: dict[Any, Any] = {}
        for step, parallelism in enumerate((1, 3, 2, 7, 4, 1)):
            restored: dict[Any, Any] = {}
            after: dict[Any, Any] = {}
            taken_now = []
            for key_groups in slots(parallelism):
                with keyed(
                    backend, *snapshots, job=job, key_groups=key_groups, key_type=int
                ) as state:
                    owners = owners_of(state)
                    same(keys_of(state, owners), owners, f"keys in slot {key_groups}")
                    found = content(state)
                    require(not restored.keys() & found.keys(), "a key has its state in one slot")
                    restored |= found
                    churn(state, keys_of(state, _KEYS), 200, f"{step} {key_groups}")
                    after |= content(state)
                    taken_now.append(taken(state, job, step))
            same(restored, before, f"state in {parallelism} slots")
            before, snapshots = after, taken_now

    def test_a_part_of_the_key_groups_is_enough(self, place: Place) -> None:
        """Also a single one, or one without a key; nothing of others comes along."""
        job = memory()
        with keyed(place.open()) as state:
            churn(state, _KEYS, 2000)
            expected = content(state)
            snapshot = taken(state, job)
        for first, last in ((0, 0), (5, 5), (127, 127), (3, 90)):
            key_groups = KeyGroupRange(first, last)
            with keyed(place.open(), snapshot, job=job, key_groups=key_groups) as state:
                mine = keys_of(state, _KEYS)
                wanted = {key: each for key, each in expected.items() if key in mine}
                same(owners_of(state), sorted(wanted), f"keys in key groups {key_groups}")
                same(content(state), wanted, f"state of key groups {key_groups}")

    def test_a_snapshot_may_be_restored_often(self, place: Place) -> None:
        """By several at once, too: it is not used up, and they share nothing."""
        job = memory()
        with keyed(place.open()) as state:
            churn(state, _KEYS, 500)
            expected = content(state)
            snapshot = taken(state, job)
        with (
            keyed(place.open(), snapshot, job=job) as one,
            keyed(place.open(), snapshot, job=job) as two,
        ):
            same(content(one), expected, "the first that restores a snapshot")
            churn(one, _KEYS, 500, "one")
            same(content(two), expected, "the second")
        with keyed(place.open(), snapshot, job=job) as state:
            same(content(state), expected, "a third, later")

    def test_undeclared_state_is_kept(self, place: Place) -> None:
        """From snapshot to snapshot, also when the files that it was in are gone."""
        with files() as (job, _):
            with keyed(place.open()) as state:
                churn(state, _KEYS, 500)
                timers = state.timers("timers")
                state.set_current_key(1)
                timers.register_event_time_timer(5)
                expected = content(state)
                first = taken(state, job, 1)
            with keyed(place.open(), first, job=job) as state:
                value = state.get_state(ValueStateDescriptor("other", int))
                state.set_current_key(1000)
                value.update(5)
                second = taken(state, job, 2)
                names = {
                    each.file for each in first.handles.values() if isinstance(each, FileHandle)
                }
                job.storage.delete(f"{job.folder}/{name}" for name in names)
                third = taken(state, job, 3)
            for snapshot in (second, third):
                with keyed(place.open(), snapshot, job=job) as state:
                    same(content(state), expected, "state that was carried on")
                    same([timer[:2] for timer in timers_of(state)], [(5, 1)], "and timers")

    def test_state_may_be_declared_late(self, place: Place) -> None:
        """After other state was written, and after a snapshot: it is what it was."""
        job = memory()
        with keyed(place.open()) as state:
            churn(state, _KEYS, 500)
            expected = content(state)
            snapshot = taken(state, job, 1)
        with keyed(place.open(), snapshot, job=job) as state:
            for number, name in enumerate(STATES):
                state.get_state(STATES[name])
                taken(state, job, 2 + number)
            same(content(state), expected, "state that was asked for bit by bit")

    def test_snapshots_that_do_not_fit_are_refused(self, place: Place) -> None:
        """Of another operator, max parallelism or key type; without a storage; foreign ones."""
        job, backend = memory(), place.open()
        with keyed(backend) as state:
            state.set_current_key(1)
            state.get_state(_TOTAL).update(3)
            snapshot = taken(state, job)
        wrong: dict[str, dict[str, Any]] = {
            "of another operator": {"uid": "other"},
            "of another max parallelism": {
                "max_parallelism": 64,
                "key_groups": KeyGroupRange(0, 63),
            },
            "with keys of another type": {"key_type": str},
            "without a storage": {"storage": None},
        }
        for what, options in wrong.items():
            with owed(Invalid, f"a restore of a snapshot {what}"):
                keyed(backend, snapshot, **{"job": job, **options}).close()
        foreign = StateSnapshot(kind="foreign/1", handles={}, attributes={})
        with owed(Invalid, "a restore of a snapshot of a foreign kind"):
            keyed(backend, foreign, job=job).close()
        with keyed(backend, snapshot, job=job) as state:
            total = state.get_state(_TOTAL)
            state.set_current_key(1)
            same(total.value(), 3, "state that is restored after all")

    def test_snapshots_that_overlap_are_refused(self, place: Place) -> None:
        """Two that have the same key group would double its lists; neighbours have none."""
        job, backend = memory(), place.open()
        snapshots = []
        for key_groups in (*slots(2), ALL):
            with keyed(backend, key_groups=key_groups, key_type=int) as state:
                churn(state, keys_of(state, _KEYS), 100)
                snapshots.append(taken(state, job))
        left, right, whole = snapshots
        for pair in ((left, left), (whole, right), (left, whole)):
            with owed(Invalid, "a restore of snapshots that overlap"):
                keyed(backend, *pair, job=job).close()
        with keyed(backend, left, right, job=job) as state:
            require(content(state), "state of both halves")


class ExchangeClauses:
    """Clauses about neutral and canonical snapshots, which every backend can read."""

    def test_another_backend_reads_its_snapshots(self, place: Place) -> None:
        """State and timers move to another backend as they are."""
        for form in _MOVING:
            _move(place.open(), load_backend(_NEUTRAL), form)

    def test_the_backend_reads_snapshots_of_another_one(self, place: Place) -> None:
        """State and timers come from another backend as they are."""
        for form in _MOVING:
            _move(load_backend(_NEUTRAL), place.open(), form)

    def test_keys_of_every_type_move(self, place: Place) -> None:
        """There and back, with the same hash: else they end up in the wrong slot."""
        mine, other = place.open(), load_backend(_NEUTRAL)
        for name, sample in KEYS.items():
            job, keys = memory(), list(sample.instances)
            snapshots: list[StateSnapshot] = []
            turns = ((mine, 2, _MOVING[0]), (other, 3, _MOVING[1]), (mine, 1, _MOVING[1]))
            for number, (backend, parallelism, form) in enumerate(turns):
                taken_now = []
                for key_groups in slots(parallelism):
                    with keyed(
                        backend,
                        *snapshots,
                        job=job,
                        key_groups=key_groups,
                        key_type=sample.annotation,
                    ) as state:
                        value = state.get_state(_TOTAL)
                        owned = keys_of(state, keys)
                        if number:
                            what = f"keys of type {name} in a slot"
                            same(set(state.keys("total")), set(owned), what)
                            found = value.get_many(owned).to_pylist()
                            same(found, list(map(keys.index, owned)), f"{what}: their values")
                        value.put_many(owned, list(map(keys.index, owned)))
                        taken_now.append(taken(state, job, number, form=form))
                snapshots = taken_now

    def test_snapshots_come_from_several_backends(self, place: Place) -> None:
        """The slots of one operator need not have had the same one."""
        job = memory()
        expected: dict[Any, Any] = {}
        snapshots = []
        for key_groups, backend in zip(
            slots(3), (place.open(), load_backend(_NEUTRAL), place.open()), strict=True
        ):
            with keyed(backend, key_groups=key_groups, key_type=int) as state:
                churn(state, keys_of(state, _KEYS), 400)
                expected |= content(state)
                snapshots.append(taken(state, job))
        with keyed(place.open(), *snapshots, job=job) as state:
            same(content(state), expected, f"state of key groups {ALL} of {MAX_PARALLELISM}")


def _move(source: StateBackend, target: StateBackend, form: SnapshotForm) -> None:
    job = memory()
    with keyed(source) as state:
        churn(state, _KEYS, 3000)
        timers = state.timers("timers")
        for key in (1, 2, 3):
            state.set_current_key(key)
            timers.register_event_time_timer(-key)
        expected = content(state)
        snapshot = taken(state, job, form=form)
    _is_restored(target, snapshot, job, expected)
    with keyed(target, snapshot, job=job) as state:
        content(state)
        back = taken(state, job, 2, form=form)
    _is_restored(source, back, job, expected)


def _is_restored(
    backend: StateBackend, snapshot: StateSnapshot, job: JobStorage, expected: dict[Any, Any]
) -> None:
    with keyed(backend, snapshot, job=job) as state:
        same(content(state), expected, "state from another backend")
        found = [timer[:2] for timer in timers_of(state)]
        same(found, [(-3, 3), (-2, 2), (-1, 1)], "timers from another backend")
