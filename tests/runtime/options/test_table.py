"""Options as texts: each is read as what it is in code, and nothing is passed over."""

from __future__ import annotations

import inspect
from dataclasses import fields, replace
from typing import Any

import pytest

from holdfast.backends import load_backend
from holdfast.backends.rocksdb import RocksDBStateBackend
from holdfast.backends.rocksdb.option_rows import ROCKSDB as ROCKSDB_OWNER
from holdfast.backends.rocksdb.option_rows import rocksdb_arguments
from holdfast.changelog.options import CHANGELOG, changelog_options
from holdfast.runtime import StreamEnvironment
from holdfast.runtime.api.checkpoint_config import CheckpointConfig
from holdfast.runtime.api.network_config import NetworkConfig
from holdfast.runtime.api.restart_strategies import (
    ExponentialDelayRestart,
    FailureRateRestart,
    FixedDelayRestart,
    NoRestart,
    RestartStrategy,
    restart_strategy,
)
from holdfast.runtime.options.table import OPTIONS, read_settings
from holdfast.storage import Invalid
from holdfast.storage.options.codecs import NUMBER, SIZE, WHOLE_NUMBER
from holdfast.storage.options.table import OptionTable

ROCKSDB = "state.backend.rocksdb."
CHECKPOINTS = "execution.checkpointing."


@pytest.mark.parametrize(
    ("key", "text", "argument", "value"),
    [
        ("parallelism.default", "3", "parallelism", 3),
        ("pipeline.max-parallelism", " 256 ", "max_parallelism", 256),
        ("state.backend.type", "rocksdb", "backend", "rocksdb"),
        ("state.allow-pickle", "TRUE", "allow_pickle", True),
        ("endpoint.enabled", "false", "endpoint", False),
        ("security.ssl.internal.enabled", "auto", "network.ssl", "auto"),
        ("security.ssl.internal.enabled", "FALSE", "network.ssl", False),
        ("driver.host", "h.example", "network.driver_host", "h.example"),
        ("driver.bindAddress", "::1", "network.driver_bind_address", "::1"),
        ("slot.port", " 45000-45100 ", "network.slot_port", "45000-45100"),
        (f"{CHECKPOINTS}dir", "s3://b/x=y", "storage", "s3://b/x=y"),
        (f"{CHECKPOINTS}interval", "10 s", "checkpointing.interval", "10 s"),
        (
            f"{CHECKPOINTS}interval-during-backlog",
            "1 min",
            "checkpointing.interval_during_backlog",
            "1 min",
        ),
        (
            f"{CHECKPOINTS}interval-during-backlog",
            "0",
            "checkpointing.interval_during_backlog",
            "0ms",
        ),
        (f"{CHECKPOINTS}sync-phase-timeout", "9 s", "checkpointing.sync_phase_timeout", "9 s"),
        (f"{CHECKPOINTS}min-pause", "15 min", "checkpointing.min_pause", "15 min"),
        (f"{CHECKPOINTS}interval", "500", "checkpointing.interval", "500ms"),
        (f"{CHECKPOINTS}mode", "exactly_once", "checkpointing.mode", "exactly-once"),
        (f"{CHECKPOINTS}timeout", "1h 30min", "checkpointing.timeout", "1h 30min"),
        (f"{CHECKPOINTS}min-pause", "0 s", "checkpointing.min_pause", "0 s"),
        (f"{CHECKPOINTS}max-concurrent-checkpoints", "2", "checkpointing.max_concurrent", 2),
        (f"{CHECKPOINTS}tolerable-failed-checkpoints", "0", "checkpointing.tolerable_failures", 0),
        (f"{CHECKPOINTS}num-retained", "5", "checkpointing.retained", 5),
        (
            f"{CHECKPOINTS}externalized-checkpoint-retention",
            "RETAIN_ON_CANCELLATION",
            "checkpointing.on_cancel",
            "retain",
        ),
        (
            f"{CHECKPOINTS}checkpoints-after-tasks-finish",
            "false",
            "checkpointing.final_checkpoint",
            False,
        ),
        (f"{CHECKPOINTS}mode", "EXACTLY_ONCE", "checkpointing.mode", "exactly-once"),
        (f"{CHECKPOINTS}mode", "at_least_once", "checkpointing.mode", "at-least-once"),
        (f"{CHECKPOINTS}savepoint-dir", "/s", "checkpointing.savepoint_dir", "/s"),
        ("state.savepoints.dir", "/s", "checkpointing.savepoint_dir", "/s"),
        ("savepoints.state.backend.fs.dir", "/s", "checkpointing.savepoint_dir", "/s"),
        ("state.checkpoints.num-retained", "5", "checkpointing.retained", 5),
        (
            f"{CHECKPOINTS}checkpoints-after-tasks-finish.enabled",
            "false",
            "checkpointing.final_checkpoint",
            False,
        ),
        ("state.checkpoints.dir", "/c", "storage", "/c"),
        ("state.backend.fs.checkpointdir", "/c", "storage", "/c"),
        ("state.backend", "rocksdb", "backend", "rocksdb"),
        ("execution.savepoint.path", "/x/chk-1", "execute.restore", "/x/chk-1"),
        ("execution.savepoint-restore-mode", "CLAIM", "execute.claim_mode", "claim"),
        (
            "execution.savepoint.ignore-unclaimed-state",
            "true",
            "execute.allow_non_restored_state",
            True,
        ),
        (f"{CHECKPOINTS}snapshot-compression", "true", "checkpointing.compression", "lz4"),
        (f"{CHECKPOINTS}snapshot-compression", "false", "checkpointing.compression", ""),
        (f"{CHECKPOINTS}cleaner.deletes-per-second", "2.5", "checkpointing.deletes_per_s", 2.5),
        (
            f"{CHECKPOINTS}cleaner.deletes-per-second",
            "unlimited",
            "checkpointing.deletes_per_s",
            None,
        ),
        ("execution.state-recovery.path", "/x/chk-1", "execute.restore", "/x/chk-1"),
        ("execution.state-recovery.claim-mode", "CLAIM", "execute.claim_mode", "claim"),
        (
            "execution.state-recovery.ignore-unclaimed-state",
            "true",
            "execute.allow_non_restored_state",
            True,
        ),
        *(
            (key, "7", "execute.ignore_in_flight_of", 7)
            for key in (
                "execution.state-recovery.without-channel-state.checkpoint-id",
                f"{CHECKPOINTS}recover-without-channel-state.checkpoint-id",
            )
        ),
        (
            "execution.state-recovery.ignore-missing-output",
            "true",
            "execute.allow_missing_output",
            True,
        ),
    ],
)
def test_an_option_is_what_it_is_in_code(key: str, text: str, argument: str, value: Any) -> None:
    settings = read_settings({key: text}, source="here")
    assert settings.values == {argument: value}
    assert restart_strategy(settings) is None
    name = argument.removeprefix("checkpointing.")
    if name != argument and value is not None:
        CheckpointConfig(**{"interval": "1s", "timeout": "1h", name: value})


@pytest.mark.parametrize(
    ("options", "strategy"),
    [
        ({"type": "none"}, NoRestart()),
        ({"type": "fixed-delay"}, FixedDelayRestart()),
        (
            {"type": "fixed-delay", "fixed-delay.attempts": "7", "fixed-delay.delay": "2 s"},
            FixedDelayRestart(attempts=7, delay="2 s"),
        ),
        (
            {
                "type": "failure-rate",
                "failure-rate.max-failures-per-interval": "3",
                "failure-rate.failure-rate-interval": "5 min",
                "failure-rate.delay": "100",
            },
            FailureRateRestart(
                max_failures_per_interval=3, failure_rate_interval="5 min", delay="100ms"
            ),
        ),
        (
            {
                "type": "exponential-delay",
                "exponential-delay.initial-backoff": "2 s",
                "exponential-delay.max-backoff": "4 s",
                "exponential-delay.backoff-multiplier": "2",
                "exponential-delay.reset-backoff-threshold": "8 s",
                "exponential-delay.jitter-factor": "0.5",
                "exponential-delay.attempts-before-reset-backoff": "9",
            },
            ExponentialDelayRestart(
                initial_backoff="2 s",
                max_backoff="4 s",
                backoff_multiplier=2,
                reset_backoff_threshold="8 s",
                jitter_factor=0.5,
                attempts_before_reset_backoff=9,
            ),
        ),
        (
            {
                "type": "exponential-delay",
                "exponential-delay.attempts-before-reset-backoff": "infinite",
            },
            ExponentialDelayRestart(),
        ),
    ],
)
def test_a_restart_strategy_is_named_with_its_options(
    options: dict[str, str], strategy: RestartStrategy
) -> None:
    texts = {f"restart-strategy.{key}": text for key, text in options.items()}
    settings = read_settings(texts, source="here")
    assert restart_strategy(settings) == strategy


def test_options_of_a_changelog_are_among_them() -> None:
    texts = {"state.changelog.enabled": "true", "dstl.dfs.upload.num-threads": "2"}
    settings = read_settings(texts | {"parallelism.default": "1"}, source="here")
    assert settings.values["parallelism"] == 1
    options = changelog_options(settings.of(CHANGELOG))
    assert options is not None
    assert options.upload_threads == 2


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        (
            {"state.backend.typ": "x"},
            r"no option 'state.backend.typ' \[here, state.backend.typ\].*state.backend.type",
        ),
        ({"": "x"}, "no option ''"),
        ({"parallelism": "2"}, "parallelism.default"),
        ({"execute.restore": "x"}, "no option 'execute.restore'"),
        ({"parallelism.default": "-1"}, "not legal.*found -1"),
        ({"parallelism.default": ""}, "expected a whole number, found ''"),
        ({"state.backend.type": " "}, "expected a registered name, found ''"),
        ({"endpoint.enabled": "yes"}, "expected true or false, found 'yes'"),
        ({"security.ssl.internal.enabled": "on"}, "expected true or false, or auto, found 'on'"),
        ({"driver.port": "45000-44000"}, "is no port.*found '45000-44000'"),
        ({"slot.port": "0-100"}, "is no port"),
        ({"slot.port": "65536"}, "is no port"),
        (
            {f"{CHECKPOINTS}interval": "soon"},
            "interval' cannot have .*a duration such as 10 min",
        ),
        ({f"{CHECKPOINTS}mode": "ONCE"}, "EXACTLY_ONCE or AT_LEAST_ONCE"),
        ({f"{CHECKPOINTS}cleaner.deletes-per-second": "fast"}, "expected a number"),
        ({"restart-strategy.fixed-delay.attempts": "3"}, "expected restart-strategy.type"),
        (
            {"restart-strategy.type": "none", "restart-strategy.fixed-delay.attempts": "3"},
            "set: fixed-delay.*found restart-strategy.type=none",
        ),
        ({"restart-strategy.type": "often"}, "none or fixed-delay or failure-rate or exp"),
        (
            {"restart-strategy.type": "fixed-delay", "restart-strategy.failure-rate.delay": "1 s"},
            "of another restart strategy is set: failure-rate",
        ),
        (
            {
                "restart-strategy.type": "exponential-delay",
                "restart-strategy.exponential-delay.max-backoff": "1 ms",
            },
            r"initial_backoff is longer .*here.*max-backoff\]",
        ),
        (
            {"state.savepoints.dir": "/s", f"{CHECKPOINTS}savepoint-dir": "/s"},
            "savepoint-dir' is there twice",
        ),
        (
            {"state.changelog.enabled": "maybe"},
            "cannot have this.*true or false",
        ),
        ({"state.changelog.nothing": "1"}, "no option 'state.changelog.nothing'"),
        ({"parallelism.default": "0"}, "'parallelism.default': the parallelism is not legal"),
        ({"parallelism.default": "8", "pipeline.max-parallelism": "4"}, "max parallelism, 4"),
        ({"pipeline.max-parallelism": "40000"}, "'pipeline.max-parallelism'.*32768"),
        (
            {"state.backend.type": "rocks"},
            r"no state backend is registered as 'rocks' \[here, state.backend.type",
        ),
        (
            {f"{CHECKPOINTS}interval": "0"},
            r"interval': interval is out of range \[here, .*interval\]",
        ),
        ({f"{CHECKPOINTS}timeout": "0 s"}, "timeout is out of range"),
        ({f"{CHECKPOINTS}num-retained": "0"}, "num-retained': retained is out of range"),
        (
            {f"{CHECKPOINTS}min-pause": "1 s", f"{CHECKPOINTS}max-concurrent-checkpoints": "2"},
            "leaves no room for concurrent ones",
        ),
        (
            {f"{CHECKPOINTS}min-pause": "9 s", f"{CHECKPOINTS}timeout": "5 s"},
            r"longer than a checkpoint may take \[here, .*min-pause; here, .*timeout\]",
        ),
        (
            {f"{CHECKPOINTS}externalized-checkpoint-retention": "NO_EXTERNALIZED_CHECKPOINTS"},
            "always stored with their metadata .*Write DELETE_ON_CANCELLATION",
        ),
        ({f"{CHECKPOINTS}file-merging.enabled": "true"}, "slot always writes one file"),
        (
            {f"{CHECKPOINTS}unaligned.max-subtasks-per-channel-state-file": "5"},
            "of all channels of a chain in a slot are always in one file",
        ),
        ({f"{CHECKPOINTS}unaligned": "true"}, "between operators they are always aligned"),
        ({"state.backend.local-recovery": "true"}, "has no meaning here .*Leave it out"),
        (
            {f"{CHECKPOINTS}interval": "9 s", f"{CHECKPOINTS}interval-during-backlog": "5 s"},
            r"more frequent during a backlog .*\[here, .*interval; here, .*interval-during-backl",
        ),
        ({f"{CHECKPOINTS}dir": "memroy"}, "no checkpoint storage is registered as 'memroy'"),
        ({f"{CHECKPOINTS}dir": "s4://bucket/x"}, "'execution.checkpointing.dir'.*s4"),
        ({f"{CHECKPOINTS}savepoint-dir": "s4://bucket/x"}, "savepoint-dir'.*s4"),
        ({f"{ROCKSDB}memory.fixed-per-slot": "1k"}, "the memory for RocksDB is out of range"),
        ({f"{ROCKSDB}memory.fixed-per-slot": "much"}, "expected a size such as"),
        ({f"{ROCKSDB}memory.managed": "true"}, "Set state.backend.rocksdb.memory.fixed-per-slot"),
        ({f"{ROCKSDB}predefined-options": "TAPE"}, "expected DEFAULT or SPINNING_DISK_OPTIMIZED"),
        ({f"{ROCKSDB}localdir": "here"}, "expected a list of absolute paths"),
        ({f"{ROCKSDB}compaction.style": "FIFO"}, "expected LEVEL or UNIVERSAL"),
        ({f"{ROCKSDB}files.open": "some"}, "expected a whole number"),
        ({f"{ROCKSDB}no.such": "1"}, "there is no option"),
        (
            {"state.backend.type": "hashmap", f"{ROCKSDB}memory.fixed-per-slot": "64m"},
            "expected state.backend.type=rocksdb, found state.backend.type=hashmap",
        ),
    ],
)
def test_an_invalid_option_is_refused(texts: dict[str, str], told: str) -> None:
    with pytest.raises(Invalid, match=told):
        read_settings(texts, source="here")


def test_options_of_rocksdb_are_arguments_of_it() -> None:
    texts = {
        "execution.checkpointing.incremental": "false",
        f"{ROCKSDB}memory.fixed-per-slot": "64 mb",
        f"{ROCKSDB}memory.write-buffer-ratio": "0.25",
        f"{ROCKSDB}predefined-options": "FLASH_SSD_OPTIMIZED",
        f"{ROCKSDB}localdir": "/data/1,/data/2",
        f"{ROCKSDB}timer-service.factory": "HEAP",
        f"{ROCKSDB}compaction.style": "LEVEL",
        f"{ROCKSDB}files.open": "-1",
        f"{ROCKSDB}writebuffer.size": "4 mb",
        f"{ROCKSDB}use-bloom-filter": "true",
    }
    settings = read_settings(texts, source="here")
    backend = load_backend("rocksdb", **rocksdb_arguments(settings.of(ROCKSDB_OWNER)))
    assert backend == RocksDBStateBackend(
        memory=64 << 20,
        write_buffer_ratio=0.25,
        predefined="flash-ssd",
        options={
            "compaction_style": "kCompactionStyleLevel",
            "max_open_files": -1,
            "write_buffer_size": 4 << 20,
            "filter_policy": "bloomfilter:10:false",
        },
        incremental=False,
        timers="heap",
        directories=("/data/1", "/data/2"),
    )


def test_every_option_of_rocksdb_is_one_that_it_takes() -> None:
    good = {NUMBER: "0.5", SIZE: "64 mb", WHOLE_NUMBER: "40"}
    for option in OPTIONS.options:
        if option.owner is not ROCKSDB_OWNER:
            continue
        texts = {kind.values: text for kind, text in good.items()}
        word = option.codec.values.partition("`")[2].partition("`")[0]
        text = texts.get(option.codec.values, word or "/data")
        # Some are of levels only, or at most as many as the others.
        beside = {f"{ROCKSDB}compaction.style": "LEVEL", f"{ROCKSDB}writebuffer.count": "64"}
        read_settings(beside | {option.key: text}, source="here")


def test_each_argument_of_the_code_has_one_option() -> None:
    plain = ("network", "checkpointing", "execute", "")
    arguments = [each.argument for each in OPTIONS.options if each.owner.name in plain]
    environment = set(inspect.signature(StreamEnvironment).parameters)
    execute = set(inspect.signature(StreamEnvironment.execute).parameters)
    assert set(arguments) == (
        environment - {"spark", "changelog", "checkpointing", "network", "restart"}
        | {f"checkpointing.{field.name}" for field in fields(CheckpointConfig)}
        | {f"network.{field.name}" for field in fields(NetworkConfig)}
        | {f"execute.{name}" for name in execute - {"self", "name"}}
    )
    assert OPTIONS.option("checkpointing.retained").key == f"{CHECKPOINTS}num-retained"


OF_FLINK = [
    "storage",
    "dir",
    "savepoint-dir",
    "interval",
    "interval-during-backlog",
    "sync-phase-timeout",
    "mode",
    "timeout",
    "min-pause",
    "max-concurrent-checkpoints",
    "num-retained",
    "tolerable-failed-checkpoints",
    "externalized-checkpoint-retention",
    "incremental",
    "snapshot-compression",
    "checkpoints-after-tasks-finish",
    "create-subdir",
    "cleaner.parallel-mode",
    "local-backup.enabled",
    "local-backup.dirs",
    "data-inline-threshold",
    "write-buffer-size",
    "file-merging.enabled",
    "file-merging.across-checkpoint-boundary",
    "file-merging.max-file-size",
    "file-merging.max-space-amplification",
    "file-merging.max-subtasks-per-file",
    "file-merging.pool-blocking",
    "unaligned.max-subtasks-per-channel-state-file",
    "unaligned.enabled",
    "unaligned.forced",
    "aligned-checkpoint-timeout",
    "unaligned.recover-output-on-downstream.enabled",
    "during-recovery.enabled",
    "unaligned.interruptible-timers.enabled",
    "unaligned.interruptible-timers.emit-intermediate-watermarks",
]


@pytest.mark.parametrize("name", OF_FLINK)
def test_every_checkpointing_option_of_flink_is_honoured_or_refused_by_name(name: str) -> None:
    key = f"{CHECKPOINTS}{name}"
    rows = [*OPTIONS.options, *OPTIONS.refused]
    assert [each.key for each in rows if key in (each.key, *each.aliases)] == [key]


def test_two_rows_for_one_key_or_one_field_are_a_mistake() -> None:
    row = OPTIONS.option("parallelism")
    for other in (replace(row, field="other"), replace(row, key="other")):
        with pytest.raises(ValueError, match="same key, or fill the same field"):
            OptionTable((row, other))


def test_an_error_names_the_option_and_its_source() -> None:
    with pytest.raises(Invalid, match=r"-Dexecution\.checkpointing\.num-retained\]") as caught:
        read_settings(
            {f"{CHECKPOINTS}num-retained": "0", f"{CHECKPOINTS}timeout": "1 min"},
            source="the command line",
            prefix="-D",
        )
    assert caught.value.what == f"option '{CHECKPOINTS}num-retained': retained is out of range"
    assert (caught.value.expected, caught.value.found) == ("a whole number, 1 or more", "0")
