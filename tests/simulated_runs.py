"""Whole jobs in a simulated world, from a seed: drivers, slots and storage fail on the way.

What is real: `JobRun`, attempts, feeds, the coordinator, the keeper and the owner of checkpoints,
slots with their chains, gates, operators, backends and staging. The same seed gives the same run.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import pyarrow as pa
import pytest

from holdfast.runtime.config import CheckpointConfig
from holdfast.runtime.driver.ended import EndedRun
from holdfast.runtime.driver.feed import Feed, Source
from holdfast.runtime.driver.keeper import CheckpointKeeper
from holdfast.runtime.driver.restoring import LATEST, SAVED_AT, RestorePoint
from holdfast.runtime.driver.run import JobRun, JobStatus
from holdfast.runtime.driver.run_parts import RunParts, SourceOpening
from holdfast.runtime.driver.starting import begin
from holdfast.runtime.elements import MIN_WATERMARK
from holdfast.runtime.restarts import FixedDelayRestart
from holdfast.runtime.staging import PushKey, Winner
from holdfast.storage import (
    CheckpointMetadata,
    Fenced,
    HoldfastError,
    Invalid,
    JobOwner,
    JobResult,
    SavepointFolder,
    SeededEntropy,
    StateSnapshot,
    Unavailable,
    names,
)
from quick_places import quick_place
from simulated_cluster import SimulatedCluster, SimulatedLink, SimulatedServer, SimulatedSlot
from simulated_jobs import SINKS, SOURCES, Batch, Order, Shelf, expected, job_plan, orders_of
from simulated_state import SimulatedState
from simulated_storage import SimulatedStorage
from simulated_world import (
    Action,
    Broken,
    Killed,
    Process,
    SimulatedExecutor,
    SimulatedQueue,
    World,
    wait_for_all,
)
from tried_backends import backend_named, turn

_BACKLOG_BYTES = 2_000
_KIND = "test.simulated-source/1"
_EXECUTORS = (
    "holdfast.backends.snapshot_worker",
    "holdfast.backends.transfers",
    "holdfast.runtime.driver.attempt",
    "holdfast.runtime.driver.feed",
    "holdfast.runtime.driver.keeper",
    "holdfast.runtime.driver.savepoint_keeper",
    "holdfast.runtime.driver.sweeping",
    "holdfast.runtime.slot",
)


class SimulatedSource(Source):
    """A list of batches that can be read again from anywhere."""

    def __init__(self, world: World, batches: list[Batch], opening: SourceOpening) -> None:
        self.uid = opening.uid
        self._world = world
        self._process = world.process
        self._batches = batches
        self._opening = opening
        restored = opening.restored
        assert restored is None or restored.kind == _KIND
        self._position: dict[str, Any] = {"done": 0, "has_ended": False}
        if restored is not None:
            self._position = dict(restored.attributes)
        self._feed: Feed | None = None
        self._failure: str | None = None
        self._is_stopped = False
        self._is_idle = False

    def start(self, feed: Feed) -> None:
        self._feed = feed
        self._world.actors.append(self)

    def actions(self) -> Iterable[Action]:
        if self._failure is not None:
            # Late, as if its thread was stopped just before: what can go wrong until then?
            yield Action("source says why it failed", self._process, self._fail, 0.05)
        elif not self._is_stopped and self._has_room() and not self._is_held:
            yield Action(f"push of {self.uid}", self._process, self._go_on, 0.5)

    def position(self) -> dict[str, Any]:
        return dict(self._position)

    def store(
        self,
        position: Any,
        checkpoint_id: int,
        *,
        completed: int | None,
        savepoint: SavepointFolder | None = None,
    ) -> StateSnapshot:
        if self._world.mishap("position is not stored", rate=0.02):
            raise Unavailable("the position cannot be stored")
        return StateSnapshot(kind=_KIND, attributes=position)

    def stop(self) -> None:
        self._is_stopped = True
        self._failure = None
        if self in self._world.actors:
            self._world.actors.remove(self)

    @property
    def _is_held(self) -> bool:
        """Whether it would have to wait, which nobody can in this world."""
        return self._feed is not None and self._feed.is_held

    def _slots(self) -> list[SimulatedSlot]:
        assert self._feed is not None
        addresses = self._feed.addresses
        return [SimulatedSlot.at(addresses[slot]) for slot in sorted(addresses)]

    def _has_room(self) -> bool:
        return all(
            slot.staging.backlog_bytes(self.uid) < _BACKLOG_BYTES
            for slot in self._slots()
            if slot.process.is_alive
        )

    def _fail(self) -> None:
        assert self._feed is not None
        self._feed.fail(self._failure or "", "")
        self._failure, self._is_stopped = None, True

    def _go_on(self) -> None:
        feed = self._feed
        assert feed is not None
        try:
            if self._world.mishap("source fails", rate=0.001):
                raise Unavailable("the source does not answer")
            done = self._position["done"]
            at_end = self._position["has_ended"] or done == len(self._batches)
            if at_end and not self._is_idle and self._world.random.random() < 0.3:
                self._is_idle = True
                feed.idle()
            elif at_end:
                self._position = {"done": done, "has_ended": True}
                self._is_stopped = True
                feed.end()
            else:
                self._push(feed, done)
        except Fenced:
            self._is_stopped = True
        except HoldfastError as error:
            self._failure = str(error)

    def _push(self, feed: Feed, number: int) -> None:
        """Splits are pushed by one or two attempts, of which any may win; then they are let in."""
        batch = self._batches[number]
        winners = []
        for split, rows in enumerate(batch):
            attempts = self._world.random.choice((1, 1, 2))
            for attempt in range(attempts):
                self._stage(rows, number, split, attempt)
            winners.append(Winner(split, self._world.random.randrange(attempts)))
        latest = max((order.at for rows in batch for order in rows), default=MIN_WATERMARK + 1)

        def admitted() -> None:
            self._position = {"done": number + 1, "has_ended": False}

        feed.admit(
            number,
            winners,
            rows=sum(map(len, batch)),
            watermark=latest - 1 if latest > 0 else None,
            admitted=admitted,
        )

    def _stage(self, rows: list[Order], number: int, split: int, attempt: int) -> None:
        plan = self._opening.plan
        for edge in self._opening.edges:
            columns = [pa.array(each, kind) for each, kind in zip(
                zip(*rows, strict=True) if rows else ((), (), ()), edge.schema.types, strict=True
            )]  # fmt: skip
            batch = pa.RecordBatch.from_arrays(columns, schema=edge.schema)
            parts = edge.partitioner(plan.parallelism, plan.max_parallelism).split(batch)
            for slot, part in zip(self._slots(), parts, strict=True):
                if not slot.process.is_alive:
                    raise Unavailable("a slot does not take rows")
                push = slot.staging.open(PushKey(self.uid, edge.edge_id, number, split, attempt))
                if part is not None and part.num_rows:
                    push.add(part)
                push.complete()


@dataclass(frozen=True)
class SimulatedSourcePlan:
    """A source as the job was planned."""

    batches: list[Batch]

    def open(self, opening: SourceOpening) -> Source:
        return SimulatedSource(World.current(), self.batches, opening)


class Simulation:
    """One job, from its first driver until one has finished it, and all others have given up.

    Seeds are dealt over the backends, unless one is named.
    """

    def __init__(self, seed: int, *, faults: int | None = None, backend: str | None = None) -> None:
        self.world = World(seed, faults=faults)
        self.backend_name = turn(seed) if backend is None else backend
        chance = self.world.random
        self.batches = orders_of(random.Random(seed))
        self.parallelism = chance.choice((1, 2, 2, 3))
        self.expected = expected(self.batches)
        self.shelf = Shelf(self.world, self._check_commit)
        self.storage = SimulatedStorage(self.world, self._check_checkpoint, self._check_deletion)
        self.job = self.storage.job("job")
        self.plan = job_plan(self.shelf, self.parallelism)
        concurrent = chance.choice((1, 2, 3))
        self.config = CheckpointConfig(
            interval=chance.choice(("10ms", "30ms", "200ms")),
            timeout=chance.choice(("1s", "5s")),
            max_concurrent=concurrent,
            min_pause=chance.choice((0, "50ms")) if concurrent == 1 else 0,
            tolerable_failures=chance.choice((0, 2, 100)),
            retained=chance.choice((1, 2)),
        )
        self.cluster = SimulatedCluster(self.world)
        self.completed: list[tuple[int, int]] = []
        self.gone_on_from: list[tuple[int, int]] = []
        """Savepoints that drivers began with: by whom, and their numbers."""
        self.there: dict[int, CheckpointMetadata] = {}
        """Those of them that were not deleted."""
        self.runs: dict[Process, JobRun] = {}
        self.statuses: list[tuple[str, JobStatus]] = []
        self.errors: list[str] = []
        self.checkpoints = 0
        self._drivers = 0

    @property
    def is_finished(self) -> bool:
        """Whether a driver has finished the job."""
        return any(status is JobStatus.FINISHED for _, status in self.statuses)

    def run(self) -> Self:
        """See the job to its end, and what is left of it to theirs."""
        with (
            simulated(self.world),
            TemporaryDirectory(prefix="holdfast-simulated-", dir=quick_place()) as folder,
            self._state(folder),
        ):
            self.world.calamity = self._calamity
            self._drive()
            _promise(f"the job has not finished: {self.errors}", is_kept=self.is_finished)
            self._check_end()
            self.world.settle()
            self._check_end()
            is_known = self.job.result() is not None or self.job.latest() is not None
            _promise("who goes on with the job would begin anew", is_kept=is_known)
        return self

    @contextmanager
    def _state(self, folder: str) -> Iterator[None]:
        """The backend of all slots, and in the end no file of it is left."""
        self.backend = SimulatedState(backend_named(self.backend_name, folder))
        try:
            yield
        finally:
            for slot in self.cluster.slots():
                slot.stop()
        left = [path for path in Path(folder).rglob("*") if path.is_file()]
        _promise(f"state is left on disk: {left}", is_kept=not left)

    def _drive(self) -> None:
        """Driver after driver, until one has not been killed."""
        while True:
            driver = Process(f"driver {self._drivers}")
            self._drivers += 1
            with self.world.within(driver):
                try:
                    run = self._live()
                except Killed:
                    continue
                except Unavailable as error:
                    self.world.note(f"{driver.name} does not get to start: {error}")
                    continue
                driver.is_alive = False
                if self.goes_on(run):
                    continue
                self.statuses.append((driver.name, run.status))
                self.errors.append(str(run.error))
                return

    def goes_on(self, run: JobRun | EndedRun) -> bool:
        """Whether somebody goes on with a job that has ended."""
        del run
        return False

    def restored(self) -> str:
        """What a driver is told to go on from."""
        return LATEST

    def _live(self) -> JobRun | EndedRun:
        """What an environment does to go on from the latest checkpoint."""
        beginning = begin(self.job, self.restored(), self._hesitate)
        if isinstance(beginning, JobResult):
            self.world.note("the job had ended before")
            return EndedRun(beginning)
        run = self._job_run(beginning.owner, beginning.point)
        run.run()
        return run

    def _hesitate(self, _point: RestorePoint) -> None:
        """Others go on while a driver looks at the checkpoint that it will restore."""
        for _ in range(self.world.random.choice((0, 0, 100))):
            self.world.step()
        if not self.world.process.is_alive:
            raise Killed

    def _job_run(self, owner: JobOwner, point: RestorePoint | None) -> JobRun:
        clock = self.world.clock
        restored = None if point is None else point.metadata.checkpoint_id
        self.world.note(f"epoch {owner.epoch} begins with {restored}")
        if point is not None and point.is_savepoint:
            self.gone_on_from.append((owner.epoch, point.metadata.checkpoint_id))
        _watch_commits(owner)
        keeper = CheckpointKeeper(
            self.job,
            owner,
            retained=self.config.retained,
            parallelism=self.parallelism,
            max_parallelism=self.plan.max_parallelism,
            clock=clock,
        )
        if point is not None and point.is_savepoint:
            keeper.skip_to(point.metadata.checkpoint_id + 1)
        self.runs[self.world.process] = run = JobRun(
            RunParts(
                plan=self.plan,
                sources={uid: SimulatedSourcePlan(self.batches[uid]) for uid in SOURCES},
                config=self.config,
                restart=FixedDelayRestart(attempts=1_000, delay=0),
                backend=self.backend,
                job=self.job,
                keeper=keeper,
                restore=point,
                allow_pickle=False,
                cluster=self.cluster,
                clock=clock,
                entropy=SeededEntropy(self.world.random.randrange(2**32)),
            )
        )
        return run

    def _calamity(self) -> None:
        """Mostly nothing."""
        mishap = self.world.mishap(
            "slot is killed", "slot is killed", "slot stands still", "driver is killed",
            "driver is taken for dead", rate=0.001,
        )  # fmt: skip
        slots = self.cluster.slots()
        if mishap == "driver is killed":
            self.world.kill(self.world.process)
        elif mishap == "driver is taken for dead":
            self._drive()
        elif mishap is not None and slots:
            slot = self.world.random.choice(slots)
            if mishap == "slot is killed":
                slot.stop()
            else:
                still_ms = self.world.random.choice((300, 3_000, 40_000))
                slot.process.frozen_until_ms = self.world.clock.now_ms() + still_ms

    def _check_checkpoint(self, metadata: CheckpointMetadata, files: set[str]) -> None:
        """A checkpoint that is written has the parts of all slots, and their files are there."""
        self.checkpoints += 1
        if metadata.kind == "checkpoint":
            self.completed.append((metadata.epoch, metadata.checkpoint_id))
            self.there[metadata.checkpoint_id] = metadata
        if SAVED_AT in metadata.properties:
            return  # it stands for a savepoint, which was looked at
        there = ({*metadata.sources}, {*metadata.operators})
        _promise(
            f"it has parts of {there}", is_kept=there == ({*SOURCES}, {"spend", "towns", *SINKS})
        )
        for uid in ("spend", "towns"):
            groups = sorted(
                part.key_groups for part in metadata.operators[uid].parts if part.key_groups
            )
            found = [group for first, last in groups for group in range(first, last + 1)]
            _promise(f"{uid} lacks a part", is_kept=found == [*range(self.plan.max_parallelism)])
        for uid in SINKS:
            slots = [part.slot for part in metadata.operators[uid].parts]
            _promise(f"{uid} lacks a part", is_kept=slots == [*range(self.parallelism)])
        _promise("a file of a checkpoint is not there", is_kept=metadata.files() <= files)

    def _check_deletion(self, gone: list[str]) -> None:
        """What is still completed lacks nothing, and what is under way nothing that it builds on.

        It may build on all that were completed since the one that was at its trigger.
        """
        found = [each for each in map(names.parse_checkpoint_object, gone) if each is not None]
        for each in found:
            if each.is_metadata:
                self.there.pop(each.checkpoint_id, None)
        for number, metadata in self.there.items():
            missing = metadata.files().intersection(gone)
            _promise(f"checkpoint {number} lacks {missing}", is_kept=not missing)
        for pending, since in self._under_way():
            bases = {number for _, number in self.completed if number >= since}
            missing_bases = bases - self.there.keys()
            what = f"{pending} may build on {missing_bases}, which is deleted"
            _promise(what, is_kept=not missing_bases)

    def _under_way(self) -> Iterator[tuple[int, int]]:
        """The checkpoints of the driver that acts now, and from which one on each may build."""
        run = self.runs.get(self.world.process)
        attempt = None if run is None else run._attempt
        coordinator = None if attempt is None or attempt._is_over else attempt._coordinator
        if coordinator is not None and not coordinator.is_shut_down:
            for number, pending in coordinator._pending.items():
                if pending.begun.savepoint is not None:
                    continue
                base = pending.begun.base
                yield number, coordinator._first_id if base is None else base

    def _check_commit(self, uid: str, part: str) -> None:
        """What is seen belongs to a checkpoint that is written, and is part of the answer."""
        _, attempt, number, _ = part.split("/")
        epoch = int(attempt.partition(".")[0])
        is_written = any(
            by >= epoch and checkpoint_id >= int(number)
            for by, checkpoint_id in (*self.completed, *self.gone_on_from)
        )
        _promise(f"{part} is committed before its checkpoint", is_kept=is_written)
        seen = self.shelf.seen[uid] + Counter(self.shelf.prepared[part])
        _promise(f"{part} has rows that are too many", is_kept=seen <= self.expected[uid])

    def _check_end(self) -> None:
        _promise("rows are missing", is_kept=self.shelf.seen == self.expected)


def _promise(what: str, *, is_kept: bool) -> None:
    if not is_kept:
        raise Broken(what)


def _watch_commits(owner: JobOwner) -> None:
    """Nobody tries to commit what may lack a file: that the owner refuses it is for mistakes."""
    commit = owner.commit

    def watched(metadata: CheckpointMetadata) -> CheckpointMetadata:
        try:
            return commit(metadata)
        except Invalid as error:
            _promise(str(error), is_kept="may be deleted" not in str(error))
            raise

    owner.commit = watched  # type: ignore[method-assign]


@contextmanager
def simulated(world: World) -> Iterator[None]:
    """Put the world's executors, queues and connections in the place of real ones."""
    with world.entered(), pytest.MonkeyPatch.context() as patch:
        for module in _EXECUTORS:
            patch.setattr(f"{module}.ThreadPoolExecutor", SimulatedExecutor)
        patch.setattr("holdfast.backends.transfers.wait", wait_for_all)
        patch.setattr("holdfast.runtime.driver.keeper._FIRST_PAUSE_S", 0.0)
        patch.setattr("holdfast.runtime.driver.keeper._CLEAN_PAUSE_S", 0.0)
        patch.setattr("holdfast.runtime.driver.savepoint_keeper._FIRST_PAUSE_S", 0.0)
        patch.setattr("holdfast.runtime.driver.sweeping._FIRST_PAUSE_S", 0.0)
        patch.setattr("holdfast.runtime.driver.run.EventQueue", SimulatedQueue)
        patch.setattr("holdfast.runtime.driver.run.DriverServer", SimulatedServer)
        patch.setattr("holdfast.runtime.driver.run.SlotClient", SimulatedLink)
        yield
