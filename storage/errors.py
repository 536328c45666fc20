"""Every error that Holdfast raises on purpose, sorted by what the caller should do about it.

    HoldfastError
    ├── Unavailable   the place or service did not answer; the same call may succeed later: retry
    ├── Fenced        a newer owner has taken over; your writes no longer count: stop
    ├── Taken         something else has this name already: go on under another one
    ├── Corrupt       stored bytes are not what was written; an operator must look: names the file
    ├── Invalid       the code, a setting or an argument is wrong; retrying cannot help: fix it
    │   └── TooLarge  a value is past a limit that can be raised or avoided
    └── NotFound      the named thing does not exist

An error says which thing is concerned, where it is, what was expected, what was found and what
to do about it. The parts are kept as attributes, so that a user interface can lay them out.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Self

import msgspec

__all__ = [
    "UNREADABLE",
    "Corrupt",
    "Fenced",
    "HoldfastError",
    "Invalid",
    "NotFound",
    "Taken",
    "TooLarge",
    "Unavailable",
]

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoders raise for foreign bytes. Text that is not UTF-8, and endless nesting, raise errors
that are not msgspec's."""


class HoldfastError(Exception):
    """The root: catching it catches every error that Holdfast raises on purpose."""

    def __init__(
        self,
        what: str,
        *,
        where: str = "",
        expected: str = "",
        found: str = "",
        fix: str = "",
    ) -> None:
        self.what = what
        self.where = where
        self.expected = expected
        self.found = found
        self.fix = fix
        super().__init__(self._message())

    def _message(self) -> str:
        message = self.what
        if self.where:
            message += f" [{self.where}]"
        facts = [
            f"{label} {value}"
            for label, value in (("expected", self.expected), ("found", self.found))
            if value
        ]
        if facts:
            message += ": " + ", ".join(facts)
        if self.fix:
            message += f". {self.fix}"
        return message

    def replaced(self, **parts: str) -> Self:
        """The same error with some parts replaced, such as `what` or `where`."""
        return type(self)(**{"what": self.what, **self._parts(), **parts})

    def __reduce__(self) -> tuple[Any, ...]:
        """Keep the parts through pickle: errors travel from Spark's executors to the driver."""
        return partial(type(self), self.what, **self._parts()), ()

    def _parts(self) -> dict[str, str]:
        return {name: getattr(self, name) for name in ("where", "expected", "found", "fix")}


class Unavailable(HoldfastError):
    """The place did not answer, or not in time. Whether the call took effect is not known."""


class Fenced(HoldfastError):
    """An owner with a newer right to write has taken over. Stop; what you write is void."""


class Taken(HoldfastError):
    """Something else has this name already. Nothing was changed; go on under another one."""


class Corrupt(HoldfastError):
    """Stored bytes differ from what was written. Names the file; retrying reads the same bytes."""


class Invalid(HoldfastError):
    """The code, a setting or an argument is wrong. Retrying cannot help."""


class TooLarge(Invalid):
    """A value is past a limit; the message names the limit and how to raise or avoid it."""


class NotFound(HoldfastError):
    """The named thing does not exist."""
