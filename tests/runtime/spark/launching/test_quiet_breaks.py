"""Loggers of Spark are put back whichever call to the JVM breaks off; no session is needed."""

from __future__ import annotations

from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.runtime.spark.launching import spark_log
from holdfast.runtime.spark.launching.spark_log import QuietLog

CONFIGURED = spark_log._NAMES[3]


class PlayedLog:
    """Log4j, of which one call fails."""

    def __init__(self, fails_at: int) -> None:
        self.levels = {CONFIGURED: "WARN"}
        self.calls_left = fails_at
        level = SimpleNamespace(OFF="OFF")
        configurator = SimpleNamespace(Configurator=SimpleNamespace(setLevel=self.set_level))
        log4j = SimpleNamespace(
            Level=level,
            LogManager=SimpleNamespace(getContext=lambda _: self),
            core=SimpleNamespace(config=configurator),
        )
        apache = SimpleNamespace(logging=SimpleNamespace(log4j=log4j))
        self._jvm = SimpleNamespace(org=SimpleNamespace(apache=apache))

    def called(self) -> None:
        self.calls_left -= 1
        if self.calls_left == 0:
            raise ConnectionError

    def getConfiguration(self) -> PlayedLog:  # noqa: N802 - Log4j's
        self.called()
        return self

    def getLoggers(self) -> dict[str, Any]:  # noqa: N802
        self.called()
        return {
            name: SimpleNamespace(getLevel=lambda level=level: level)
            for name, level in self.levels.items()
        }

    def removeLogger(self, name: str) -> None:  # noqa: N802
        self.called()
        self.levels.pop(name, None)

    def updateLoggers(self) -> None:  # noqa: N802
        self.called()

    def set_level(self, name: str, level: str) -> None:
        self.called()
        self.levels[name] = level


@pytest.mark.parametrize("fails_at", range(1, 40))
def test_levels_are_as_before_whichever_call_breaks_off(
    fails_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_log, "_before", {})
    monkeypatch.setattr(spark_log, "_holders", set())
    log: Any = PlayedLog(fails_at)
    for _ in range(2):  # the second time nothing breaks off
        quiet = QuietLog(log)
        for call in (quiet.begin, quiet.end):
            with suppress(ConnectionError):
                call()
    assert log.levels == {CONFIGURED: "WARN"}
