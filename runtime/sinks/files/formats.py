"""The formats of files: which columns they can hold, and how rows are written into one file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.runtime.columns.types import detached
from holdfast.runtime.sinks.files.csv_lines import csv_header, csv_lines, misfit_of_csv
from holdfast.runtime.sinks.files.json_lines import json_lines, misfit_of_json
from holdfast.runtime.sinks.files.output_folder import HiddenFile

__all__ = ["FORMATS", "Encoding", "FileFormat", "RowEncoder"]

_ROW_GROUP_BYTES = 32 << 20
_BLOCK_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class Encoding:
    """How the rows of one sink are written: what of its settings an encoder needs."""

    schema: pa.Schema
    compression: str
    header: bool = False
    block_bytes: int = _ROW_GROUP_BYTES
    """How many bytes of rows are collected before they are written, where a format does that."""


class RowEncoder(ABC):
    """Writes rows into one file."""

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows."""

    @abstractmethod
    def end(self) -> None:
        """Write what is left; the file itself stays open."""


@dataclass(frozen=True, slots=True)
class FileFormat:
    """A format: the end of its files' names, its compressions, and what it can hold.

    `compressions` maps what users may ask for to what is added to a file's name; the first one is
    the default.
    """

    suffix: str
    compressions: dict[str, str]
    misfit: Callable[[pa.DataType], str | None]
    """The type that the format cannot hold: this one, one inside it, or none."""
    encoder: Callable[[HiddenFile, Encoding], RowEncoder]
    has_header: bool = False

    def ending(self, compression: str) -> str:
        return f"{self.suffix}{self.compressions[compression]}"


class _ParquetEncoder(RowEncoder):
    """Collects rows until they make a row group: many small ones are slow to read."""

    def __init__(self, file: HiddenFile, encoding: Encoding) -> None:
        self._encoding = encoding
        self._writer = pq.ParquetWriter(file, encoding.schema, compression=encoding.compression)
        self._collected: list[pa.RecordBatch] = []
        self._collected_bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._collected.append(detached(batch))
        self._collected_bytes += batch.nbytes
        if self._collected_bytes >= self._encoding.block_bytes:
            self._write_group()

    def end(self) -> None:
        self._write_group()
        self._writer.close()

    def _write_group(self) -> None:
        if self._collected:
            rows = pa.Table.from_batches(self._collected, self._encoding.schema)
            self._collected, self._collected_bytes = [], 0
            self._writer.write_table(rows, row_group_size=rows.num_rows)


class _LinesEncoder(RowEncoder):
    """Writes lines of text, through a compressor if there is one."""

    def __init__(
        self, file: HiddenFile, compression: str, lines: Callable[[pa.RecordBatch], memoryview]
    ) -> None:
        self._lines = lines
        self._stream: Any = file
        if compression != "none":
            self._stream = pa.CompressedOutputStream(pa.PythonFile(file, mode="w"), compression)

    def write(self, batch: pa.RecordBatch) -> None:
        for part in _parts(batch):
            self.write_text(self._lines(part))

    def write_text(self, text: memoryview) -> None:
        self._stream.write(text)

    def end(self) -> None:
        self._stream.close()  # the file under it does not take it as its own end


def _parts(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    """The batch in parts whose texts are small enough to stay in the caches of a processor."""
    rows = max(64, batch.num_rows * _BLOCK_BYTES // max(batch.nbytes, 1))
    return [batch.slice(start, rows) for start in range(0, batch.num_rows, rows)]


def _json_encoder(file: HiddenFile, encoding: Encoding) -> RowEncoder:
    return _LinesEncoder(file, encoding.compression, json_lines)


def _csv_encoder(file: HiddenFile, encoding: Encoding) -> RowEncoder:
    encoder = _LinesEncoder(file, encoding.compression, csv_lines)
    if encoding.header:
        encoder.write_text(csv_header(encoding.schema))
    return encoder


def _misfit_of_parquet(kind: pa.DataType) -> str | None:
    """Parquet's own writer is asked: it knows best."""
    schema = pa.schema([("column", kind)])
    try:
        pq.write_table(schema.empty_table(), pa.BufferOutputStream())
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        return str(kind)
    return None


_TEXT_COMPRESSIONS = {"none": "", "gzip": ".gz", "bz2": ".bz2", "zstd": ".zst"}

FORMATS = {
    "parquet": FileFormat(
        suffix=".parquet",
        compressions=dict.fromkeys(("snappy", "none", "gzip", "zstd", "lz4"), ""),
        misfit=_misfit_of_parquet,
        encoder=_ParquetEncoder,
    ),
    "json": FileFormat(".json", _TEXT_COMPRESSIONS, misfit_of_json, _json_encoder),
    "csv": FileFormat(".csv", _TEXT_COMPRESSIONS, misfit_of_csv, _csv_encoder, has_header=True),
}
"""Every format, by the name that users give it."""
