"""Settings are checked when they are made; durations are read as people write them."""

import pickle
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.runtime.api.checkpoint_config import CheckpointConfig
from holdfast.storage import Invalid
from holdfast.storage.options.durations import duration_ms


@pytest.mark.parametrize(
    ("written", "milliseconds"),
    [
        ("500ms", 500),
        ("5s", 5_000),
        ("5 S", 5_000),
        ("10 min", 600_000),
        ("10m", 600_000),
        ("1h 30min", 5_400_000),
        ("1h30min", 5_400_000),
        ("1 day 1 hour 1 minute 1 second 1 millisecond", 90_061_001),
        ("1.5 s", 1_500),
        ("0s", 0),
        ("  7s ", 7_000),
        (0, 0),
        (timedelta(minutes=2, milliseconds=3), 120_003),
        (timedelta(0), 0),
    ],
)
def test_a_duration_is_read(written: Any, milliseconds: int) -> None:
    assert duration_ms(written, name="timeout") == milliseconds


@pytest.mark.parametrize(
    "written",
    ["", "s", "5 parsecs", "-5s", "5s,", "1e3s", "five s", None, True, [5], b"5s", "5s 3"],
)
def test_text_that_is_not_a_duration_is_refused(written: Any) -> None:
    with pytest.raises(Invalid, match="timeout is not a duration") as caught:
        duration_ms(written, name="timeout")
    assert caught.value.found == repr(written)
    assert "1h 30min" in caught.value.fix


@pytest.mark.parametrize(("written", "number"), [(1000, "1000"), (0.5, "0.5"), (" 5 ", "5")])
def test_a_number_without_a_unit_is_refused_with_both_readings(written: Any, number: str) -> None:
    with pytest.raises(Invalid, match="interval is a number without a unit") as caught:
        CheckpointConfig(interval=written)
    assert f'"{number}ms" for milliseconds' in caught.value.fix
    assert f'"{number}s" for seconds' in caught.value.fix


@pytest.mark.parametrize("written", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_none_is_no_duration(written: Any) -> None:
    with pytest.raises(Invalid, match="not a duration"):
        duration_ms(written, name="timeout")


@pytest.mark.parametrize("written", [timedelta(seconds=-1), "999999999999999999 d"])
def test_a_duration_out_of_range_is_refused(written: Any) -> None:
    with pytest.raises(Invalid, match="timeout is out of range"):
        duration_ms(written, name="timeout")


@pytest.mark.parametrize("written", [timedelta(microseconds=400), "0.4ms"])
def test_a_duration_is_not_rounded_to_nothing(written: Any) -> None:
    with pytest.raises(Invalid, match="expected 1 ms or more"):
        duration_ms(written, name="min_pause")


def test_the_shortest_duration_is_named() -> None:
    assert duration_ms("10ms", name="interval", least_ms=10) == 10
    with pytest.raises(Invalid, match="interval is out of range: expected 10 ms or more"):
        duration_ms("9ms", name="interval", least_ms=10)


@given(st.integers(0, 10**12))
def test_all_ways_to_write_a_duration_agree(milliseconds: int) -> None:
    seconds, rest = divmod(milliseconds, 1000)
    ways = (f"{milliseconds}ms", f"{seconds} s {rest} ms", timedelta(milliseconds=milliseconds))
    assert {duration_ms(way, name="x") for way in ways} == {milliseconds}


@given(st.text(alphabet="0123456789.hdms in-", max_size=12))
def test_any_text_is_a_duration_or_a_clear_error(text: str) -> None:
    with suppress(Invalid):
        assert duration_ms(text, name="x") >= 0


def test_the_defaults_are_those_of_flink() -> None:
    config = CheckpointConfig()
    assert config.interval_ms is None
    assert config.interval_during_backlog_ms is None
    assert config.mode == "exactly-once"
    assert config.timeout_ms == 600_000
    assert config.min_pause_ms == 0
    assert config.sync_phase_timeout_ms == 0
    assert config.max_concurrent == 1
    assert config.tolerable_failures == 0
    assert config.retained == 1
    assert config.deletes_per_s == 1000
    assert config.on_cancel == "delete"
    assert config.final_checkpoint
    assert config.compression == ""


def test_settings_keep_their_values() -> None:
    config = CheckpointConfig(
        interval="5s",
        timeout=timedelta(minutes=1),
        min_pause="500ms",
        on_cancel="retain",
        retained=3,
    )
    assert (config.interval_ms, config.timeout_ms, config.min_pause_ms) == (5_000, 60_000, 500)
    assert pickle.loads(pickle.dumps(config)) == config
    assert "interval='5s'" in repr(config)


@pytest.mark.parametrize(
    "wrong",
    [
        {"interval": "0s"},
        {"interval": "9ms"},
        {"interval": "soon"},
        {"interval_during_backlog": "9ms"},
        {"interval_during_backlog": "soon"},
        {"timeout": "1ms"},
        {"timeout": None},
        {"min_pause": -1},
        {"max_concurrent": 0},
        {"max_concurrent": 1.5},
        {"max_concurrent": True},
        {"tolerable_failures": -1},
        {"tolerable_failures": None},
        {"retained": 0},
        {"deletes_per_s": 0},
        {"deletes_per_s": 0.5},
        {"deletes_per_s": True},
        {"deletes_per_s": "fast"},
        {"on_cancel": "keep"},
        {"mode": "at-most-once"},
        {"mode": None},
        {"final_checkpoint": "yes"},
        {"compression": "snappy"},
        {"compression": None},
    ],
    ids=str,
)
def test_an_invalid_setting_is_refused_by_name(wrong: dict[str, Any]) -> None:
    (name, value) = next(iter(wrong.items()))
    with pytest.raises(Invalid, match=name) as caught:
        CheckpointConfig(**wrong)
    assert caught.value.found == repr(value)
    assert caught.value.expected


def test_both_modes_are_known() -> None:
    assert CheckpointConfig().mode == "exactly-once"
    assert CheckpointConfig(mode="at-least-once").mode == "at-least-once"


def test_checkpoints_are_not_more_frequent_during_a_backlog() -> None:
    assert CheckpointConfig(interval="2s").interval_during_backlog_ms == 2_000
    written: Any
    for written, interval_ms in (("2s", 2_000), ("1min", 60_000), ("0s", 0), (0, 0)):
        config = CheckpointConfig(interval="2s", interval_during_backlog=written)
        assert config.interval_during_backlog_ms == interval_ms
    assert CheckpointConfig(interval_during_backlog=0).interval_during_backlog_ms == 0
    for interval in ("2s", None):
        with pytest.raises(Invalid, match="more frequent during a backlog") as caught:
            CheckpointConfig(interval=interval, interval_during_backlog="1s")
        assert caught.value.found == f"interval_during_backlog '1s' and interval {interval!r}"


def test_a_part_of_a_checkpoint_takes_no_longer_than_all_of_it() -> None:
    assert CheckpointConfig(sync_phase_timeout="10min").sync_phase_timeout_ms == 600_000
    with pytest.raises(Invalid, match="longer than all of it") as caught:
        CheckpointConfig(sync_phase_timeout="2s", timeout="1s")
    assert caught.value.found == "sync_phase_timeout '2s' and timeout '1s'"


def test_a_pause_is_not_longer_than_a_checkpoint_may_take() -> None:
    CheckpointConfig(min_pause="10min")
    with pytest.raises(Invalid, match="pause between checkpoints is longer") as caught:
        CheckpointConfig(min_pause="11s", timeout="10s")
    assert caught.value.found == "min_pause '11s' and timeout '10s'"


def test_a_pause_and_concurrent_checkpoints_exclude_each_other() -> None:
    CheckpointConfig(min_pause="0s", max_concurrent=2)
    CheckpointConfig(min_pause="1s", max_concurrent=1)
    with pytest.raises(Invalid, match="no room for concurrent") as caught:
        CheckpointConfig(min_pause="1s", max_concurrent=2)
    assert caught.value.found == "min_pause '1s' and max_concurrent 2"
