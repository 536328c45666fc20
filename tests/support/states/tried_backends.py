"""The backends that tests try: one list of names, one parameter of tests, turns for seeds.

A child process of a test has them too, by name and folder. A new backend of the house is in the
list with its entry point; the plug-in stands for all that are not of the house.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.backends import StateBackend, load_backend, registered_backends
from holdfast.changelog import ChangelogOptions, ChangelogStateBackend
from holdfast_sqlite import SqliteStateBackend
from support.broken.lossy_backends import LOSSES, LossyBackend

PLUG_IN = "sqlite"
LOGGED = "changelog"
REGISTERED = tuple(sorted({*registered_backends()} - {PLUG_IN, LOGGED}))
PLAIN = (*REGISTERED, PLUG_IN)
TRIED = (*PLAIN, *(f"{LOGGED}-{name}" for name in PLAIN))
BUSY_LOG = ChangelogOptions(
    materialization_interval_s=2.0,
    least_log_bytes=2000,
    persist_threshold_bytes=500,
    persist_interval_s=0.5,
    max_materialization_failures=1000,
)
"""Of a changelog that is tried: whatever happens now and then happens often."""
PARAMETERS = [
    pytest.param(
        name,
        marks=() if name == TRIED[0] else (pytest.mark.slow, pytest.mark.dealt("backend_name")),
    )
    for name in TRIED
]
"""For the fixture `backend_name`: `make check` tries the first one, `make test` one more each test,
by turns, and `make soak` the rest."""


def backend_named(name: str, folder: Path | str) -> StateBackend:
    """One of those, with its files below a folder; or one that is broken on purpose."""
    if name in LOSSES:
        return LossyBackend(name)
    if name.startswith(f"{LOGGED}-"):
        return ChangelogStateBackend(
            backend_named(name.removeprefix(f"{LOGGED}-"), folder), BUSY_LOG
        )
    if name == PLUG_IN:
        Path(folder).mkdir(parents=True, exist_ok=True)
        return SqliteStateBackend(str(folder))
    if name == "rocksdb":  # with little memory, so that there are files and compaction
        return load_backend(name, memory="16m", directories=[str(folder)])
    return load_backend(name)


def share(count: int, name: str) -> int:
    """How many runs of a search a backend gets: a quarter of the first's, since most are slower.

    To open a database of many tables takes longer than what is done with it, and they share all
    but their tables. `make soak` gives all of them the same.
    """
    return count if name == TRIED[0] else count // 4


def turn(number: int) -> str:
    """The backend whose turn it is, for tests that are dealt over the backends by seed."""
    return TRIED[number % len(TRIED)]
