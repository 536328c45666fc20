"""Committables of the file sink: their names, and what a commit has to do about each."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from enum import Enum

from holdfast.runtime.api.sinks import WriterContext
from holdfast.runtime.sinks.files.output_folder import HIDDEN_FOLDER, OutputFolder, translating
from holdfast.storage import Corrupt, Unavailable
from holdfast.storage.names import escape, escape_any, is_legal, unescape

__all__ = [
    "MISSING_OUTPUT",
    "Action",
    "FileCommittable",
    "action_for",
    "age_of",
    "carry_out",
    "check_own",
    "final_name",
    "hidden_folder",
    "hidden_name",
]

MISSING_OUTPUT = "execution.state-recovery.ignore-missing-output"
"""The option with which a job goes on although files are gone that a checkpoint lists."""

_UNFINISHED = ".unfinished"
_FINAL = "part-"
_logger = logging.getLogger(__name__)
_HIDDEN_FILE = re.compile(rf"(.+)-\d{{5,}}-\d{{5,}}-[^-]+{re.escape(_UNFINISHED)}", re.ASCII)
_LEGAL_FILE = re.compile(r"(?!\.)[A-Za-z0-9._=~-]+")
_MAX_UID = 100
"""What is before and behind it in a name leaves room for as much in every file system."""


@dataclass(frozen=True, slots=True)
class FileCommittable:
    """A file that is durable under its hidden name, and the name that readers shall see."""

    root: str
    hidden: str
    final: str
    size_bytes: int
    rows: int


class Action(Enum):
    """What a commit has to do about one file."""

    MOVE = "move"
    NOTHING = "nothing"
    REMOVE_HIDDEN = "remove hidden"
    """It was committed by a copy, and its process was stopped before it removed the original."""


def hidden_folder(job_id: str, uid: str) -> str:
    """The folder of a sink's files before they are committed."""
    return f"{HIDDEN_FOLDER}/{escape_any(job_id)}/{escape_any(uid)}"


def hidden_name(context: WriterContext, *, number: int, token: str) -> str:
    """The name of a writer's file until it is committed."""
    folder = hidden_folder(context.job_id, context.uid)
    attempt = escape(context.attempt)
    return f"{folder}/{attempt}-{context.slot:05d}-{number:05d}-{token}{_UNFINISHED}"


def age_of(file: str) -> str | None:
    """The attempt that wrote a file in a hidden folder; None for one that no writer made."""
    found = _HIDDEN_FILE.fullmatch(file)
    return None if found is None else unescape(found[1])


def final_name(
    context: WriterContext, *, checkpoint_id: int, number: int, token: str, ending: str
) -> str:
    """The name that readers see. Listed in order, files of one slot are in order of writing.

    The token is the writer's, so that no other run or job writes a file of the same name here.
    """
    uid = escape_any(context.uid, _MAX_UID)
    return f"{_FINAL}{uid}-{checkpoint_id:012d}-{context.slot:05d}-{number:05d}-{token}{ending}"


def check_own(committable: FileCommittable, uid: str) -> None:
    """Refuse what no writer of a sink with this uid has made, before anything is touched.

    It comes from a checkpoint, which may be damaged, or another's work: it moves a file of the
    hidden folder of such a sink, in a job of whatever name, to a name of such a file, or nothing.

    Raises:
        Corrupt: it names something else.
    """
    folder, job, its, *file = committable.hidden.split("/")[:5] + [""] * 3
    hidden_parts = (job, its, file[0])
    is_hidden = (
        folder == HIDDEN_FOLDER
        and committable.hidden.count("/") == 3
        and all(map(is_legal, hidden_parts))
        and its == escape_any(uid)
        and age_of(file[0]) is not None
    )
    beginnings = {f"{_FINAL}{escape_any(uid, _MAX_UID)}-", f"{_FINAL}{escape_any(uid)}-"}
    is_final = (
        "/" not in committable.final
        and _LEGAL_FILE.fullmatch(committable.final) is not None
        and committable.final.startswith(tuple(beginnings))
    )
    if not (is_hidden and is_final):
        raise Corrupt(
            "a checkpoint names a file of a sink that no such sink has written",
            where=f"sink {uid!r}",
            expected=f"a file in {HIDDEN_FOLDER}/<job>/{escape_any(uid)}, to be called "
            f"{_FINAL}{escape_any(uid, _MAX_UID)}-…",
            found=f"{committable.hidden[:200]!r}, to be called {committable.final[:200]!r}",
            fix="Restore another checkpoint",
        )


def action_for(
    committable: FileCommittable,
    *,
    hidden_bytes: int | None,
    final_bytes: int | None,
    place: OutputFolder,
) -> Action:
    """What to do, from the lengths of the files; None where there is none.

    Read the hidden one first: then a file that is moved meanwhile is seen once or twice.

    Raises:
        Corrupt: neither is there, or one is not as long as it was written; names it.
    """
    found = final_bytes if final_bytes is not None else hidden_bytes
    if found == committable.size_bytes:
        if final_bytes is None:
            return Action.MOVE
        return Action.NOTHING if hidden_bytes is None else Action.REMOVE_HIDDEN
    name = committable.final if final_bytes is not None else committable.hidden
    if found is not None:
        raise Corrupt(
            "a file of a sink is not as long as it was written",
            where=place.where(name),
            expected=f"{committable.size_bytes} bytes",
            found=f"{found} bytes",
            fix="Bring the file back from a copy, or restore an older checkpoint",
        )
    raise Corrupt(
        "a file of a sink is gone before it was committed",
        where=place.where(name),
        expected=f"it here, or as {place.where(committable.final)}",
        found="neither",
        fix="If what it held may be lost, or was committed and then moved on purpose, pass "
        f"allow_missing_output=True where the job is executed (on a command line {MISSING_OUTPUT})",
    )


def carry_out(
    committable: FileCommittable, place: OutputFolder, *, allow_missing: bool = False
) -> bool:
    """Make one file seen; it is not made durable yet.

    False, and a warning, if it is in neither place and that is allowed.

    Raises:
        Corrupt: see `action_for`.
        Unavailable: the place did not answer.
        Invalid: the place does not allow it.
    """
    hidden, final = committable.hidden, committable.final
    for _ in range(2):
        with translating("commit a file of a sink", place.where(final)):
            hidden_bytes = place.size_bytes(hidden)
            final_bytes = place.size_bytes(final)
        if allow_missing and hidden_bytes is None and final_bytes is None:
            _logger.warning(
                "a file of a sink that the restored checkpoint lists is gone, with %d rows: %s",
                committable.rows,
                place.where(final),
            )
            return False
        action = action_for(
            committable, hidden_bytes=hidden_bytes, final_bytes=final_bytes, place=place
        )
        with translating("commit a file of a sink", place.where(final)):
            if action is Action.REMOVE_HIDDEN:
                place.remove(hidden)
            try:
                if action is Action.MOVE:
                    place.move(hidden, final)
            except (FileNotFoundError, FileExistsError):
                continue  # another process has just committed it; look again
        return True
    raise Unavailable(
        "cannot commit a file of a sink",
        where=place.where(final),
        expected=f"to move {place.where(hidden)}",
        found="a file that comes and goes",
    )
