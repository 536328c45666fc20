"""Errors of the running job, beside those of storage and state.

HoldfastError
├── UserCodeFailed   a user's function raised: its traceback says where
├── OperatorFailed   an operator of a slot raised, whatever it was: says which one
│   └── NotOpened    it could not be opened, with the state that it is to have
├── JobFailed        the job has ended without having finished: says why
└── Unavailable
    └── NotEnded     the job has not ended yet; a TimeoutError as well
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from holdfast.storage import HoldfastError, Unavailable

__all__ = [
    "JobFailed",
    "NotEnded",
    "NotOpened",
    "OperatorFailed",
    "UserCodeFailed",
    "may_pass",
    "operator_named",
]


class UserCodeFailed(HoldfastError):
    """A user's function raised. Whether a retry helps is known to its author only.

    What it raised is the `__cause__` in the process where that happened; the text of the traceback
    travels with the error, and is the end of its message. `parts` are those of any error.
    """

    def __init__(
        self,
        what: str,
        *,
        user_traceback: str = "",
        line: str = "",
        **parts: str,
    ) -> None:
        self.line = line
        self.user_traceback = user_traceback
        super().__init__(what, **parts)

    @property
    def summary(self) -> str:
        """One line with the operator, the method, the row, the error and where it was raised."""
        place = f" in {self.where}" if self.where else ""
        found = f": {self.found}" if self.found else ""
        found += f" ({self.line})" if self.line else ""
        return f"{self.what}{place}{found}" + (f". {self.fix}" if self.fix else "")

    def _message(self) -> str:
        message = super()._message()
        return f"{message}\n\n{self.user_traceback}" if self.user_traceback else message

    def _parts(self) -> dict[str, str]:
        own = {"user_traceback": self.user_traceback, "line": self.line}
        return super()._parts() | own


class OperatorFailed(HoldfastError):
    """An operator raised; `__cause__` is what it raised."""

    def __init__(self, uid: str, cause: BaseException) -> None:
        self.uid = uid
        text = str(cause) if isinstance(cause, HoldfastError) else repr(cause)
        super().__init__(f"operator {uid!r} failed: {text}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.uid, self.__cause__ or self)


class NotOpened(OperatorFailed):
    """An operator could not be opened; `__cause__` is why."""


class JobFailed(HoldfastError):
    """The job has ended without having finished. What it was is in the message.

    `uid` is the operator or source in which it happened, if it is known; `traceback` what was
    raised there. The message is one line, so that it can be read where errors end.
    """

    def __init__(self, what: str, *, uid: str | None = None, traceback: str = "") -> None:
        self.uid = uid
        self.traceback = traceback
        super().__init__(what)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), uid=self.uid, traceback=self.traceback), (self.what,)


class NotEnded(Unavailable, TimeoutError):
    """The job has not ended within the timeout of `result`. It goes on."""


@contextmanager
def operator_named(uid: str, kind: type[OperatorFailed] = OperatorFailed) -> Iterator[None]:
    """Raise errors of this context as the failure of this operator.

    Raises:
        OperatorFailed: the innermost operator that is named counts.
    """
    try:
        yield
    except OperatorFailed:
        raise
    except Exception as error:
        raise kind(uid, error) from error


_LASTING = (FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError)
"""Errors of the system that a retry does not change."""


def may_pass(kind: type[BaseException]) -> bool:
    """Whether an error in a user's code may be temporary: of a network, a server, a disk."""
    is_of_system = issubclass(kind, OSError) and not issubclass(kind, _LASTING)
    return is_of_system or issubclass(kind, Unavailable)
