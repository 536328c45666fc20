"""Operator state: lists, unions and broadcast maps, through restarts at any parallelism."""

import random
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import CancelledError
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast.backends import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from holdfast.backends.testing.gates import Gate
from holdfast.storage import Corrupt, Handle, Invalid, JobStorage, load_storage
from support.jobs.operator_slots import (
    LIST,
    RULES,
    UNION,
    keys_of,
    opened,
    started,
    stopped,
    union_element,
)
from support.states.snapshot_targets import Failing, files_of


@pytest.fixture(params=[0, None], ids=["files", "inline"])
def job(request: pytest.FixtureRequest, tmp_path: Path) -> JobStorage:
    options = {} if request.param is None else {"inline_limit_bytes": request.param}
    return load_storage(str(tmp_path), **options).job("job")


# The states themselves


def test_a_list_is_read_and_changed() -> None:
    with opened() as backend:
        state = backend.get_list_state(LIST)
        assert (state.name, state.get()) == ("list", [])
        state.add("a")
        state.add_all(iter(["b", np.str_("c")]))
        mine = state.get()
        mine.append("not kept")
        assert state.get() == ["a", "b", "c"]
        state.update(part for part in ("x", "y"))
        assert state.get() == ["x", "y"]
        state.update(None)
        assert state.get() == []
        state.add("z")
        state.clear()
        assert state.get() == []


def test_a_broadcast_map_is_read_and_changed() -> None:
    with opened() as backend:
        state = backend.get_broadcast_state(MapStateDescriptor("m", int, int))
        assert state.is_empty()
        state.put(1, 10)
        state.put(np.int32(2), None)
        state.put_all({3: 30, 4: 40})
        state.put_all(iter([(5, 50)]))
        assert list(state.items()) == [(1, 10), (2, None), (3, 30), (4, 40), (5, 50)]
        assert (state.get(2), state.contains(2)) == (None, True)
        assert (state.get(9), state.contains(np.int64(9))) == (None, False)
        state.remove(np.int64(5))
        state.remove(9)
        assert list(state.keys()) == [1, 2, 3, 4]
        assert list(state.values()) == [10, None, 30, 40]
        for key, value in state.items():
            assert state.get(key) == value
            state.remove(key)
        assert state.is_empty()
        state.put(1, 1)
        state.clear()
        assert state.is_empty()


def test_the_other_side_may_only_read_a_broadcast_map() -> None:
    with opened() as backend:
        state = backend.get_broadcast_state(RULES)
        view = state.read_only
        state.put(("a", 1), [1])
        assert view.name == "rules"
        assert (view.get(("a", 1)), view.contains(("a", 1)), view.is_empty()) == ([1], True, False)
        assert list(view.items()) == list(zip(view.keys(), view.values(), strict=True))
        assert not {"put", "put_all", "remove", "clear"} & set(dir(view))


def test_changing_a_passed_or_returned_object_does_not_change_state(job: JobStorage) -> None:
    with opened() as backend:
        union, rules = backend.get_union_list_state(UNION), backend.get_broadcast_state(RULES)
        element, rule = {"a": [1]}, [1]
        union.add(element)
        rules.put(("r", 1), rule)
        gate = Gate(job)
        future = backend.snapshot(1, gate)
        assert gate.entered.wait(30)
        for mine in (element["a"], rule, union.get()[0]["a"], next(rules.values())):
            mine.append(2)
        assert union.get() == [{"a": [1]}]
        assert rules.get(("r", 1)) == [1]
        gate.open.set()
        snapshot = future.result(30)
    with opened(snapshot, job=job) as backend:
        assert backend.get_union_list_state(UNION).get() == [{"a": [1]}]
        assert backend.get_broadcast_state(RULES).get(("r", 1)) == [1]


def test_the_same_descriptor_is_the_same_state() -> None:
    with opened() as backend:
        state = backend.get_list_state(LIST)
        assert backend.get_list_state(ListStateDescriptor("list", str)) is state
        with pytest.raises(Invalid, match=r"'list' is declared twice.*'op'.*str.*int"):
            backend.get_list_state(ListStateDescriptor("list", int))
        with pytest.raises(Invalid, match=r"'list'.*'op'.*expected list of.*found union-list of"):
            backend.get_union_list_state(LIST)
        with pytest.raises(Invalid, match=r"'list'.*'op'.*expected list of.*found broadcast of"):
            backend.get_broadcast_state(MapStateDescriptor("list", str, int))


def test_a_value_that_does_not_fit_changes_nothing() -> None:
    with opened() as backend:
        numbers = backend.get_list_state(ListStateDescriptor("n", list[int]))
        rules = backend.get_broadcast_state(RULES)
        numbers.add([1])
        rules.put(("a", 1), [1])
        refused = r"a value does not fit state 'n' \[operator 'op', slot 0 of 1.*expected int"
        with pytest.raises(Invalid, match=refused):
            numbers.add([1, "2"])
        for change in (numbers.add_all, numbers.update):
            with pytest.raises(Invalid, match=refused):
                change([[2], ["x"]])
        with pytest.raises(Invalid, match=r"a map key does not fit state 'rules' \[operator 'op'"):
            rules.put_all({("b", 1): [1], "c": [1]})
        with pytest.raises(Invalid, match="a map key does not fit state 'rules'"):
            rules.get(1)
        with pytest.raises(Invalid, match="a value does not fit state 'rules'"):
            rules.put(("b", 1), "x")
        assert numbers.get() == [[1]]
        assert list(rules.items()) == [(("a", 1), [1])]


TTL = StateTtlConfig(ttl=timedelta(seconds=1))


@pytest.mark.parametrize(
    ("method", "descriptor", "message"),
    [
        (
            "get_list_state",
            ListStateDescriptor("s", int, ttl=TTL),
            r"operator state 's' has a time to live \[operator 'op'.*only keyed state.*0:00:01",
        ),
        ("get_broadcast_state", MapStateDescriptor("s", ttl=TTL), "'s' has a time to live"),
        (
            "get_union_list_state",
            MapStateDescriptor("s"),
            r"union-list state 's'.*'op'.*expected a ListStateDescriptor, found MapState",
        ),
        ("get_broadcast_state", LIST, "broadcast state 'list'.*expected a MapStateDescriptor"),
        ("get_list_state", ValueStateDescriptor("s", int), "expected a ListStateDescriptor"),
        ("get_list_state", ListStateDescriptor("s", object), "type of values is not supported"),
        ("get_broadcast_state", MapStateDescriptor("s", list[int]), "not supported|key"),
    ],
)
def test_descriptors_that_cannot_be_honoured_are_refused(
    method: str, descriptor: Any, message: str
) -> None:
    with opened() as backend, pytest.raises(Invalid, match=message):
        getattr(backend, method)(descriptor)


def test_only_the_opening_thread_may_use_state_until_it_is_closed(job: JobStorage) -> None:
    backend = opened()
    state, rules = backend.get_list_state(LIST), backend.get_broadcast_state(RULES)
    calls = (
        state.get,
        lambda: state.add("a"),
        lambda: state.add_all("a"),
        lambda: state.update("a"),
        state.clear,
        lambda: rules.get(("a", 1)),
        lambda: rules.put(("a", 1), [1]),
        lambda: rules.put_all({}),
        lambda: rules.remove(("a", 1)),
        lambda: rules.contains(("a", 1)),
        rules.keys,
        rules.values,
        rules.items,
        rules.is_empty,
        rules.read_only.is_empty,
        rules.clear,
        lambda: backend.get_list_state(LIST),
        lambda: backend.snapshot(1, job),
    )
    failures: list[str] = []

    def elsewhere() -> None:
        for call in calls:
            with pytest.raises(Invalid, match="from a second thread") as caught:
                call()
            failures.append(caught.value.where)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert failures == ["operator 'op', slot 0 of 1"] * len(calls)
    backend.close()
    backend.close()
    for call in calls:
        with pytest.raises(Invalid, match="is closed"):
            call()


# Snapshots


def test_each_snapshot_is_the_state_at_its_barrier(job: JobStorage) -> None:
    chance = random.Random(5)
    gate = Gate(job)
    taken = []
    with opened() as backend:
        numbers = backend.get_list_state(ListStateDescriptor("n", int))
        rules = backend.get_broadcast_state(RULES)
        for number in range(8):
            for _ in range(20):
                match chance.randrange(6):
                    case 0:
                        numbers.update(numbers.get()[1:])
                    case 1:
                        rules.remove(("r", chance.randrange(5)))
                    case 2 | 3:
                        numbers.add(chance.randrange(100))
                    case _:
                        rules.put(("r", chance.randrange(5)), [chance.randrange(100)])
            expected = numbers.get(), dict(rules.items())
            taken.append((expected, backend.snapshot(number, gate)))
        numbers.clear()
        rules.clear()
        gate.open.set()
        results = [(expected, future.result(30)) for expected, future in taken]
    for expected, snapshot in results:
        assert snapshot.slot == 0
        assert snapshot.key_groups is None
        with opened(snapshot, job=job) as backend:
            numbers = backend.get_list_state(ListStateDescriptor("n", int))
            assert (numbers.get(), dict(backend.get_broadcast_state(RULES).items())) == expected


@pytest.mark.parametrize("compression", ["", "lz4"])
@pytest.mark.parametrize("asking", [{0, 1, 2, 3, 4}, {1, 3}, {4}], ids=["each", "some", "last"])
def test_state_survives_restarts_at_other_parallelisms(
    job: JobStorage, compression: str, asking: set[int]
) -> None:
    """Also when the job asks for no state in some of the runs: nothing is lost, or there twice."""
    elements = [f"e{number}" for number in range(11)]
    union = [union_element(number) for number in range(7)]
    rules = {("r", number): [number] for number in range(5)}
    with opened() as first:
        first.get_list_state(LIST).add_all(elements)
        first.get_union_list_state(UNION).add_all(union)
        first.get_broadcast_state(RULES).put_all(rules)
        snapshots = [first.snapshot(0, job, compression=compression).result(30)]
    for number, parallelism in enumerate((1, 3, 2, 5, 1)):
        slots = started(parallelism, snapshots, job)
        if number in asking:
            parts = [slot.get_list_state(LIST).get() for slot in slots]
            assert sorted(each for part in parts for each in part) == sorted(elements)
            assert max(map(len, parts)) - min(map(len, parts)) <= 1
            for index, slot in enumerate(slots):
                state = slot.get_union_list_state(UNION)
                assert keys_of(state.get()) == keys_of(union)
                state.update(sorted(state.get(), key=str)[index::parallelism])
                assert dict(slot.get_broadcast_state(RULES).items()) == rules
                slot.get_broadcast_state(RULES).put(("new", number), [number])
                slot.get_list_state(LIST).add(f"{number}-{index}")
                elements.append(f"{number}-{index}")
            rules["new", number] = [number]
        snapshots = stopped(slots, number + 1, job, compression)
    with opened(*snapshots, job=job) as last:
        assert Counter(last.get_list_state(LIST).get()) == Counter(elements)
        assert keys_of(last.get_union_list_state(UNION).get()) == keys_of(union)
        assert dict(last.get_broadcast_state(RULES).items()) == rules


def test_each_slot_keeps_its_own_list_at_the_same_parallelism(job: JobStorage) -> None:
    for carried in (False, True):
        slots = started(3, [], job)
        for index, slot in enumerate(slots):
            slot.get_list_state(LIST).add_all([str(index)] * index)
            slot.get_union_list_state(UNION).add(union_element(index))
            slot.get_broadcast_state(RULES).put(("slot", index), [index])
        snapshots = stopped(slots, 1, job)
        if carried:
            snapshots = stopped(started(3, snapshots, job), 2, job)
        for index, slot in enumerate(started(3, snapshots, job)):
            assert slot.get_list_state(LIST).get() == [str(index)] * index
            found = slot.get_union_list_state(UNION).get()
            assert found == [union_element(number) for number in range(3)]
            assert list(slot.get_broadcast_state(RULES).items()) == [(("slot", index), [index])]
            slot.close()


def test_broadcast_copies_are_dealt_around_the_slots(job: JobStorage) -> None:
    slots = started(2, [], job)
    for index, slot in enumerate(slots):
        slot.get_broadcast_state(RULES).put(("slot", index), [index])
    copies: list[list[int]] = []
    for slot in started(5, stopped(slots, 1, job), job):
        copies += slot.get_broadcast_state(RULES).values()
        slot.close()
    assert copies == [[0], [1], [0], [1], [0]]


def test_undeclared_state_outlives_the_files_that_it_was_read_from(job: JobStorage) -> None:
    slots = started(2, [], job)
    for slot in slots:
        slot.get_union_list_state(UNION).add_all(map(union_element, range(4)))
        slot.get_list_state(LIST).add_all("abc")
    snapshots = stopped(slots, 1, job)
    slots = started(3, snapshots, job)
    for slot in slots:
        slot.snapshot(2, job).result(30)
    job.storage.delete(f"{job.folder}/{name}" for name in files_of(*snapshots))
    for slot in slots:
        assert keys_of(slot.get_union_list_state(UNION).get()) == keys_of(
            map(union_element, [*range(4)] * 2)
        )
    parts = [slot.get_list_state(LIST).get() for slot in slots]
    assert parts == [["a", "b"], ["c", "a"], ["b", "c"]]
    for slot in slots:
        slot.close()


def test_a_large_list_is_read_only_where_it_is_needed(tmp_path: Path) -> None:
    class Recording(JobStorage):
        def stream(self, handle: Handle) -> Iterator[bytes]:
            read.append(handle.size_bytes)
            return super().stream(handle)

    read: list[int] = []
    storage = load_storage(str(tmp_path))
    job = Recording(storage, "job")
    blobs = ListStateDescriptor("blobs", bytes)
    elements = [bytes([number]) * 1_000_000 for number in range(20)]
    with opened() as backend:
        backend.get_list_state(blobs).add_all(elements)
        snapshot = backend.snapshot(1, job).result(30)
    assert len(snapshot.handles) > 3
    found = []
    for slot in range(10):
        read.clear()
        with opened(snapshot, slot=slot, parallelism=10, job=job) as backend:
            assert read == []
            found += backend.get_list_state(blobs).get()
        assert len(read) <= 2
    assert found == elements


def test_a_snapshot_can_be_cancelled_while_it_is_written(job: JobStorage) -> None:
    gate = Gate(job)
    with opened() as backend:
        backend.get_list_state(LIST).add_all(map(str, range(1000)))
        running, waiting = backend.snapshot(1, gate), backend.snapshot(2, job)
        assert gate.entered.wait(30)
        last = backend.snapshot(3, job)
        assert running.cancel()
        assert waiting.cancel()
        gate.open.set()
        for future in (running, waiting):
            with pytest.raises(CancelledError):
                future.result(30)
        snapshot = last.result(30)
        assert not last.cancel()
    assert {info.name.split("/")[1] for info in job.storage.list("")} <= {f"chk-{3:020d}"}
    assert list(job.storage.unfinished("")) == []
    with opened(snapshot, job=job) as restored:
        assert restored.get_list_state(LIST).get() == list(map(str, range(1000)))


def test_closing_cancels_running_snapshots(job: JobStorage) -> None:
    gate = Gate(job)
    backend = opened()
    backend.get_list_state(LIST).add_all("abc")
    running, waiting = backend.snapshot(1, gate), backend.snapshot(2, job)
    waiting.add_done_callback(lambda _: gate.open.set())
    assert gate.entered.wait(30)
    backend.close()
    for future in (running, waiting):
        with pytest.raises(CancelledError):
            future.result(0)
    assert list(job.storage.list("")) == []
    assert list(job.storage.unfinished("")) == []


def test_a_failed_snapshot_harms_nothing(job: JobStorage) -> None:
    with opened() as backend:
        backend.get_list_state(LIST).add("a")
        with pytest.raises(Corrupt, match="on fire"):
            backend.snapshot(1, Failing()).result(30)
        snapshot = backend.snapshot(2, job).result(30)
    with opened(snapshot, job=job) as restored:
        assert restored.get_list_state(LIST).get() == ["a"]
