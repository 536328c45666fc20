"""What Spark says of a source that failed: in one line, and whether the user's own doing failed.

A function of the DataFrame that raises, a record that cannot be parsed, a cast that fails: another
attempt meets them again. It is read out of the text, which is all that comes from a task by any
way: as an error of its own class or not, with an error condition or without.
"""

from __future__ import annotations

import builtins
import re
import sys
from dataclasses import dataclass

from pyspark.errors.exceptions.base import PythonException

from holdfast.runtime.api.errors import may_pass
from holdfast.storage import HoldfastError, Invalid

__all__ = ["SourceTrouble", "trouble_in"]

_CONDITION = re.compile(
    r"\[([A-Z][A-Z0-9_.]+)\] ((?:(?!\[[A-Z][A-Z0-9_.]+\] |\n\s+at ).)*?)SQLSTATE: (\w{5})",
    re.DOTALL,
)
_OF_DATA = ("22", "23", "P0")
_OF_FUNCTIONS = ("38", "39")
_UNCLEAR = "22000"
"""Said of much, by other sources than Spark's also of servers that have not got the data yet."""
_IN_TROUBLE = re.compile(r"Caused by: java\.(?:net|io)\.|Caused by: \S*TimeoutException")
_OF_PLANS = re.compile(r"\b(AnalysisException|IllegalArgumentException): (?!java\.)")
"""What cannot be read as it is written: a path or a table that is not there, a wrong option. Around
an exception of Java's it is one of the world, such as a host that is not found."""
_OF_PYTHON = ("api.python.PythonException", "[PYTHON_")
_TRACEBACK = "Traceback (most recent call last):"
_END_OF_TRACEBACK = re.compile(r"\n\tat |\n *SQLSTATE: |\n+JVM stacktrace:")
_RAISED = re.compile(r"^ .*\n([A-Za-z_][\w.]*)(:.*)?$", re.MULTILINE)
_LINE = re.compile(r'^ +File "(.*)", (line \d+), in (.*)$', re.MULTILINE)
_BY_NAME = ("ConnectionError", "Timeout", "TimeoutError", "Unavailable", "OSError", "IOError")
_CALLING = "An error occurred while calling"


@dataclass(frozen=True, slots=True)
class SourceTrouble:
    """Why a source cannot go on."""

    summary: str
    """In one line."""
    fault: str = ""
    """What the user's own code or data does wrong, the same for each row; empty if it is not that,
    or may be better the next time."""


def trouble_in(error: BaseException) -> SourceTrouble:
    """Why a source cannot go on that Spark has failed by this."""
    text = str(error)
    is_of_python = isinstance(error, PythonException) or any(each in text for each in _OF_PYTHON)
    if is_of_python and _TRACEBACK in text:
        raised, fault = _in_python(_END_OF_TRACEBACK.split(text.partition(_TRACEBACK)[2])[0])
    else:
        raised, fault = _in_condition(text)
        fault = fault or _in_plan(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("holdfast.")]
    if ours:  # an error of the house in a task comes as text of Spark's
        return SourceTrouble(ours[-1], fault)
    if lines and lines[0].startswith(_CALLING):  # and in what object, another one each time
        lines = [lines[1].removeprefix(": ")] if len(lines) > 1 else lines
    return SourceTrouble(raised or (lines[0] if lines else repr(error)), fault)


def _in_plan(error: BaseException) -> str:
    """The class by which Spark refuses what cannot be read as it is written; empty if it is not."""
    text = ""
    cause: BaseException | None = error
    while cause is not None:
        text += f"{type(cause).__name__}: {cause}\n"
        # A query tells the class of what has ended it only there.
        cause = getattr(cause, "_cause", None)
    planned = _OF_PLANS.search(text)
    return "" if planned is None or _IN_TROUBLE.search(text) else planned[1]


def _in_python(told: str) -> tuple[str, str]:
    """What Python has raised and where, and its class if trying again does not help."""
    raised = list(_RAISED.finditer(told))
    if not raised:
        return "", ""
    name, what = raised[-1][1], raised[-1][2] or ""
    at = [found for found in _LINE.finditer(told) if "/pyspark" not in found[1]]
    place = f" ({at[-1][1]}, {at[-1][2]}, in {at[-1][3]})" if at else ""
    # Of errors that were raised from others, one that may pass is enough.
    return f"{name}{what}{place}", "" if any(_may_pass(each[1]) for each in raised) else name


def _may_pass(name: str) -> bool:
    module, _, simple = name.rpartition(".")
    kind = getattr(sys.modules.get(module) if module else builtins, simple, None)
    if not isinstance(kind, type) or not issubclass(kind, BaseException):
        return name.endswith(_BY_NAME)  # of a module that only tasks have
    if issubclass(kind, HoldfastError):
        return not issubclass(kind, Invalid)
    return may_pass(kind)


def _in_condition(text: str) -> tuple[str, str]:
    """What Spark says of a record or an expression, and its error condition: the deepest one."""
    for name, what, state in reversed(_CONDITION.findall(text)):
        is_of_function = state.startswith(_OF_FUNCTIONS) and not _IN_TROUBLE.search(text)
        if is_of_function or (state.startswith(_OF_DATA) and state != _UNCLEAR):
            return f"[{name}] {' '.join(what.split())}", name
    return "", ""
