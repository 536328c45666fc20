"""All options of a job, as each room states its own, how a source is read, and which one counts.

As in Flink the program comes first. Flink ignores the others then. Here the command line must not
contradict the program: its user has just typed it, and would believe that it has an effect. A file
or a session may be made for many programs, so what it sets is passed over without an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from holdfast.backends.rocksdb.option_rows import ROCKSDB, ROCKSDB_OPTIONS
from holdfast.changelog.options import CHANGELOG_OPTIONS
from holdfast.runtime.api.checkpoint_config import CHECKPOINT_OPTIONS
from holdfast.runtime.api.network_config import NETWORK_OPTIONS
from holdfast.runtime.api.restart_strategies import RESTART_OPTIONS, restart_strategy
from holdfast.runtime.options.environment_options import (
    ENVIRONMENT_OPTIONS,
    EXECUTE,
    EXECUTE_OPTIONS,
)
from holdfast.storage import Invalid
from holdfast.storage.options.table import OptionTable, Owner, Settings

__all__ = [
    "OPTIONS",
    "GivenOptions",
    "disagreement",
    "fields_set",
    "read_settings",
    "session_settings",
]

_SESSION = "spark.holdfast."

OPTIONS = OptionTable(
    (
        *ENVIRONMENT_OPTIONS,
        *CHECKPOINT_OPTIONS,
        *EXECUTE_OPTIONS,
        *RESTART_OPTIONS,
        *ROCKSDB_OPTIONS,
        *CHANGELOG_OPTIONS,
        *NETWORK_OPTIONS,
    )
)
"""In the order of docs/options.md."""


def read_settings(
    texts: Mapping[str, str],
    *,
    source: str,
    prefix: str = "",
    lines: Mapping[str, int] | None = None,
    file: Settings | None = None,
) -> Settings:
    """The options that a source sets, checked as far as that is possible before a job starts.

    A program may never make an environment, so a mistake must be found here and not there. What
    only a session knows, such as how a bucket is reached, is not checked. `lines` says where each
    option is in a file, and `file` what the source may build on.

    Raises:
        Invalid: as `OptionTable.read`; or options of a restart strategy or of a backend are set,
            and another one is named.
    """
    settings = OPTIONS.read(texts, source=source, prefix=prefix, lines=lines)
    below = file or Settings()
    restart_strategy(settings, below)
    backend = settings.values.get("backend", below.values.get("backend", "rocksdb"))
    if backend != "rocksdb" and settings.of(ROCKSDB):
        raise Invalid(
            "options of the state backend rocksdb are set, and another backend is named",
            where=settings.where(settings.keys[settings.arguments(ROCKSDB)[0]]),
            expected="state.backend.type=rocksdb",
            found=f"state.backend.type={backend}",
        )
    return settings


def session_settings(conf: Mapping[str, str]) -> Settings:
    """The options among the settings of a Spark session: those that begin with `spark.holdfast.`.

    Raises:
        Invalid: as `read_settings`.
    """
    texts = {
        name.removeprefix(_SESSION): value
        for name, value in conf.items()
        if name.startswith(_SESSION)
    }
    return read_settings(texts, source="the session", prefix=_SESSION)


@dataclass(frozen=True, slots=True)
class GivenOptions:
    """The options that are set outside of the program."""

    line: Settings
    """On the command line of `holdfast run`."""
    session: Settings
    """In the Spark session."""
    file: Settings = field(default_factory=Settings)
    """In the file that the command line or the environment names."""

    @property
    def sources(self) -> tuple[Settings, ...]:
        """In the order of precedence; before all of them comes the program."""
        return (self.line, self.file, self.session)

    def restoring(self, code: str | None) -> Settings | None:
        """The source whose path a job is restored from; `code` is that of the program.

        None: that of the program, or there is none.
        """
        path = EXECUTE.argument("restore")
        sources = self.sources if code is None else (self.line,)
        return next((each for each in sources if path in each.values), None)

    def beneath(self, owner: Owner) -> dict[str, Any]:
        """The fields of an owner that sources set which the program may contradict."""
        return {**self.session.of(owner), **self.file.of(owner)}

    def older_names(self) -> tuple[str, ...]:
        """A warning for each option that is set under an older name."""
        return tuple(
            f"{settings.where(key)} is an older name: write {OPTIONS.option(argument).key}"
            for settings in self.sources
            for argument, key in settings.keys.items()
            if key != OPTIONS.option(argument).key
        )

    def origins(self, arguments: Iterable[str], code: Iterable[str]) -> str:
        """Where arguments are set, for errors: in the program, or in the first of the sources.

        `code` are those that the program sets: what sources say of them has no effect.
        """
        asked, own = set(arguments), set(code)
        left, told = asked - own, []
        for settings in self.sources:
            told += [settings.where(settings.keys[each]) for each in settings.keys if each in left]
            left.difference_update(settings.keys)
        return "; ".join((*told, "the program") if asked & own else told)

    def choose(self, owner: Owner, code: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of an owner that any source sets; `code` has those that the program sets.

        Raises:
            Invalid: the command line contradicts the program.
        """
        given = self.line.of(owner)
        for name, value in given.items():
            if name in code:
                option = OPTIONS.option(owner.argument(name))
                if not option.codec.is_same(code[name], value):
                    raise disagreement(self.line, option.key, option.field, code[name], value)
        return {**self.beneath(owner), **given, **code}


def fields_set(config: Any) -> dict[str, Any]:
    """The fields of a dataclass that have other values than by default."""
    values = {each.name: (getattr(config, each.name), _default(each)) for each in fields(config)}
    return {name: value for name, (value, default) in values.items() if value != default}


def _default(of: Any) -> Any:
    return of.default if of.default_factory is MISSING else of.default_factory()


def disagreement(line: Settings, key: str, field: str, code: Any, value: Any) -> Invalid:
    """The error for an option of the command line that contradicts the program."""
    name = field.rpartition(".")[2]
    return Invalid(
        f"the program and {line.source} do not agree about {name}",
        where=line.where(key),
        expected=f"what the program says: {code!r}",
        found=repr(value),
        fix=f"Leave {name} out of the program, so that it can be set where it is started; or "
        f"leave out -D{key}",
    )
