"""Whole jobs in a simulated world, from a seed: drivers, slots and storage fail on the way.

What is real: `JobRun`, attempts, feeds, the coordinator, the keeper and the owner of checkpoints,
slots with their chains, gates, operators, backends and staging. The same seed gives the same run.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

import pytest

from holdfast.runtime.api.checkpoint_config import CheckpointConfig
from holdfast.runtime.api.restart_strategies import FixedDelayRestart
from holdfast.runtime.driver.checkpoints.checkpoint_keeper import CheckpointKeeper
from holdfast.runtime.driver.ended_run import EndedRun
from holdfast.runtime.driver.restoring import LATEST
from holdfast.runtime.driver.run import JobRun, JobStatus
from holdfast.runtime.driver.run_parts import RunParts
from holdfast.runtime.driver.startup.take_over import begin
from holdfast.runtime.planning.job_plan import JobPlan
from holdfast.storage import (
    CheckpointMetadata,
    Invalid,
    JobOwner,
    JobResult,
    NotFound,
    SeededEntropy,
    Unavailable,
    names,
)
from holdfast.storage.jobs.metadata import SAVED_AT
from holdfast.storage.restore_points import RestorePoint
from holdfast.storage.retries import Backoff
from support.simulations.answers import AtLeastOnce, ExactlyOnce, Rule
from support.simulations.cluster import (
    STEP_WEIGHT,
    SimulatedCluster,
    SimulatedLink,
    SimulatedServer,
)
from support.simulations.faulty_storage import SimulatedStorage
from support.simulations.jobs import (
    SINKS,
    SOURCES,
    Batch,
    Row,
    Shelf,
    expected,
    job_plan,
    orders_of,
)
from support.simulations.sources import SimulatedSourcePlan
from support.simulations.state import SimulatedState
from support.simulations.world import (
    Broken,
    Killed,
    Process,
    SimulatedExecutor,
    SimulatedQueue,
    World,
    wait_for_all,
    wait_for_others,
)
from support.states.tried_backends import backend_named, turn
from support.storages.quick_places import quick_place

_EXECUTORS = (
    "holdfast.backends.snapshots.transfers.ThreadPoolExecutor",
    "holdfast.runtime.driver.slot_lines.DaemonThreads",
    "holdfast.runtime.driver.source_feed.DaemonThreads",
    "holdfast.runtime.driver.source_thread.DaemonThreads",
    "holdfast.runtime.driver.checkpoints.checkpoint_keeper.ThreadPoolExecutor",
    "holdfast.runtime.driver.checkpoints.savepoint_keeper.ThreadPoolExecutor",
    "holdfast.runtime.driver.checkpoints.background_deletion.ThreadPoolExecutor",
    "holdfast.runtime.task.committer.ThreadPoolExecutor",
    "holdfast.runtime.task.slot.ThreadPoolExecutor",
)
_TURNS = 200
"""More than a slot needs for all that a job has: at most 180 in sixty jobs without faults."""


class Simulation:
    """One job, from its first driver until one has finished it, and all others have given up.

    Seeds are dealt over the backends, unless one is named.
    """

    keyed: Sequence[str] = ("spend", "towns")
    sinks: Sequence[str] = SINKS
    eagerness = 0.5
    """How much more than other things sources push."""
    has_savepoints = False
    """Whether there may be savepoints, which are taken beside checkpoints."""

    def __init__(
        self,
        seed: int,
        *,
        faults: int | None = None,
        backend: str | None = None,
        mode: str = "exactly-once",
    ) -> None:
        self.world = World(seed, faults=faults)
        self.backend_name = turn(seed) if backend is None else backend
        chance = self.world.random
        self.batches = self.drawn(random.Random(seed))
        self.parallelism = chance.choice((1, 2, 2, 3))
        seen: dict[str, Counter[Row]] = {uid: Counter() for uid in self.sinks}
        self.shelf = Shelf(self.world, self._check_commit, seen=seen)
        self.storage = SimulatedStorage(self.world, self._check_checkpoint, self._check_deletion)
        self.job = self.storage.job("job")
        self.plan = self.planned()
        concurrent = chance.choice((1, 2, 3))
        self.config = CheckpointConfig(
            interval=chance.choice(("10ms", "30ms", "200ms")),
            mode=mode,
            timeout=f"{max(chance.choice((1_000, 5_000)), self._least_timeout_ms())}ms",
            max_concurrent=concurrent,
            min_pause=chance.choice((0, "50ms")) if concurrent == 1 else 0,
            tolerable_failures=chance.choice((0, 2, 100)),
            retained=chance.choice((1, 2)),
        )
        self.cluster = SimulatedCluster(self.world)
        self.rule = self.ruled()
        self.completed: list[tuple[int, int]] = []
        self.gone_on_from: list[tuple[int, int]] = []
        """Savepoints that drivers restored: the driver's number, and the savepoint's."""
        self.there: dict[int, CheckpointMetadata] = {}
        """Those of them that were not deleted."""
        self.runs: dict[Process, JobRun] = {}
        self.epochs: dict[JobRun, int] = {}
        self.statuses: list[tuple[str, JobStatus]] = []
        self.errors: list[str] = []
        self.checkpoints = 0
        self._drivers = 0

    def drawn(self, chance: random.Random) -> dict[str, list[Batch]]:
        """What the sources have."""
        return orders_of(chance)

    def answer(self, batches: dict[str, list[Batch]]) -> dict[str, Counter[Row]]:
        """The right answer of each sink."""
        return expected(batches)

    def ruled(self) -> Rule:
        """What the mode of its checkpoints promises."""
        right = self.answer(self.batches)
        if self.config.mode == "exactly-once":
            return ExactlyOnce(right)
        is_one_at_once = self.config.max_concurrent == 1 and not self.has_savepoints
        committed, restored = self.shelf.committed, self.cluster.restored
        return AtLeastOnce(right, committed, restored, is_one_at_once=is_one_at_once)

    def planned(self) -> JobPlan:
        """The job."""
        return job_plan(self.shelf, self.parallelism)

    def _least_timeout_ms(self) -> int:
        """Less would let no checkpoint be complete, ever, in a world whose slots have few turns.

        Sources are not held up by them: all that a job has may be in front of its first barrier.
        """
        return ceil(_TURNS * self.world.wait_ms("step", STEP_WEIGHT))

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
            void = {*self.job.completed()} - self.there.keys()
            _promise(f"checkpoints {void} were deleted, and count again", is_kept=not void)
            is_known = self.job.result() is not None or self.job.latest() is not None
            _promise("the next driver would begin anew", is_kept=is_known)
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
                except (Unavailable, NotFound) as error:  # or others have just gone further
                    self.world.note(f"{driver.name} does not get to start: {error}")
                    continue
                driver.is_alive = False
                if self.goes_on(run):
                    continue
                self.statuses.append((driver.name, run.status))
                self.errors.append(str(run.error))
                return

    def goes_on(self, run: JobRun | EndedRun) -> bool:
        """Whether a job that has ended is started again."""
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
                sources={
                    uid: SimulatedSourcePlan(self.batches[uid], self.eagerness) for uid in SOURCES
                },
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
        self.epochs[run] = owner.epoch
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
        if metadata.kind == "checkpoint" and metadata.epoch < max(self.epochs.values(), default=0):
            return  # it is void: a newer owner has begun without it
        self.checkpoints += 1
        if metadata.kind == "checkpoint":
            self.completed.append((metadata.epoch, metadata.checkpoint_id))
            self.there[metadata.checkpoint_id] = metadata
        if SAVED_AT in metadata.properties:
            return  # it stands for a savepoint, which was looked at
        there = ({*metadata.sources}, {*metadata.operators})
        _promise(
            f"it has parts of {there}", is_kept=there == ({*SOURCES}, {*self.keyed, *self.sinks})
        )
        for uid in self.keyed:
            groups = sorted(
                part.key_groups for part in metadata.operators[uid].parts if part.key_groups
            )
            found = [group for first, last in groups for group in range(first, last + 1)]
            _promise(f"{uid} lacks a part", is_kept=found == [*range(self.plan.max_parallelism)])
        for uid in self.sinks:
            left = metadata.operators[uid]
            slots = [part.slot for part in left.parts]
            _promise(f"{uid} lacks a part", is_kept=slots == [*range(left.parallelism)])
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
        more = Counter(self.shelf.prepared[part])
        is_sound = self.rule.is_sound(part, more, self.shelf.seen[uid] + more)
        _promise(f"{part} has rows that are too many", is_kept=is_sound)

    def _check_end(self) -> None:
        _promise("rows are missing", is_kept=self.rule.is_complete(self.shelf.seen))


def _promise(what: str, *, is_kept: bool) -> None:
    if not is_kept:
        raise Broken(what)


def _watch_commits(owner: JobOwner) -> None:
    """No run commits a checkpoint that may lack a file: the owner's refusal is for mistakes."""
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
        for executor in _EXECUTORS:
            patch.setattr(executor, SimulatedExecutor)
        # Each backend has its own there: which of several goes on is for the world to choose.
        patch.setattr("holdfast.backends.snapshots.workers.shared_threads", SimulatedExecutor)
        patch.setattr("holdfast.backends.snapshots.workers.wait", wait_for_all)
        patch.setattr("holdfast.backends.snapshots.transfers.wait", wait_for_all)
        patch.setattr("holdfast.backends.snapshots.neutral.wait", wait_for_others)
        # Few timers are due at once here: so that there is more than one slice of them.
        patch.setattr("holdfast.runtime.operators.row_and_timer_loops.MOST_TIMERS", 2)
        patch.setattr("holdfast.runtime.driver.checkpoints.checkpoint_keeper._PAUSES", Backoff(0.0))
        patch.setattr("holdfast.runtime.driver.checkpoints.checkpoint_keeper._CLEAN_PAUSE_S", 0.0)
        patch.setattr("holdfast.runtime.driver.checkpoints.savepoint_keeper._PAUSES", Backoff(0.0))
        patch.setattr(
            "holdfast.runtime.driver.checkpoints.background_deletion._PAUSES", Backoff(0.0)
        )
        patch.setattr("holdfast.runtime.driver.run.EventQueue", SimulatedQueue)
        patch.setattr("holdfast.runtime.driver.run.DriverServer", SimulatedServer)
        patch.setattr("holdfast.runtime.driver.run.SlotClient", SimulatedLink)
        yield
