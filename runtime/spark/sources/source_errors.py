"""Explains why Spark failed to read a source: in one line, and whether the user's code is at fault.

A function of the DataFrame that raises, a record that cannot be parsed, a cast that fails: another
attempt meets them again. All is parsed from the text, the only part of an error that always arrives
from a task: with its own class or not, with an error condition or without.
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
"""Too general: third-party sources also use it for servers that do not have the data yet."""
_IN_TROUBLE = re.compile(r"Caused by: java\.(?:net|io)\.|Caused by: \S*TimeoutException")
_OF_PLANS = re.compile(r"\b(AnalysisException|IllegalArgumentException): (?!java\.)")
"""What cannot be read as it is written: a path or a table that does not exist, a wrong option.
Around a Java exception it is one of the environment, such as an unknown host."""
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
    """The class of error or condition if the user's code or data is at fault, and would fail again;
    else empty."""


def trouble_in(error: BaseException) -> SourceTrouble:
    """The reason in an error that Spark has raised for a source."""
    text = str(error)
    is_of_python = isinstance(error, PythonException) or any(each in text for each in _OF_PYTHON)
    if is_of_python and _TRACEBACK in text:
        raised, fault = _in_python(_END_OF_TRACEBACK.split(text.partition(_TRACEBACK)[2])[0])
    else:
        raised, fault = _in_condition(text)
        fault = fault or _in_plan(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("holdfast.")]
    if ours:  # an error of Holdfast in a task arrives as text of a Spark error
        return SourceTrouble(ours[-1], fault)
    if lines and lines[0].startswith(_CALLING):  # followed by an object's number, which varies
        lines = [lines[1].removeprefix(": ")] if len(lines) > 1 else lines
    return SourceTrouble(raised or (lines[0] if lines else repr(error)), fault)


def _in_plan(error: BaseException) -> str:
    """The class by which Spark refuses what cannot be read as it is written; empty if it is not."""
    text = ""
    cause: BaseException | None = error
    while cause is not None:
        text += f"{type(cause).__name__}: {cause}\n"
        # The error of a query has the class of what ended it only in its cause.
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
    # Of chained errors, one that may be temporary is enough.
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
