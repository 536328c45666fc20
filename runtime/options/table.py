"""All options of a job, as each room states its own, how a source is read, and which one counts.

As in Flink the program comes first. Flink ignores the others then. Here the command line must not
contradict the program: its user has just typed it, and would believe that it has an effect. A
session may be made for many programs, so what it sets is passed over without an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

from holdfast.backends.rocksdb.option_rows import ROCKSDB, ROCKSDB_OPTIONS
from holdfast.changelog.options import CHANGELOG_OPTIONS
from holdfast.runtime.api.checkpoint_config import CHECKPOINT_OPTIONS
from holdfast.runtime.api.network_config import NETWORK_OPTIONS
from holdfast.runtime.api.restart_strategies import RESTART_OPTIONS, restart_strategy
from holdfast.runtime.options.environment_options import ENVIRONMENT_OPTIONS, EXECUTE_OPTIONS
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


def read_settings(texts: Mapping[str, str], *, source: str, prefix: str = "") -> Settings:
    """The options that a source sets, checked as far as that is possible before a job starts.

    A program may never make an environment, so a mistake must be found here and not there. What
    only a session knows, such as how a bucket is reached, is not checked.

    Raises:
        Invalid: as `OptionTable.read`; or options of a restart strategy or of a backend are set,
            and another one is named.
    """
    settings = OPTIONS.read(texts, source=source, prefix=prefix)
    restart_strategy(settings)
    backend = settings.values.get("backend", "rocksdb")
    if settings.of(ROCKSDB) and backend != "rocksdb":
        raise Invalid(
            "options of the state backend rocksdb are set, and another backend is named",
            where=settings.where(),
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
        return {**self.session.of(owner), **given, **code}


def fields_set(config: Any) -> dict[str, Any]:
    """The fields of a dataclass that have other values than by default."""
    values = {each.name: (getattr(config, each.name), _default(each)) for each in fields(config)}
    return {name: value for name, (value, default) in values.items() if value != default}


def _default(field: Any) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


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
