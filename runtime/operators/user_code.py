"""Functions of users: pickled for slots, called there, and their errors explained."""

from __future__ import annotations

import inspect
import pickle
import traceback
from dataclasses import dataclass
from pathlib import PurePath
from types import TracebackType
from typing import Any, ClassVar

import pyarrow as pa

from holdfast.backends.values.normalizing import shown
from holdfast.runtime.api.errors import UserCodeFailed
from holdfast.runtime.columns.rows import RowWriter
from holdfast.runtime.protocol.elements import EVENT_TIME
from holdfast.runtime.protocol.operator import OperatorSpec
from holdfast.storage import HoldfastError, Invalid

__all__ = [
    "NO_ROWS",
    "USER_ERRORS",
    "UserCode",
    "UserFunctionSpec",
    "answers_anything",
    "unpickled",
]

USER_ERRORS = (Exception, SystemExit, KeyboardInterrupt)
"""What a user's function may raise. `sys.exit()` in it is a failure, and must not end the slot."""

NO_ROWS = frozenset({str, bytes, dict})
"""Types that can be iterated over, but not into the rows that a function means to return."""

_SHOWN_CHARACTERS = 200
_SHOWN_CHARACTERS_OF_OURS = 1_000
"""Of an error of Holdfast's own, which bounds what it shows, and says at its end what to do."""


@dataclass(frozen=True, kw_only=True)
class UserFunctionSpec(OperatorSpec):
    """An operator that runs a user's function, pickled on the driver.

    Making one raises `Invalid` if the operator cannot have such columns.
    """

    has_side_outputs: ClassVar[bool] = True

    makes_rows: ClassVar[bool] = True
    """Whether the function returns rows, and not batches."""

    function: bytes

    def __post_init__(self) -> None:
        outputs = {"output": self.output_schema}
        outputs |= {f"side output {tag!r}": schema for tag, schema in self.side_schemas.items()}
        for name, schema in outputs.items():
            where = f"operator {self.uid!r}, {name}"
            _check_names(schema, where)
            if self.makes_rows:
                RowWriter(schema, where=where)

    def load(self, expected: Any = None) -> UserCode:
        """The function, as an object of the class expected, or as anything that can be called.

        Raises:
            Invalid: it cannot be unpickled here, or is something else.
        """
        function = unpickled(self.function, f"the function of operator {self.uid!r}")
        if not (callable(function) if expected is None else isinstance(function, expected)):
            raise Invalid(
                f"the function of operator {self.uid!r} is of another kind",
                expected="something that can be called"
                if expected is None
                else f"a {expected.__name__}",
                found=type(function).__qualname__,
            )
        return UserCode(self.uid, function)


def unpickled(data: bytes, what: str) -> Any:
    """An object of a user, from the driver's pickle.

    Raises:
        Invalid: it cannot be unpickled here.
    """
    try:
        return pickle.loads(data)
    except USER_ERRORS as error:
        raise Invalid(
            f"{what} cannot be unpickled",
            where=f"{len(data)} bytes",
            found=f"{type(error).__name__}: {error}",
            fix="Use in it only what every executor can import",
        ) from error


def answers_anything(method: Any) -> bool:
    """Whether the return values of a user's method must be checked, since it is no generator."""
    return not inspect.isgeneratorfunction(inspect.unwrap(method))


def _check_names(schema: pa.Schema, where: str) -> None:
    twice = sorted({name for name in schema.names if schema.names.count(name) > 1})
    if twice:
        raise Invalid("two columns have one name", where=where, found=", ".join(twice))
    if EVENT_TIME in schema.names:
        raise Invalid(
            "a column has a name that is reserved",
            where=where,
            found=EVENT_TIME,
            fix="Name it otherwise; functions see event time as timestamp()",
        )


def _fix_of(error: BaseException) -> str:
    """Advice for an error that no line of the user's file raised."""
    message = str(error)
    if not isinstance(error, TypeError):
        return ""
    if "positional argument" in message or "keyword argument" in message:
        return "Give it the arguments that this method of its base class takes"
    is_of_answers = "iter" in message or "list of rows" in message
    return (
        "A function answers rows in a list, yields them, or answers None" if is_of_answers else ""
    )


class UserCode:
    """A user's function in a slot."""

    def __init__(self, uid: str, function: Any) -> None:
        self.function = function
        self._uid = uid
        owner = function if hasattr(function, "__qualname__") else type(function)
        self._name: str = owner.__qualname__

    def failure(self, error: BaseException, method: str, in_hand: str) -> UserCodeFailed:
        """What to raise instead of an error that came out of the function, with it as the cause.

        Raises:
            HoldfastError: it is one that says by itself what to do, such as that a file of a
                snapshot is damaged: that one goes on as it is.
        """
        if isinstance(error, HoldfastError) and not isinstance(error, Invalid):
            raise error
        name = f"{self._name}.{method}" if method else self._name
        most = _SHOWN_CHARACTERS_OF_OURS if isinstance(error, Invalid) else _SHOWN_CHARACTERS
        # The first frame is that of the operator.
        trace = error.__traceback__ and error.__traceback__.tb_next
        lines = traceback.format_exception(type(error), error, trace) if trace else []
        return UserCodeFailed(
            f"the code of operator {self._uid!r} failed",
            where=f"{name}, {in_hand}" if in_hand else name,
            found=f"{type(error).__name__}: {_brief(str(error), most)}",
            user_traceback="".join(lines).rstrip(),
            line=_line_of(trace) if trace else "",
            fix="" if trace else _fix_of(error),
        )

    def no_rows(self, answer: object) -> TypeError:
        """The error for a function that returned one of `NO_ROWS`."""
        return TypeError(f"it answered {shown(answer)}, which is not a list of rows")

    def row(self, row: object) -> str:
        """The current row, for an error's message."""
        try:
            return f"row {_brief(repr(row))}"
        except Exception as error:  # noqa: BLE001 - a value may have any `__repr__`
            return f"a row that cannot be shown ({type(error).__name__})"


def _line_of(trace: TracebackType) -> str:
    """The innermost line in the user's file; deeper frames are of what it calls."""
    frames = traceback.extract_tb(trace)
    file = frames[0].filename
    line = next(each.lineno for each in reversed(frames) if each.filename == file)
    return f"{PurePath(file).name}:{line}"


def _brief(text: str, most: int = _SHOWN_CHARACTERS) -> str:
    return text if len(text) <= most else f"{text[:most]}…"
