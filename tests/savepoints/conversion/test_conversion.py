"""Conversions of any snapshot into any other: nothing is lost, nothing is added."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.backends import (
    KeyGroupRange,
    SnapshotForm,
    StateBackend,
    ValueStateDescriptor,
    load_backend,
)
from holdfast.savepoints import StoredSnapshot, compare, find_snapshot, validate
from holdfast.savepoints.conversion import Conversion, ConversionOptions, InProcess, WorkerProcesses
from holdfast.storage import OperatorState, SavepointFolder, load_storage
from support.states.made_savepoints import complete
from support.states.stored_snapshots import UID, content_of, stored, unkeyed_content
from support.states.tried_backends import PLAIN, TRIED, backend_named

CHECKPOINT = ("checkpoint", SnapshotForm.OWN)
NATIVE = ("savepoint", SnapshotForm.NATIVE)
CANONICAL = ("savepoint", SnapshotForm.CANONICAL)
FORMS = {form: kind for kind, form in (CHECKPOINT, NATIVE, CANONICAL)}
CELLS = [(name, form, to) for name in TRIED for form in FORMS for to in (*PLAIN, None)]
QUICK = (TRIED[0], SnapshotForm.OWN)
Convert = Callable[..., StoredSnapshot]


@pytest.fixture
def convert(quick_path: Path) -> Convert:
    """Converts a snapshot, and finds the result."""

    def converted(
        source: StoredSnapshot, to: str | None, *, name: str = "converted", **options: Any
    ) -> StoredSnapshot:
        folder = SavepointFolder(load_storage(str(quick_path / name)), "")
        Conversion(
            source=source,
            destination=folder,
            options=ConversionOptions(backend=to, is_canonical=to is None, **options),
            backend=None if to is None else backend_named(to, quick_path / "work"),
            runner=InProcess(),
        ).run()
        return find_snapshot(folder.url)

    return converted


def files_below(path: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()
    }


@pytest.mark.dealt("name", "form", "to")
@pytest.mark.parametrize(
    ("name", "form", "to"),
    [pytest.param(*each, marks=() if each[:2] == QUICK else pytest.mark.slow) for each in CELLS],
)
def test_any_snapshot_becomes_one_of_any_backend(
    name: str, form: SnapshotForm, to: str | None, quick_path: Path, convert: Convert
) -> None:
    backend = backend_named(name, quick_path / "state")
    source = stored(quick_path / "from", backend, FORMS[form], form)
    before = files_below(quick_path / "from")
    expected, unkeyed = content_of(source, backend), unkeyed_content(source)
    assert len(expected) > 30
    after = convert(source, to)
    assert after.metadata.kind == "savepoint"
    assert after.metadata.properties["format"] == ("native" if to else "canonical")
    assert after.metadata.checkpoint_id == source.metadata.checkpoint_id
    other = backend_named(to or "hashmap", quick_path / "state")
    assert content_of(after, other) == expected
    assert unkeyed_content(after) == unkeyed
    position = after.metadata.sources["clicks"].handles["log"]
    assert after.folder.read(position) == b"to the last row" * 4000
    assert not [each for each in files_below(quick_path / "converted") if "_conversion" in each]
    assert files_below(quick_path / "from") == before


@pytest.mark.parametrize(
    "to", [None, *(pytest.param(name, marks=pytest.mark.slow) for name in PLAIN)]
)
@pytest.mark.parametrize("max_parallelism", [5, 128, 1000])
def test_keys_move_to_other_key_groups_and_slots(
    to: str | None, max_parallelism: int, quick_path: Path, convert: Convert
) -> None:
    source = stored(quick_path / "from", load_backend("hashmap"), *CHECKPOINT)
    expected, unkeyed = content_of(source), unkeyed_content(source)
    after = convert(source, to, max_parallelism=max_parallelism, parallelism=2)
    left = after.metadata.operators[UID]
    assert (left.parallelism, left.max_parallelism) == (2, max_parallelism)
    assert sorted(part.slot for part in left.parts if part.slot is not None) == [0, 1]
    other = backend_named(to or "hashmap", quick_path / "state")
    assert content_of(after, other) == expected
    assert unkeyed_content(after) == unkeyed
    assert compare(source, after, lambda _: None).are_equal
    again = convert(after, None, name="again", max_parallelism=128)
    assert content_of(again) == expected
    assert compare(after, again, lambda _: None).are_equal


@pytest.mark.dealt("silent", "how", "to")
@pytest.mark.parametrize("to", ["hashmap", None])
@pytest.mark.parametrize("how", [CHECKPOINT, CANONICAL], ids=["checkpoint", "canonical"])
@pytest.mark.parametrize("silent", [(0, 2), (1,)])
def test_slots_that_never_accessed_state_without_keys_have_none(
    to: str | None,
    how: tuple[str, SnapshotForm],
    silent: tuple[int, ...],
    quick_path: Path,
    convert: Convert,
) -> None:
    source = stored(quick_path / "from", load_backend("hashmap"), *how, silent=silent)
    unkeyed = unkeyed_content(source)
    assert unkeyed["numbers"][7] == 3 - len(silent)
    for parallelism in (None, 2):
        after = convert(source, to, name=f"for {parallelism}", parallelism=parallelism)
        assert unkeyed_content(after) == unkeyed
        assert compare(source, after, lambda _: None).are_equal


@pytest.mark.dealt("max_parallelism", "form", "name")
@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("form", [SnapshotForm.OWN, SnapshotForm.CANONICAL])
@pytest.mark.parametrize("max_parallelism", [None, 64])
def test_state_that_never_had_a_key_is_converted(
    name: str,
    form: SnapshotForm,
    max_parallelism: int | None,
    quick_path: Path,
    convert: Convert,
) -> None:
    source = of_no_key(quick_path / "from", backend_named(name, quick_path / "state"), form)
    assert not validate(source, lambda _: None).findings
    for to in (*PLAIN, None):
        after = convert(source, to, name=f"to {to}", max_parallelism=max_parallelism)
        (left,) = after.metadata.operators.values()
        assert left.max_parallelism == (max_parallelism or 128)
        reader = after.keyed("op")
        assert reader is not None
        reader.check_covers()
        if form is SnapshotForm.CANONICAL or name != "rocksdb":
            assert [table.name for table in reader.description.tables] == ["total"]


def of_no_key(root: Path, backend: StateBackend, form: SnapshotForm) -> StoredSnapshot:
    """A savepoint of a slot that has asked for a state, and never had a key of any type."""
    folder = SavepointFolder.begin(load_storage(str(root)), "job")
    with backend.open(uid="op", key_groups=KeyGroupRange(0, 127), max_parallelism=128) as state:
        state.get_state(ValueStateDescriptor("total", int))
        part = state.snapshot(1, folder, form=form).result(60)
    assert part.attributes["keys"] is None
    left = OperatorState(parallelism=1, max_parallelism=128, parts=(part,))
    complete(folder, {"op": left})
    return find_snapshot(folder.url)


@pytest.mark.slow
def test_many_pieces_are_done_in_parallel(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.savepoints.conversion.plan._PIECE_BYTES", 3000)
    source = stored(quick_path / "from", load_backend("hashmap"), *CHECKPOINT)
    seen: list[tuple[str, int, int]] = []
    for number, (to, max_parallelism) in enumerate((("hashmap", None), (None, 60))):
        folder = SavepointFolder(load_storage(str(quick_path / str(number))), "")
        done = Conversion(
            source=source,
            destination=folder,
            options=ConversionOptions(
                backend=to, is_canonical=to is None, max_parallelism=max_parallelism
            ),
            backend=None if to is None else load_backend(to),
            runner=WorkerProcesses(2),
            progress=lambda phase, done, pieces, _: seen.append((phase.value, done, pieces)),
        ).run()
        assert content_of(find_snapshot(folder.url)) == content_of(source)
        assert done.rows > 1000
        assert not done.was_done
    phases = {phase for phase, *_ in seen}
    assert phases == {"spread", "write", "check"}
    assert max(pieces for *_, pieces in seen) > 4
    assert all(done <= pieces for _, done, pieces in seen)
