"""The file sink: readers see whole files only, and only rows of completed checkpoints."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from holdfast.runtime.api.sinks import TwoPhaseCommitSink, WriterContext
from holdfast.runtime.sinks.files.committables import (
    FileCommittable,
    age_of,
    carry_out,
    check_own,
    hidden_folder,
)
from holdfast.runtime.sinks.files.formats import FORMATS, Encoding, FileFormat
from holdfast.runtime.sinks.files.fsspec_folder import FsspecOutputFolder
from holdfast.runtime.sinks.files.local_folder import LocalOutputFolder
from holdfast.runtime.sinks.files.output_folder import (
    HIDDEN_FOLDER,
    OutputFolder,
    local_path,
    translating,
)
from holdfast.runtime.sinks.files.writer import FileSinkWriter
from holdfast.storage import Entropy, HoldfastError, Invalid, SystemEntropy, Unavailable
from holdfast.storage.options.checks import text_fix
from holdfast.storage.places.fsspec.urls import without_password

__all__ = ["FileSink"]

_LARGEST_BLOCK_BYTES = 32 << 20


class FileSink(TwoPhaseCommitSink[FileCommittable]):
    """Writes rows to files in a directory, exactly once.

    Each slot writes a file a checkpoint, and more if they become large:
    `part-<uid>-<checkpoint>-<slot>-<number>-<token>.parquet`. Until the checkpoint is complete a
    file is in the folder `_holdfast`, which Spark, pyarrow and pandas pass over. Rows that were
    committed stay, also when the job is restarted from a checkpoint before them.

    Two sinks may share a directory, unless they have the same uid in jobs of the same name.
    """

    committable_type = FileCommittable

    def __init__(
        self,
        url: str,
        format: str = "parquet",  # noqa: A002 - the word that Spark has for it
        *,
        compression: str | None = None,
        header: bool | None = None,
        max_file_bytes: int | None = None,
        max_rows: int | None = None,
        storage_options: Mapping[str, Any] | None = None,
        entropy: Entropy | None = None,
    ) -> None:
        """Name a directory; nothing is touched before `check`.

        Args:
            url: a path, a `file:` URL, or a URL of any file system of fsspec that can make files
                appear whole. A relative path is one in the folder that this process is in now.
            format: `parquet`, `json` (an object a line) or `csv`.
            compression: Parquet: `snappy` (the default), `none`, `gzip`, `zstd` or `lz4`;
                JSON and CSV: `none` (the default), `gzip`, `bz2` or `zstd`.
            header: CSV only: whether each file begins with the names of the columns; it does
                unless this is False.
            max_file_bytes: begin another file once one has at least this length. Parquet files can
                be longer by as much again, since rows are written in groups.
            max_rows: begin another file once one has so many rows.
            storage_options: go to the file system of fsspec; a local directory has none.
            entropy: where names of files come from that no other writer uses.

        Raises:
            Invalid: an option cannot be what it is.
        """
        given: object = url  # whatever the program has passed
        if not (isinstance(given, str) and given.strip()):
            raise Invalid(
                "the URL of a sink names no place",
                expected="a path or URL, as text",
                found=repr(url),
                fix=text_fix(given),
            )
        _check_slashes(url)
        # Slots run in folders of their own, perhaps on machines of their own.
        is_url = "://" in url or url.startswith("file:")
        is_relative = not is_url and not os.path.isabs(url)
        self.url = os.path.abspath(url) if is_relative else url
        self.format = format
        self.compression = compression
        self.header = header
        self.max_file_bytes = max_file_bytes
        self.max_rows = max_rows
        self.storage_options = dict(storage_options or {})
        self._entropy: Entropy = entropy or SystemEntropy()
        self._check_options()

    def __repr__(self) -> str:
        return f"FileSink({without_password(self.url)!r}, {self.format!r})"

    def check(self, schema: pa.Schema) -> None:
        """See `Sink.check`; also writes a file to the place, and removes it again.

        Raises:
            Invalid: an option, a column or the place does not fit.
            Unavailable: the place did not answer.
        """
        self._check_options()
        self._check_columns(schema)
        self._probe()

    def open_writer(self, context: WriterContext) -> FileSinkWriter:
        block_bytes = min(self.max_file_bytes or _LARGEST_BLOCK_BYTES, _LARGEST_BLOCK_BYTES)
        return FileSinkWriter(
            context,
            self._place(),
            token=self._entropy.token(),
            file_format=self._file_format,
            encoding=Encoding(
                schema=context.schema,
                compression=self._compression,
                header=self.header is not False,
                block_bytes=block_bytes,
            ),
            max_file_bytes=self.max_file_bytes,
            max_rows=self.max_rows,
        )

    def commit(self, committables: Sequence[FileCommittable], context: WriterContext) -> None:
        """See `TwoPhaseCommitSink.commit`.

        Raises:
            Corrupt: a file is gone, where that is not allowed, or not as long as it was written;
                names it.
            Invalid: the place does not allow it.
            Unavailable: the place did not answer.
        """
        for each in committables:
            check_own(each, context.uid)
        for root in dict.fromkeys(each.root for each in committables):
            place = self._place_of(root)
            here = [each for each in committables if each.root == root]
            there = [
                each for each in here if carry_out(each, place, allow_missing=context.allow_missing)
            ]
            # Also files that were moved before: their process may have died before this step.
            with translating("make files of a sink durable", place.url):
                place.make_durable([each.final for each in there])

    def clean(self, keep: Sequence[FileCommittable], context: WriterContext) -> None:
        """See `TwoPhaseCommitSink.clean`.

        Files of this attempt and of later ones stay: others may be writing them, or this may be an
        old attempt that does not know that it is over.
        """
        for each in keep:
            check_own(each, context.uid)
        own = self._place()
        kept = {(each.root, each.hidden) for each in keep}
        folder = hidden_folder(context.job_id, context.uid)
        for root in sorted({own.url, *(each.root for each in keep)}):
            place = self._place_of(root)
            with translating("remove what earlier attempts have left", place.where(folder)):
                for file in place.listed(folder):
                    age = age_of(file)
                    hidden = f"{folder}/{file}"
                    if age is not None and age < context.attempt and (root, hidden) not in kept:
                        place.remove(hidden)

    @property
    def _file_format(self) -> FileFormat:
        return FORMATS[self.format]

    @property
    def _compression(self) -> str:
        return self.compression or next(iter(self._file_format.compressions))

    def _place(self) -> OutputFolder:
        path = local_path(self.url)
        return LocalOutputFolder(path) if path is not None else self._remote(self.url)

    def _remote(self, url: str, like: OutputFolder | None = None) -> OutputFolder:
        with translating("open the place of a sink", without_password(url)):
            return FsspecOutputFolder(url, self.storage_options, like=like)

    def _place_of(self, root: str) -> OutputFolder:
        """Where a committable is: here, or where an earlier version of the job wrote."""
        own = self._place()
        if root == own.url:
            return own
        path = local_path(root)
        return LocalOutputFolder(path) if path is not None else self._remote(root, own)

    def _check_options(self) -> None:
        if self.format not in list(FORMATS):
            raise self._invalid("format", f"one of {', '.join(FORMATS)}", self.format)
        compressions = list(self._file_format.compressions)
        if self.compression is not None and self.compression not in compressions:
            raise self._invalid(
                "compression", f"one of {', '.join(compressions)}", self.compression
            )
        if self.header is not None and not self._file_format.has_header:
            raise self._invalid("header", f"none: {self.format} files have no header", self.header)
        if self.header is not None and type(self.header) is not bool:
            raise self._invalid("header", "True or False", self.header)
        for name in ("max_file_bytes", "max_rows"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                raise self._invalid(name, "a whole number, 1 or more", value)
        if self.storage_options and local_path(self.url) is not None:
            names = sorted(self.storage_options)
            raise self._invalid("storage_options", "none for a local directory", names)

    def _invalid(self, option: str, expected: str, found: object) -> Invalid:
        return Invalid(
            f"option {option} of a file sink does not fit",
            where=without_password(self.url),
            expected=expected,
            found=repr(found),
        )

    def _check_columns(self, schema: pa.Schema) -> None:
        where = without_password(self.url)
        names = schema.names
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice or not names:
            raise Invalid(
                "files cannot hold these columns",
                where=where,
                expected="one column or more, each name once",
                found=f"{', '.join(twice)} more than once" if twice else "no column",
            )
        for field in schema:
            misfit = self._file_format.misfit(field.type)
            if misfit is not None:
                raise Invalid(
                    f"{self.format} files cannot hold column {field.name!r}",
                    where=where,
                    expected="a type that the format has",
                    found=str(field.type) if misfit == str(field.type) else f"{misfit} inside it",
                    fix="Convert the column before the sink, or choose format='parquet'"
                    if self.format != "parquet"
                    else "Convert the column before the sink",
                )

    def _probe(self) -> None:
        """Write a hidden file, and remove it."""
        place = self._place()
        if isinstance(place, FsspecOutputFolder):
            place.address.warn_of_secrets()
        hidden = f"{HIDDEN_FOLDER}/probe-{self._entropy.token()}"
        try:
            with translating("write to the place of a sink", place.url):
                file = place.create(hidden)
                file.finish()
        except Unavailable as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise Invalid(
                    error.what,
                    where=error.where,
                    expected="a place that exists, or can be made",
                    found=error.found,
                ) from error
            raise
        finally:
            with suppress(HoldfastError), translating("remove a probe", place.url):
                place.remove(hidden)


def _check_slashes(url: str) -> None:
    """Refuse what was meant for a URL, and would be a folder of that name."""
    scheme, colon, rest = url.partition(":")
    is_scheme = bool(colon) and len(scheme) > 1 and scheme.isalnum() and scheme != "file"
    if is_scheme and not rest.startswith("//"):
        raise Invalid(
            "the URL of a sink names no place",
            expected="a path, or a URL such as s3://bucket/path",
            found=repr(url),
            fix=f"Write {scheme}://… if it is a URL, and ./{url} if it is a path",
        )
