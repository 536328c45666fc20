"""The arguments of an environment: what the code says, and what comes of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from holdfast.backends import StateBackend, default_max_parallelism, load_backend
from holdfast.backends.keys.groups import check_parallelism
from holdfast.changelog import ChangelogOptions
from holdfast.runtime.api.checkpoint_config import CheckpointConfig
from holdfast.runtime.api.network_config import NetworkConfig
from holdfast.runtime.api.restart_strategies import RestartStrategy, default_restart
from holdfast.runtime.driver.job_log import LEVELS
from holdfast.runtime.options.precedence import (
    choose,
    choose_checkpointing,
    choose_network,
    choose_restart,
    choose_rocksdb,
)
from holdfast.runtime.options.table import Settings
from holdfast.runtime.spark.changelog_settings import check_changelog, with_changelog
from holdfast.runtime.spark.storage_settings import storage_of
from holdfast.storage import CheckpointStorage, Invalid
from holdfast.storage.options.checks import check_choice, check_switch
from holdfast.storage.options.durations import Duration, duration_ms
from holdfast.storage.registry import text_fix

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Arguments", "CodeArguments", "choose_all", "parallelism_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeArguments:
    """What the code says; None is not said."""

    parallelism: int | None
    max_parallelism: int | None
    backend: str | StateBackend | None
    changelog: bool | ChangelogOptions | None
    storage: str | CheckpointStorage | None
    checkpointing: CheckpointConfig | Duration | None
    restart: RestartStrategy | None
    allow_pickle: bool | None
    endpoint: bool | None
    log_level: str | None = None
    network: NetworkConfig | None = None
    slot_request_timeout: Duration | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """What counts."""

    parallelism: int
    max_parallelism: int
    backend: StateBackend
    storage: CheckpointStorage
    checkpointing: CheckpointConfig
    restart: RestartStrategy
    allow_pickle: bool
    endpoint: bool
    log_level: str | None
    network: NetworkConfig
    slot_request_timeout: Duration


_UNSAID = Settings({}, None, {})


def parallelism_of(code: CodeArguments, line: Settings, session: Settings = _UNSAID) -> int:
    """How many slots a session needs room for, which is yet to be made.

    Whatever can be refused before that is; of a session nothing is known, or what it will say.

    Raises:
        Invalid: as `choose_all`.
    """
    line = replace(line, changelog={})  # the session may have the rest of it
    session = replace(session, changelog={})
    return choose_all(code, line=line, session=session, spark=None).parallelism


def choose_all(
    code: CodeArguments, *, line: Settings, session: Settings, spark: SparkSession | None
) -> Arguments:
    """What counts, of what code, command line and session say.

    Raises:
        Invalid: an argument cannot be what it is, or the command line says otherwise than the code.
    """

    def chosen(argument: str, said: Any, default: Any) -> Any:
        return choose(argument, said, line=line, session=session, default=default)

    parallelism = chosen("parallelism", code.parallelism, 2)
    max_parallelism = chosen("max_parallelism", code.max_parallelism, None)
    if max_parallelism is None:
        max_parallelism = default_max_parallelism(parallelism)
    check_parallelism(parallelism, max_parallelism)
    backend = chosen("backend", code.backend, "hashmap")
    backend = load_backend(backend) if isinstance(backend, str) else backend
    storage = chosen("storage", code.storage, "memory")
    storage = storage_of(storage, spark) if isinstance(storage, str) else storage
    _check_kind(backend, StateBackend, "backend", 'a registered name such as "hashmap"')
    _check_kind(storage, CheckpointStorage, "storage", "a path, a URL, a registered name")
    backend = choose_rocksdb(backend, line=line, session=session)
    check_changelog(code.changelog, backend)
    if code.restart is not None:
        _check_kind(
            code.restart, RestartStrategy, "restart", "such as FixedDelayRestart(attempts=3)"
        )
    if code.network is not None:
        _check_kind(code.network, NetworkConfig, "network", "such as NetworkConfig(ssl=True)")
    allow_pickle = chosen("allow_pickle", code.allow_pickle, False)
    endpoint = chosen("endpoint", code.endpoint, True)
    check_switch(allow_pickle, name="allow_pickle")
    check_switch(endpoint, name="endpoint")
    log_level = chosen("log_level", code.log_level, None)
    if log_level is not None:
        check_choice(log_level, LEVELS, name="log_level")
    slot_request_timeout = chosen("slot_request_timeout", code.slot_request_timeout, "5min")
    duration_ms(slot_request_timeout, name="slot_request_timeout")
    checkpointing = choose_checkpointing(code.checkpointing, line=line, session=session)
    restart = choose_restart(code.restart, line=line, session=session)
    is_checkpointing = checkpointing.interval is not None
    return Arguments(
        parallelism=parallelism,
        max_parallelism=max_parallelism,
        backend=with_changelog(
            backend, changelog=code.changelog, line=line.changelog, session=session.changelog
        ),
        storage=storage,
        checkpointing=checkpointing,
        restart=restart or default_restart(is_checkpointing=is_checkpointing),
        allow_pickle=allow_pickle,
        endpoint=endpoint,
        log_level=log_level,
        network=choose_network(code.network, line=line, session=session),
        slot_request_timeout=slot_request_timeout,
    )


def _check_kind(value: object, kind: type, name: str, others: str) -> None:
    if not isinstance(value, kind):
        fix = ""
        if isinstance(value, type) and issubclass(value, kind):
            fix = f"Make an object of it: {value.__name__}(…)"
        raise Invalid(
            f"{name} is of another kind",
            expected=f"a {kind.__name__}, {others}",
            found=repr(value),
            fix=text_fix(value) or fix,
        )
