"""What a job is started with: what the program says, or the command line, or the session.

As in Flink the program has the first word, and what it says goes before all options. Flink passes
over the others then without a word. Here the command line must not say otherwise than the program:
somebody has just typed it, and would believe that it counts. A session, which may be made for many
programs, is passed over.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import Any, TypeVar

from holdfast.backends import StateBackend, load_backend
from holdfast.backends.rocksdb import RocksDBStateBackend
from holdfast.runtime.api.checkpoint_config import CheckpointConfig
from holdfast.runtime.api.network_config import NetworkConfig
from holdfast.runtime.api.restart_strategies import RestartStrategy
from holdfast.runtime.options.command_line import COMMAND_LINE
from holdfast.runtime.options.table import Settings, option_of
from holdfast.runtime.options.value_checks import rocksdb_fields
from holdfast.storage import CheckpointStorage, Invalid
from holdfast.storage.options.durations import Duration, duration_ms
from holdfast.storage.registry import text_fix

__all__ = [
    "Restoring",
    "choose",
    "choose_checkpointing",
    "choose_network",
    "choose_restart",
    "choose_restoring",
    "choose_rocksdb",
]

_Config = TypeVar("_Config", CheckpointConfig, NetworkConfig)
_CHECKPOINTING = "checkpointing."
_DURATIONS = ("interval", "timeout", "min_pause")


@dataclass(frozen=True, slots=True)
class Restoring:
    """Where a job begins."""

    restore: str | None
    claim_mode: str | None
    allow_non_restored_state: bool
    note: str = ""
    """What a person should know of it; mostly empty."""
    allow_missing_output: bool = False


def choose(argument: str, code: Any, *, line: Settings, session: Settings, default: Any) -> Any:
    """The value of an argument of the environment; None in code is not said.

    Raises:
        Invalid: the command line says otherwise than the code.
    """
    if code is None:
        return line.values.get(argument, session.values.get(argument, default))
    if argument in line.values and not _is_same(argument, code, line.values[argument]):
        raise _disagreement(argument, code, line.values[argument])
    return code


def choose_checkpointing(
    code: CheckpointConfig | Duration | None, *, line: Settings, session: Settings
) -> CheckpointConfig:
    """How checkpoints are taken. In code what is as by default is not said.

    Raises:
        Invalid: the command line says otherwise than the code; or what comes of it cannot be.
    """
    if code is not None and not isinstance(code, CheckpointConfig | str | int | float | timedelta):
        raise Invalid(
            "checkpointing is of another kind",
            expected='a CheckpointConfig, such as CheckpointConfig(interval="10s"), or an interval',
            found=repr(code),
        )
    said = code if isinstance(code, CheckpointConfig) else CheckpointConfig(interval=code)
    return _choose_fields(said, _CHECKPOINTING, line=line, session=session)


def choose_network(
    code: NetworkConfig | None, *, line: Settings, session: Settings
) -> NetworkConfig:
    """How driver, slots and tasks reach each other. In code what is as by default is not said.

    Raises:
        Invalid: the command line says otherwise than the code; or what comes of it cannot be.
    """
    return _choose_fields(code or NetworkConfig(), "network.", line=line, session=session)


def _choose_fields(said: _Config, prefix: str, *, line: Settings, session: Settings) -> _Config:
    chosen: dict[str, Any] = {}
    for field in fields(said):
        value = getattr(said, field.name)
        known = None if value == field.default else value
        name = f"{prefix}{field.name}"
        picked = choose(name, known, line=line, session=session, default=value)
        if picked != value:
            chosen[field.name] = picked
    return replace(said, **chosen) if chosen else said


def choose_rocksdb(backend: Any, *, line: Settings, session: Settings) -> Any:
    """The backend with what options say of it. In code what is as by default is not said.

    Raises:
        Invalid: the command line says otherwise than the code, or speaks of another backend; or
            what comes of it cannot be.
    """
    said, other = rocksdb_fields(line.values), rocksdb_fields(session.values)
    if not said and not other:
        return backend
    if not isinstance(backend, RocksDBStateBackend):
        if said:
            raise Invalid(
                "options of the state backend rocksdb are given, and the job has another one",
                where=COMMAND_LINE,
                expected="state.backend.type=rocksdb, or a program that says so",
                found=type(backend).__name__,
            )
        return backend
    code = {
        field.name: value
        for field in fields(backend)
        if (value := getattr(backend, field.name)) != field.default and value != {}
    }
    for name in code.keys() & said.keys():
        if name != "options" and code[name] != said[name]:
            raise _disagreement(f"rocksdb.{name}", code[name], said[name])
    own = {**code.get("options", {})}
    for name, value in said.get("options", {}).items():
        if own.get(name, value) != value:
            raise _disagreement(f"rocksdb.options.{name}", own[name], value)
    options = {**other.get("options", {}), **said.get("options", {}), **own}
    return replace(backend, **{**other, **said, **code, "options": options})


def choose_restart(
    code: RestartStrategy | None, *, line: Settings, session: Settings
) -> RestartStrategy | None:
    """What happens after a failure; None if nobody says.

    Raises:
        Invalid: the command line says otherwise than the code.
    """
    if code is None:
        return line.restart or session.restart
    if line.restart is not None and line.restart != code:
        raise _disagreement("restart", code, line.restart)
    return code


def choose_restoring(code: Restoring, *, line: Settings, session: Settings) -> Restoring:
    """Where a job begins: what the command line says is of this one start, and goes before all.

    A claim mode is of the checkpoint that is restored, so it goes with that.

    Raises:
        Invalid: the command line says otherwise than the code, but for the path.
    """
    restore: object = code.restore  # whatever the program has passed
    if restore is not None and not (isinstance(restore, str) and restore):
        raise Invalid(
            "restore says nothing that can be restored",
            expected='"latest", the path or URL of a checkpoint or savepoint, or None',
            found=repr(code.restore),
            fix=text_fix(restore),
        )
    dropped = code.allow_non_restored_state or None
    allow = choose(
        "execute.allow_non_restored_state", dropped, line=line, session=session, default=False
    )
    missing = choose(
        "execute.allow_missing_output",
        code.allow_missing_output or None,
        line=line,
        session=session,
        default=False,
    )
    claim_mode = line.values.get("execute.claim_mode")
    path = line.values.get("execute.restore")
    if path is not None:
        note = ""
        if code.restore not in (None, path):
            note = f"restored from {path}, as {COMMAND_LINE} says, and not from {code.restore!r}"
        return Restoring(path, claim_mode, allow, note, missing)
    if code.restore is not None:
        mode = choose(
            "execute.claim_mode", code.claim_mode, line=line, session=session, default=None
        )
        return Restoring(code.restore, mode, allow, "", missing)
    mode = code.claim_mode or claim_mode or session.values.get("execute.claim_mode")
    return Restoring(session.values.get("execute.restore"), mode, allow, "", missing)


def _is_same(argument: str, code: Any, value: Any) -> bool:
    name = argument.removeprefix(_CHECKPOINTING)
    if argument == "slot_request_timeout" or (name in _DURATIONS and argument != name):
        return duration_ms(code, name=name) == duration_ms(value, name=name)
    if argument.endswith("_port"):  # in code it may be a number
        return bool(str(code) == str(value))
    if isinstance(code, StateBackend):
        return type(code) is type(load_backend(value))
    if isinstance(code, CheckpointStorage):
        return bool(code.url == value)
    return bool(code == value)


def _disagreement(argument: str, code: Any, value: Any) -> Invalid:
    key = "restart-strategy.type" if argument == "restart" else option_of(argument).key
    name = argument.rpartition(".")[2]
    return Invalid(
        f"the program and {COMMAND_LINE} do not agree about {name}",
        where=f"{COMMAND_LINE}, {key}",
        expected=f"what the program says: {code!r}",
        found=repr(value),
        fix=f"Leave {name} out of the program, so that it can be said where it is started; or "
        f"leave out -D{key}",
    )
