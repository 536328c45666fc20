"""From what a job begins, of what the program, the command line, a file and the session say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.runtime.options.arguments import choose_restoring
from holdfast.runtime.options.environment_options import Restoring
from holdfast.runtime.options.table import GivenOptions, read_settings
from holdfast.storage.options.table import COMMAND_LINE

NOWHERE = Restoring()
LATEST = Restoring("latest")
CLAIM = {"claim-mode": "CLAIM"}
LOSE = {"without-channel-state.checkpoint-id": "2"}
DROP = {"ignore-unclaimed-state": "true", "ignore-missing-output": "true"}
IN_FILE = {"path": "/f/chk-7"}


def given(line: dict[str, str], file: dict[str, str], session: dict[str, str]) -> GivenOptions:
    named = {COMMAND_LINE: line, "x.yaml": file, "the session": session}
    read = {
        source: read_settings(
            {f"execution.state-recovery.{key}": text for key, text in texts.items()}, source=source
        )
        for source, texts in named.items()
    }
    return GivenOptions(read[COMMAND_LINE], read["the session"], read["x.yaml"])


@pytest.mark.parametrize(
    ("code", "line", "file", "session", "counts"),
    [
        # What a shared source says of restoring is about the path that it names itself.
        (LATEST, {}, CLAIM | LOSE | DROP, {}, LATEST),
        (LATEST, {}, {}, CLAIM | LOSE | DROP, LATEST),
        (NOWHERE, IN_FILE, CLAIM | LOSE | DROP, CLAIM, Restoring("/f/chk-7")),
        (NOWHERE, {}, IN_FILE, CLAIM | LOSE | DROP, Restoring("/f/chk-7")),
        (NOWHERE, {}, CLAIM | LOSE | DROP, IN_FILE, Restoring("/f/chk-7")),
        (NOWHERE, {}, CLAIM | LOSE | DROP, {}, NOWHERE),
        (LATEST, {}, IN_FILE | CLAIM, {}, LATEST),
        (
            NOWHERE,
            {},
            IN_FILE | CLAIM | LOSE | DROP,
            {"path": "/s/chk-2"},
            Restoring("/f/chk-7", "claim", True, "", True, 2),
        ),
        # A command line is about this one start, so it may add to a path of another source.
        (NOWHERE, CLAIM, IN_FILE, {}, Restoring("/f/chk-7", "claim")),
        (LATEST, CLAIM | LOSE, {}, {}, Restoring("latest", "claim", ignore_in_flight_of=2)),
        # What a program says of one checkpoint is not about that of another source.
        (Restoring(None, "claim", ignore_in_flight_of=2), {}, IN_FILE, {}, Restoring("/f/chk-7")),
        (Restoring("/a/chk-2", ignore_in_flight_of=2), IN_FILE, {}, {}, Restoring("/f/chk-7")),
        (Restoring(None, "claim"), {}, {}, {}, Restoring(None, "claim")),
    ],
)
def test_options_of_a_restore_come_with_its_path(
    code: Restoring,
    line: dict[str, str],
    file: dict[str, str],
    session: dict[str, str],
    counts: Restoring,
) -> None:
    assert replace(choose_restoring(code, given(line, file, session)), note="") == counts


@pytest.mark.parametrize(
    ("code", "line", "file", "session", "path"),
    [
        (None, IN_FILE, {"path": "/b"}, {}, "/f/chk-7"),
        ("latest", IN_FILE, {}, {}, "/f/chk-7"),
        (None, {}, IN_FILE, {"path": "/b"}, "/f/chk-7"),
        (None, {}, {}, IN_FILE, "/f/chk-7"),
        ("latest", {}, IN_FILE, IN_FILE, None),
        (None, {}, CLAIM, {}, None),
    ],
)
def test_which_source_says_where_a_job_begins(
    code: str | None,
    line: dict[str, str],
    file: dict[str, str],
    session: dict[str, str],
    path: str | None,
) -> None:
    source = given(line, file, session).restoring(code)
    assert (source and source.values["execute.restore"]) == path
