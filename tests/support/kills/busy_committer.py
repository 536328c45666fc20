"""A process that commits at full speed, for tests of what is cleaned beside it.

`python busy_committer.py ROOT SEED` writes, commits, gives up, retains and takes over until it is
killed. After each commit it reads every retained checkpoint, and it ends with an error if one lacks
anything. `progress` counts what it has committed.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from holdfast.storage import (
    CheckpointMetadata,
    Handle,
    JobOwner,
    JobStorage,
    OperatorState,
    StateSnapshot,
    load_storage,
)
from holdfast.storage.jobs.decisions import open_from
from support.storages.early_files import EarlyWriter, check_early

__all__ = ["JOB", "Writer", "check_whole"]

JOB = "orders"
_SIZE = 700


class Writer:
    """A job with one slot, and up to three checkpoints under way.

    One of its operators begins files before the checkpoint that refers to them.
    """

    def __init__(self, job: JobStorage, chance: random.Random) -> None:
        self.job = job
        self.chance = chance
        self.owner: JobOwner = job.take_over()
        self.shared: dict[str, Handle] = {}
        """Of the newest completed checkpoint: what the next one may build on."""
        self.number = self.owner.next_checkpoint_id
        latest = job.latest()
        if latest is not None:
            self.shared = self._shared_of(latest)
        early = () if latest is None else latest.operators["early"].parts
        self.early = EarlyWriter(job, chance, self.number, early)

    def live(self) -> None:
        """One thing after the other."""
        retained = self.chance.choice((1, 1, 2, 4))
        in_flight: list[tuple[int, int | None, CheckpointMetadata]] = []
        for _ in range(self.chance.randrange(20, 200)):
            newest = max(self.owner.completed, default=None)
            for _ in range(self.chance.randrange(4)):
                self.early.act()
            in_flight.append((self.number, newest, self._write(self.number)))
            self.number += 1
            if len(in_flight) < self.chance.randrange(1, 4):
                continue
            done = self.chance.randrange(len(in_flight))
            number, _, document = in_flight[done]
            if self.chance.random() < 0.3:
                in_flight.pop(done)  # given up: its files stay
                continue
            metadata = self.owner.commit(document)
            self.shared = self._shared_of(metadata)
            in_flight = in_flight[done + 1 :]  # those before it are subsumed
            bases = [base for _, base, _ in in_flight if base is not None]
            since = min(bases, default=number)
            self.owner.release(retained, since=since)
            if self.chance.random() < 0.8:
                self.owner.sweeper.run()
            if self.chance.random() < 0.1:
                first = min(number, open_from(number, metadata.begun_from))
                self.owner.release_orphans(in_flight=range(first, 10**15))
            for each in self.owner.completed:
                check_whole(self.job, each)
        self.early.close()

    def _write(self, number: int) -> CheckpointMetadata:
        """A checkpoint's file, and a shared one; it borrows some that the newest one has."""
        borrowed = {name: each for name, each in self.shared.items() if self.chance.random() < 0.8}
        with self.job.segments(number) as own, self.job.shared_segments(number) as shared:
            handles = {
                **borrowed,
                f"own-{number}": own.add(_content(number)),
                f"shared-{number}": shared.add(_content(number)),
            }
        return _document(number, handles, self.early.snapshot(number))

    def _shared_of(self, metadata: CheckpointMetadata) -> dict[str, Handle]:
        handles = metadata.operators["sum"].parts[0].handles
        return {name: each for name, each in handles.items() if name.startswith("shared")}


def check_whole(job: JobStorage, number: int) -> None:
    """Read all of a checkpoint, as a restore does."""
    operators = job.load(number).operators
    for name, handle in operators["sum"].parts[0].handles.items():
        assert job.read(handle) == _content(int(name.rpartition("-")[2])), (number, name)
    check_early(job, operators["early"].parts[0])


def _content(number: int) -> bytes:
    return number.to_bytes(4) * _SIZE


def _document(number: int, handles: dict[str, Handle], early: StateSnapshot) -> CheckpointMetadata:
    parts = {"sum": StateSnapshot(kind="test/1", handles=handles), "early": early}
    return CheckpointMetadata(
        job_id=JOB,
        checkpoint_id=number,
        triggered_ms=0,
        completed_ms=0,
        operators={
            uid: OperatorState(parallelism=1, max_parallelism=8, parts=(part,))
            for uid, part in parts.items()
        },
    )


def main(root: Path, seed: int) -> None:
    chance = random.Random(seed)
    job = load_storage(f"file://{root / 'checkpoints'}", inline_limit_bytes=0).job(JOB)
    committed = 0
    while True:
        writer = Writer(job, chance)
        before = writer.number
        writer.live()
        committed += writer.number - before
        (root / "progress.tmp").write_text(str(committed))
        (root / "progress.tmp").replace(root / "progress")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
