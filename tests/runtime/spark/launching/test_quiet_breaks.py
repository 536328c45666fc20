"""The filter of Spark's log is gone at the end whichever call to the JVM breaks off."""

from __future__ import annotations

from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.runtime.spark.launching.spark_log import QuietLog


class PlayedLog:
    """Log4j, of which one call fails: when it is done, or instead."""

    def __init__(self, fails_at: int, *, is_done: bool) -> None:
        self.filters: list[object] = []
        self.calls_left = fails_at
        self.is_done = is_done
        made = SimpleNamespace(createFilter=lambda *_: object(), createFilters=lambda _: object())
        core = SimpleNamespace(
            Filter=SimpleNamespace(Result=SimpleNamespace(DENY=0, NEUTRAL=1)),
            util=SimpleNamespace(KeyValuePair=lambda key, value: (key, value)),
            filter=SimpleNamespace(
                ThreadContextMapFilter=made, RegexFilter=made, CompositeFilter=made
            ),
        )
        log4j = SimpleNamespace(core=core, LogManager=SimpleNamespace(getContext=self.context))
        apache = SimpleNamespace(logging=SimpleNamespace(log4j=log4j))
        self._jvm = SimpleNamespace(org=SimpleNamespace(apache=apache))
        self._gateway = SimpleNamespace(new_array=lambda _, size: [None] * size)
        self.sparkContext = self

    def called(self, act: Any) -> None:
        self.calls_left -= 1
        if self.calls_left or self.is_done:
            act()
        if not self.calls_left:
            raise ConnectionError

    def context(self, _: object) -> Any:
        return SimpleNamespace(getConfiguration=lambda: self)

    def addFilter(self, added: object) -> None:  # noqa: N802 - Log4j's
        self.called(lambda: self.filters.append(added))

    def removeFilter(self, removed: object) -> None:  # noqa: N802
        self.called(lambda: self.filters.remove(removed) if removed in self.filters else None)


@pytest.mark.parametrize("is_done", [True, False])
@pytest.mark.parametrize("fails_at", [1, 2, 3])
def test_no_filter_is_left_whichever_call_breaks_off(fails_at: int, *, is_done: bool) -> None:
    log: Any = PlayedLog(fails_at, is_done=is_done)
    quiet = QuietLog(log)
    for call in (quiet.begin, quiet.end, quiet.end):  # `end` may be tried again
        with suppress(ConnectionError):
            call()
    assert log.filters == []
