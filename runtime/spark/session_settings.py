"""What a session of Spark says to Holdfast: options under `spark.holdfast.`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from holdfast.runtime.options.table import Settings, read_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["session_settings", "settings_in"]

_PREFIX = "spark.holdfast."


def session_settings(spark: SparkSession) -> Settings:
    """The options that are set there.

    Raises:
        Invalid: one does not exist, or cannot be what it is.
    """
    return settings_in(spark.conf.getAll)


def settings_in(conf: Mapping[str, str]) -> Settings:
    """The options among the settings of a session, which may be yet to be made.

    Raises:
        Invalid: one does not exist, or cannot be what it is.
    """
    texts = {
        name.removeprefix(_PREFIX): value
        for name, value in conf.items()
        if name.startswith(_PREFIX)
    }
    return read_settings(texts, where=f"the session's settings, without {_PREFIX}")
