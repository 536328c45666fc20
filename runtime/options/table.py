"""All options of a job, as each room states its own, and how a source of them is read."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.backends.rocksdb.option_rows import ROCKSDB, ROCKSDB_OPTIONS
from holdfast.changelog.options import CHANGELOG_OPTIONS
from holdfast.runtime.api.checkpoint_config import CHECKPOINT_OPTIONS
from holdfast.runtime.api.network_config import NETWORK_OPTIONS
from holdfast.runtime.api.restart_strategies import RESTART_OPTIONS, restart_strategy
from holdfast.runtime.options.environment_options import ENVIRONMENT_OPTIONS, EXECUTE_OPTIONS
from holdfast.storage import Invalid
from holdfast.storage.options.table import OptionTable, Settings

__all__ = ["OPTIONS", "read_settings", "session_settings"]

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
