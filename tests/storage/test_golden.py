"""Documents and segments that version 1 wrote are read by every later version."""

import shutil
from pathlib import Path

import msgspec
import pytest

from holdfast.storage import FileHandle, JobResult, load_storage
from holdfast.storage.jobs import owner_records
from holdfast.storage.jobs.envelope import seal, unseal
from holdfast.storage.jobs.owner_records import Claim, Held, Start

GOLDEN = Path(__file__).parent.parent / "golden"
CLAIM = Claim(epoch=7, owner="00112233445566ff", claimed_ms=1_700_000_000_000)
START = Start(epoch=7, owner="00112233445566ff", accepted=(40, 41, 43))
HELD = Held(
    epoch=7,
    owner="00112233445566ff",
    checkpoint_id=41,
    files=("chk-00000000000000000041/slot-0-aa", "shared/00000000000000000040-slot-0-aa"),
)

RESULT = JobResult(
    job_id="spend",
    status="finished",
    ended_ms=1_700_000_000_000,
    epoch=7,
    owner="00112233445566ff",
    holdfast_version="0.1.0",
    properties={"attempts": 3, "last_checkpoint": 42},
)


@pytest.mark.parametrize(
    ("file", "kind", "body"),
    [
        ("owner-claim-v1.json", "owner claim", CLAIM),
        ("owner-start-v1.json", "owner start", START),
        ("owner-held-v1.json", "owner hold", HELD),
    ],
)
def test_owner_records_of_version_1(file: str, kind: str, body: Claim | Start | Held) -> None:
    data = (GOLDEN / file).read_bytes()
    assert unseal(data, kind=kind, version=1, body=type(body), where=file) == body
    assert seal(kind, 1, body) == data


def test_a_result_of_version_1_is_read() -> None:
    data = (GOLDEN / "job-result-v1.json").read_bytes()
    assert owner_records.RESULT.unseal(data, where="golden") == RESULT


def test_this_version_writes_its_golden_result() -> None:
    written = owner_records.RESULT
    golden = (GOLDEN / f"job-result-v{written.version}.json").read_bytes()
    assert written.seal(RESULT) == golden


def test_segments_of_version_1(tmp_path: Path) -> None:
    handles = msgspec.json.decode(
        (GOLDEN / "segments-v1.json").read_bytes(), type=dict[str, FileHandle]
    )
    folder = tmp_path / "job" / "chk-00000000000000000001"
    folder.mkdir(parents=True)
    shutil.copy(GOLDEN / "segments-v1.bin", folder / "slot-00aa")
    job = load_storage(str(tmp_path)).job("job")
    assert job.read(handles["plain"]) == bytes(range(256))
    assert job.read(handles["lz4"]) == b"holdfast" * 1000
    assert b"".join(job.stream(handles["lz4"])) == b"holdfast" * 1000
    assert job.read(handles["empty"]) == b""
