"""What the data sources of Holdfast have in common: their options, and what a session has told.

Spark makes a data source, plans with it and reads with it in three kinds of processes, none of
which is the driver's Python. What the session knows, such as the way to S3, is therefore in a class
that is made when the session is told of the format; all else must be in the options. A format that
Spark finds by itself (a module of a given name) was refused: it would know nothing of the session,
and could not be replaced by one that does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import ClassVar

from pyspark.sql.datasource import DataSource

from holdfast.runtime.spark.storage_settings import storage_from
from holdfast.storage import Invalid
from holdfast.storage.places.s3.secrets import Secret
from holdfast.storage.registry import OpenStorage

__all__ = ["SessionSource"]

_OF_ALL = {"path": "path", "storageoptions": "storageOptions"}


class SessionSource(DataSource):
    """A source that a session was told of. Its class travels, with what the session said by then.

    All have the options `path`, which is that of `load`, and `storageOptions`, a JSON object for
    the storage that the path is in.
    """

    names: ClassVar[Mapping[str, str]] = {}
    """The options that it has besides, as Spark hands them on, in lower case, and as they are."""
    conf: ClassVar[Mapping[str, Secret]] = {}
    """What the session said of HDFS and S3."""
    takes_filters: ClassVar[bool] = True
    """Whether the session hands filters to such sources, and keeps those of each query apart. It
    refuses readers that ask in vain."""

    def _asked(self, *needed: str) -> dict[str, str]:
        """The options, by their names in lower case, once it is certain that there are these.

        Raises:
            Invalid: one is missing, or there is no such option.
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
                    f"format {self.name()!r} is not told its {known[name]}",
                    expected=", ".join(known[each] for each in needed),
                    found=", ".join(known[each] for each in sorted(asked)) or "no options",
                )
        return asked

    def _open_storage(self) -> OpenStorage:
        """What opens storages, as the session and the options say.

        Raises:
            Invalid: the options are none.
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
        conf = {name: value.reveal() for name, value in self.conf.items()}
        return partial(storage_from, conf=conf, options=options)
