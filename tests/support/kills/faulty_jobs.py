"""Jobs on Spark that are killed: the child side of `test_campaign.py`.

`python faulty_jobs.py ROOT SEED…` runs the story of each seed that is not done yet, one after the
other in one session of Spark, and leaves how each ended in its folder. It does not come back from a
story whose fault kills the driver; started again, it goes on with that story from its last
checkpoint.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from holdfast.runtime import CheckpointConfig, FixedDelayRestart, StreamEnvironment
from support.jobs.spark_jobs import Order, Sinks, build_from_files, make_orders, write_orders
from support.jobs.spark_sessions import start_session
from support.kills.job_faults import (
    KINDS,
    SLOTS,
    Fault,
    Faults,
    FaultySink,
    FaultyStorage,
    choose_faults,
)
from support.states.tried_backends import backend_named, turn
from support.storages.tried_storages import CheckpointPlace
from support.storages.tried_storages import turn as turn_of_storages

ROWS = 400
FILES = 6
_LONGEST_S = 200
_DONE = "done.json"
_PLACE = "place.json"


@dataclass(frozen=True)
class Ended:
    """How the last life of a story's job ended."""

    status: str
    attempts: int
    failures: list[str]
    completed: int


class Story:
    """The job of one seed, and what happens to it."""

    def __init__(self, root: Path, seed: int) -> None:
        self.seed = seed
        self.folder = root / f"story-{seed}"
        self.backend_name = turn(seed + 2 * (seed // len(KINDS)))  # every kind meets every backend
        self.storage_name = turn_of_storages(seed + seed // len(KINDS) + 1)  # and storage
        self.state = self.folder / "state"
        self._flags = self.folder / "faults"

    @property
    def orders(self) -> list[Order]:
        return make_orders(self.seed, ROWS)

    @property
    def faults(self) -> tuple[Fault, ...]:
        return choose_faults(self.seed, self._flags, ROWS)

    @property
    def place(self) -> CheckpointPlace:
        """Where its checkpoints are."""
        return CheckpointPlace(**json.loads((self.folder / _PLACE).read_text()))

    def prepare(self, place: CheckpointPlace) -> None:
        self._flags.mkdir(parents=True)
        (self.folder / _PLACE).write_text(json.dumps(asdict(place)))
        write_orders(self.folder / "in", self.orders, FILES)

    def ended(self) -> Ended | None:
        path = self.folder / _DONE
        return Ended(**json.loads(path.read_text())) if path.exists() else None

    def live(self, spark: Any) -> None:
        """Run the job from its last checkpoint to its end, unless this process is killed."""
        chance = random.Random(self.seed)
        faults = Faults(self.faults, os.getpid())
        env = StreamEnvironment(
            spark,
            parallelism=SLOTS,
            backend=backend_named(self.backend_name, self.state),
            storage=FaultyStorage(self.place.storage(inline_limit_bytes=0), faults),
            checkpointing=CheckpointConfig(
                interval="200ms",
                retained=chance.choice((1, 3)),
                max_concurrent=chance.choice((1, 2)),
                compression=chance.choice(("", "lz4")),
            ),
            restart=FixedDelayRestart(attempts=5, delay="100ms"),
        )
        sinks = Sinks(
            FaultySink(str(self.folder / "out"), "parquet", faults),
            FaultySink(str(self.folder / "odd"), "json", faults),
        )
        build_from_files(env, self.folder, sinks, faults.on_row)
        job = env.execute_async(f"story {self.seed}", restore="latest")
        threading.Thread(target=faults.watch, args=(job,), daemon=True).start()
        status = job.result(_LONGEST_S)
        metrics: Any = job.metrics()
        ended = Ended(
            status.value,
            metrics["attempts"],
            list(job.failures),
            job.checkpoints().counts.completed,
        )
        fresh = self.folder / "done.tmp"
        fresh.write_text(json.dumps(asdict(ended)))
        fresh.replace(self.folder / _DONE)


def main(root: Path, seeds: list[int]) -> None:
    spark = start_session()
    for seed in seeds:
        story = Story(root, seed)
        if story.ended() is None:
            story.live(spark)


if __name__ == "__main__":
    main(Path(sys.argv[1]), [int(seed) for seed in sys.argv[2:]])
