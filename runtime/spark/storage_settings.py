"""Opens storages with a session's own settings of HDFS and S3.

Users of Spark have configured them once, by `spark.hadoop.*`; a storage that is named by a URL uses
these settings. One that is made in code uses its options only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.storage import CheckpointStorage, load_storage
from holdfast.storage.places.hdfs.hadoop_config import hadoop_options
from holdfast.storage.places.s3.hadoop_settings import s3a_options
from holdfast.storage.places.s3.options import s3_place
from holdfast.storage.places.s3.secrets import Secret

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SessionStorages"]

_OF_PLACES = ("spark.hadoop.", "fs.", "dfs.", "hadoop.", "ipc.")


def _of_hdfs(_: str, conf: Mapping[str, str]) -> Mapping[str, Any]:
    return hadoop_options(conf)


def _of_s3(text: str, conf: Mapping[str, str]) -> Mapping[str, Any]:
    return s3a_options(conf, s3_place(text).bucket)


_OPTIONS: Mapping[str, Callable[[str, Mapping[str, str]], Mapping[str, Any]]] = {
    "hdfs": _of_hdfs,
    "viewfs": _of_hdfs,
    "s3": _of_s3,
    "s3a": _of_s3,
}
"""By scheme: the options for a URL, out of a session's settings."""


@dataclass(frozen=True, slots=True)
class SessionStorages:
    """Opens storages with a session's settings of HDFS and S3; pickled with tasks of Spark.

    Called with a URL, a path or a registered name.

    Raises:
        Invalid: as `load_storage`.
    """

    conf: Mapping[str, Secret]
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Given in code: they take precedence over the settings. May be secret."""

    @classmethod
    def of(cls, spark: SparkSession, options: Mapping[str, Any] | None = None) -> SessionStorages:
        """The settings that the session has now."""
        said = spark.conf.getAll.items()
        conf = {name: Secret(value) for name, value in said if name.startswith(_OF_PLACES)}
        return cls(conf, dict(options or {}))

    def __call__(self, text: str) -> CheckpointStorage:
        options_of = _OPTIONS.get(text.partition("://")[0])
        if options_of is None:
            return load_storage(text, **self.options)
        conf = {name: value.reveal() for name, value in self.conf.items()}
        return load_storage(text, **{**options_of(text, conf), **self.options})
