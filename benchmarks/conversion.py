"""Conversions of snapshots: how fast one core is, in how much memory, and what Spark makes of two.

Figures of issue 9: hashmap, rocksdb and canonical into one another at 0.5 M entries a second a
core, of 16-byte keys and 8-byte values; below 512 MiB at 20 M entries; `--spark local[2]` at least
1.6 times as fast as one core. All of it is counted: reading, writing, reading again, the check.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import permutations
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.checkpointed import Numbers, label_of, place
from benchmarks.harness import Result, Scale, peak_memory_bytes, seconds
from holdfast.backends import KeyGroupRange, load_backend
from holdfast.backends.arrow.keys import KeyForm
from holdfast.backends.blocks.block import Block
from holdfast.backends.interface import usual_backend
from holdfast.backends.keys.codec import key_codec_for
from holdfast.backends.keys.groups import key_groups
from holdfast.backends.snapshots.neutral import TableInfo, TableToWrite
from holdfast.backends.values.codec import pack_value
from holdfast.runtime.spark.state_frames.conversion import spark_runner
from holdfast.savepoints import find_snapshot
from holdfast.savepoints.conversion import Conversion, ConversionOptions, InProcess, Runner
from holdfast.savepoints.writing.keyed_writer import KeyedWriter
from holdfast.storage import (
    CheckpointMetadata,
    OperatorState,
    SavepointFolder,
    load_storage,
)

__all__ = ["run"]

_GROUPS = 128
_BLOCK_ROWS = 8 * 1024
_FORMS = ("hashmap", "rocksdb", "canonical")
_MEMORY_ENTRIES = 20_000_000
_INFO = TableInfo(name="total", kind="value", values={"type": "int"})
_KEYS = {"type": "str"}


def run(scale: Scale) -> Iterator[Result]:
    """Every figure of this module."""
    count = scale.pick(2_000_000, 2_000)
    with place() as folder:
        sources = {"hashmap": _source(folder / "hashmap", count)}
        for form in _FORMS[1:]:
            _converted(sources["hashmap"], str(folder / form), form)
            sources[form] = str(folder / form)
        for before, after in permutations(_FORMS, 2):
            rates, rows = [], 0
            for number in range(min(scale.repetitions, 3)):
                to = str(folder / f"{before}-{after}-{number}")
                took_s, rows, _ = _apart(sources[before], to, after)
                rates.append(count / took_s)
            yield Result(
                f"conversion.{before}.{after}.{label_of(count)}",
                "entries/s on one core",
                tuple(rates),
                f"all are there: {rows == count}",
                ">= 5e5",
                {"entries": count, "key_bytes": 16, "value_bytes": 8},
            )
    yield from _memory(scale.pick(_MEMORY_ENTRIES, 2_000))
    yield from _on_spark(scale, scale.pick(20_000_000, 2_000))


def _memory(count: int) -> Iterator[Result]:
    with place() as folder:
        source = _source(folder / "source", count)
        for form in ("canonical", "rocksdb"):
            _, rows, memory_bytes = _apart(source, str(folder / form), form)
            yield Result(
                f"conversion.memory.{form}.{label_of(count)}",
                "MiB at most",
                (memory_bytes / 2**20,),
                f"all are there: {rows == count}",
                "<= 512",
                {"entries": count},
            )


def _on_spark(scale: Scale, count: int) -> Iterator[Result]:
    with place() as folder, spark_runner("local[2]") as runner:
        source = _source(folder / "source", count)
        _converted(source, str(folder / "first"), "canonical", runner)  # its workers have started
        ratios, rows = [], 0
        for number in range(min(scale.repetitions, 3)):
            took_s, rows, _ = _apart(source, str(folder / f"one-{number}"), "canonical")
            to = str(folder / f"spark-{number}")
            ratios.append(took_s / seconds(partial(_converted, source, to, "canonical", runner)))
        yield Result(
            f"conversion.spark.{label_of(count)}",
            "times as fast as one core, on local[2]",
            tuple(ratios),
            f"all are there: {rows == count}",
            ">= 1.6",
            {"entries": count},
        )


def _apart(source: str, to: str, form: str) -> tuple[float, int, int]:
    """What a conversion takes in a process of its own, on one core: seconds, rows, memory."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(_measured, source, to, form).result()


def _measured(source: str, to: str, form: str) -> tuple[float, int, int]:
    if hasattr(os, "sched_setaffinity"):  # else libraries have threads on other cores
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    began = time.perf_counter()
    rows = _converted(source, to, form)
    return time.perf_counter() - began, rows, peak_memory_bytes()


def _converted(source: str, to: str, form: str, runner: Runner | None = None) -> int:
    backend = None if form == "canonical" else form
    done = Conversion(
        source=find_snapshot(source),
        destination=SavepointFolder(load_storage(to), ""),
        options=ConversionOptions(backend=backend, is_canonical=backend is None),
        backend=None if backend is None else usual_backend(backend),
        runner=runner or InProcess(),
    ).run()
    return done.rows


def _source(root: Path, count: int) -> str:
    """A savepoint that hashmap would write, of so many entries."""
    folder = SavepointFolder.begin(load_storage(str(root)), "bench")
    writer = KeyedWriter(
        uid="bench",
        key_groups=KeyGroupRange(0, _GROUPS - 1),
        max_parallelism=_GROUPS,
        keys=_KEYS,
        target=folder,
        backend=load_backend("hashmap"),
        checkpoint_id=1,
    )
    part = writer.write([TableToWrite(_INFO, partial(_blocks, count))])
    folder.commit(
        CheckpointMetadata(
            job_id="bench",
            checkpoint_id=1,
            kind="savepoint",
            triggered_ms=0,
            completed_ms=0,
            operators={
                "bench": OperatorState(parallelism=1, max_parallelism=_GROUPS, parts=(part,))
            },
        )
    )
    return folder.url


def _blocks(count: int) -> Iterator[Block]:
    codec = key_codec_for(str)
    numbers = np.random.default_rng(3).permutation(count)
    groups = np.concatenate(
        [
            key_groups(codec.hash_column(_keys(some)), _GROUPS)
            for some in np.array_split(numbers, max(1, count // 100_000))
        ]
    )
    order = np.argsort(groups, kind="stable")
    form = KeyForm(_KEYS)
    for start in range(0, count, _BLOCK_ROWS):
        places = order[start : start + _BLOCK_ROWS]
        yield Block(
            count=len(places),
            groups=groups[places].astype(np.uint16).tobytes(),
            keys=form.from_arrow(_keys(numbers[places])),
            namespaces=None,
            map_keys=None,
            values=pack_value((numbers[places] + 2**40).tolist()),
            stamps=None,
        )


def _keys(numbers: Numbers) -> pa.Array:
    """Texts of 16 bytes."""
    return pa.array(np.char.mod("user-%011d", numbers), pa.string())
