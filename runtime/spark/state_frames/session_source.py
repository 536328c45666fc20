"""What the data sources of Holdfast share: their options, and the settings of a session.

Spark creates a data source, plans with it and reads with it in three kinds of processes, none of
which is the driver's Python. The settings of the session, such as access to S3, are therefore in a
class that is made when the format is registered; all else must be in the options. A format that
Spark finds by itself (a module of a given name) was refused: it would not have the settings of the
session, and could not be replaced by one that has.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import ClassVar

from pyspark.sql.datasource import DataSource

from holdfast.runtime.spark.storage_settings import SessionStorages
from holdfast.storage import Invalid
from holdfast.storage.places.s3.secrets import Secret
from holdfast.storage.registry import OpenStorage

__all__ = ["SessionSource"]

_OF_ALL = {"path": "path", "storageoptions": "storageOptions"}


class SessionSource(DataSource):
    """A source registered in a session. Its class is pickled with the session's settings then.

    All have the options `path`, which is that of `load`, and `storageOptions`, a JSON object for
    the storage that the path is in.
    """

    names: ClassVar[Mapping[str, str]] = {}
    """Its other options: as Spark passes them, in lower case, and as users write them."""
    conf: ClassVar[Mapping[str, Secret]] = {}
    """The session's settings of HDFS and S3."""
    takes_filters: ClassVar[bool] = True
    """Whether the session passes filters to such sources, and keeps those of each query apart. If
    not, it refuses readers that accept filters."""

    def _asked(self, *needed: str) -> dict[str, str]:
        """The options, by their names in lower case.

        Raises:
            Invalid: one that is `needed` is missing, or there is no such option.
        """
        known = _OF_ALL | dict(self.names)
        asked = dict(self.options)
        strange = sorted(asked.keys() - known.keys())
        if strange:
            raise Invalid(
                f"format {self.name()!r} has no option {strange[0]!r}",
                expected=", ".join(known.values()),
                found=", ".join(strange),
            )
        for name in needed:
            if not asked.get(name):
                raise Invalid(
                    f"format {self.name()!r} needs the option {known[name]}",
                    expected=", ".join(known[each] for each in needed),
                    found=", ".join(known[each] for each in sorted(asked)) or "no options",
                )
        return asked

    def _open_storage(self) -> OpenStorage:
        """Opens storages by the settings of the session and the options.

        Raises:
            Invalid: `storageOptions` is no JSON object.
        """
        try:
            options = json.loads(self.options.get("storageOptions", "{}"))
        except ValueError:
            options = None
        if not isinstance(options, dict):
            raise Invalid(
                "the options of the storage cannot be read",
                expected='storageOptions=\'{"endpoint": "http://host:9000"}\', a JSON object',
                found="something else",
            )
        return SessionStorages(self.conf, options)
