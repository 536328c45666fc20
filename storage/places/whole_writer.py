"""A writer that collects a whole object in memory, for places that take it by one call."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.storage.errors import Invalid
from holdfast.storage.interface import Buffer, ObjectWriter, flat

__all__ = ["WholeWriter"]


class WholeWriter(ObjectWriter):
    """Collects the object, and hands it to `put` at `commit`; `where` names it in errors."""

    def __init__(self, put: Callable[[bytes], None], where: str) -> None:
        self._put = put
        self._where = where
        self._data: bytearray | None = bytearray()

    def write(self, data: Buffer) -> None:
        self._collected().extend(flat(data))

    def commit(self) -> None:
        self._put(bytes(self._collected()))
        self._data = None

    def abort(self) -> None:
        self._data = None

    def _collected(self) -> bytearray:
        if self._data is None:
            raise Invalid("the object was committed or aborted before", where=self._where)
        return self._data
