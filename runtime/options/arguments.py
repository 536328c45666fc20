"""The arguments of an environment: what the program passes, and what counts of all sources."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import Any

from holdfast.backends import StateBackend, default_max_parallelism, load_backend
from holdfast.backends.keys.groups import check_parallelism
from holdfast.backends.rocksdb import RocksDBStateBackend
from holdfast.backends.rocksdb.option_rows import ROCKSDB, rocksdb_arguments, rocksdb_fields
from holdfast.changelog import ChangelogOptions, ChangelogStateBackend
from holdfast.changelog.options import CHANGELOG, changelog_options
from holdfast.runtime.api.checkpoint_config import CHECKPOINTING, CheckpointConfig
from holdfast.runtime.api.network_config import NETWORK, NetworkConfig
from holdfast.runtime.api.restart_strategies import (
    RESTART_PREFIX,
    RestartStrategy,
    default_restart,
    restart_strategy,
)
from holdfast.runtime.options.environment_options import (
    ENVIRONMENT,
    EXECUTE,
    PlainArguments,
    Restoring,
)
from holdfast.runtime.options.table import GivenOptions, disagreement, fields_set
from holdfast.storage import CheckpointStorage, Invalid, load_storage
from holdfast.storage.options.checks import text_fix
from holdfast.storage.options.durations import Duration
from holdfast.storage.options.table import Settings, contradicting

__all__ = [
    "Arguments",
    "CodeArguments",
    "choose_all",
    "choose_checkpointing",
    "choose_restoring",
    "parallelism_of",
    "with_changelog",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeArguments:
    """What the program passes; None is not set."""

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
    is_max_parallelism_set: bool
    """Else it follows from the parallelism, or from the state that is restored."""
    backend: StateBackend
    storage: CheckpointStorage
    checkpointing: CheckpointConfig
    restart: RestartStrategy
    allow_pickle: bool
    endpoint: bool
    log_level: str | None
    network: NetworkConfig
    slot_request_timeout: Duration


def parallelism_of(code: CodeArguments, options: GivenOptions) -> int:
    """How many slots a session needs room for that is yet to be made.

    Refuses what can be refused without the session.

    Raises:
        Invalid: as `choose_all`.
    """
    line, file, session = map(_without_changelog, options.sources)
    return choose_all(code, GivenOptions(line, session, file)).parallelism


def _without_changelog(settings: Settings) -> Settings:
    """Options of a changelog may be dealt out over several sources, one of which is to come."""
    prefix = f"{CHANGELOG.name}."
    kept = {name: value for name, value in settings.values.items() if not name.startswith(prefix)}
    return replace(settings, values=kept)


def choose_all(
    code: CodeArguments,
    options: GivenOptions,
    *,
    open_storage: Callable[[str], CheckpointStorage] = load_storage,
) -> Arguments:
    """What counts of what program, command line and session set.

    Raises:
        Invalid: an argument is not accepted, or the command line contradicts the program.
    """
    passed = {each.name: getattr(code, each.name) for each in fields(PlainArguments)}
    passed = {name: value for name, value in passed.items() if value is not None}
    plain = PlainArguments(**options.choose(ENVIRONMENT, passed))
    max_parallelism = plain.max_parallelism
    if max_parallelism is None:
        max_parallelism = default_max_parallelism(plain.parallelism)
    check_parallelism(plain.parallelism, max_parallelism)
    backend = load_backend(plain.backend) if isinstance(plain.backend, str) else plain.backend
    storage = open_storage(plain.storage) if isinstance(plain.storage, str) else plain.storage
    _check_kind(backend, StateBackend, "backend", 'a registered name such as "hashmap"')
    _check_kind(storage, CheckpointStorage, "storage", "a path, a URL, a registered name")
    backend = _choose_rocksdb(backend, options)
    _check_changelog(code.changelog, backend)
    checkpointing = choose_checkpointing(code.checkpointing, options)
    restart = _choose_restart(code.restart, options)
    return Arguments(
        parallelism=plain.parallelism,
        max_parallelism=max_parallelism,
        is_max_parallelism_set=plain.max_parallelism is not None,
        backend=with_changelog(backend, options, changelog=code.changelog),
        storage=storage,
        checkpointing=checkpointing,
        restart=restart or default_restart(is_checkpointing=checkpointing.interval is not None),
        allow_pickle=plain.allow_pickle,
        endpoint=plain.endpoint,
        log_level=plain.log_level,
        network=_choose_network(code.network, options),
        slot_request_timeout=plain.slot_request_timeout,
    )


def choose_checkpointing(
    code: CheckpointConfig | Duration | None, options: GivenOptions
) -> CheckpointConfig:
    """How checkpoints are taken. A field that has its default value in code is not set there.

    Raises:
        Invalid: the command line contradicts the program; or fields do not fit each other.
    """
    if code is not None and not isinstance(code, CheckpointConfig | str | int | float | timedelta):
        raise Invalid(
            "checkpointing is of another kind",
            expected='a CheckpointConfig, such as CheckpointConfig(interval="10s"), or an interval',
            found=repr(code),
        )
    config = code if isinstance(code, CheckpointConfig) else CheckpointConfig(interval=code)
    passed = fields_set(config)
    chosen = options.choose(CHECKPOINTING, passed)
    try:
        return replace(config, **chosen)
    except Invalid as error:  # each source agrees with itself, and two do not with each other
        where = options.origins(
            contradicting(CHECKPOINTING, chosen, error), map(CHECKPOINTING.argument, passed)
        )
        raise error.replaced(where=where) from error


def _choose_network(code: NetworkConfig | None, options: GivenOptions) -> NetworkConfig:
    if code is not None:
        _check_kind(code, NetworkConfig, "network", "such as NetworkConfig(ssl=True)")
    config = code or NetworkConfig()
    chosen = options.choose(NETWORK, fields_set(config))
    return replace(config, **chosen)


def _choose_rocksdb(backend: Any, options: GivenOptions) -> Any:
    """The backend with what options set of it, beside what the program sets."""
    if isinstance(backend, RocksDBStateBackend):
        passed = rocksdb_fields(backend)
        chosen = options.choose(ROCKSDB, passed)
        return replace(backend, **rocksdb_arguments(chosen)) if chosen != passed else backend
    if options.line.of(ROCKSDB):
        raise Invalid(
            "options of the state backend rocksdb are given, and the job has another one",
            where=options.line.where(),
            expected="state.backend.type=rocksdb, or a program that says so",
            found=type(backend).__name__,
        )
    return backend


def _choose_restart(code: RestartStrategy | None, options: GivenOptions) -> RestartStrategy | None:
    if code is None:
        return restart_strategy(*options.sources)
    _check_kind(code, RestartStrategy, "restart", "such as FixedDelayRestart(attempts=3)")
    given = [key for key in options.line.keys.values() if key.startswith(RESTART_PREFIX)]
    named = restart_strategy(*options.sources) if given else code
    if named != code:
        raise disagreement(options.line, given[0], "restart", code, named)
    return code


def choose_restoring(code: Restoring, options: GivenOptions) -> Restoring:
    """From what a job begins.

    A path on the command line is about this one start, so it precedes that of the program. A claim
    mode, or whose rows in flight are lost, belongs to the checkpoint that is restored, so it comes
    from where the path does, or from the command line. A file or a session may be made for many
    programs, so all that it says of restoring is about the path that it has itself.

    Raises:
        Invalid: the command line contradicts the program, but for the path.
    """
    restore: object = code.restore  # whatever the program has passed
    if restore is not None and not (isinstance(restore, str) and restore):
        raise Invalid(
            "restore says nothing that can be restored",
            expected='"latest", the path or URL of a checkpoint or savepoint, or None',
            found=repr(restore),
            fix=text_fix(restore),
        )
    passed = {name: value for name, value in fields_set(code).items() if value}
    source = options.restoring(restore)
    if source is not None:
        for name in ("restore", "claim_mode", "ignore_in_flight_of"):
            passed.pop(name, None)
    beneath = Settings() if source in (None, options.line) else source
    chosen = GivenOptions(options.line, beneath).choose(EXECUTE, passed)
    path = chosen.get("restore")
    if restore not in (None, path):
        says = options.line.source
        chosen["note"] = f"restored from {path}, as {says} says, and not from {restore!r}"
    return Restoring(**chosen)


def _check_changelog(changelog: object, backend: StateBackend) -> None:
    if not isinstance(changelog, bool | ChangelogOptions | None):
        raise Invalid(
            "changelog is of another kind",
            expected="True, False, ChangelogOptions, or None for what options say",
            found=repr(changelog),
        )
    if isinstance(backend, ChangelogStateBackend) and changelog is not None:
        raise Invalid(
            "the backend is a changelog, and `changelog` is given too",
            expected="one of them",
            found=f"backend={backend!r}, changelog={changelog!r}",
            fix="Leave `changelog` out, or pass the backend that the changelog is over",
        )


def with_changelog(
    backend: StateBackend, options: GivenOptions, *, changelog: bool | ChangelogOptions | None
) -> StateBackend:
    """The backend, with its changes logged if that is set.

    Options decide what the program leaves open: how changes are logged if it passes True, and all
    if it passes None. `ChangelogOptions` leave nothing open.

    Raises:
        Invalid: the command line contradicts the program; or options do not fit each other.
    """
    given = options.line.of(CHANGELOG)
    is_logged = isinstance(backend, ChangelogStateBackend)
    if given and (is_logged or not _agrees(given, changelog)):
        says = f"backend={backend!r}" if is_logged else f"changelog={changelog!r}"
        raise Invalid(
            f"the program and {options.line.source} do not agree about the changelog",
            where=options.line.source,
            expected=f"what the program says: {says}",
            found=", ".join(f"{name}={value!r}" for name, value in given.items()),
            fix="Leave it out of one of them",
        )
    if changelog is False or is_logged:
        return backend
    if not isinstance(changelog, ChangelogOptions):
        logged = changelog_options({**options.beneath(CHANGELOG), **given}, enabled=changelog)
        return backend if logged is None else ChangelogStateBackend(backend, logged)
    return ChangelogStateBackend(backend, changelog)


def _agrees(given: dict[str, Any], changelog: object) -> bool:
    is_on = given.get("enabled", True)
    if isinstance(changelog, ChangelogOptions):
        return is_on and changelog_options(given, enabled=True) == changelog
    return changelog is None or is_on is changelog


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
