"""Snapshots from before `whole`, in which a script's dataclass seems to have only defaults."""

from __future__ import annotations

from dataclasses import make_dataclass
from typing import Any

import msgspec
import pytest

from holdfast.backends import (
    KeyGroupRange,
    ListStateDescriptor,
    SnapshotForm,
    StateBackend,
    ValueStateDescriptor,
    load_backend,
)
from holdfast.storage import Invalid, JobStorage, StateSnapshot, load_storage
from support.states.tried_backends import PARAMETERS, REGISTERED

Short = make_dataclass("Order", [("user", str)])
Long: Any = make_dataclass("Order", [("user", str), ("amount", int)])
WithDefault: Any = make_dataclass("Order", [("user", str), ("amount", int, 7)])


@pytest.fixture(params=[each for each in PARAMETERS if each.values[0] in REGISTERED])
def backend_name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def job() -> JobStorage:
    return load_storage("memory://").job("job")


def state_of(backend: StateBackend, *restore: StateSnapshot, job: JobStorage) -> Any:
    return backend.open(
        uid="op",
        key_groups=KeyGroupRange(0, 7),
        max_parallelism=8,
        key_type=str,
        restore=restore,
        storage=job,
    )


def taken(written: Any, job: JobStorage) -> StateSnapshot:
    """A snapshot of such orders, described as one of a script was with a field that had no default.

    What it has is as it was written: a field was added, and nothing read and written since.
    """
    with state_of(load_backend("hashmap"), job=job) as state:
        state.set_current_key("a")
        state.get_state(ValueStateDescriptor("last", type(written))).update(written)
        state.get_state(ListStateDescriptor("all", type(written))).add(written)
        snapshot: StateSnapshot = state.snapshot(1, job, form=SnapshotForm.NEUTRAL).result(60)
    wrong = [
        {"name": name, "schema": {"type": kind}, "required": False}
        for name, kind in (("user", "str"), ("amount", "int"))
    ]
    tables = [
        {**table, "values": {**_without_whole(table["values"]), "fields": wrong}}
        for table in snapshot.attributes["tables"]
    ]
    return msgspec.structs.replace(snapshot, attributes={**snapshot.attributes, "tables": tables})


def _without_whole(schema: dict[str, Any]) -> dict[str, Any]:
    return {word: part for word, part in schema.items() if word != "whole"}


@pytest.mark.parametrize("descriptor", [ValueStateDescriptor, ListStateDescriptor])
def test_a_value_that_lacks_a_field_is_told_with_what_to_do(
    backend: StateBackend, job: JobStorage, descriptor: Any
) -> None:
    snapshot = taken(Short("ada"), job)
    name = "last" if descriptor is ValueStateDescriptor else "all"
    with (
        state_of(backend, snapshot, job=job) as state,
        pytest.raises(Invalid, match="a value lacks a field that has no default now") as caught,
    ):
        state.get_state(descriptor(name, Long))
    assert "field `amount`" in caught.value.expected
    assert caught.value.fix.startswith("Give the field a default")
    with state_of(backend, snapshot, job=job) as state:
        state.set_current_key("a")
        assert state.get_state(ValueStateDescriptor("last", WithDefault)).value() == WithDefault(
            "ada"
        )
        again = state.snapshot(2, job).result(60)
    # Written anew, each has the field; so it needs the default no more
    with state_of(backend, again, job=job) as state:
        state.set_current_key("a")
        assert state.get_state(ValueStateDescriptor("last", Long)).value() == Long("ada", 7)


def test_values_that_have_all_fields_are_read(backend: StateBackend, job: JobStorage) -> None:
    with state_of(backend, taken(Long("ada", 1), job), job=job) as state:
        state.set_current_key("a")
        assert state.get_state(ValueStateDescriptor("last", Long)).value() == Long("ada", 1)
        assert state.get_state(ListStateDescriptor("all", Long)).get() == [Long("ada", 1)]
