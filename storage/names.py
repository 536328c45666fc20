"""Every object name that Holdfast writes is built and taken apart here, and nowhere else.

    <job>/chk-00000000000000000042/_metadata         the commit point, created once, last
    <job>/chk-00000000000000000042/<label>-<token>   a file that one checkpoint owns
    <job>/shared/00000000000000000042-<label>-<token>   a file that several may use; 42 wrote it
    <job>/owner-00000000000000000007                 a claim: who may commit from now on
    <job>/owner-00000000000000000007.start-<token>   what that owner found when it took over
    <job>/owner-00000000000000000007.result-<token>   that the job has ended, as that owner says
    <job>/owner-00000000000000000007.held-<token>    which checkpoint that owner has restored

Numbers are padded to twenty digits, so that the order of a listing is the order of numbers.
A legal name is one or more parts joined by `/`; a part is 1 to 200 of the characters
`A-Z a-z 0-9 . _ = ~ -` and does not begin with a dot (storages keep unfinished writes under such
names). Every storage can keep exactly these, on a disk, in HDFS or in a bucket; what people name
freely, such as jobs, is escaped into them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, cast

from holdfast.storage.errors import Invalid

__all__ = [
    "LEGAL_CHARACTERS",
    "CheckpointObject",
    "OwnerRecord",
    "check_name",
    "checkpoint_folder",
    "checkpoints_prefix",
    "claim",
    "escape",
    "exclusive_file",
    "held",
    "is_legal",
    "metadata",
    "owners_prefix",
    "parse_checkpoint_object",
    "parse_owner",
    "result",
    "shared_file",
    "shared_prefix",
    "start",
    "unescape",
    "writer_of",
]

LEGAL_CHARACTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._=~-"
_DIGITS = 20
_MAX_PART = 200
_MAX_NAME = 900
_PART = re.compile(rf"(?!\.)[A-Za-z0-9._=~-]{{1,{_MAX_PART}}}")
_CHECKPOINT_OBJECT = re.compile(rf"(?:chk-(\d{{{_DIGITS}}})/|shared/(\d{{{_DIGITS}}})-)(.+)")
_OWNER = re.compile(rf"owner-(\d{{{_DIGITS}}})(?:\.(start|result|held)-([0-9a-f]+))?")


def check_name(name: str) -> str:
    """Return `name` when it is legal.

    Raises:
        Invalid: it is not; the message says which part.
    """
    if len(name) > _MAX_NAME:
        raise Invalid(
            "object name is too long",
            where=name[:80] + "…",
            expected=f"at most {_MAX_NAME} characters",
            found=str(len(name)),
        )
    for part in name.split("/"):
        if not _PART.fullmatch(part):
            raise Invalid(
                f"object name {name!r} is not legal",
                expected=f"parts of 1 to {_MAX_PART} letters, digits or ._=~- not led by a dot",
                found=repr(part),
                fix="Build names with holdfast.storage.names, which escapes",
            )
    return name


def is_legal(name: str) -> bool:
    """Whether an object, or the folder of one, can have this name."""
    try:
        check_name(name)
    except Invalid:
        return False
    return True


def escape(text: str) -> str:
    """Turn any non-empty text into one legal part; `unescape` turns it back.

    Raises:
        Invalid: the text is empty, no valid Unicode, or too long once escaped.
    """
    try:
        raw = text.encode()
    except UnicodeEncodeError as error:
        raise Invalid("a name is not valid Unicode", where=repr(text[:80])) from error
    encoded = "".join(map(_escape_byte, raw))
    if encoded.startswith("."):
        encoded = "~2E" + encoded[1:]
    if not _PART.fullmatch(encoded):
        raise Invalid(
            "a name is empty or too long",
            where=repr(text[:80]),
            expected=f"1 to {_MAX_PART} characters once escaped",
            found=str(len(encoded)),
        )
    return encoded


def _escape_byte(byte: int) -> str:
    character = chr(byte)
    return character if character in LEGAL_CHARACTERS and character != "~" else f"~{byte:02X}"


def unescape(part: str) -> str:
    """The text that `escape` was given."""
    raw = re.sub(rb"~([0-9A-F]{2})", lambda found: bytes([int(found[1], 16)]), part.encode())
    return raw.decode()


def _number(value: int, what: str) -> str:
    if not 0 <= value < 10**_DIGITS:
        raise Invalid(f"{what} is out of range", expected="0 or more", found=str(value))
    return f"{value:0{_DIGITS}d}"


def checkpoint_folder(checkpoint_id: int) -> str:
    """The folder of one checkpoint, within its job's folder."""
    return f"chk-{_number(checkpoint_id, 'checkpoint id')}"


def checkpoints_prefix() -> str:
    """What the names of all checkpoints' own objects begin with."""
    return "chk-"


def metadata(checkpoint_id: int) -> str:
    """The commit point of one checkpoint."""
    return f"{checkpoint_folder(checkpoint_id)}/_metadata"


def exclusive_file(checkpoint_id: int, label: str, token: str) -> str:
    """A file that this checkpoint alone uses; the token keeps two attempts at it apart."""
    return f"{checkpoint_folder(checkpoint_id)}/{escape(label)}-{token}"


def shared_prefix() -> str:
    """What the names of files that several checkpoints use begin with."""
    return "shared/"


def shared_file(checkpoint_id: int, label: str, token: str) -> str:
    """A file that later checkpoints may use too; its name says which one wrote it."""
    number = _number(checkpoint_id, "checkpoint id")
    return f"{shared_prefix()}{number}-{escape(label)}-{token}"


def owners_prefix() -> str:
    """What the names of all owner records begin with."""
    return "owner-"


def claim(epoch: int) -> str:
    """The record by which an owner claims the job: the highest epoch may commit."""
    return f"{owners_prefix()}{_number(epoch, 'owner epoch')}"


def start(epoch: int, token: str) -> str:
    """The record of what an owner found when it took over; the token is the owner's."""
    return f"{claim(epoch)}.start-{token}"


def result(epoch: int, token: str) -> str:
    """The record that the job has ended, in the hands of this owner; the token is the owner's."""
    return f"{claim(epoch)}.result-{token}"


def held(epoch: int, token: str) -> str:
    """The record of which checkpoint this owner has restored; the token is the owner's."""
    return f"{claim(epoch)}.held-{token}"


@dataclass(frozen=True, slots=True)
class CheckpointObject:
    """What the name of an object says about the checkpoint that wrote it."""

    checkpoint_id: int
    shared: bool
    is_metadata: bool


def parse_checkpoint_object(name: str) -> CheckpointObject | None:
    """Take a name within a job's folder apart; None when it belongs to no checkpoint."""
    match = _CHECKPOINT_OBJECT.fullmatch(name)
    if match is None:
        return None
    exclusive, shared, rest = match.groups()
    return CheckpointObject(
        checkpoint_id=int(exclusive or shared),
        shared=shared is not None,
        is_metadata=exclusive is not None and rest == "_metadata",
    )


def writer_of(name: str) -> int | None:
    """The checkpoint that has written an object of this name; None when it belongs to none."""
    found = parse_checkpoint_object(name)
    return None if found is None else found.checkpoint_id


_RecordKind = Literal["claim", "start", "result", "held"]


@dataclass(frozen=True, slots=True)
class OwnerRecord:
    """What the name of an owner's record says: a claim; or with a token what `kind` is of."""

    epoch: int
    token: str | None
    kind: _RecordKind


def parse_owner(name: str) -> OwnerRecord | None:
    """Take the name of an owner's record within a job's folder apart; None if it is no such."""
    match = _OWNER.fullmatch(name)
    if match is None:
        return None
    return OwnerRecord(int(match[1]), match[3], cast(_RecordKind, match[2] or "claim"))
