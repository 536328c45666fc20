"""Clauses about the files that a backend keeps while a store is open, beside other processes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection

import pytest

from holdfast.backends.interface import StateBackend
from holdfast.backends.testing.gates import WAIT_S
from holdfast.backends.testing.place import Place
from holdfast.backends.testing.scenes import churn, content, keyed, memory, taken
from holdfast.storage import Invalid
from holdfast.storage.testing.checks import owed, require, same

__all__ = ["FileClauses"]

_KEYS = list(range(100))


class FileClauses:
    """Clauses for backends that keep files while a store is open."""

    def test_no_file_is_left_after_close(self, place: Place) -> None:
        """Of a store that was used, one that never was, and one that was left by an error."""
        backend = _keeping_files(place)
        count = _counted(place)
        same(count(), 0, "files at a new place")
        job = memory()
        for use in (False, True):
            with keyed(backend) as state:
                if use:
                    churn(state, _KEYS, 500)
                    taken(state, job)
                    state.snapshot(2, job)
            same(count(), 0, "files after close")
        with keyed(backend) as state:
            churn(state, _KEYS, 100)
            snapshot = taken(state, job)
        with owed(Invalid, "a restore that does not fit"):
            keyed(backend, snapshot, job=job, uid="other")
        same(count(), 0, "files after an opening that failed")

    def test_files_are_kept_while_a_store_is_open(self, place: Place) -> None:
        """At the place that it was told, and nowhere else; a neighbour's close takes none."""
        backend = _keeping_files(place)
        count = _counted(place)
        with keyed(backend) as state, keyed(backend) as neighbour:
            churn(neighbour, _KEYS, 100)
            churn(state, _KEYS, 500)
            expected = content(state)
            require(count() > 0, "a backend that keeps files must keep them at its place")
            neighbour.close()
            same(content(state), expected, "state after its neighbour was closed")
            require(count() > 0, "files of a store that is open must stay")

    def test_files_of_a_dead_process_do_not_disturb_a_new_one(self, place: Place) -> None:
        """Files of a killed process are not read, and do not disturb another open store."""
        backend = _keeping_files(place)
        _open_and_die(backend)
        with keyed(backend) as state:
            same(content(state), {}, "state beside the files of a process that was killed")
            churn(state, _KEYS, 300)
            require(content(state), "state that was written beside them")
        left = _counted(place)()
        with keyed(backend) as state:
            churn(state, _KEYS, 100)
        require(_counted(place)() <= left, "files of others may go, and none may come")


def _keeping_files(place: Place) -> StateBackend:
    backend = place.open()
    if not backend.capabilities.keeps_files:
        pytest.skip("the backend does not declare that it keeps files while a store is open")
    return backend


def _counted(place: Place) -> Callable[[], int]:
    if place.count is None:
        pytest.skip("the place does not say how many files there are")
    return place.count


def _open_and_die(backend: StateBackend) -> None:
    """Write state in another process, and kill it while its store is open."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_write_and_wait, args=(there, backend))
    process.start()
    there.close()
    try:
        if not here.poll(WAIT_S) or here.recv() != "written":
            raise AssertionError("another process could not write state")
    except EOFError:
        raise AssertionError("another process could not write state, and ended") from None
    finally:
        process.kill()
        process.join(WAIT_S)
        process.close()
        here.close()


def _write_and_wait(parent: Connection, backend: StateBackend) -> None:
    with keyed(backend) as state:
        churn(state, _KEYS, 300)
        taken(state, memory())
        parent.send("written")
        parent.recv()  # nothing comes: the parent kills this process
