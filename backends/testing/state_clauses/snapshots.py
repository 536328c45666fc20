"""Clauses about snapshots: the state at the barrier, in background, concurrent, cancelled."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Any

from holdfast.backends.interface import load_backend
from holdfast.backends.snapshots.neutral import ENTRIES_KIND, PARQUET_KIND, SnapshotForm
from holdfast.backends.state.descriptors import ValueStateDescriptor
from holdfast.backends.testing.gates import WAIT_S, Gate
from holdfast.backends.testing.place import Place
from holdfast.backends.testing.scenes import STATES, churn, content, keyed, memory, slots, taken
from holdfast.storage import Corrupt, SegmentWriter, StateSnapshot
from holdfast.storage.testing.checks import names_in, owed, require, same

__all__ = ["SnapshotClauses"]

_KEYS: dict[str, list[Any]] = {
    "int": list(range(-40, 40)),
    "str": [f"kéy\0{number}" for number in range(80)],
    "tuple": [(f"k{number}", number % 3) for number in range(80)],
}
_INTS = _KEYS["int"]
_TOTAL = ValueStateDescriptor("total", int)


class SnapshotClauses:
    """Clauses about `snapshot`."""

    def test_a_snapshot_is_the_state_at_its_barrier(self, place: Place) -> None:
        """Of every kind of state, whatever is changed from the call on."""
        for name, keys in _KEYS.items():
            for compression in ("", "lz4"):
                job = memory()
                with keyed(place.open()) as state, Gate(job) as gate:
                    churn(state, keys, 400, name)
                    expected = content(state)
                    future = state.snapshot(1, gate, compression=compression)
                    churn(state, keys, 400, "after")
                    gate.open.set()
                    snapshot = future.result(WAIT_S)
                with keyed(place.open(), snapshot, job=job) as state:
                    same(content(state), expected, f"state at the barrier, by {name} keys")

    def test_many_snapshots_may_be_under_way(self, place: Place) -> None:
        """Each is the state at its own barrier, though the first has not been written yet.

        Of checkpoints and of savepoints, which are written at once by two threads.
        """
        job, forms = memory(), (SnapshotForm.OWN, SnapshotForm.CANONICAL, SnapshotForm.NATIVE)
        expected = []
        with keyed(place.open()) as state, Gate(job) as gate:
            churn(state, _INTS, 300)
            futures = []
            for number in range(6):
                churn(state, _INTS, 200, number)
                expected.append(content(state))
                futures.append(state.snapshot(number, gate, form=forms[number % 3]))
            churn(state, _INTS, 200, "after")
            after = content(state)
            gate.open.set()
            snapshots = [future.result(WAIT_S) for future in futures]
            same(content(state), after, "the state itself")
        for number, snapshot in enumerate(snapshots):
            with keyed(place.open(), snapshot, job=job) as state:
                same(content(state), expected[number], f"state at barrier {number}")

    def test_state_goes_on_over_many_snapshots(self, place: Place) -> None:
        """However many are taken and done, the state is that of the changes alone."""
        job = memory()
        with keyed(place.open()) as state, keyed(load_backend("hashmap")) as plain:
            for number in range(30):
                churn(state, _INTS, 60, number)
                churn(plain, _INTS, 60, number)
                taken(state, job, number)
                if number % 5 == 0:
                    same(content(state), content(plain), f"state after {number + 1} snapshots")

    def test_a_snapshot_can_be_cancelled(self, place: Place) -> None:
        """While it is written or waits; nothing is left of it, and others are not touched."""
        job = memory()
        with keyed(place.open()) as state, Gate(job) as gate:
            churn(state, _INTS, 500)
            expected = content(state)
            running, waiting = state.snapshot(1, gate), state.snapshot(2, job)
            require(gate.entered.wait(WAIT_S), "a snapshot must be written in the background")
            last = state.snapshot(3, job)
            require(running.cancel(), "a snapshot that is written can be given up")
            require(waiting.cancel(), "a snapshot that waits can be given up")
            churn(state, _INTS, 100, "after")
            gate.open.set()
            for future in (running, waiting):
                _is_cancelled(future.result)
            snapshot = last.result(WAIT_S)
            require(not last.cancel(), "a snapshot that is done cannot be given up")
            churn(state, _INTS, 100, "after all")
        same(names_in(job.storage), [], "objects beside the snapshot, which is inline")
        with keyed(place.open(), snapshot, job=job) as state:
            same(content(state), expected, "the snapshot that was not given up")

    def test_a_failed_snapshot_harms_nothing(self, place: Place) -> None:
        """The future raises the error; state is unchanged, and the next snapshot is complete."""
        job = memory()

        class Failing:
            def segments(
                self, checkpoint_id: int, label: str = "slot", *, compression: str = ""
            ) -> SegmentWriter:
                raise Corrupt(f"no segments for {checkpoint_id} {label} {compression}")

            shared_segments = segments
            log_segments = segments

            def table_file(self, checkpoint_id: int, path: str) -> SegmentWriter:
                raise Corrupt(f"no table for {checkpoint_id} {path}")

        with keyed(place.open()) as state:
            churn(state, _INTS, 300)
            expected = content(state)
            for form in SnapshotForm:
                failing = state.snapshot(1, Failing(), form=form)
                with owed(Corrupt, "a snapshot whose target fails"):
                    failing.result(WAIT_S)
                same(content(state), expected, "state after a snapshot failed")
            snapshot = taken(state, job, 2)
        with keyed(place.open(), snapshot, job=job) as state:
            same(content(state), expected, "the snapshot after the one that failed")

    def test_an_empty_snapshot_is_restored(self, place: Place) -> None:
        """No state, or state without a key: it restores to nothing, and goes on from there."""
        job = memory()
        with keyed(place.open()) as state:
            bare = taken(state, job, 1)
            for descriptor in STATES.values():
                state.get_state(descriptor)
            state.timers("timers")
            empty = taken(state, job, 2)
        with keyed(place.open()) as state:
            churn(state, _INTS, 100)
            for name in STATES:
                for key in list(state.keys(name)):
                    state.set_current_key(key)
                    state.get_state(STATES[name]).clear()
            emptied = taken(state, job, 3)
        for what, snapshot in (("no", bare), ("unused", empty), ("emptied", emptied)):
            with keyed(place.open(), snapshot, job=job) as state:
                same(content(state), {}, f"state from a snapshot of {what} state")
                churn(state, _INTS, 100)

    def test_a_snapshot_says_what_it_is(self, place: Place) -> None:
        """Its key groups are those of the slot, and it can be sent: the driver keeps it."""
        job = memory()
        for key_groups in slots(3):
            with keyed(place.open(), key_groups=key_groups, key_type=int) as state:
                snapshot = taken(state, job)
                require(isinstance(snapshot, StateSnapshot), "a snapshot is a StateSnapshot")
                same(pickle.loads(pickle.dumps(snapshot)), snapshot, "a snapshot that was sent")
                found = snapshot.key_groups
                same(found, (key_groups.first, key_groups.last), "the key groups of a snapshot")

    def test_a_snapshot_is_in_the_form_that_is_told(self, place: Place) -> None:
        """Neutral or canonical where that is asked for; else as the backend declares.

        A native one is in its own form or in the neutral one, whichever has all that there is.
        """
        job, backend = memory(), place.open()
        with keyed(backend, key_type=int) as state:
            churn(state, _INTS, 100)
            for form in SnapshotForm:
                kind = taken(state, job, form=form).kind
                own = backend.capabilities.own_snapshots and form is SnapshotForm.OWN
                same(kind == PARQUET_KIND, form is SnapshotForm.CANONICAL, f"asked for as {form}")
                if form is not SnapshotForm.NATIVE:
                    same(kind not in (ENTRIES_KIND, PARQUET_KIND), own, f"asked for as {form}")

    def test_notifications_are_taken(self, place: Place) -> None:
        """Of any checkpoint, in any order, known or not: the driver may be late, or restarted."""
        job = memory()
        with keyed(place.open()) as state:
            snapshots = []
            for number in (1, 2, 3, 4):
                churn(state, _INTS, 100, number)
                snapshots.append((content(state), taken(state, job, number)))
                state.notify_checkpoint_complete(number - 1)
            for number in (3, 1, 77):
                state.notify_checkpoint_aborted(number)
                state.notify_checkpoint_complete(number + 1)
            expected = content(state)
            last = taken(state, job, 5)
        for number in (1, 3):  # completed, and not aborted
            with keyed(place.open(), snapshots[number][1], job=job) as state:
                same(content(state), snapshots[number][0], f"snapshot {number + 1}")
        with keyed(place.open(), last, job=job) as state:
            same(content(state), expected, "the snapshot after all notifications")


def _is_cancelled(result: Callable[[float], object]) -> None:
    try:
        result(WAIT_S)
    except CancelledError:
        return
    raise AssertionError("a snapshot that was given up must have no result")
