"""A tour of the storage room, alone and without Spark: `make tour` runs it.

A driver commits checkpoints, is taken for dead, comes back too late, a byte flips on disk, and
every step says what was found.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from holdfast.storage import (
    CheckpointMetadata,
    Corrupt,
    Fenced,
    FileHandle,
    JobOwner,
    JobStorage,
    OperatorState,
    StateSnapshot,
    SystemClock,
    load_storage,
)


def main() -> None:
    """Tell the story in a directory that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as directory:
        job = load_storage(directory).job("spend")
        say(f"storage {job.url}")
        first = job.take_over()
        for number in (1, 2, 3):
            checkpoint(job, first, number, entries=number * 1000)
        first.release(2)
        first.sweeper.run()
        say(f"retained the newest two: {job.completed()}")
        second = job.take_over()
        say(f"a second driver takes over, epoch {second.epoch}, from checkpoint {newest(job)}")
        late_driver_is_fenced(job, first)
        leftovers_are_found(second)
        damage_is_found(job)
        say("done: nothing committed was lost, nothing half-written was visible")


def checkpoint(job: JobStorage, owner: JobOwner, number: int, *, entries: int) -> None:
    """What a slot and the coordinator do: write segments, then commit `_metadata`."""
    clock = SystemClock()
    triggered_ms = clock.now_ms()
    with job.segments(number, "slot-0", compression="lz4") as writer:
        handles = {
            f"key-groups-{group}": writer.add(b"ann=1;bob=2;" * entries) for group in range(4)
        }
    part = StateSnapshot(kind="tour", handles=handles, slot=0, key_groups=(0, 127))
    metadata = CheckpointMetadata(
        job_id=job.job_id,
        checkpoint_id=number,
        triggered_ms=triggered_ms,
        completed_ms=clock.now_ms(),
        operators={"totals": OperatorState(parallelism=1, max_parallelism=128, parts=(part,))},
    )
    owner.commit(metadata)
    state_bytes = sum(handle.state_bytes for handle in metadata.handles())
    say(
        f"checkpoint {number} committed: {state_bytes} bytes of state "
        f"in {metadata.size_bytes} bytes, {len(metadata.files())} file"
    )


def newest(job: JobStorage) -> int:
    """The number of the newest completed checkpoint."""
    latest = job.latest()
    return latest.checkpoint_id if latest else 0


def late_driver_is_fenced(job: JobStorage, first: JobOwner) -> None:
    """The first driver was only slow: what it commits now must not count."""
    try:
        checkpoint(job, first, 4, entries=4000)
    except Fenced as error:
        say(f"the first driver commits late and is refused: {error}")
    say(f"completed is still {job.completed()}")


def leftovers_are_found(owner: JobOwner) -> None:
    """What the fenced driver wrote belongs to no checkpoint."""
    orphans = owner.orphans()
    owner.sweeper.delete(orphans)
    owner.sweeper.run()
    say(f"orphans found and removed: {len(orphans)}, left: {len(owner.orphans())}")


def damage_is_found(job: JobStorage) -> None:
    """Flip one bit of the newest checkpoint's file on disk, and read it."""
    metadata = job.load(newest(job))
    handle = next(metadata.handles())
    if not isinstance(handle, FileHandle):
        raise TypeError("the tour's state is large enough for a file")
    path = Path(job.url.removeprefix("file://")) / handle.file
    data = bytearray(path.read_bytes())
    data[handle.offset + 5] ^= 1
    path.write_bytes(data)
    try:
        job.read(handle)
    except Corrupt as error:
        say(f"one bit flipped on disk: {error}")


def say(line: str) -> None:
    """One line of the story."""
    print(f"  {line}")


if __name__ == "__main__":
    main()
