"""Options that are arguments of `StreamEnvironment` and of its `execute`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from holdfast.backends import StateBackend, load_backend
from holdfast.backends.interface import registered_backends
from holdfast.backends.keys.groups import check_parallelism
from holdfast.runtime.api.checkpoint_config import PLACE
from holdfast.runtime.driver.job_log import LEVELS
from holdfast.runtime.sinks.files.committables import MISSING_OUTPUT
from holdfast.storage import CheckpointStorage
from holdfast.storage.options.checks import check_choice, check_count, check_switch
from holdfast.storage.options.codecs import DURATION, SWITCH, TEXT, WHOLE_NUMBER, Codec, one_of
from holdfast.storage.options.durations import Duration, duration_ms
from holdfast.storage.options.table import Option, Owner, refused

__all__ = [
    "CLAIM_MODE",
    "ENVIRONMENT",
    "ENVIRONMENT_OPTIONS",
    "EXECUTE",
    "EXECUTE_OPTIONS",
    "IGNORE_UNCLAIMED",
    "RESTORE_PATH",
    "PlainArguments",
    "Restoring",
]

RESTORE_PATH = "execution.state-recovery.path"
CLAIM_MODE = "execution.state-recovery.claim-mode"
IGNORE_UNCLAIMED = "execution.state-recovery.ignore-unclaimed-state"
_MOST_PARALLELISM = 32_768


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainArguments:
    """The arguments of an environment that are no settings class, with their defaults.

    Raises:
        Invalid: a switch, the level or the duration is none.
    """

    parallelism: int = 2
    """How many slots the job has."""
    max_parallelism: int | None = None
    """How many key groups state has, the limit of later parallelism. None: as many as restored
    state has, or else a number that leaves room to grow."""
    backend: str | StateBackend = "hashmap"
    """Where live state is kept."""
    storage: str | CheckpointStorage = "memory"
    """Where checkpoints are kept."""
    allow_pickle: bool = False
    """Whether values of types without a codec are pickled."""
    endpoint: bool = True
    """Whether commands such as `holdfast list` reach the job."""
    log_level: str | None = None
    """From which level on the logger `holdfast` speaks. None: INFO, or as the program sets it."""
    slot_request_timeout: Duration = "5min"
    """How long a job waits for room for its slots; 0: not at all."""

    def __post_init__(self) -> None:
        check_switch(self.allow_pickle, name="allow_pickle")
        check_switch(self.endpoint, name="endpoint")
        if self.log_level is not None:
            check_choice(self.log_level, LEVELS, name="log_level")
        duration_ms(self.slot_request_timeout, name="slot_request_timeout")


@dataclass(frozen=True, slots=True)
class Restoring:
    """From what a job begins."""

    restore: str | None = None
    """The folder of a checkpoint or savepoint to restore the job from."""
    claim_mode: str | None = None
    """Who owns the checkpoint of another job that is restored. None: no-claim."""
    allow_non_restored_state: bool = False
    """Drop the state of operators that the job does not have any more."""
    note: str = ""
    """What to tell the user about the choice; mostly empty."""
    allow_missing_output: bool = False
    """Start although files of a sink that the checkpoint lists are missing. Not Flink's."""
    ignore_in_flight_of: int | None = None
    """The number of a checkpoint that is restored without its rows in flight: they are lost."""

    def __post_init__(self) -> None:
        if self.ignore_in_flight_of is not None:
            check_count(self.ignore_in_flight_of, name="ignore_in_flight_of", least=1)


def _check_arguments(**fields: Any) -> None:
    # The defaults say nothing here: the other parallelism may come from another source.
    for name in ("parallelism", "max_parallelism"):
        if name in fields:
            check_parallelism(fields[name], _MOST_PARALLELISM)
    if {"parallelism", "max_parallelism"} <= fields.keys():
        check_parallelism(fields["parallelism"], fields["max_parallelism"])
    PlainArguments(**fields)


def _backend(text: str) -> str:
    if text not in registered_backends():
        load_backend(TEXT.read(text))  # raises, and names those that are registered
    return text


def _is_same_backend(code: Any, value: str) -> bool:
    if isinstance(code, StateBackend):
        return type(code) is type(load_backend(value))
    return bool(code == value)


def _is_same_storage(code: Any, value: str) -> bool:
    return bool((code.url if isinstance(code, CheckpointStorage) else code) == value)


ENVIRONMENT = Owner(
    "",
    PlainArguments,
    "Arguments of `StreamEnvironment`. `state.allow-pickle`, `endpoint.enabled` and `log.level` "
    "are not Flink's.",
    make=_check_arguments,
)
EXECUTE = Owner(
    "execute",
    Restoring,
    "Arguments of `StreamEnvironment.execute`. In a file or a session they count only beside a "
    "path of the same file or session, and only if that path counts.",
)
_BACKEND = Codec("a registered name", _backend, _is_same_backend)
_LEVELS = one_of({name: name for name in LEVELS})
_CLAIM_MODES = one_of({"NO_CLAIM": "no-claim", "CLAIM": "claim"})

ENVIRONMENT_OPTIONS = (
    Option("parallelism.default", ENVIRONMENT, "parallelism", WHOLE_NUMBER),
    Option("pipeline.max-parallelism", ENVIRONMENT, "max_parallelism", WHOLE_NUMBER),
    Option("state.backend.type", ENVIRONMENT, "backend", _BACKEND, ("state.backend",)),
    Option("state.allow-pickle", ENVIRONMENT, "allow_pickle", SWITCH),
    Option("endpoint.enabled", ENVIRONMENT, "endpoint", SWITCH),
    Option("log.level", ENVIRONMENT, "log_level", _LEVELS),
    Option("slot.request.timeout", ENVIRONMENT, "slot_request_timeout", DURATION),
    Option(
        "execution.checkpointing.dir",
        ENVIRONMENT,
        "storage",
        replace(PLACE, is_same=_is_same_storage),
        ("state.checkpoints.dir", "state.backend.fs.checkpointdir"),
    ),
)
EXECUTE_OPTIONS = (
    Option(
        RESTORE_PATH,
        EXECUTE,
        "restore",
        Codec("a path or URL, or `latest`", TEXT.read),
        ("execution.savepoint.path",),
    ),
    Option(CLAIM_MODE, EXECUTE, "claim_mode", _CLAIM_MODES, ("execution.savepoint-restore-mode",)),
    Option(
        IGNORE_UNCLAIMED,
        EXECUTE,
        "allow_non_restored_state",
        SWITCH,
        ("execution.savepoint.ignore-unclaimed-state",),
    ),
    Option(MISSING_OUTPUT, EXECUTE, "allow_missing_output", SWITCH),
    Option(
        "execution.state-recovery.without-channel-state.checkpoint-id",
        EXECUTE,
        "ignore_in_flight_of",
        WHOLE_NUMBER,
        ("execution.checkpointing.recover-without-channel-state.checkpoint-id",),
    ),
    refused(
        "execution.state-recovery.approximate-local-recovery",
        EXECUTE,
        "Leave it out: a job is always restored as a whole, and no row is lost",
        ("execution.checkpointing.approximate-local-recovery",),
    ),
    refused(
        "execution.state-recovery.from-local",
        EXECUTE,
        "Leave it out: what of the state is still on a slot's machine, its backend decides, and "
        "state.changelog.local-copies for logs",
    ),
)
