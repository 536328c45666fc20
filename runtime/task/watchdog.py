"""Watches which call the thread of a slot is in, and for how long.

Nothing is written down while functions run. Now and then another thread looks at the frames of the
slot's: if the same call is still there, it has lasted since it was first seen.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import PurePath
from types import CodeType, FrameType

from holdfast.runtime.protocol.metrics import LongCall
from holdfast.storage import Clock

__all__ = ["Watchdog"]

_SHOWN_FROM_S = 2.0
_HOUSE = "holdfast."
_OPERATORS = ("holdfast.runtime.operators.", "holdfast.runtime.sinks.")


class Watchdog:
    """`begin`, `left` and `end` are for the thread that is watched, `look` for one other thread.

    Calls are looked for below those of `entries`, the methods by which the thread gets to
    operators; `uid` says which operator it is in.
    """

    def __init__(
        self, clock: Clock, entries: Collection[Callable[..., object]], uid: Callable[[], str]
    ) -> None:
        self._clock = clock
        self._entries: set[CodeType] = {entry.__code__ for entry in entries}
        self._uid = uid
        self._thread: int | None = None
        # The frame itself and not its number: a frame that is kept cannot be that of a later call.
        # It has the locals of that call, such as a batch, so it goes with `left`.
        self._seen: FrameType | None = None
        self._since_s = 0.0

    def begin(self) -> None:
        """Watch the calling thread."""
        self._thread = threading.get_ident()

    def end(self) -> None:
        self._thread = None
        self._seen = None

    def left(self) -> None:
        """Say that the thread is in no call: nothing is kept of the last one."""
        self._seen = None

    def look(self) -> LongCall | None:
        """The call that the thread is in, if it has been for some seconds."""
        thread, now_s = self._thread, self._clock.monotonic_s()
        found = None if thread is None else self._call(sys._current_frames().get(thread))
        if found is None or found is not self._seen:
            self._seen, self._since_s = found, now_s
            return None
        for_s = now_s - self._since_s
        if for_s < _SHOWN_FROM_S:
            return None
        code = found.f_code
        return LongCall(
            uid=self._uid(),
            method=code.co_qualname,
            at=f"{PurePath(code.co_filename).name}, line {found.f_lineno}",
            for_s=for_s,
        )

    def _call(self, innermost: FrameType | None) -> FrameType | None:
        """The first call outside of Holdfast; if there is none, that of the operator itself."""
        frames = [*_outwards(innermost)]
        entered = next(
            (place for place, each in enumerate(frames) if each.f_code in self._entries), None
        )
        below = [] if entered is None else [*reversed(frames[:entered])]
        names = [str(each.f_globals.get("__name__", "")) for each in below]
        for is_it in (_is_foreign, _is_of_operator):
            for frame, name in zip(below, names, strict=True):
                if is_it(name):
                    return frame
        return None


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_foreign(module: str) -> bool:
    # With generators and context managers the standard library stands between two of the house.
    return not module.startswith(_HOUSE) and module != "contextlib"


def _is_of_operator(module: str) -> bool:
    return module.startswith(_OPERATORS)
