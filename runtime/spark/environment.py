"""The environment in which a job is written and started: on a Spark session."""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from holdfast.backends import StateBackend
from holdfast.changelog import ChangelogOptions
from holdfast.runtime.api.checkpoint_config import CheckpointConfig
from holdfast.runtime.api.network_config import NetworkConfig
from holdfast.runtime.api.restart_strategies import RestartStrategy
from holdfast.runtime.control.endpoint import open_endpoint
from holdfast.runtime.control.folder import run_folders
from holdfast.runtime.control.lookup import check_not_running
from holdfast.runtime.driver.checkpoints.checkpoint_keeper import CheckpointKeeper
from holdfast.runtime.driver.checkpoints.savepoint_requests import SavepointPlaces
from holdfast.runtime.driver.ended_run import EndedRun
from holdfast.runtime.driver.handle import JobHandle, collected_schemas
from holdfast.runtime.driver.job_log import speak
from holdfast.runtime.driver.restoring import (
    check_fit,
    with_restored_groups,
    without_in_flight,
)
from holdfast.runtime.driver.run import JobRun, JobStatus
from holdfast.runtime.driver.run_parts import RunParts, SourcePlan
from holdfast.runtime.driver.startup.start_notes import (
    StartNotes,
    check_commits,
    checkpointing_note,
    mode_warnings,
    storage_warnings,
)
from holdfast.runtime.driver.startup.take_over import Beginning, begin, ignoring_rows_in_flight
from holdfast.runtime.options.arguments import (
    CodeArguments,
    choose_all,
    choose_restoring,
    parallelism_of,
)
from holdfast.runtime.options.command_line import command_line
from holdfast.runtime.options.config_file import config_settings
from holdfast.runtime.options.environment_options import Restoring
from holdfast.runtime.options.table import GivenOptions, session_settings
from holdfast.runtime.planning.graph import Graph, Input, Node
from holdfast.runtime.planning.job_plan import JobPlan, plan_job
from holdfast.runtime.planning.memory_shares import memory_shares
from holdfast.runtime.spark.job_builder import JobBuilder
from holdfast.runtime.spark.launching.cluster import SparkCluster
from holdfast.runtime.spark.launching.interrupts import (
    ThreadedCall,
    begun,
    preparing,
    seen_through,
)
from holdfast.runtime.spark.launching.job_network import JobNetwork, job_network
from holdfast.runtime.spark.launching.pickling import check_pickles
from holdfast.runtime.spark.sessions.session_checks import (
    check_classic,
    check_session,
    session_of_slots,
)
from holdfast.runtime.spark.sessions.session_choice import choose_session
from holdfast.runtime.spark.sessions.task_slots import SlotHold
from holdfast.runtime.spark.sources.frame_checks import check_supported
from holdfast.runtime.spark.sources.frame_source import FrameSourcePlan, check_batch
from holdfast.runtime.spark.sources.query_source import QuerySourcePlan, check_streaming
from holdfast.runtime.spark.state_frames.formats import register_formats
from holdfast.runtime.spark.storage_settings import SessionStorages
from holdfast.runtime.stream import DataStream, GeneratedUidWarning, SourceFrame
from holdfast.storage import (
    CheckpointStorage,
    JobResult,
    JobStorage,
    SystemClock,
    SystemEntropy,
)
from holdfast.storage.options.checks import check_switch
from holdfast.storage.options.durations import Duration, duration_ms
from holdfast.storage.options.table import Settings
from holdfast.storage.restore_points import RestorePoint

__all__ = ["StreamEnvironment"]

_logger = logging.getLogger(__name__)
_runs: dict[str, JobHandle] = {}
"""Jobs of this process that commands find. They are found a moment longer than they run."""


class StreamEnvironment:
    """Where a job is written, and started.

    Args:
        spark: the session that reads sources and runs slots. None takes the active one, or makes
            one at the master that spark-submit, `MASTER` or spark-defaults.conf names, or else on
            this machine, as large as the job.
        parallelism: how many slots there are, by default 2. A session needs so many task slots
            and one more.
        max_parallelism: how many key groups there are; a job that is restored keeps it. None: as
            many as restored state has, or else a number that leaves room to grow, as in Flink.
        backend: where live state is kept: a registered name, by default `hashmap`, or a
            `StateBackend`.
        changelog: whether its changes are logged, so that a checkpoint costs what has changed and
            not what there is; `ChangelogOptions` say how. True leaves that to options, and None
            all of it. It can be switched on or off when a job is restored.
        storage: where checkpoints are kept: a URL, a registered name, by default `memory`, or a
            `CheckpointStorage`.
        checkpointing: how checkpoints are taken; a duration is an interval. None: only the final
            one of a job whose sources end.
        restart: what happens after a failure. None: as Flink, exponential delay with checkpoints,
            and no restart without.
        allow_pickle: let pickled state be read; a process that can write it can run any code.
        endpoint: whether commands of the same user on this machine can reach the job while it
            runs: `holdfast list`, `cancel` and others. By default they can.
        network: how driver, slots and tasks reach each other, and whether that is encrypted.
        log_level: from which level on jobs say on stderr what they do, by default "INFO"; "OFF" is
            quiet. A program that configures logging has the logger `holdfast` its own way.
        slot_request_timeout: how long the job waits for the task slots that it needs, by default
            5 minutes: at its start, and after each failure.

    Options set what is None here, if they are given: those of the command line
    (`holdfast run -D`), or else of a file (`holdfast run --config`, or the one that HOLDFAST_CONF
    names), or else of the session (`spark.holdfast.` and Flink's name of it); see docs/options.md.

    One environment may start several jobs. Each is what was written since the last one was started;
    streams that were made before are that one's, and can be used no more.

    Raises:
        Invalid: an argument cannot be what it is.
    """

    def __init__(  # noqa: PLR0913 - all by name, and none of them can be left out
        self,
        spark: SparkSession | None = None,
        *,
        parallelism: int | None = None,
        max_parallelism: int | None = None,
        backend: str | StateBackend | None = None,
        changelog: bool | ChangelogOptions | None = None,
        storage: str | CheckpointStorage | None = None,
        checkpointing: CheckpointConfig | Duration | None = None,
        restart: RestartStrategy | None = None,
        allow_pickle: bool | None = None,
        endpoint: bool | None = None,
        log_level: str | None = None,
        network: NetworkConfig | None = None,
        slot_request_timeout: Duration | None = None,
    ) -> None:
        code = CodeArguments(
            parallelism=parallelism,
            max_parallelism=max_parallelism,
            backend=backend,
            changelog=changelog,
            storage=storage,
            checkpointing=checkpointing,
            restart=restart,
            allow_pickle=allow_pickle,
            endpoint=endpoint,
            log_level=log_level,
            network=network,
            slot_request_timeout=slot_request_timeout,
        )
        self._line = command_line()
        # A program that Python runs by itself has the file that its environment names.
        file = config_settings() if self._line.file is None else self._line.file
        if spark is None:
            spark = _session_for(code, GivenOptions(self._line.settings, Settings(), file))
        check_classic(spark)
        self.spark = spark
        self._options = GivenOptions(self._line.settings, session_settings(spark.conf.getAll), file)
        chosen = choose_all(code, self._options, open_storage=SessionStorages.of(spark))
        self.parallelism, self.max_parallelism = chosen.parallelism, chosen.max_parallelism
        self._is_max_parallelism_set = chosen.is_max_parallelism_set
        self.backend, self.storage = chosen.backend, chosen.storage
        self.checkpointing, self.restart = chosen.checkpointing, chosen.restart
        self.allow_pickle, self.endpoint = chosen.allow_pickle, chosen.endpoint
        self.network = chosen.network
        speak(chosen.log_level)
        for told in self._options.older_names():
            _logger.warning(told)
        self._room_timeout_ms = duration_ms(
            chosen.slot_request_timeout, name="slot_request_timeout"
        )
        self._line.has_environment = True
        register_formats(spark)
        self._builder = JobBuilder(Graph())

    def from_stream(
        self, frame: DataFrame, *, uid: str | None = None, available_now: bool = False
    ) -> DataStream:
        """The rows of a streaming DataFrame, of any source that Spark has.

        With `available_now` the stream ends with what is there now, as by Spark's trigger.

        Raises:
            Invalid: it is not streaming, keeps state of its own in Spark or cannot be processed by
                it, or has a column of a type that Arrow has not.
        """
        check_switch(available_now, name="available_now")
        check_streaming(frame, uid or "source")
        check_supported(frame, uid or "source")
        return self._source(frame, uid, is_bounded=available_now)

    def from_batch(self, frame: DataFrame, *, uid: str | None = None) -> DataStream:
        """The rows of a DataFrame of a fixed size. The job ends after them.

        Raises:
            Invalid: it is streaming, or has a column of a type that Arrow has not.
        """
        check_batch(frame, uid or "source")
        return self._source(frame, uid, is_bounded=True)

    def execute(
        self,
        name: str,
        *,
        restore: str | None = None,
        claim_mode: str | None = None,
        allow_non_restored_state: bool = False,
        allow_missing_output: bool = False,
        ignore_in_flight_of: int | None = None,
    ) -> JobStatus:
        """`execute_async`, and wait for the end; on a terminal, say how it goes.

        An interrupt (Ctrl-C, SIGTERM) is no `cancel`: it stops the job as if the driver had died.
        So its checkpoints stay, and `restore="latest"` goes on from the newest one.

        Raises:
            JobFailed: the job has failed; says why.
            KeyboardInterrupt: it was interrupted, and has stopped.
            SystemExit: it was terminated, and has stopped.
        """
        start = partial(
            self.execute_async,
            name,
            restore=restore,
            claim_mode=claim_mode,
            allow_non_restored_state=allow_non_restored_state,
            allow_missing_output=allow_missing_output,
            ignore_in_flight_of=ignore_in_flight_of,
        )
        return seen_through(start, name, self.storage.url)

    def execute_async(
        self,
        name: str,
        *,
        restore: str | None = None,
        claim_mode: str | None = None,
        allow_non_restored_state: bool = False,
        allow_missing_output: bool = False,
        ignore_in_flight_of: int | None = None,
    ) -> JobHandle:
        """Start the job that was written, under a name that is its own in its storage.

        A script that is interrupted stops the job as `execute` does, whatever it does meanwhile. At
        a prompt and in a notebook only the waiting ends, and the job goes on.

        Args:
            name: the job's name. Its checkpoints are found by it.
            restore: "latest" goes on from the job's newest checkpoint, or begins if there is none;
                a job that has ended is not run again: its handle says so at once, and so does a
                note. The path or URL of a checkpoint's folder goes on from that one; newer ones of
                the same job are deleted then. A savepoint's folder goes on from that. It is read
                with the options of the environment's storage, if it lies in the same bucket, HDFS
                or server; else with what the session says of such places. None begins anew, also a
                job that has ended, and is refused if it has left checkpoints.
            claim_mode: whose another job's checkpoint is that is restored. "no-claim", the default:
                it stays that job's, which may delete it once this one has completed a checkpoint;
                nothing of this job refers to it. "claim": this job's, as the oldest of those that
                it retains; it deletes it when its turn has come, and a run of the other job that
                still lives is fenced. A job's own checkpoints are its own: "no-claim" is refused.
            allow_non_restored_state: go on although state of operators is dropped that the job does
                not have any more.
            allow_missing_output: go on although files that sinks have written for the restored
                checkpoint are gone, such as those that were committed, and moved away since.
            ignore_in_flight_of: the number of a checkpoint whose rows in flight are lost, if it is
                the one that is restored, such as because an operator fails by one of them.

        Raises:
            Invalid: the job cannot run like this; nothing was started or changed.
            NotFound: there is no such checkpoint.
            Corrupt: the checkpoint is damaged; names the file.
            Unavailable: the storage does not answer.
        """
        restoring = choose_restoring(
            Restoring(
                restore,
                claim_mode,
                allow_non_restored_state,
                allow_missing_output=allow_missing_output,
                ignore_in_flight_of=ignore_in_flight_of,
            ),
            self._options,
        )
        self._line.check_start(name, source := self._options.restoring(restore))
        handle = begun(partial(self._started, name, restoring), name, self.storage.url)
        self._line.started(name, source)
        self._builder.graph.start(name)
        self._builder = JobBuilder(Graph())
        return handle

    def _started(self, name: str, restoring: Restoring) -> JobHandle:
        graph = self._builder.graph
        plan = planned = plan_job(
            graph,
            job_id=name,
            parallelism=self.parallelism,
            max_parallelism=self.max_parallelism,
        )
        nodes = [node for node in graph.nodes if node.is_source]
        endless = [node.uid for node in nodes if not node.source.is_bounded]
        check_commits(plan, endless, self.checkpointing)
        sources = {node.uid: _source_plan(node) for node in nodes}
        job = self.storage.job(name)
        check_pickles(plan, self.backend, self.storage)
        memory_shares(plan, self.network.memory_bytes)  # raises if that is too small
        may_drop = restoring.allow_non_restored_state

        def check(point: RestorePoint) -> None:
            nonlocal plan
            point = without_in_flight(point, restoring.ignore_in_flight_of)
            if not self._is_max_parallelism_set:
                plan = with_restored_groups(planned, point)
            check_fit(point, plan, sources, allow_non_restored_state=may_drop)

        network, opens = self._network(), SessionStorages.of(self.spark)
        wait_s = self._room_timeout_ms / 1000
        check_not_running(
            name,
            job.url,
            run_folders(),
            SystemClock(),
            takes_over=restoring.restore is not None,
            ended={run for run, handle in list(_runs.items()) if handle.status.is_final},
        )
        hold = check_session(self.spark, self.parallelism, name, wait_s=wait_s)
        with ExitStack() as undone:
            undone.callback(hold.release)
            beginning = begin(
                job,
                restoring.restore,
                check,
                claim_mode=restoring.claim_mode,
                open_storage=opens,
            )
            beginning = ignoring_rows_in_flight(beginning, restoring.ignore_in_flight_of, plan)
            if isinstance(beginning, JobResult):
                handle = _ended(beginning, job, plan)
            else:
                run = self._job_run(plan, sources, job, beginning, network, opens, hold, restoring)
                lacking = storage_warnings(self.storage.url, self.storage.capabilities)
                lacking = (*mode_warnings(self.checkpointing), *lacking)
                notes = StartNotes(
                    overridden=restoring.note,
                    facts=beginning.notes,
                    missing=(*beginning.losses, *network.notes, *lacking),
                )
                notes.log(name, checkpointing_note(job.url, self.checkpointing))
                places = SavepointPlaces(self.checkpointing.savepoint_dir, opens)
                handle = JobHandle(run, job, collected_schemas(plan), notes.all, places)
                self._start(run, handle, job)
                undone.pop_all()
        return handle

    def _start(self, run: JobRun, handle: JobHandle, job: JobStorage) -> None:
        endpoint = None
        if self.endpoint:
            endpoint = open_endpoint(
                handle,
                storage=job.url,
                folders=run_folders(),
                clock=SystemClock(),
                entropy=SystemEntropy(),
            )
            if endpoint is not None:
                _runs[endpoint.registration.run] = handle

        def see_through() -> None:
            try:
                run.run()
            finally:
                if endpoint is not None:
                    endpoint.close()
                    del _runs[endpoint.registration.run]

        threading.Thread(
            target=see_through, name=f"holdfast-job-{handle.job_id}", daemon=True
        ).start()

    def _network(self) -> JobNetwork:
        context: Any = self.spark.sparkContext
        conf = dict(context.getConf().getAll())
        return job_network(self.network, context.master, conf, self.backend)

    def _job_run(
        self,
        plan: JobPlan,
        sources: Mapping[str, SourcePlan],
        job: JobStorage,
        beginning: Beginning,
        network: JobNetwork,
        opens: SessionStorages,
        hold: SlotHold,
        restoring: Restoring,
    ) -> JobRun:
        keeper = CheckpointKeeper(
            job,
            beginning.owner,
            retained=self.checkpointing.retained,
            parallelism=plan.parallelism,
            max_parallelism=plan.max_parallelism,
            clock=SystemClock(),
            deletes_per_s=self.checkpointing.deletes_per_s,
            claimed=beginning.claimed,
        )
        if beginning.point is not None:
            keeper.skip_to(beginning.point.metadata.checkpoint_id + 1)  # numbers go on, as in Flink
        return JobRun(
            RunParts(
                plan=plan,
                sources=sources,
                config=self.checkpointing,
                restart=self.restart,
                backend=self.backend,
                job=job,
                keeper=keeper,
                restore=beginning.point,
                allow_pickle=self.allow_pickle,
                cluster=SparkCluster(
                    session_of_slots(self.spark),
                    job=plan.job_id,
                    driver=network.driver,
                    hold=hold,
                ),
                network=network.slots,
                open_storage=opens,
                protection=network.protection,
                allow_missing_output=restoring.allow_missing_output,
                room_timeout_s=self._room_timeout_ms / 1000,
                clock=SystemClock(),
                entropy=SystemEntropy(),
            )
        )

    def _source(self, frame: DataFrame, uid: str | None, *, is_bounded: bool) -> DataStream:
        builder = self._builder
        chosen = builder.graph.generated_uid("source") if uid is None else uid
        if uid is None:
            warnings.warn(
                f"a source has no uid and is called {chosen!r}; its position will not be found "
                "when sources before it come or go: pass uid=",
                GeneratedUidWarning,
                stacklevel=3,
            )
        node = Node(
            uid=chosen,
            name="source",
            schema=builder.arrow_schema(frame.schema, f"source {chosen!r}"),
            source=SourceFrame(frame, is_bounded),
        )
        return DataStream(builder, (Input(builder.graph.add(node)),))


def _session_for(code: CodeArguments, options: GivenOptions) -> SparkSession:
    parallelism_of(code, options)  # what can be refused without a JVM is

    def slots(conf: Mapping[str, str]) -> int:
        return parallelism_of(code, replace(options, session=session_settings(conf)))

    there = SparkSession.getActiveSession()
    if there is not None:
        return there
    with preparing():
        spark = ThreadedCall(lambda: choose_session(slots)).begin().result()
    jvm: Any = spark._jvm  # which session is active is of a thread
    jvm.SparkSession.setActiveSession(spark._jsparkSession)
    return spark


def _ended(result: JobResult, job: JobStorage, plan: JobPlan) -> JobHandle:
    run = EndedRun(result)
    _logger.warning(run.note)
    return JobHandle(run, job, collected_schemas(plan), (run.note,))


def _source_plan(node: Node) -> SourcePlan:
    frame: SourceFrame = node.source
    if frame.frame.isStreaming:
        return QuerySourcePlan(frame)
    return FrameSourcePlan(frame)
