"""Every object name that Holdfast writes is built and parsed here, and nowhere else.

    <job>/chk-00000000000000000042/_metadata         the commit point, created once, last
    <job>/chk-00000000000000000042/<label>-<token>   a file that one checkpoint owns
    <folder>/<uid>/<state>/part-00000-00000.parquet  a part of a table, in a folder of its own
    <folder>/<uid>/~timers/<name>/event/part-…       timers; <uid>/~operator/<state>/part-…: state
                                                     without keys
    <job>/shared/00000000000000000042-<label>-<token>   a file that later ones may use; 42 wrote it
    <job>/owner-00000000000000000007                 a claim: this owner may commit from now on
    <job>/owner-00000000000000000007.start-<token>   what that owner found when it took over
    <job>/owner-00000000000000000007.result-<token>   how the job has ended, by that owner
    <job>/owner-00000000000000000007.held-<token>    which checkpoint that owner has restored
    <job>/owner-00000000000000000007.void-<token>-00000000000000000000-00000000000000000041
                                                     checkpoints that no longer count, from and to
    <job>/owner-00000000000000000007.claimed-<mark>  that owner's job may delete what it has held

    savepoint-<hash of the job>-<token>/_metadata    the commit point of a savepoint, likewise
    savepoint-<hash of the job>-<token>/<label>-<token>   a file that a slot has written for it
    savepoint-<hash of the job>-<token>/<uid>/<state>/part-00000-00000.parquet   or a table

Numbers are padded to twenty digits, so that the order of a listing is the order of numbers.
A legal name is one or more parts joined by `/`; a part is 1 to 200 of the characters
`A-Z a-z 0-9 . _ = ~ -` and does not begin with a dot (storages keep unfinished writes under such
names). Every storage can keep exactly these, on a disk, in HDFS or in a bucket; names that users
choose, such as those of jobs, are escaped into them. An escaped name that is too long is cut and
ends with `~-` and a hash of the whole: no other escaped text contains `~-`. The full name of such a
job is beside:

    <job>/_name                                      of a job whose folder's name is cut
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, cast

import xxhash

from holdfast.storage.errors import Invalid

__all__ = [
    "CHECKPOINTS_PREFIX",
    "JOB_NAME",
    "LEGAL_CHARACTERS",
    "METADATA_NAME",
    "OWNERS_PREFIX",
    "SHARED_PREFIX",
    "CheckpointObject",
    "OwnerRecord",
    "RecordKind",
    "check_file",
    "check_name",
    "checkpoint_folder",
    "claim",
    "escape",
    "escape_any",
    "exclusive_file",
    "exclusive_table",
    "is_cut",
    "is_legal",
    "is_of_savepoint",
    "is_savepoint_folder",
    "job_folder",
    "metadata",
    "operator_table",
    "owner_record",
    "parse_checkpoint_object",
    "parse_owner",
    "savepoint_claim",
    "savepoint_file",
    "savepoint_folder",
    "shared_file",
    "state_table",
    "table_file",
    "timers_table",
    "unescape",
    "void",
    "within",
    "writer_of",
]

LEGAL_CHARACTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._=~-"
JOB_NAME = "_name"
"""The record, within its job's folder, of the name of a job whose folder's name is cut."""
METADATA_NAME = "_metadata"
"""The commit point of a savepoint, within its folder; and of a checkpoint, within its own."""
CHECKPOINTS_PREFIX, SHARED_PREFIX, OWNERS_PREFIX = "chk-", "shared/", "owner-"
"""Of what checkpoints own, of files that several use, and of owners' records, in a job's folder."""
RecordKind = Literal["claim", "start", "result", "held", "void", "claimed"]
_DIGITS = 20  # as many as the largest number of 64 bits has
# A name in a directory may have 255 bytes, and a hidden one has 29 more than its own.
_MAX_PART = 200
# A key of S3 may have 1,024 bytes, and a place has a path before it.
_MAX_NAME = 900
# What numbers, tokens and hashes leave of a part.
_MAX_TABLE = 120
_MAX_LABEL = 80
_CUT = "~-"
_SAVEPOINT = "savepoint-"
_PART = re.compile(rf"(?!\.)[A-Za-z0-9._=~-]{{1,{_MAX_PART}}}")
_CHECKPOINT_OBJECT = re.compile(
    rf"(?:chk-(\d{{{_DIGITS}}})/|shared/(\d{{{_DIGITS}}})-)(.+)", re.ASCII
)
_OWNER = re.compile(
    rf"owner-(\d{{{_DIGITS}}})(?:\.(start|result|held|void|claimed)-([0-9a-f]+))?"
    rf"(?:(?<=[0-9a-f])-(\d{{{_DIGITS}}})-(\d{{{_DIGITS}}}))?",
    re.ASCII,
)


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


@lru_cache(maxsize=1024)  # a file has thousands of segments, and each handle asks
def check_file(name: str) -> None:
    """Refuse a name that no file with state has, in the folder of a job or a savepoint.

    Documents are decoded with this, so that none leads its reader out of the folder, or makes it
    take a commit point or an owner's record for state.

    Raises:
        ValueError: the name is refused. Decoders add the place in the document to this error.
    """
    if not is_legal(name):
        raise ValueError(f"{name[:80]!r} is no name of a file in this folder")
    if name.rpartition("/")[2] == METADATA_NAME or parse_owner(name) is not None:
        raise ValueError(f"{name[:80]!r} is a record, and no file with state")


def _encoded(text: object) -> tuple[bytes, str]:
    """The bytes of a name, and the same escaped; refuses what is not valid text."""
    if not isinstance(text, str):
        raise Invalid("a name is not text", expected="text", found=repr(text))
    try:
        raw = text.encode()
    except UnicodeEncodeError as error:
        raise Invalid("a name is not valid Unicode", where=repr(text[:80])) from error
    return raw, "".join(map(_escape_byte, raw))


def escape(text: str) -> str:
    """Turn any non-empty text into one legal part; `unescape` turns it back.

    Raises:
        Invalid: it is no text, is empty, no valid Unicode, or too long once escaped.
    """
    encoded = _led_safely(_encoded(text)[1])
    if not _PART.fullmatch(encoded):
        raise Invalid(
            "a name is empty or too long",
            where=repr(text[:80]),
            expected=f"1 to {_MAX_PART} characters once escaped",
            found=str(len(encoded)),
        )
    return encoded


def escape_any(text: str, most: int = _MAX_PART) -> str:
    """Turn non-empty text of any length into a legal part of at most so many characters.

    The result of `escape` if that is short enough; else its beginning, and a hash of the whole.

    Raises:
        Invalid: it is no text, is empty, or no valid Unicode.
    """
    raw, encoded = _encoded(text)
    if len(encoded) + 2 * encoded.startswith(".") <= most:
        return escape(text)
    digest = xxhash.xxh3_128_hexdigest(raw)
    kept = "".join(map(_escape_byte, text[:most].encode()))
    kept = kept[: most - len(_CUT) - len(digest)]
    return f"{_led_safely(kept)[: most - len(_CUT) - len(digest)]}{_CUT}{digest}"


def is_cut(part: str) -> bool:
    """Whether the text was too long, so that `unescape` cannot restore it."""
    return _CUT in part


def _led_safely(encoded: str) -> str:
    return f"~2E{encoded[1:]}" if encoded.startswith(".") else encoded


def _escape_byte(byte: int) -> str:
    character = chr(byte)
    return character if character in LEGAL_CHARACTERS and character != "~" else f"~{byte:02X}"


def unescape(part: str) -> str | None:
    """The text that `escape` was given; None if the part was not made by it, or was cut.

    Listings and documents may contain names that other programs have made.
    """
    try:
        raw = re.sub(rb"~([0-9A-F]{2})", lambda found: bytes([int(found[1], 16)]), part.encode())
        text = raw.decode()
        return text if escape(text) == part else None
    except (UnicodeError, Invalid):
        return None


def job_folder(job_id: str) -> str:
    """The folder of a job; if its name is cut, `job_name` in it has the name in full.

    Raises:
        Invalid: the name is empty, or no valid Unicode.
    """
    return escape_any(job_id)


def within(folder: str, file: str) -> str:
    """The name of a file in a folder; the empty folder is the root."""
    return f"{folder}/{file}" if folder else file


def _number(value: int, what: str) -> str:
    if not 0 <= value < 10**_DIGITS:
        raise Invalid(f"{what} is out of range", expected="0 or more", found=str(value))
    return f"{value:0{_DIGITS}d}"


def checkpoint_folder(checkpoint_id: int) -> str:
    """The folder of one checkpoint, within its job's folder."""
    return f"{CHECKPOINTS_PREFIX}{_number(checkpoint_id, 'checkpoint id')}"


def metadata(checkpoint_id: int) -> str:
    """The commit point of one checkpoint."""
    return f"{checkpoint_folder(checkpoint_id)}/{METADATA_NAME}"


def exclusive_file(checkpoint_id: int, label: str, token: str) -> str:
    """A file that this checkpoint alone uses; the token keeps two attempts at it apart."""
    return f"{checkpoint_folder(checkpoint_id)}/{escape_any(label, _MAX_LABEL)}-{token}"


def exclusive_table(checkpoint_id: int, path: str, token: str) -> str:
    """A table that this checkpoint alone uses; the token keeps two attempts at it apart."""
    return f"{checkpoint_folder(checkpoint_id)}/{token}/{path}"


def table_file(uid: str, table: str, part: int, number: int) -> str:
    """One file of a table of an operator; `part` is the writer, `number` counts its files."""
    return f"{_folder_of(uid)}/{table}/part-{part:05d}-{number:05d}.parquet"


def state_table(state: str, other: int = 0) -> str:
    """The table of a keyed state; `other` counts states of the same name with other types."""
    return _folder_of(state) + (f"~-{other}" if other else "")


def timers_table(name: str, domain: str, other: int = 0) -> str:
    """The table of timers. No escaped name of a state equals it."""
    return f"~timers/{_folder_of(name)}/{domain}" + (f"~-{other}" if other else "")


def operator_table(state: str, other: int = 0) -> str:
    """The table of a state without keys."""
    return f"~operator/{state_table(state, other)}"


def _folder_of(text: str) -> str:
    """A part for any text: escaped, cut where it is too long, and shown by every tool.

    Spark and others skip names that begin with an underscore.
    """
    raw = text.encode(errors="surrogatepass")
    escaped = "".join(map(_escape_byte, raw))
    if escaped[:1] in (".", "_"):
        escaped = f"~{ord(escaped[0]):02X}{escaped[1:]}"
    if 0 < len(escaped) <= _MAX_TABLE:
        return escaped
    return f"{escaped[:_MAX_TABLE]}{_CUT}{xxhash.xxh3_64_hexdigest(raw)}"


def shared_file(checkpoint_id: int, label: str, token: str) -> str:
    """A file that later checkpoints may use too; its name says which one wrote it."""
    number = _number(checkpoint_id, "checkpoint id")
    return f"{SHARED_PREFIX}{number}-{escape_any(label, _MAX_LABEL)}-{token}"


def claim(epoch: int) -> str:
    """The record by which an owner claims the job: the highest epoch may commit."""
    return f"{OWNERS_PREFIX}{_number(epoch, 'owner epoch')}"


def owner_record(epoch: int, kind: RecordKind, token: str) -> str:
    """A record of an owner, by its token; for `claimed` see `StateFolder.mark`."""
    return f"{claim(epoch)}.{kind}-{token}"


def void(epoch: int, token: str, numbers: range) -> str:
    """The record that these checkpoints no longer count; the token is the owner's.

    The name holds all facts, so a listing tells them.
    """
    first, last = (_number(each, "checkpoint id") for each in (numbers[0], numbers[-1]))
    return f"{owner_record(epoch, 'void', token)}-{first}-{last}"


def savepoint_folder(job_id: str, token: str) -> str:
    """The folder of a savepoint, named by a hash of its job and a token."""
    return f"{_SAVEPOINT}{xxhash.xxh3_64_hexdigest(job_id.encode())[:6]}-{token[:12]}"


def is_savepoint_folder(name: str) -> bool:
    """Whether the folder of a savepoint can have this name, as `savepoint_folder` gives them."""
    return name.startswith(_SAVEPOINT) and "/" not in name and is_legal(name)


def savepoint_claim(mark: str) -> str:
    """The record, in its folder, of which job may delete a savepoint; see `StateFolder.mark`."""
    return f"_claimed-{mark}"


def savepoint_file(label: str, token: str) -> str:
    """A file of a savepoint, within its folder, with segments of a writer."""
    return f"{_folder_of(label)}-{token}"


def is_of_savepoint(name: str) -> bool:
    """Whether Holdfast gives such names to objects in a savepoint's folder."""
    return name == METADATA_NAME or _SAVEPOINT_OBJECT.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class CheckpointObject:
    """The facts that an object's name gives about the checkpoint that wrote it."""

    checkpoint_id: int
    shared: bool
    is_metadata: bool


def parse_checkpoint_object(name: str) -> CheckpointObject | None:
    """Parse a name within a job's folder; None when it belongs to no checkpoint."""
    match = _CHECKPOINT_OBJECT.fullmatch(name)
    if match is None:
        return None
    exclusive, shared, rest = match.groups()
    return CheckpointObject(
        checkpoint_id=int(exclusive or shared),
        shared=shared is not None,
        is_metadata=exclusive is not None and rest == METADATA_NAME,
    )


def writer_of(name: str) -> int | None:
    """The checkpoint that has written an object of this name; None when it belongs to none."""
    found = parse_checkpoint_object(name)
    return None if found is None else found.checkpoint_id


_SAVEPOINT_OBJECT = re.compile(
    r"[^/]+-[0-9a-f]{16}"  # `savepoint_file`
    r"|.+/part-\d{5,}-\d{5,}(-[0-9a-f]+)?\.parquet"  # `table_file`, of one attempt at it or all
    r"|_claimed-[0-9a-f]{32}",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class OwnerRecord:
    """The facts in the name of an owner's record: a claim, or a record of `kind` with its token."""

    epoch: int
    token: str | None
    kind: RecordKind
    numbers: range = range(0)
    """The void checkpoints, in a record of kind `void`."""


def parse_owner(name: str) -> OwnerRecord | None:
    """Parse the name of an owner's record within a job's folder; None if it is not one."""
    match = _OWNER.fullmatch(name)
    if match is None or (match[2] == "void") != (match[4] is not None):
        return None
    numbers = range(0) if match[4] is None else range(int(match[4]), int(match[5]) + 1)
    return OwnerRecord(int(match[1]), match[3], cast(RecordKind, match[2] or "claim"), numbers)
