"""Errors of the running job that storage and state have no names for.

HoldfastError
└── UserCodeFailed   a user's function raised: its traceback says where
"""

from __future__ import annotations

from functools import partial
from typing import Any

from holdfast.storage import HoldfastError

__all__ = ["UserCodeFailed"]


class UserCodeFailed(HoldfastError):
    """A user's function raised. Whether trying again helps, only its author knows.

    What it raised is the `__cause__` in the process where that happened; the text of the traceback
    travels with the error, and is the end of its message.
    """

    def __init__(
        self,
        what: str,
        *,
        where: str = "",
        expected: str = "",
        found: str = "",
        fix: str = "",
        user_traceback: str = "",
    ) -> None:
        self.user_traceback = user_traceback
        super().__init__(what, where=where, expected=expected, found=found, fix=fix)

    def _message(self) -> str:
        message = super()._message()
        return f"{message}\n\n{self.user_traceback}" if self.user_traceback else message

    def __reduce__(self) -> tuple[Any, ...]:
        parts = {
            "where": self.where,
            "expected": self.expected,
            "found": self.found,
            "fix": self.fix,
            "user_traceback": self.user_traceback,
        }
        return partial(type(self), **parts), (self.what,)
