"""Whether a job's changes are logged: the code says it, or the session under Flink's names."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from holdfast.backends import load_backend
from holdfast.changelog import ChangelogOptions, ChangelogStateBackend
from holdfast.runtime import StreamEnvironment
from holdfast.runtime.options.arguments import with_changelog
from holdfast.runtime.options.table import GivenOptions, session_settings
from holdfast.storage import Invalid
from holdfast.storage.options.table import Settings

ON = {"state.changelog.enabled": "true"}
OFF = {"state.changelog.enabled": "false"}
FEW = {"state.changelog.max-failures-allowed": "7"}
SEVEN = ChangelogOptions(max_materialization_failures=7)
HASHMAP = load_backend("hashmap")


def given(texts: dict[str, str]) -> GivenOptions:
    conf = {f"spark.holdfast.{key}": text for key, text in texts.items()}
    return GivenOptions(Settings(), session_settings(conf))


@pytest.mark.parametrize(
    ("said", "settings", "options"),
    [
        (None, {}, None),
        (None, OFF | FEW, None),
        (None, ON, ChangelogOptions()),
        (None, ON | FEW, SEVEN),
        (True, {}, ChangelogOptions()),
        (True, OFF | FEW, SEVEN),
        (False, ON | FEW, None),
        (ChangelogOptions(log_ratio=3), OFF | FEW, ChangelogOptions(log_ratio=3)),
    ],
)
def test_code_wins_over_the_session(
    said: Any, settings: dict[str, str], options: ChangelogOptions | None
) -> None:
    backend = with_changelog(HASHMAP, given(settings), changelog=said)
    if options is None:
        assert backend is HASHMAP
    else:
        assert isinstance(backend, ChangelogStateBackend)
        assert backend.inner is HASHMAP
        assert backend.options == options


def test_a_backend_that_is_a_changelog_stays_as_it_was_made() -> None:
    backend = ChangelogStateBackend(HASHMAP, SEVEN)
    for settings in ({}, ON, OFF):
        assert with_changelog(backend, given(settings), changelog=None) is backend


@pytest.mark.parametrize("said", [True, False, ChangelogOptions()], ids=["on", "off", "options"])
def test_a_changelog_is_not_said_twice(said: Any) -> None:
    with pytest.raises(Invalid, match=r"the backend is a changelog, and `changelog` is given too"):
        StreamEnvironment(backend="changelog", changelog=said)


def test_a_changelog_is_of_its_kinds() -> None:
    with pytest.raises(Invalid, match=r"expected True, False, ChangelogOptions, or None.*'on'"):
        StreamEnvironment(changelog="on")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (FEW, r"Set state\.changelog\.enabled to true or to false"),
        (ON | {"state.changelog.storage": "nowhere"}, "'nowhere'.*checkpoints"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(settings: dict[str, str], told: str) -> None:
    with pytest.raises(Invalid, match=told):
        with_changelog(HASHMAP, given(settings), changelog=None)


@pytest.mark.slow
def test_a_session_switches_it_on_for_its_environments(spark: SparkSession) -> None:
    name = "spark.holdfast.state.changelog.enabled"
    assert StreamEnvironment(spark).backend == HASHMAP
    spark.conf.set(name, "true")
    try:
        logged = StreamEnvironment(spark, backend="rocksdb").backend
    finally:
        spark.conf.unset(name)
    assert isinstance(logged, ChangelogStateBackend)
    assert logged.inner == load_backend("rocksdb")
