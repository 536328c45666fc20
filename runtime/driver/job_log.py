"""What jobs say while they run: the logger `holdfast`, on stderr unless the program logs by itself.

A program that configures logging, before or after, has all of it its own way: then nothing is
written here, and no level is set but one that was asked for.
"""

from __future__ import annotations

import logging
import sys
import threading

__all__ = ["LEVELS", "speak"]

LEVELS = {
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARNING": logging.WARNING,
    "ERROR": logging.ERROR,
    "OFF": logging.CRITICAL + 1,
}
"""What may be asked for; without it, INFO."""
_LOGGER = logging.getLogger("holdfast")
_lock = threading.Lock()


def speak(level: str | None = None) -> None:
    """Have what jobs say be seen, from this level on; None leaves a level that is set."""
    with _lock:
        _withdraw_if_others()
        if level is not None:
            _LOGGER.setLevel(LEVELS[level])
        if not _LOGGER.hasHandlers():
            _LOGGER.addHandler(_OnStderr(sets_level=_LOGGER.level == logging.NOTSET))


class _OnStderr(logging.Handler):
    """Writes to the stderr of the moment: a terminal's progress may have put its own there."""

    def __init__(self, *, sets_level: bool) -> None:
        super().__init__()
        self.sets_level = sets_level
        if sets_level:
            _LOGGER.setLevel(logging.INFO)
        self.setFormatter(
            logging.Formatter("%(asctime)s %(levelname)s holdfast: %(message)s", "%H:%M:%S")
        )

    def emit(self, record: logging.LogRecord) -> None:
        if _has_others():  # they were added since, and have this record, too
            return
        try:
            sys.stderr.write(f"{self.format(record)}\n")
            sys.stderr.flush()
        except Exception:  # noqa: BLE001 - as handlers of the standard library do
            self.handleError(record)


def _has_others() -> bool:
    others = [each for each in _LOGGER.handlers if not isinstance(each, _OnStderr)]
    return bool(others or (_LOGGER.propagate and logging.getLogger().handlers))


def _withdraw_if_others() -> None:
    if not _has_others():
        return
    for handler in [each for each in _LOGGER.handlers if isinstance(each, _OnStderr)]:
        _LOGGER.removeHandler(handler)
        if handler.sets_level and _LOGGER.level == logging.INFO:
            _LOGGER.setLevel(logging.NOTSET)
