"""The log of jobs is on stderr by default, and has the program's way where that logs by itself."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest

from holdfast.runtime.api.checkpoint_config import CheckpointConfig
from holdfast.runtime.driver.job_log import LEVELS, speak
from holdfast.runtime.driver.startup.start_notes import StartNotes, checkpointing_note

HOLDFAST = logging.getLogger("holdfast")
OURS = logging.getLogger("holdfast.runtime.driver.run")


@pytest.fixture(autouse=True)
def _level() -> Iterator[None]:
    before = HOLDFAST.level
    HOLDFAST.setLevel(logging.NOTSET)
    yield
    HOLDFAST.setLevel(before)


def begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a program that has not touched logging.

    Called in each test: to what a fixture sets up pytest adds handlers of its own.
    """
    monkeypatch.setattr(HOLDFAST, "propagate", False)
    monkeypatch.setattr(HOLDFAST, "handlers", [])


def say() -> None:
    for level in ("debug", "info", "warning", "error"):
        getattr(OURS, level)("%s said", level)


def said(capsys: pytest.CaptureFixture[str]) -> list[str]:
    say()
    captured = capsys.readouterr()
    assert captured.out == ""
    return [line.split()[3] for line in captured.err.splitlines()]


def test_information_and_warnings_are_on_stderr(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(monkeypatch)
    speak()
    speak()
    OURS.warning("the %s", "line")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(" WARNING holdfast: the line")
    assert said(capsys) == ["info", "warning", "error"]


@pytest.mark.parametrize(
    ("level", "seen"), [("DEBUG", 4), ("INFO", 3), ("WARNING", 2), ("ERROR", 1), ("OFF", 0)]
)
def test_a_level_says_how_much(
    level: str,
    seen: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begin(monkeypatch)
    speak(level)
    assert len(said(capsys)) == seen
    speak()  # another environment, which says nothing of it
    assert len(said(capsys)) == seen
    assert level in LEVELS


def test_a_level_of_the_program_stays(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(monkeypatch)
    HOLDFAST.setLevel(logging.ERROR)
    speak()
    assert said(capsys) == ["error"]


@pytest.mark.parametrize("logger", [logging.getLogger(), HOLDFAST])
def test_a_program_that_logs_by_itself_has_it_its_own_way(
    logger: logging.Logger, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(monkeypatch)
    own = io.StringIO()
    monkeypatch.setattr(HOLDFAST, "propagate", True)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setattr(logger, "handlers", [logging.StreamHandler(own)])
    speak()
    say()
    assert own.getvalue().splitlines() == ["warning said", "error said"]
    assert capsys.readouterr().err == ""
    speak("DEBUG")  # what is asked for by name is done
    say()
    assert len(own.getvalue().splitlines()) == 6


def test_a_program_that_begins_to_log_later_has_each_line_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(monkeypatch)
    speak()
    own = io.StringIO()
    monkeypatch.setattr(HOLDFAST, "propagate", True)
    monkeypatch.setattr(logging.getLogger(), "handlers", [logging.StreamHandler(own)])
    say()
    assert capsys.readouterr().err == ""
    speak()
    say()
    assert len(own.getvalue().splitlines()) == 5, "its level counts from the next job on"


def test_all_notes_of_a_start_are_logged(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(monkeypatch)
    speak()
    notes = StartNotes(overridden="a", facts=("b",), missing=("c", "d"))
    assert notes.all == ("a", "b", "c", "d")
    notes.log("orders", checkpointing_note("s3://b/c", CheckpointConfig(interval="1500ms")))
    lines = [line.partition(" ")[2] for line in capsys.readouterr().err.splitlines()]
    assert lines == [
        "INFO holdfast: job 'orders' starts: a checkpoint every 1.5 s at s3://b/c",
        "WARNING holdfast: job 'orders': a",
        "INFO holdfast: job 'orders': b",
        "WARNING holdfast: job 'orders': c",
        "WARNING holdfast: job 'orders': d",
    ]


def test_the_note_says_if_no_checkpoints_are_taken() -> None:
    assert "a final one at x" in checkpointing_note("x", CheckpointConfig())
    none = checkpointing_note("x", CheckpointConfig(final_checkpoint=False))
    assert none == "no checkpoints but those that are asked for, at x"
