"""One slot's writer of files: rolls over at each checkpoint, and before if a file is large."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from holdfast.runtime.api.sinks import SinkWriter, WriterContext
from holdfast.runtime.sinks.files.committables import FileCommittable, final_name, hidden_name
from holdfast.runtime.sinks.files.formats import Encoding, FileFormat, RowEncoder
from holdfast.runtime.sinks.files.output_folder import HiddenFile, OutputFolder, translating
from holdfast.storage import HoldfastError

__all__ = ["FileSinkWriter"]


@dataclass(slots=True)
class _File:
    hidden: str
    file: HiddenFile
    encoder: RowEncoder
    rows: int = 0
    size_bytes: int = 0
    """Once it is finished."""


class FileSinkWriter(SinkWriter[FileCommittable]):
    """Writes files under hidden names; a file is opened by the first row that it holds."""

    def __init__(
        self,
        context: WriterContext,
        place: OutputFolder,
        *,
        token: str,
        file_format: FileFormat,
        encoding: Encoding,
        max_file_bytes: int | None,
        max_rows: int | None,
    ) -> None:
        """`token` is the writer's alone; it is part of the name of every file.

        A file is full at `max_file_bytes` or `max_rows`; None: not before the checkpoint.
        """
        self._context = context
        self._place = place
        self._token = token
        self._format = file_format
        self._encoding = encoding
        self._max_file_bytes = max_file_bytes
        self._max_rows = max_rows
        self._open: _File | None = None
        self._full: list[_File] = []
        self._files = 0

    def write(self, batch: pa.RecordBatch) -> None:
        start = 0
        while start < batch.num_rows:
            current = self._opened()
            most = self._max_rows
            room = batch.num_rows if most is None else most - current.rows
            part = batch.slice(start, room)
            with translating("write a file of a sink", current.file.where):
                current.encoder.write(part)
            current.rows += part.num_rows
            start += part.num_rows
            if self._is_full(current):
                self._finish(current)

    def prepare(self, checkpoint_id: int) -> Sequence[FileCommittable]:
        if self._open is not None:
            self._finish(self._open)
        full, self._full = self._full, []
        ending = self._format.ending(self._encoding.compression)
        return [
            FileCommittable(
                root=self._place.url,
                hidden=each.hidden,
                final=final_name(
                    self._context,
                    checkpoint_id=checkpoint_id,
                    number=number,
                    token=self._token,
                    ending=ending,
                ),
                size_bytes=each.size_bytes,
                rows=each.rows,
            )
            for number, each in enumerate(full)
        ]

    def close(self) -> None:
        files = [each.file for each in self._full]
        if self._open is not None:
            files.append(self._open.file)
        # Before the files are closed: an encoder of pyarrow writes to its file when it is deleted.
        self._open, self._full = None, []
        for file in files:
            _discard(file)

    def _opened(self) -> _File:
        if self._open is None:
            hidden = hidden_name(self._context, number=self._files, token=self._token)
            self._files += 1
            with translating("begin a file of a sink", self._place.where(hidden)):
                file = self._place.create(hidden)
                try:
                    encoder = self._format.encoder(file, self._encoding)
                except BaseException:
                    _discard(file)
                    raise
            self._open = _File(hidden, file, encoder)
        return self._open

    def _is_full(self, current: _File) -> bool:
        return current.rows == self._max_rows or (
            self._max_file_bytes is not None and current.file.tell() >= self._max_file_bytes
        )

    def _finish(self, current: _File) -> None:
        with translating("finish a file of a sink", current.file.where):
            current.encoder.end()
            current.size_bytes = current.file.finish()
        self._open = None
        self._full.append(current)


def _discard(file: HiddenFile) -> None:
    try:
        with translating("remove a file of a sink", file.where):
            file.discard()
    except HoldfastError:
        return  # it stays hidden, and the next attempt's `clean` removes it
