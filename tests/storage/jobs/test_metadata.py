from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from holdfast.storage import (
    CheckpointMetadata,
    Corrupt,
    FileHandle,
    InlineHandle,
    Invalid,
    OperatorState,
    StateSnapshot,
)
from holdfast.storage.jobs.envelope import seal, unseal
from holdfast.storage.jobs.metadata import IN_FLIGHT_KIND, METADATA

GOLDEN = Path(__file__).parents[2] / "golden"
FIRST_FILE = FileHandle("chk-00000000000000000042/slot-0-00aa", 0, 100, "0123456789abcdef")
PACKED_FILE = FileHandle(
    "shared/00000000000000000041-slot-1-00bb", 7, 9, "fedcba9876543210", "lz4", 300
)
EXAMPLE = CheckpointMetadata(
    job_id="spend",
    checkpoint_id=42,
    epoch=3,
    owner="00112233445566ff",
    triggered_ms=1_700_000_000_000,
    completed_ms=1_700_000_000_250,
    operators={
        "zähler": OperatorState(
            parallelism=2,
            max_parallelism=128,
            parts=(
                StateSnapshot(
                    kind="hashmap/1",
                    handles={"b": FIRST_FILE, "a": InlineHandle(b"\x00\xff")},
                    attributes={"states": [{"name": "total", "type": "int"}]},
                    slot=0,
                    key_groups=(0, 63),
                ),
                StateSnapshot(
                    kind="hashmap/1", handles={"b": PACKED_FILE}, slot=1, key_groups=(64, 127)
                ),
            ),
        )
    },
    sources={"orders": StateSnapshot(kind="spark-query-log/1", attributes={"batch": 17})},
    parts={"sinks": StateSnapshot(kind="two-phase/1", handles={"0": InlineHandle(b"txn")})},
    properties={"spark": "4.3.0"},
)


IN_FLIGHT = StateSnapshot(
    kind=IN_FLIGHT_KIND,
    handles={"0": FIRST_FILE, "1": InlineHandle(b"ARROW")},
    attributes={
        "edge": "zähler/0",
        "columns": "user: string",
        "parallelism": 2,
        "max_parallelism": 128,
        "rows": {"0": 7, "1": 1},
    },
    slot=1,
    key_groups=(64, 127),
)
WITH_ROWS_IN_FLIGHT = msgspec.structs.replace(
    EXAMPLE, parts={**EXAMPLE.parts, "in-flight/1/zähler/0": IN_FLIGHT}
)
BY_VERSION = {1: EXAMPLE, 2: WITH_ROWS_IN_FLIGHT}


@pytest.mark.parametrize("version", BY_VERSION)
def test_the_golden_file_of_each_version_is_read_and_written(version: int) -> None:
    """What a checkpoint without rows in flight is like has not changed: older readers read it."""
    data = (GOLDEN / f"checkpoint-v{version}.json").read_bytes()
    assert METADATA.unseal(data, where="golden") == BY_VERSION[version]
    assert METADATA.seal(BY_VERSION[version]) == data
    assert METADATA.version == max(BY_VERSION)


def test_a_version_that_does_not_know_rows_in_flight_refuses_them() -> None:
    """It would restore the rest, and lose them without a word."""
    data = METADATA.seal(WITH_ROWS_IN_FLIGHT)
    with pytest.raises(Invalid, match="version 1 or older, found format version 2"):
        unseal(data, kind="checkpoint", version=1, body=CheckpointMetadata, where="file 7")


def test_rows_in_flight_are_found_among_the_parts_and_their_files_are_counted() -> None:
    assert EXAMPLE.in_flight == ()
    assert WITH_ROWS_IN_FLIGHT.in_flight == (IN_FLIGHT,)
    alone = msgspec.structs.replace(
        EXAMPLE, operators={}, sources={}, parts={"in-flight/1/zähler/0": IN_FLIGHT}
    )
    assert alone.files() == {FIRST_FILE.file}
    assert alone.size_bytes == 100 + 5


def test_order_of_handles_and_operators_is_kept() -> None:
    copy = METADATA.unseal(METADATA.seal(EXAMPLE), where="copy")
    assert list(copy.operators["zähler"].parts[0].handles) == ["b", "a"]


def test_files_and_sizes_cover_every_part() -> None:
    assert EXAMPLE.files() == {FIRST_FILE.file, PACKED_FILE.file}
    assert EXAMPLE.size_bytes == 100 + 2 + 9 + 3
    assert EXAMPLE.operators["zähler"].size_bytes == 111
    assert PACKED_FILE.state_bytes == 300


def test_begun_from_is_recorded_only_by_operators_that_begin_files_early() -> None:
    assert EXAMPLE.begun_from is None
    assert b"begun_from" not in METADATA.seal(EXAMPLE)
    operator = EXAMPLE.operators["zähler"]
    for numbers in ((40, None, None, None), (41, 40, None, 44), (None, None, None, 40), (40,) * 4):
        begun = iter(numbers)

        def said(part: StateSnapshot, begun: Iterator[int | None] = begun) -> StateSnapshot:
            return msgspec.structs.replace(part, begun_from=next(begun))

        parts = tuple(map(said, operator.parts))
        metadata = msgspec.structs.replace(
            EXAMPLE,
            operators={"zähler": msgspec.structs.replace(operator, parts=parts)},
            sources={"orders": said(EXAMPLE.sources["orders"])},
            parts={"sinks": said(EXAMPLE.parts["sinks"])},
        )
        copy = METADATA.unseal(METADATA.seal(metadata), where="copy")
        assert copy == metadata
        assert copy.begun_from == 40
        assert METADATA.seal(copy).count(b'"begun_from":') == sum(
            number is not None for number in numbers
        )


def test_every_truncation_is_refused() -> None:
    data = METADATA.seal(EXAMPLE)
    for length in range(len(data)):
        with pytest.raises(Corrupt, match=r"\[file 7\]"):
            METADATA.unseal(data[:length], where="file 7")


def test_every_flipped_bit_is_refused() -> None:
    data = bytearray(METADATA.seal(EXAMPLE))
    for place in range(len(data)):
        for bit in range(8):
            data[place] ^= 1 << bit
            with pytest.raises(Corrupt, match=r"\[file 7\]"):
                METADATA.unseal(bytes(data), where="file 7")
            data[place] ^= 1 << bit


def test_a_newer_version_is_refused_with_both_numbers() -> None:
    class Newer(msgspec.Struct):
        something: str = "else"

    with pytest.raises(Invalid, match="version 2 or older, found format version 3"):
        METADATA.unseal(seal("checkpoint", 3, Newer()), where="file 7")


def test_another_document_of_holdfast_is_refused() -> None:
    with pytest.raises(Corrupt, match="expected checkpoint, found owner claim"):
        METADATA.unseal(seal("owner claim", 1, EXAMPLE), where="file 7")


def test_a_body_of_another_shape_is_refused() -> None:
    class Other(msgspec.Struct):
        job_id: int = 1

    with pytest.raises(Corrupt, match=r"does not have the shape of its version \[file 7\]"):
        METADATA.unseal(seal("checkpoint", 1, Other()), where="file 7")


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"\x49\x60\x67\x2d\x00\x00\x00\x04", "a snapshot of Apache Flink"),
        (b"", "an empty file"),
        (b"PAR1....", "a foreign file that begins with b'PAR1....'"),
        (b'{"version": 1}', "a foreign file"),
        (b'{"holdfast":"checkpoint","version":1,', "truncated or damaged after 37 bytes"),
    ],
)
def test_foreign_files_are_named_for_what_they_are(data: bytes, found: str) -> None:
    with pytest.raises(Corrupt) as caught:
        METADATA.unseal(data, where="file 7")
    assert caught.value.found.startswith(found) or found in caught.value.found
    assert caught.value.where == "file 7"
