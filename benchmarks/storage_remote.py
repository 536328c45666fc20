"""The storage room on a real S3 server and a real HDFS of this machine, against their bare clients.

Figures of issue 5: 1 GiB in 64 MiB handles written and read at 0.9 of the bare client with the
same parallelism; a checkpoint of 200 operators in 4 slots with small state in at most 6 writes of
objects and 300 ms; 1 GiB restored by 2 slots at 0.8 of the bare parallel download; retention of 10
of 1 000 checkpoints at a cost per checkpoint that does not grow.

The servers take part of the same cores, so the ratios say more than the speeds. Bare is botocore
for S3, in as many threads and with parts of the same size, and hdfs-native for HDFS.
"""

from __future__ import annotations

import os
import random
import statistics
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing import get_context
from typing import Any

import botocore.session
import hdfs_native
import xxhash
from botocore.config import Config

from benchmarks.harness import Result, Scale, compare, seconds
from benchmarks.storage_files import write_handles
from holdfast.storage import (
    CheckpointMetadata,
    CheckpointStorage,
    Handle,
    JobStorage,
    OperatorState,
    StateSnapshot,
    load_storage,
)
from holdfast.storage.testing.example_jobs import clear, retain
from holdfast.storage.testing.watched_storage import Call, WatchedStorage
from support.servers.hdfs import HdfsServer
from support.servers.s3 import S3Server

__all__ = ["run"]

_MIB = 1024 * 1024
_BLOCK = 4 * _MIB
_PART = 8 * _MIB
_OPERATORS = 200
_SLOTS = 4


def run(scale: Scale) -> Iterator[Result]:
    """Every figure of this module."""
    with S3Server() as s3:
        yield from _on_place(scale, _S3(s3.new_bucket(), s3.options()))
    with HdfsServer() as hdfs:
        yield from _on_place(scale, _Hdfs(hdfs.url("bench")))


class _Place(ABC):
    """A place, as its storage and as the client below it. Picklable."""

    name: str
    url: str

    @abstractmethod
    def storage(self, **options: Any) -> CheckpointStorage:
        """Ours."""

    @abstractmethod
    def write(self, name: str, pieces: Sequence[bytes]) -> None:
        """Write an object with the client, as parallel as ours."""

    @abstractmethod
    def read(self, name: str, size: int, at_once: int) -> None:
        """Read an object with the client by blocks, so many at once."""

    def at_once(self) -> int:
        """How many ranges ours reads at once."""
        return self.storage().capabilities.ranges_at_once


@dataclass(frozen=True)
class _S3(_Place):
    bucket: str
    options: dict[str, Any]
    name = "s3"

    def storage(self, **options: Any) -> CheckpointStorage:
        return load_storage(f"s3://{self.bucket}/ours", **self.options, **options)

    def write(self, name: str, pieces: Sequence[bytes]) -> None:
        client, place = self._client(), {"Bucket": self.bucket, "Key": f"bare/{name}"}
        begun = {**place, "UploadId": client.create_multipart_upload(**place)["UploadId"]}
        each = max(_PART // len(pieces[0]), 1)
        bodies = [pieces[start : start + each] for start in range(0, len(pieces), each)]

        def send(number: int) -> dict[str, Any]:
            body = b"".join(bodies[number - 1])
            tag = client.upload_part(**begun, PartNumber=number, Body=body)["ETag"]
            return {"PartNumber": number, "ETag": tag}

        with ThreadPoolExecutor(self.at_once()) as threads:
            parts = [*threads.map(send, range(1, len(bodies) + 1))]
        client.complete_multipart_upload(**begun, MultipartUpload={"Parts": parts})

    def read(self, name: str, size: int, at_once: int) -> None:
        client = self._client()

        def block(start: int) -> None:
            span = f"bytes={start}-{min(start + _BLOCK, size) - 1}"
            answer = client.get_object(Bucket=self.bucket, Key=f"bare/{name}", Range=span)
            answer["Body"].read()

        _each(block, size, at_once)

    def _client(self) -> Any:
        found = self.options
        return _s3_client(*map(found.__getitem__, ("endpoint", "region", "key", "secret")))


@cache
def _s3_client(endpoint: str, region: str, key: str, secret: str) -> Any:
    """One client for each process, as ours has it: to make one takes as long as many requests."""
    return botocore.session.get_session().create_client(
        "s3",
        endpoint_url=endpoint,
        region_name=region,
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        config=Config(
            s3={"addressing_style": "path"},
            max_pool_connections=8,
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        ),
    )


@dataclass(frozen=True)
class _Hdfs(_Place):
    root: str
    name = "hdfs"

    def storage(self, **options: Any) -> CheckpointStorage:
        return load_storage(f"{self.root}/ours", **options)

    def write(self, name: str, pieces: Sequence[bytes]) -> None:
        options = hdfs_native.WriteOptions(overwrite=True, create_parent=True)
        with self._client().create(f"/bench/bare/{name}", options) as file:
            for piece in pieces:
                file.write(piece)
            file.hsync()

    def read(self, name: str, size: int, at_once: int) -> None:
        reader = self._client().read(f"/bench/bare/{name}")

        def block(start: int) -> None:
            reader.read_range(start, min(_BLOCK, size - start))

        _each(block, size, at_once)

    def _client(self) -> hdfs_native.Client:
        return hdfs_native.Client(self.root.removesuffix("/bench"))


def _each(block: Callable[[int], None], size: int, at_once: int) -> None:
    """Read all blocks, so many at once."""
    with ThreadPoolExecutor(at_once) as threads:
        for _ in threads.map(block, range(0, size, _BLOCK)):
            pass


def _on_place(scale: Scale, place: _Place) -> Iterator[Result]:
    place.storage().prepare()
    yield from _large(scale, place)
    yield from _checkpoint(scale, place)
    yield from _retention(scale, place)


def _large(scale: Scale, place: _Place) -> Iterator[Result]:
    handle_bytes, count = scale.pick(64 * _MIB, 2 * _MIB), scale.pick(16, 2)
    piece = random.Random(7).randbytes(min(_BLOCK, handle_bytes))
    pieces = [piece] * (handle_bytes * count // len(piece))
    size = len(piece) * len(pieces)
    job = place.storage().job("large")
    handles: list[Handle] = []

    def write_ours() -> None:
        handles[:] = write_handles(job, piece, handle_bytes, count)

    def clean() -> None:
        job.storage.delete([found.name for found in job.storage.list("large/")])

    written = compare(write_ours, lambda: place.write("large", pieces), scale, clean=clean)
    clean()
    write_ours()
    at_once = place.at_once()
    read = compare(lambda: _stream(job, handles), lambda: place.read("large", size, at_once), scale)
    answer = _digest(job, handles)
    parameters = {"handle_bytes": handle_bytes, "handles": count, "ranges_at_once": at_once}
    unit = "share of the bare client"
    for verb, ratios in (("write", written), ("read", read)):
        name = f"storage.{place.name}.{verb}_large"
        yield Result(name, unit, ratios, answer, ">= 0.9", parameters)
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as slots:
        list(slots.map(_warm, [place] * 2))
        half = len(handles) // 2
        ours = [partial(_restore, place, part) for part in (handles[:half], handles[half:])]
        bare = [partial(_download, place, start, size // 2, at_once) for start in (0, 1)]
        restored = compare(partial(_both, slots, ours), partial(_both, slots, bare), scale)
    yield Result(f"storage.{place.name}.restore", unit, restored, answer, ">= 0.8", parameters)
    clean()


def _stream(job: JobStorage, handles: Sequence[Handle]) -> None:
    for pieces in job.stream_all(handles):
        for _ in pieces:
            pass


def _digest(job: JobStorage, handles: Sequence[Handle]) -> str:
    digest = xxhash.xxh3_64()
    for handle in handles:
        for block in job.stream(handle):
            digest.update(block)
    return digest.hexdigest()


def _both(slots: ProcessPoolExecutor, parts: Sequence[Callable[[], None]]) -> None:
    for done in [slots.submit(part) for part in parts]:
        done.result()


def _warm(place: _Place) -> None:
    """Have the processes of slots connect, both ways."""
    name = f"warm-{os.getpid()}"
    place.write(name, [b"warm"])
    place.read(name, 4, 1)
    next(iter(place.storage().list("")), None)


def _restore(place: _Place, handles: Sequence[Handle]) -> None:
    """What one slot reads."""
    _stream(place.storage().job("large"), handles)


def _download(place: _Place, number: int, size: int, at_once: int) -> None:
    """The same number of bytes with the client. Which half of the object they are is all one."""
    del number
    place.read("large", size, at_once)


def _checkpoint(scale: Scale, place: _Place) -> Iterator[Result]:
    """Each slot writes a little state of each operator; the driver commits."""
    calls: Counter[str] = Counter()

    def note(call: Call) -> None:
        calls[call.verb] += 1

    watched = WatchedStorage(place.storage(), after=note)
    job = watched.job("small")
    owner = job.take_over()
    state = random.Random(7).randbytes(512)
    times_ms, writes = [], []
    with ThreadPoolExecutor(_SLOTS) as slots:
        for number in range(1, scale.pick(21, 3)):
            calls.clear()
            began = time.perf_counter()
            parts = [*slots.map(partial(_small_part, job, number, state), range(_SLOTS))]
            owner.commit(_metadata("small", number, _small_operators(parts)))
            times_ms.append((time.perf_counter() - began) * 1000)
            writes.append(calls["writer"] + calls["create"])
    parameters = {"operators": _OPERATORS, "slots": _SLOTS, "state_bytes": len(state)}
    name = f"storage.{place.name}.small_checkpoint"
    answer = f"completed {len(owner.completed)}"
    clear(owner)
    yield Result(name, "ms, end to end", tuple(times_ms), answer, "<= 300", parameters)
    most = (float(max(writes)),)
    yield Result(name, "writes of objects", most, str(max(writes)), f"<= {_SLOTS + 2}", parameters)


def _small_part(job: JobStorage, number: int, state: bytes, slot: int) -> list[Handle]:
    with job.segments(number, f"slot-{slot}") as writer:
        return [writer.add(state) for _ in range(_OPERATORS)]


def _small_operators(parts: Sequence[Sequence[Handle]]) -> dict[str, list[StateSnapshot]]:
    return {
        f"operator-{number}": [
            StateSnapshot(kind="bench", handles={"state": part[number]}) for part in parts
        ]
        for number in range(_OPERATORS)
    }


def _metadata(
    job_id: str, number: int, operators: dict[str, list[StateSnapshot]]
) -> CheckpointMetadata:
    return CheckpointMetadata(
        job_id=job_id,
        checkpoint_id=number,
        triggered_ms=0,
        completed_ms=0,
        operators={
            uid: OperatorState(parallelism=len(parts), max_parallelism=128, parts=tuple(parts))
            for uid, parts in operators.items()
        },
    )


def _retention(scale: Scale, place: _Place) -> Iterator[Result]:
    """Each checkpoint adds a shared file and lets go of one, and the newest ten are kept."""
    count, kept = scale.pick(1_000, 16), 10
    job = place.storage().job("kept")
    owner = job.take_over()
    shared: list[Handle] = []
    times_s = []
    for number in range(1, count + 1):
        with job.shared_segments(number) as writer:
            shared.append(writer.add(b"x" * 100))
        del shared[:-20]
        owner.commit(_metadata("kept", number, {"one": [_files(shared)]}))
        times_s.append(seconds(partial(retain, owner, kept)))
    answer = f"kept {len(owner.completed)}, files {len([*job.storage.list('kept/shared/')])}"
    clear(owner)
    tenth = max(len(times_s) // 10, 1)
    steady = times_s[2 * kept :] or times_s
    growth = statistics.median(times_s[-tenth:]) / statistics.median(steady[:tenth])
    name = f"storage.{place.name}.retention"
    parameters = {"checkpoints": count, "kept": kept}
    unit = "time of one retention, of the last tenth by the first"
    yield Result(name, unit, (growth,), answer, "about 1", parameters)
    times_ms = tuple(each * 1000 for each in times_s)
    yield Result(name, "ms a retention", times_ms, answer, "", parameters)


def _files(handles: Sequence[Handle]) -> StateSnapshot:
    return StateSnapshot(
        kind="bench", handles={f"file-{n}": handle for n, handle in enumerate(handles)}
    )
