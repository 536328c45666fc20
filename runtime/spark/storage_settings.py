"""What a session already says about the place that a job keeps its checkpoints in.

Users of Spark have told it of their HDFS and S3, once, by `spark.hadoop.*`: a storage that is
named by a URL takes it from there. One that is made in code takes what its options say, no more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.runtime.spark.sessions.session_checks import check_classic
from holdfast.storage import CheckpointStorage, load_storage
from holdfast.storage.places.hdfs.hadoop_config import hadoop_options
from holdfast.storage.places.s3.hadoop_settings import s3a_options
from holdfast.storage.places.s3.options import s3_place
from holdfast.storage.places.s3.secrets import Secret

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SessionStorages", "storage_from", "storage_of"]

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
    """Opens storages with what a session has said of HDFS and S3; travels with tasks of Spark."""

    conf: Mapping[str, Secret]

    @classmethod
    def of(cls, spark: SparkSession) -> SessionStorages:
        """What the session says by now."""
        said = spark.conf.getAll.items()
        return cls({name: Secret(value) for name, value in said if name.startswith(_OF_PLACES)})

    def __call__(self, text: str) -> CheckpointStorage:
        """As `storage_from`."""
        return storage_from(text, {name: value.reveal() for name, value in self.conf.items()}, {})


def storage_of(text: str, spark: SparkSession | None) -> CheckpointStorage:
    """The storage for a URL, a path or a registered name, with what the session says of it.

    Raises:
        Invalid: as `load_storage`, or the session is not one that can carry a job.
    """
    if spark is None or text.partition("://")[0] not in _OPTIONS:
        return load_storage(text)
    check_classic(spark)
    return storage_from(text, spark.conf.getAll, {})


def storage_from(
    text: str, conf: Mapping[str, str], options: Mapping[str, Any]
) -> CheckpointStorage:
    """The same with what these settings of a session say; `options` count before them.

    Raises:
        Invalid: as `load_storage`.
    """
    options_of = _OPTIONS.get(text.partition("://")[0])
    said = {} if options_of is None else options_of(text, conf)
    return load_storage(text, **{**said, **options})
