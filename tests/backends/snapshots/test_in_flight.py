"""Rows in flight come back as they were written, and damage is named."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from holdfast.backends.snapshots.in_flight import (
    InFlight,
    InFlightPart,
    in_flight_parts,
    read_in_flight,
    write_in_flight,
)
from holdfast.storage import (
    Corrupt,
    FileSystemCheckpointStorage,
    InlineHandle,
    JobStorage,
    StateSnapshot,
    load_storage,
)

GOLDEN = Path(__file__).parents[2] / "golden" / "in-flight-rows-v1.bin"
ABOUT = InFlight(edge="spend/0", columns="user, id", parallelism=2, max_parallelism=128, rows={})
ROWS = pa.table({"user": ["ann", None, "bob"], "id": pa.array([1, 2, 2**62])}).to_batches()


def dictionaries() -> list[pa.RecordBatch]:
    """Batches whose dictionaries differ."""
    columns = [pa.array(words).dictionary_encode() for words in (["a", "b"], ["c", "c", "d"])]
    return [pa.record_batch({"word": column}) for column in columns]


@pytest.fixture
def job(tmp_path: Path) -> JobStorage:
    storage = FileSystemCheckpointStorage(f"file://{tmp_path}", inline_limit_bytes=100)
    storage.prepare()
    return storage.job("job")


def written(
    job: JobStorage, batches: dict[str, Sequence[pa.RecordBatch]], compression: str = ""
) -> InFlightPart:
    with job.segments(1, "slot-1", compression=compression) as target:
        part = write_in_flight(ABOUT, batches, target, 1, (64, 127))
    assert part is not None
    copy = msgspec.json.decode(msgspec.json.encode(part), type=StateSnapshot)
    (described,) = in_flight_parts([copy, StateSnapshot(kind="of another kind")])
    return described


@pytest.mark.parametrize("compression", ["", "lz4"])
@pytest.mark.parametrize(
    "batches",
    [ROWS, [ROWS[0].slice(1, 1), ROWS[0]], dictionaries(), [ROWS[0].slice(0, 0)]],
    ids=["one", "slices", "dictionaries", "empty"],
)
def test_rows_come_back_by_sender(
    job: JobStorage, batches: list[pa.RecordBatch], compression: str
) -> None:
    long = [pa.record_batch({"id": np.arange(10**6)})] * 2
    part = written(job, {"0": batches, "3": long}, compression)
    assert (part.name, part.slot, part.about.edge) == ("in-flight/1/spend/0", 1, "spend/0")
    assert part.rows == sum(batch.num_rows for batch in batches) + 2 * 10**6
    assert part.part.key_groups == (64, 127)
    for sender, expected in (("0", batches), ("3", long)):
        found = list(read_in_flight(part, sender, job))
        assert [each.num_rows for each in found] == [each.num_rows for each in expected]
        assert all(mine.equals(its) for mine, its in zip(found, expected, strict=True))


def test_the_golden_file_is_read() -> None:
    """What the first version has written for `ROWS`."""
    handles: dict[str, Any] = {"0": InlineHandle(GOLDEN.read_bytes())}
    about = msgspec.structs.replace(ABOUT, rows={"0": 3})
    part = StateSnapshot(
        kind="holdfast.in-flight-rows/1",
        handles=handles,
        attributes=msgspec.to_builtins(about),
        slot=0,
    )
    (described,) = in_flight_parts([part])
    folder = load_storage("memory://golden").job("job")
    assert list(read_in_flight(described, "0", folder)) == ROWS


def test_parts_are_in_the_order_of_slots_and_edges(job: JobStorage) -> None:
    part = written(job, {"0": ROWS}).part
    other = {**part.attributes, "edge": "another/0"}
    parts = [
        msgspec.structs.replace(part, slot=slot, attributes=attributes)
        for slot in (2, 0)
        for attributes in (part.attributes, other)
    ]
    found = [(each.slot, each.about.edge) for each in in_flight_parts(parts)]
    assert found == [(0, "another/0"), (0, "spend/0"), (2, "another/0"), (2, "spend/0")]


@pytest.mark.parametrize("damage", ["is short", "says more", "is none", "is cut off"])
def test_damage_is_named(job: JobStorage, damage: str) -> None:
    part = written(job, {"0": ROWS * 100})
    data = job.read(part.part.handles["0"])
    if damage == "says more":
        part = msgspec.structs.replace(
            part, about=msgspec.structs.replace(part.about, rows={"0": 301})
        )
    elif damage == "is short":
        (file,) = part.part.files()
        path = Path(job.storage.url.removeprefix("file://")) / "job" / file
        path.write_bytes(path.read_bytes()[:-10])
    else:
        changed = b"no stream" * 10 if damage == "is none" else data[: len(data) // 2]
        handles: Any = {"0": InlineHandle(changed)}
        part = msgspec.structs.replace(
            part, part=msgspec.structs.replace(part.part, handles=handles)
        )
    with pytest.raises(Corrupt):
        list(read_in_flight(part, "0", job))


@pytest.mark.parametrize(
    "attributes",
    [{}, {"edge": 1}, {**msgspec.to_builtins(ABOUT), "rows": {"0": 3, "9": 1}}],
)
def test_attributes_that_do_not_fit_are_damage(job: JobStorage, attributes: dict[str, Any]) -> None:
    part = written(job, {"0": ROWS}).part
    with pytest.raises(Corrupt, match="rows in flight"):
        in_flight_parts([msgspec.structs.replace(part, attributes=attributes)])
