"""What counts of what the program, the command line and the session say. No session is needed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.backends import StateBackend, load_backend
from holdfast.backends.rocksdb import RocksDBStateBackend
from holdfast.changelog import ChangelogOptions, ChangelogStateBackend
from holdfast.runtime import (
    CheckpointConfig,
    FixedDelayRestart,
    NetworkConfig,
    NoRestart,
    StreamEnvironment,
)
from holdfast.runtime.api.restart_strategies import ExponentialDelayRestart
from holdfast.runtime.options.arguments import CodeArguments, choose_all, choose_restoring
from holdfast.runtime.options.command_line import CommandLine, running_with
from holdfast.runtime.options.environment_options import Restoring
from holdfast.runtime.options.table import GivenOptions, read_settings, session_settings
from holdfast.storage import Invalid, load_storage
from holdfast.storage.options.table import COMMAND_LINE

UNSAID = CodeArguments(
    parallelism=None,
    max_parallelism=None,
    backend=None,
    changelog=None,
    storage=None,
    checkpointing=None,
    restart=None,
    allow_pickle=None,
    endpoint=None,
)
CHECKPOINTS = "execution.checkpointing."
RECOVERY = "execution.state-recovery."
ON = {"state.changelog.enabled": "true"}


def given(
    line: dict[str, str] | None = None, session: dict[str, str] | None = None, prefix: str = ""
) -> GivenOptions:
    line, session = (
        {f"{prefix}{key}": text for key, text in (texts or {}).items()} for texts in (line, session)
    )
    return GivenOptions(
        *(read_settings(texts, source=COMMAND_LINE, prefix="-D") for texts in (line, session))
    )


def chosen(
    code: CodeArguments = UNSAID,
    line: dict[str, str] | None = None,
    session: dict[str, str] | None = None,
) -> Any:
    return choose_all(code, given(line, session))


def changelog_of(backend: Any) -> tuple[StateBackend, ChangelogOptions]:
    assert isinstance(backend, ChangelogStateBackend)
    return backend.inner, backend.options


def test_defaults_apply_where_no_source_has_a_value() -> None:
    counts = chosen()
    assert (counts.parallelism, counts.max_parallelism) == (2, 128)
    assert not counts.is_max_parallelism_set
    assert counts.backend == load_backend("hashmap")
    assert counts.storage.url == load_storage("memory").url
    assert counts.checkpointing == CheckpointConfig()
    assert counts.restart == NoRestart()
    assert (counts.allow_pickle, counts.endpoint) == (False, True)


SAID = {
    "parallelism.default": "5",
    "pipeline.max-parallelism": "1000",
    "state.backend.type": "rocksdb",
    "state.allow-pickle": "true",
    "endpoint.enabled": "false",
    "security.ssl.internal.enabled": "true",
    "slot.port": "45000-45100",
    f"{CHECKPOINTS}dir": "/tmp/somewhere",
    f"{CHECKPOINTS}interval": "3 s",
    f"{CHECKPOINTS}num-retained": "4",
    **ON,
}


@pytest.mark.parametrize(
    ("line", "session"),
    [
        (SAID, {}),
        ({}, SAID),
        (SAID, {"parallelism.default": "9", f"{CHECKPOINTS}num-retained": "9"}),
    ],
)
def test_options_stand_for_what_the_code_leaves_out(
    line: dict[str, str], session: dict[str, str]
) -> None:
    counts = chosen(line=line, session=session)
    assert (counts.parallelism, counts.max_parallelism) == (5, 1000)
    assert counts.is_max_parallelism_set
    assert changelog_of(counts.backend) == (load_backend("rocksdb"), ChangelogOptions())
    assert counts.storage.url == "file:///tmp/somewhere"
    assert counts.checkpointing == CheckpointConfig(interval="3 s", retained=4)
    assert counts.restart == ExponentialDelayRestart()
    assert (counts.allow_pickle, counts.endpoint) == (True, False)
    assert counts.network == NetworkConfig(ssl=True, slot_port="45000-45100")


CODE = CodeArguments(
    parallelism=1,
    max_parallelism=16,
    backend="hashmap",
    changelog=False,
    storage="memory",
    checkpointing=CheckpointConfig(interval="1s", retained=2),
    restart=FixedDelayRestart(attempts=3),
    allow_pickle=False,
    endpoint=True,
    network=NetworkConfig(
        ssl=True,
        driver_port=45000,
        memory="256 mb",
        directories=("/mnt/a", "/mnt/b"),
        buffer_timeout="7 ms",
    ),
)
CONTRADICTIONS = [
    ("parallelism.default", "5", "parallelism"),
    ("pipeline.max-parallelism", "1000", "max_parallelism"),
    ("state.backend.type", "rocksdb", "backend"),
    ("state.allow-pickle", "true", "allow_pickle"),
    ("endpoint.enabled", "false", "endpoint"),
    ("security.ssl.internal.enabled", "false", "ssl"),
    ("driver.port", "7", "driver_port"),
    ("taskmanager.memory.network.max", "1 gb", "memory"),
    ("io.tmp.dirs", "/mnt/a", "directories"),
    ("execution.buffer-timeout.interval", "1 s", "buffer_timeout"),
    (f"{CHECKPOINTS}dir", "/tmp/x", "storage"),
    (f"{CHECKPOINTS}interval", "3 s", "interval"),
    (f"{CHECKPOINTS}num-retained", "4", "retained"),
    ("restart-strategy.type", "none", "restart"),
]


@pytest.mark.parametrize(("key", "text", "name"), CONTRADICTIONS)
def test_the_code_goes_before_a_session_and_is_not_contradicted_by_the_command_line(
    key: str, text: str, name: str
) -> None:
    alone = chosen(CODE)
    beside = chosen(CODE, session={key: text})
    for field in ("parallelism", "max_parallelism", "checkpointing", "restart", "endpoint"):
        assert getattr(beside, field) == getattr(alone, field)
    assert (beside.backend, beside.storage.url) == (alone.backend, alone.storage.url)
    told = rf"do not agree about {name} \[the command line, -D{key}\].*Leave {name} out.*-D{key}"
    with pytest.raises(Invalid, match=told):
        chosen(CODE, line={key: text})


def test_to_say_the_same_is_no_contradiction() -> None:
    line = {
        "parallelism.default": "1",
        "state.backend.type": "hashmap",
        f"{CHECKPOINTS}interval": "1000",
        f"{CHECKPOINTS}num-retained": "2",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "3",
        "state.changelog.enabled": "false",
    }
    same, alone = chosen(CODE, line=line), chosen(CODE)
    assert (same.checkpointing, same.restart) == (alone.checkpointing, alone.restart)
    made = replace(CODE, backend=load_backend("rocksdb", timers="heap"))
    kept = chosen(made, line={"state.backend.type": "rocksdb"})
    assert kept.backend == made.backend, "with what the code says of it"
    with pytest.raises(Invalid, match="do not agree about backend"):
        chosen(made, line={"state.backend.type": "hashmap"})


def test_defaults_in_code_do_not_override_other_sources() -> None:
    code = replace(UNSAID, checkpointing="1s")
    line = {f"{CHECKPOINTS}timeout": "1 min", f"{CHECKPOINTS}min-pause": "2 s"}
    assert chosen(code, line=line).checkpointing == CheckpointConfig(
        interval="1s", timeout="1 min", min_pause="2 s"
    )
    with pytest.raises(Invalid, match="leaves no room for concurrent ones"):
        chosen(code, line=line | {f"{CHECKPOINTS}max-concurrent-checkpoints": "2"})


OPTIONS = ChangelogOptions(max_materialization_failures=7)
SEVEN = {"state.changelog.max-failures-allowed": "7"}


@pytest.mark.parametrize(
    ("said", "line", "session", "options"),
    [
        (None, ON, {}, ChangelogOptions()),
        (None, SEVEN, ON, OPTIONS),
        (None, {"state.changelog.enabled": "false"}, ON, None),
        (True, SEVEN, {}, OPTIONS),
        (OPTIONS, ON | SEVEN, {}, OPTIONS),
        (False, {"state.changelog.enabled": "false"}, ON, None),
    ],
)
def test_a_changelog_is_said_by_the_command_line(
    said: Any, line: dict[str, str], session: dict[str, str], options: ChangelogOptions | None
) -> None:
    backend = chosen(replace(UNSAID, changelog=said), line, session).backend
    if options is None:
        assert backend == load_backend("hashmap")
    else:
        assert changelog_of(backend) == (load_backend("hashmap"), options)


@pytest.mark.parametrize(
    ("code", "line"),
    [
        (replace(UNSAID, changelog=False), ON),
        (replace(UNSAID, changelog=False), SEVEN),
        (replace(UNSAID, changelog=True), {"state.changelog.enabled": "false"}),
        (replace(UNSAID, changelog=OPTIONS), ON),
        (replace(UNSAID, changelog=OPTIONS), SEVEN | {"state.changelog.enabled": "false"}),
        (replace(UNSAID, backend="changelog"), ON),
    ],
)
def test_a_changelog_is_not_contradicted_by_the_command_line(
    code: CodeArguments, line: dict[str, str]
) -> None:
    with pytest.raises(Invalid, match="do not agree about the changelog"):
        chosen(code, line)


NOWHERE = Restoring(None, None, allow_non_restored_state=False)
LATEST = Restoring("latest", None, allow_non_restored_state=False)
OTHER = Restoring("/a/chk-1", "claim", allow_non_restored_state=True)


@pytest.mark.parametrize(
    ("code", "line", "session", "counts"),
    [
        (NOWHERE, {}, {}, NOWHERE),
        (LATEST, {}, {"path": "/s/chk-2"}, LATEST),
        (NOWHERE, {}, {"path": "/s/chk-2", "claim-mode": "CLAIM"}, ("/s/chk-2", "claim", False)),
        (NOWHERE, {"path": "/b/chk-3"}, {"path": "/s/chk-2"}, ("/b/chk-3", None, False)),
        (
            LATEST,
            {"path": "/b/chk-3", "claim-mode": "NO_CLAIM"},
            {},
            ("/b/chk-3", "no-claim", False),
        ),
        (OTHER, {"path": "/b/chk-3"}, {"claim-mode": "CLAIM"}, ("/b/chk-3", None, True)),
        (OTHER, {"path": "/a/chk-1"}, {}, ("/a/chk-1", None, True)),
        (LATEST, {"claim-mode": "CLAIM"}, {}, ("latest", "claim", False)),
        (LATEST, {"ignore-unclaimed-state": "true"}, {}, ("latest", None, True)),
        (LATEST, {"ignore-missing-output": "true"}, {}, replace(LATEST, allow_missing_output=True)),
    ],
)
def test_where_a_job_begins(
    code: Restoring, line: dict[str, str], session: dict[str, str], counts: Any
) -> None:
    found = choose_restoring(code, given(line, session, RECOVERY))
    expected = counts if isinstance(counts, Restoring) else Restoring(*counts)
    assert replace(found, note="") == expected
    is_overruled = "path" in line and code.restore not in (None, line["path"])
    assert bool(found.note) is is_overruled
    if is_overruled:
        assert f"from {line['path']}, as the command line says, and not" in found.note


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ({"claim-mode": "NO_CLAIM"}, "claim_mode"),
        ({"ignore-unclaimed-state": "false"}, "allow_non_re"),
    ],
)
def test_restore_options_may_not_contradict_the_path_in_code(
    line: dict[str, str], name: str
) -> None:
    with pytest.raises(Invalid, match=f"do not agree about {name}"):
        choose_restoring(OTHER, given(line, prefix=RECOVERY))


@pytest.mark.parametrize("wrong", [True, "", 7])
def test_an_invalid_restore_path_is_refused_by_its_argument(wrong: Any) -> None:
    with pytest.raises(Invalid, match=r"restore says nothing that can be restored.*latest"):
        choose_restoring(replace(LATEST, restore=wrong), given())


def test_a_session_says_it_behind_a_prefix() -> None:
    conf = {"spark.holdfast.parallelism.default": "3", "spark.app.name": "x"}
    assert session_settings(conf).values == {"parallelism": 3}
    conf["spark.holdfast.parallelism"] = "3"
    with pytest.raises(Invalid, match=r"'parallelism' \[the session, spark.holdfast.parallelism\]"):
        session_settings(conf)


def test_an_environment_hears_the_command_line_before_there_is_a_session() -> None:
    with (
        running_with(CommandLine({"parallelism.default": "4"})) as line,
        pytest.raises(Invalid, match="do not agree about parallelism"),
    ):
        StreamEnvironment(parallelism=2)
    assert not line.has_environment


def test_an_environment_reads_the_file_before_there_is_a_session(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = quick_path / "config.yaml"
    path.write_text("parallelism: {default: none}")
    monkeypatch.setenv("HOLDFAST_CONF", str(path))
    with pytest.raises(Invalid, match=r"config\.yaml \(HOLDFAST_CONF\), line 1, parallelism\."):
        StreamEnvironment()


ROCKSDB = "state.backend.rocksdb."
MEMORY = {f"{ROCKSDB}memory.fixed-per-slot": "64m"}
FILES = {f"{ROCKSDB}files.open": "100"}


def test_options_of_rocksdb_stand_for_what_the_code_leaves_out() -> None:
    by_name = replace(UNSAID, backend="rocksdb")
    assert chosen(by_name, MEMORY, FILES).backend == RocksDBStateBackend(
        memory=64 << 20, options={"max_open_files": 100}
    )
    less = {f"{ROCKSDB}memory.fixed-per-slot": "32m"}
    assert chosen(by_name, MEMORY, less).backend == chosen(by_name, MEMORY).backend
    own = RocksDBStateBackend(memory="128m", options={"max_open_files": 70})
    code = replace(UNSAID, backend=own)
    assert chosen(code, {f"{ROCKSDB}timer-service.factory": "HEAP"}, FILES).backend == replace(
        own, timers="heap"
    )
    for line in (MEMORY, FILES):
        with pytest.raises(Invalid, match="do not agree about"):
            chosen(code, line)


def test_options_of_rocksdb_are_of_no_other_backend() -> None:
    with pytest.raises(Invalid, match=r"and the job has another one.*state\.backend\.type=rocksdb"):
        chosen(line=MEMORY)
    assert chosen(session=MEMORY).backend == load_backend("hashmap"), "it is made for many programs"


def layered(
    code: CodeArguments = UNSAID,
    line: dict[str, str] | None = None,
    file: dict[str, str] | None = None,
    session: dict[str, str] | None = None,
) -> Any:
    """What counts; options of files are in the order of their lines."""
    numbered = {key: number for number, key in enumerate(file or {}, start=1)}
    in_file = read_settings(file or {}, source="x.yaml", lines=numbered)
    typed = read_settings(line or {}, source=COMMAND_LINE, prefix="-D", file=in_file)
    behind = {f"spark.holdfast.{key}": text for key, text in (session or {}).items()}
    return choose_all(code, GivenOptions(typed, session_settings(behind), in_file))


def test_a_file_comes_behind_the_command_line_and_before_the_session() -> None:
    key = "parallelism.default"
    four = {key: "4"}
    assert layered(file=four, session={key: "5"}).parallelism == 4
    assert layered(line={key: "3"}, file=four).parallelism == 3
    assert layered(replace(UNSAID, parallelism=2), file=four).parallelism == 2
    merged = layered(
        line={f"{CHECKPOINTS}interval": "1 s"},
        file={f"{CHECKPOINTS}interval": "2 s", f"{CHECKPOINTS}num-retained": "4"},
        session={f"{CHECKPOINTS}num-retained": "5", f"{CHECKPOINTS}timeout": "6 s"},
    )
    assert merged.checkpointing == CheckpointConfig(interval="1 s", retained=4, timeout="6 s")
    logged = layered(line=SEVEN, file=ON).backend
    assert changelog_of(logged) == (load_backend("hashmap"), OPTIONS)


def test_a_strategy_of_restarts_is_named_by_one_source_and_set_by_others() -> None:
    delay = "restart-strategy.fixed-delay."
    file = {"restart-strategy.type": "fixed-delay", f"{delay}attempts": "3", f"{delay}delay": "9 s"}
    more = {f"{delay}attempts": "5"}
    assert layered(line=more, file=file).restart == FixedDelayRestart(attempts=5, delay="9 s")
    assert layered(line={"restart-strategy.type": "none"}, file=file).restart == NoRestart()
    own = replace(UNSAID, restart=FixedDelayRestart(attempts=5))
    assert layered(own, file=file).restart == own.restart
    with pytest.raises(Invalid, match=r"do not agree about restart \[the command line, -D.*att"):
        layered(own, line={f"{delay}attempts": "5"}, file=file)
    rate = {"restart-strategy.failure-rate.delay": "1 s"}
    with pytest.raises(Invalid, match=r"restart strategy is set: failure-rate \[the command line"):
        layered(line=rate, file=file)


def test_options_of_rocksdb_in_a_file_are_passed_over_with_another_backend() -> None:
    file = {"state.backend.type": "rocksdb", **MEMORY}
    assert layered(file=file).backend == RocksDBStateBackend(memory=64 << 20)
    hashmap = {"state.backend.type": "hashmap"}
    assert layered(line=hashmap, file=file).backend == load_backend("hashmap")
    with pytest.raises(Invalid, match=r"another backend is named \[the command line, -D.*files"):
        layered(line=FILES, file=hashmap)


def test_a_contradiction_of_two_sources_names_both() -> None:
    pause, two = (
        {f"{CHECKPOINTS}min-pause": "1 s"},
        {f"{CHECKPOINTS}max-concurrent-checkpoints": "2"},
    )
    told = r"\[the command line, -D.*min-pause; x\.yaml, line 1, .*concurrent-checkpoints\]"
    with pytest.raises(Invalid, match=told):
        layered(line=pause, file=two)
    with pytest.raises(Invalid, match=r"\[x\.yaml, line 1, .*min-pause; the program\]"):
        layered(replace(UNSAID, checkpointing=CheckpointConfig(max_concurrent=2)), file=pause)


def test_a_contradiction_names_no_line_that_has_no_effect() -> None:
    own = replace(UNSAID, checkpointing=CheckpointConfig(min_pause="2 s"))
    file = {f"{CHECKPOINTS}min-pause": "0 s", f"{CHECKPOINTS}max-concurrent-checkpoints": "2"}
    pause = {f"{CHECKPOINTS}min-pause": "3 s"}
    with pytest.raises(Invalid, match=r"\[x\.yaml, line 2, .*-checkpoints; the program\]"):
        layered(own, file=file, session=pause)
    with pytest.raises(Invalid, match=r"\[x\.yaml, line 2, .*-checkpoints; the session, [^;]*\]"):
        layered(file={"log.level": "OFF", **dict([file.popitem()])}, session=pause)


def test_a_shared_file_may_turn_off_checkpoints_of_backlogs() -> None:
    file = {f"{CHECKPOINTS}interval-during-backlog": "0"}
    found = layered(file=file).checkpointing
    assert (found.interval_ms, found.interval_during_backlog_ms) == (None, 0)
    own = replace(UNSAID, checkpointing="2 s")
    assert layered(own, file=file).checkpointing.interval_during_backlog_ms == 0


def test_options_that_need_each_other_may_come_from_two_sources() -> None:
    file = {f"{CHECKPOINTS}interval": "1 s", f"{CHECKPOINTS}timeout": "1 h"}
    line = {f"{CHECKPOINTS}interval-during-backlog": "9 s", f"{CHECKPOINTS}min-pause": "20 min"}
    assert layered(line=line, file=file).checkpointing == CheckpointConfig(
        interval="1 s", interval_during_backlog="9 s", timeout="1 h", min_pause="20 min"
    )
    with pytest.raises(Invalid, match=r"\[the command line, -D.*backlog\].*and interval None"):
        layered(line={f"{CHECKPOINTS}interval-during-backlog": "9 s"})
    with pytest.raises(Invalid, match=r"longer than a checkpoint may take \[.*min-pause\]"):
        layered(line={f"{CHECKPOINTS}min-pause": "20 min"})


def test_older_names_are_told() -> None:
    older = "state.savepoints.dir"
    options = GivenOptions(
        read_settings({older: "/s"}, source=COMMAND_LINE, prefix="-D"),
        read_settings({}, source="the session"),
        read_settings({"parallelism.default": "3"}, source="x.yaml", lines={older: 7}),
    )
    assert options.older_names() == (
        f"the command line, -D{older} is an older name: write {CHECKPOINTS}savepoint-dir",
    )
