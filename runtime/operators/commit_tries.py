"""How often commits are tried: by every committer alike."""

from __future__ import annotations

import math
from collections.abc import Callable

from holdfast.storage import Clock, Unavailable
from holdfast.storage.retries import Backoff, repeat_while_unavailable

__all__ = ["commit_until_answered"]

_RETRIES = 10
_PAUSES = Backoff(first_s=0.1, longest_s=5.0)


def commit_until_answered(
    call: Callable[[], None],
    clock: Clock,
    *,
    what: str,
    pause: Callable[[float], bool | None],
    deadline_s: float = math.inf,
) -> None:
    """Call until the place answers: until `deadline_s` of the clock, or without one 11 times.

    `pause` waits so many seconds; True gives up.

    Raises:
        Unavailable: it did not; says `what` cannot be done, and what the last call said.
    """
    has_deadline = deadline_s < math.inf
    tries = 0

    def wait(seconds: float) -> bool | None:
        return clock.monotonic_s() + seconds > deadline_s or pause(seconds)

    def failed(_: Unavailable, number: int) -> None:
        nonlocal tries
        tries = number

    try:
        most = math.inf if has_deadline else _RETRIES + 1
        repeat_while_unavailable(call, _PAUSES, pause=wait, most=most, failed=failed)
    except Unavailable as error:
        late = "; its deadline is over" if has_deadline else ""
        raise error.replaced(
            what=f"{what} after {tries - 1} retries{late}",
            found=f"{error.what}: {error.found}" if error.found else error.what,
        ) from error
