"""A changelog's options as text: each of Flink's names is honoured, or refused with a way on."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from holdfast.changelog import ChangelogOptions
from holdfast.changelog.options import CHANGELOG, CHANGELOG_OPTIONS
from holdfast.changelog.options import changelog_options as options_of
from holdfast.storage import Invalid
from holdfast.storage.options.table import OptionTable

ON = {"state.changelog.enabled": "true"}
TABLE = OptionTable(CHANGELOG_OPTIONS)
DFS = "state.changelog.dstl.dfs."


def changelog_options(
    texts: dict[str, str], *, enabled: bool | None = None
) -> ChangelogOptions | None:
    return options_of(TABLE.read(texts, source="here").of(CHANGELOG), enabled=enabled)


def test_the_changelog_is_off_by_default() -> None:
    assert changelog_options({}) is None
    assert changelog_options({"state.changelog.enabled": "false"}) is None
    assert changelog_options(ON) == ChangelogOptions()
    assert changelog_options({"state.changelog.enabled": " True "}) == ChangelogOptions()


def test_code_may_say_whether_and_settings_how() -> None:
    how = {"state.changelog.max-failures-allowed": "7"}
    assert changelog_options(how, enabled=True) == ChangelogOptions(max_materialization_failures=7)
    assert changelog_options(how | ON, enabled=False) is None
    off = {"state.changelog.enabled": "false"}
    assert changelog_options(off, enabled=True) == ChangelogOptions()


HONOURED: list[tuple[str, str, str, Any]] = [
    ("state.changelog.periodic-materialize.interval", "10 min", "materialization_interval_s", 600),
    ("state.changelog.periodic-materialize.interval", "90000", "materialization_interval_s", 90),
    ("state.changelog.max-failures-allowed", "0", "max_materialization_failures", 0),
    (f"{DFS}preemptive-persist-threshold", "5mb", "persist_threshold_bytes", 5 << 20),
    (f"{DFS}preemptive-persist-threshold", "700 Kb", "persist_threshold_bytes", 700 << 10),
    (f"{DFS}batch.persist-delay", "10ms", "batch_delay_s", 0.01),
    (f"{DFS}batch.persist-delay", "0 s", "batch_delay_s", 0),
    (f"{DFS}batch.persist-size-threshold", "1 gb", "batch_bytes", 1 << 30),
    (f"{DFS}upload.max-in-flight", "123456789 bytes", "max_in_flight_bytes", 123_456_789),
    (f"{DFS}upload.max-in-flight", "6291456", "max_in_flight_bytes", 6 << 20),
    (f"{DFS}upload.num-threads", "9", "upload_threads", 9),
    (f"{DFS}upload.retry-policy", "none", "retry_policy", "none"),
    (f"{DFS}upload.timeout", "2500 µs", "upload_timeout_s", 0.0025),
    (f"{DFS}upload.max-attempts", "4", "upload_attempts", 4),
    (f"{DFS}upload.next-attempt-delay", "1 h", "next_attempt_delay_s", 3600),
    (f"{DFS}compression.enabled", "true", "compression", "lz4"),
    (f"{DFS}compression.enabled", "false", "compression", ""),
    ("state.changelog.storage", "filesystem", "storage", "checkpoints"),
    ("state.changelog.storage", "of-a-plug-in", "storage", "of-a-plug-in"),
    ("state.changelog.materialize.log-ratio", "2.5", "log_ratio", 2.5),
    ("state.changelog.materialize.least-log-size", "1m", "least_log_bytes", 1 << 20),
    ("state.changelog.materialize.most-log-pieces", "10", "most_log_pieces", 10),
    (f"{DFS}preemptive-persist-interval", "2 days", "persist_interval_s", 172_800),
    (f"{DFS}preemptive-persist-interval", "never", "persist_interval_s", None),
    ("state.changelog.local-copies", "/data/copies", "local_copies", "/data/copies"),
]


@pytest.mark.parametrize(("name", "text", "field", "value"), HONOURED)
def test_a_setting_becomes_an_option(name: str, text: str, field: str, value: Any) -> None:
    expected = ChangelogOptions(**{field: value})
    assert changelog_options({**ON, name: text}) == expected
    if name.startswith(DFS):
        old_name = name.removeprefix("state.changelog.")
        assert changelog_options({**ON, old_name: text}) == expected


def test_every_option_has_a_setting() -> None:
    fields = {field.name for field in dataclasses.fields(ChangelogOptions)}
    assert fields == {field for _, _, field, _ in HONOURED}


def test_options_that_go_together_may_be_set_together() -> None:
    both = {f"{DFS}upload.max-in-flight": "1mb", f"{DFS}preemptive-persist-threshold": "1mb"}
    options = changelog_options(ON | both)
    assert options is not None
    assert options.max_in_flight_bytes == options.persist_threshold_bytes == 1 << 20
    with pytest.raises(Invalid, match="persist_threshold_bytes is out of range"):
        changelog_options({**ON, f"{DFS}upload.max-in-flight": "1mb"})


def test_materialization_by_time_can_be_switched_off() -> None:
    off = {"state.changelog.periodic-materialize.enabled": "false"}
    interval = {"state.changelog.periodic-materialize.interval": "5s"}
    for settings in (off, off | interval):
        options = changelog_options(ON | settings)
        assert options is not None
        assert options.materialization_interval_s is None


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        (
            "state.changelog.enabled",
            "yes",
            "changelog.enabled' cannot have.*true or fal",
        ),
        (
            "state.changelog.periodic-materialize.enabled",
            "",
            "cannot have this value.*expected true or",
        ),
        ("state.changelog.periodic-materialize.interval", "10 parsecs", "a duration.*'10 parsecs'"),
        ("state.changelog.periodic-materialize.interval", "-1 s", "a duration such as 10 min"),
        ("state.changelog.periodic-materialize.interval", "0 s", "out of range.*a number from 0.0"),
        ("state.changelog.max-failures-allowed", "three", "a whole number, found 'three'"),
        ("state.changelog.materialize.log-ratio", "nan", "a number such as"),
        (f"{DFS}preemptive-persist-threshold", "5 mbit", "a size such as 64 mb.*'5 mbit'"),
        (f"{DFS}preemptive-persist-threshold", "0", "out of range.*1 or more, found 0"),
        (f"{DFS}upload.num-threads", "0", "upload.num-threads': .*is out of range.*1 or more"),
        (f"{DFS}upload.retry-policy", "exponential", "fixed or none, found 'exponential'"),
        (f"{DFS}upload.retry-policy", "", "fixed or none, found ''"),
        ("state.changelog.local-copies", " ", "expected text, found ''"),
        ("dstl.dfs.upload.timeout", "1.5", "'dstl.dfs.upload.timeout' cannot have this"),
    ],
)
def test_a_value_that_cannot_be_is_refused(name: str, text: str, told: str) -> None:
    for enabled in ({}, ON, {"state.changelog.enabled": "false"}):
        with pytest.raises(Invalid, match=told):
            changelog_options({**enabled, name: text})


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("state.changelog.enable", "such as state.changelog.enabled"),
        ("state.changelog.dstl.dfs.upload.max-inflight", "such as .*dfs.upload.max-in-flight"),
        ("dstl.dfs.compresion.enabled", "no option 'dstl.dfs.compresion.enabled' .*compression"),
        ("dstl.dfs.zzzzzzzzzz", "docs/options.md lists all"),
    ],
)
def test_an_unknown_name_is_told_those_that_are_near(name: str, told: str) -> None:
    with pytest.raises(Invalid, match=told):
        changelog_options({**ON, name: "1"})


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("state.changelog.storage", "memory", "in memory only.*Leave it out"),
        (f"{DFS}base-path", "s3://bucket/log", "Leave it out: the log lies in the job's folder"),
        ("dstl.dfs.base-path", "s3://bucket/log", "Leave it out: the log lies in the job's folder"),
        (f"{DFS}upload.buffer-size", "1mb", "part_size_bytes"),
        (f"{DFS}discard.num-threads", "1", "deletes_per_s"),
        (f"{DFS}download.local-cache.idle-timeout-ms", "10 min", "state.changelog.local-copies"),
    ],
)
def test_an_option_of_flink_without_meaning_here_is_refused_with_advice(
    name: str, text: str, told: str
) -> None:
    with pytest.raises(Invalid, match=told):
        changelog_options({**ON, name: text})


def test_a_setting_under_both_its_names_is_refused() -> None:
    with pytest.raises(Invalid, match="is there twice"):
        changelog_options(
            {**ON, f"{DFS}upload.num-threads": "1", "dstl.dfs.upload.num-threads": "1"}
        )


def test_settings_without_the_switch_are_not_passed_over() -> None:
    with pytest.raises(
        Invalid, match=r"found state.changelog.dstl.dfs.upload.num-threads\. Set .*enabled to true"
    ):
        changelog_options({"dstl.dfs.upload.num-threads": "1"})
