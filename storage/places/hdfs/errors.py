"""Errors of an HDFS or its client library, translated to errors of Holdfast.

Errors of the servers are recognised by the class of their Java exception. Users see the first line
of the server's message, never its stack.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from holdfast.storage.errors import HoldfastError, Invalid, Unavailable
from holdfast.storage.retries import Tried, Trouble

__all__ = ["NoAnswer", "Reason", "Said", "as_error", "read_error", "trouble_of"]

_LONGEST = 400
_CALL = re.compile(r"(\w+)\(", re.ASCII)
_TEXT = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u\{([0-9a-fA-F]+)\}|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "0": "\0"}
_STACK = re.compile(r"\s+at [\w.$]+\(")
_BY_PYTHON = (
    (FileNotFoundError, "FileNotFoundException"),
    (FileExistsError, "FileAlreadyExistsException"),
    (IsADirectoryError, "PathIsNotDirectoryException"),
    (NotImplementedError, "UnsupportedFeature"),
    (OSError, "IOError"),
)


class NoAnswer(Exception):
    """A call was abandoned because no answer came in time; it may still take effect."""


class Reason(Enum):
    """Why an HDFS refused or failed."""

    ABSENT = "absent"
    EXISTS = "exists"
    NOT_EMPTY = "not empty"
    WRONG_PLACE = "wrong place"
    NOT_ALLOWED = "not allowed"
    NOT_TRUSTED = "not trusted"
    NOT_LEGAL = "not legal"
    FULL = "full"
    SAFE_MODE = "safe mode"
    STANDBY = "standby"
    BUSY = "busy"
    NO_DATA_NODE = "no data node"
    LOST = "lost"
    UNREACHED = "unreached"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Said:
    """The reason and text of an error."""

    reason: Reason
    text: str
    """One line, for people."""


_BY_CLASS = {
    "FileNotFoundException": Reason.ABSENT,
    "FileNotFound": Reason.ABSENT,
    "FileAlreadyExistsException": Reason.EXISTS,
    "PathIsNotEmptyDirectoryException": Reason.NOT_EMPTY,
    "ParentNotDirectoryException": Reason.WRONG_PLACE,
    "PathIsNotDirectoryException": Reason.WRONG_PLACE,
    "UnresolvedPathException": Reason.WRONG_PLACE,
    "AccessControlException": Reason.NOT_ALLOWED,
    "AuthorizationException": Reason.NOT_TRUSTED,
    "AuthenticationException": Reason.NOT_TRUSTED,
    "SaslException": Reason.NOT_TRUSTED,
    "GSSException": Reason.NOT_TRUSTED,
    "InvalidToken": Reason.NOT_TRUSTED,
    "SASLError": Reason.NOT_TRUSTED,
    "GSSAPIError": Reason.NOT_TRUSTED,
    "NoSASLMechanism": Reason.NOT_TRUSTED,
    "InvalidPathException": Reason.NOT_LEGAL,
    "PathComponentTooLongException": Reason.NOT_LEGAL,
    "InvalidPath": Reason.NOT_LEGAL,
    "InvalidArgument": Reason.NOT_LEGAL,
    "UrlParseError": Reason.NOT_LEGAL,
    "XmlParseError": Reason.NOT_LEGAL,
    "UnsupportedFeature": Reason.NOT_LEGAL,
    "UnsupportedErasureCodingPolicy": Reason.NOT_LEGAL,
    "QuotaExceededException": Reason.FULL,
    "NSQuotaExceededException": Reason.FULL,
    "DSQuotaExceededException": Reason.FULL,
    "QuotaByStorageTypeExceededException": Reason.FULL,
    "MaxDirectoryItemsExceededException": Reason.FULL,
    "SafeModeException": Reason.SAFE_MODE,
    "StandbyException": Reason.STANDBY,
    "ObserverRetryOnActiveException": Reason.STANDBY,
    "RetriableException": Reason.BUSY,
    "NotReplicatedYetException": Reason.BUSY,
    "LeaseExpiredException": Reason.LOST,
    "AlreadyBeingCreatedException": Reason.LOST,
    "RecoveryInProgressException": Reason.LOST,
    "DataTransferError": Reason.NO_DATA_NODE,
    "BlocksNotFound": Reason.NO_DATA_NODE,
    "ChecksumError": Reason.NO_DATA_NODE,
    "OperationFailed": Reason.NO_DATA_NODE,
    "IOError": Reason.UNREACHED,
}
"""By the class of the Java exception, or by the kind of error of the library."""

_BY_TEXT = (
    ("is in safe mode", Reason.SAFE_MODE),
    ("SafeModeException", Reason.SAFE_MODE),
    ("(is not a directory)", Reason.WRONG_PLACE),
    ("must both be directories", Reason.WRONG_PLACE),
    ("could only be written to", Reason.NO_DATA_NODE),
    ("Specified block size", Reason.NOT_LEGAL),
    ("Requested replication", Reason.NOT_LEGAL),
)
"""Marks in the text, for classes with many meanings such as IOException."""

_TELLING = {"IOException", "RetriableException", "AccessControlException", "RemoteException"}

_TROUBLES = {
    Reason.SAFE_MODE: Trouble.SERVER,
    Reason.STANDBY: Trouble.SERVER,
    Reason.BUSY: Trouble.THROTTLED,
    Reason.NO_DATA_NODE: Trouble.SERVER,
    Reason.UNREACHED: Trouble.CONNECTION,
}

_INVALID = {
    Reason.NOT_ALLOWED: (
        "permission",
        "Give this user the right to read, write and delete there, or choose another place",
    ),
    Reason.NOT_TRUSTED: (
        "credentials that the name node accepts",
        "Check the Kerberos ticket, principal, keytab and hadoop.security.authentication",
    ),
    Reason.WRONG_PLACE: (
        "a directory that can be written to",
        "Choose another place for checkpoints",
    ),
    Reason.EXISTS: ("a directory that can be written to", "Choose another place for checkpoints"),
    Reason.NOT_LEGAL: ("", "Correct the URL or the option"),
}
_UNAVAILABLE = {
    Reason.FULL: ("room to write", "Free space or raise the quota, then retry"),
    Reason.SAFE_MODE: (
        "a name node that takes changes",
        "It leaves safe mode when enough data nodes have reported; hdfs dfsadmin -safemode get",
    ),
    Reason.STANDBY: ("an active name node", "Look at them with: hdfs haadmin -getAllServiceState"),
    Reason.BUSY: ("", "Retry later"),
    Reason.NO_DATA_NODE: (
        "data nodes that work and have room",
        "Look at them with: hdfs dfsadmin -report",
    ),
    Reason.UNREACHED: (
        "an answer",
        "Check host and port, that the name node is up, and data nodes: hdfs dfsadmin -report",
    ),
    Reason.ABSENT: ("a file that no other client deletes", "Write it again"),
    Reason.LOST: ("a file that no other client finishes or deletes", "Write it again"),
}


def read_error(error: BaseException) -> Said:
    """The meaning of an error of the library, or of the server behind it."""
    if isinstance(error, NoAnswer):
        return Said(Reason.UNREACHED, str(error))
    name, text = _class_and_text(error)
    reason = _BY_CLASS.get(name, Reason.OTHER)
    if name in _TELLING:
        reason = next((found for mark, found in _BY_TEXT if mark in text), reason)
    return Said(reason, _first_line(text) or name)


def trouble_of(error: Exception) -> Trouble | None:
    """The kind of trouble, if repeating the call can help; else None."""
    if isinstance(error, HoldfastError):
        return None
    return _TROUBLES.get(read_error(error).reason)


def as_error(error: Exception, action: str, where: str, tried: Tried | None = None) -> Exception:
    """The error of Holdfast for one of the library; one of Holdfast stays as it is."""
    if isinstance(error, HoldfastError):
        return error
    said = read_error(error)
    what = f"cannot {action}"
    found = said.text
    if tried is not None and tried.attempts > 1:
        found = f"{found} ({tried})"
    if said.reason in _INVALID:
        expected, fix = _INVALID[said.reason]
        return Invalid(what, where=where, expected=expected, found=found, fix=fix)
    expected, fix = _UNAVAILABLE.get(said.reason, ("", ""))
    return Unavailable(what, where=where, expected=expected, found=found, fix=fix)


def _class_and_text(error: BaseException) -> tuple[str, str]:
    r"""The simple name of the class, of Java or of the library, and the whole text.

    The library raises Python's own errors for a few, with the plain text, and for all others a
    RuntimeError with the debug text of Rust: `RPCError("java.Class", "text\nstack")`.
    """
    text = str(error)
    for kind, name in _BY_PYTHON:
        if isinstance(error, kind):
            return name, text
    call = _CALL.match(text)
    if call is None:
        return (text if text.isidentifier() else type(error).__name__), text
    texts = [_unescaped(each) for each in _TEXT.findall(text)]
    if call[1] in ("RPCError", "FatalRPCError") and len(texts) >= 2:
        return re.split(r"[.$]", texts[0])[-1], texts[1]
    return call[1], texts[-1] if texts else text


def _unescaped(text: str) -> str:
    def plain(escape: re.Match[str]) -> str:
        if escape[1]:
            return chr(int(escape[1], 16))
        return _ESCAPED.get(escape[2], escape[2])

    return _ESCAPE.sub(plain, text)


def _first_line(text: str) -> str:
    """The first line with text, cut where a stack or a list of machines begins."""
    line = next((each.strip() for each in text.splitlines() if each.strip()), "")
    line = _STACK.split(line)[0].partition(": [DatanodeInfo")[0]
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"
