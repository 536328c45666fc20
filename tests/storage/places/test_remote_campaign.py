"""Two drivers fight for each of many jobs on a real server, and all between them goes wrong.

Whatever happens, each number is committed by one driver, an older owner commits nothing after a
newer one, what was committed is kept, and a final cleaning leaves nothing else.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

from holdfast.storage import CheckpointStorage, JobStorage, SystemClock, load_storage
from holdfast.storage.testing.example_jobs import retain
from support.kills import rival_drivers
from support.kills.rival_drivers import KEEP, Fight
from support.kills.whole_jobs import check_clean, check_whole
from support.servers.chaos_http import S3Proxy
from support.servers.chaos_rpc import HdfsProxy
from support.servers.chaos_rules import DEALS, Weather
from support.servers.hdfs import HdfsServer
from support.servers.s3 import ADMIN, REGION, S3Server

SHARE = 0.12
MANY = 20
LATEST_S = 0.5
"""What a proxy holds back arrives within this time."""
BLOCK_BYTES = 1 << 20
"""A name node keeps room for a whole block for each that was given up, for up to 20 minutes."""
HDFS_DEALS = tuple(sorted({*DEALS} - {"repeat"}))  # no call of its protocol comes twice


@dataclass(frozen=True)
class Place:
    """Where drivers find the storage, and what must be in their environment."""

    url: str
    options: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)


class Account:
    """What the drivers of one job said, by epoch."""

    def __init__(self, said: list[list[tuple[str, int]]]) -> None:
        self.tally: Counter[str] = Counter()
        self.began: set[int] = set()
        self.committed: dict[int, list[int]] = {}
        for lines in said:
            self._hear(lines)

    def _hear(self, lines: list[tuple[str, int]]) -> None:
        epoch = 0
        for word, number in lines:
            kind = word.partition(":")[0]
            assert kind != "failed", word
            self.tally[kind] += 1
            if kind == "owns":
                assert number not in self.committed, "two owners of one epoch"
                epoch = number
                self.committed[epoch] = []
            elif kind == "committing":
                self.began.add(number)
            elif kind == "committed":
                self.committed[epoch].append(number)
        self.tally["killed"] += ("done", 0) not in {(word, number) for word, number in lines}

    def check_turns(self) -> None:
        """Each number has one committer, and later owners committed later numbers."""
        ranges = [numbers for _, numbers in sorted(self.committed.items()) if numbers]
        everything = [number for numbers in ranges for number in numbers]
        assert everything == sorted({*everything}), self.committed
        assert all(older[-1] < newer[0] for older, newer in pairwise(ranges))

    def check_kept(self, completed: tuple[int, ...]) -> None:
        """Nothing that was committed is missing, unless it was subsumed."""
        assert {*completed} <= self.began
        for number in (each for numbers in self.committed.values() for each in numbers):
            assert number in completed or sum(each > number for each in completed) >= KEEP, (
                number,
                completed,
            )


@contextmanager
def nursery(environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, rival_drivers.__file__]
    with subprocess.Popen(
        command,
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


def settle(job: JobStorage) -> int:
    """Take over for good, retain, and clean; how many orphans there were."""
    owner = job.take_over()
    retain(owner, KEEP)
    check_whole(job)
    return check_clean(job)


def campaign(there: Place, direct: CheckpointStorage, seeds: range) -> None:
    """A job for each seed: the drivers go through a proxy, `direct` is to look."""
    tally: Counter[str] = Counter()
    jobs = []
    with nursery(there.environment) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for seed in seeds:
            fight = Fight(there.url, there.options, f"job {seed} ü", seed)
            process.stdin.write(fight.as_line())
            process.stdin.flush()
            account = Account(
                [[*map(tuple, each)] for each in json.loads(process.stdout.readline())]
            )
            account.check_turns()
            tally += account.tally
            jobs.append((account, fight.job_id))
    SystemClock().sleep_s(LATEST_S)
    for account, job_id in jobs:
        job = direct.job(job_id)
        account.check_kept(job.completed())
        tally["orphans"] += settle(job)
    assert min(tally[each] for each in ("owns", "committed", "orphans")) >= len(seeds) / 2, tally
    if len(seeds) >= MANY:  # the order of processes does not depend on the seed alone
        assert tally["fenced"] >= len(seeds) / 2, tally
        assert tally["killed"] >= len(seeds) / 4, tally
    assert tally["gave up"] <= 1 + len(seeds) // 10, tally


def s3_campaign(server: S3Server, bucket: str, seeds: range) -> None:
    weather = Weather(seeds.start, SHARE)
    with S3Proxy(server.port, weather) as proxy:
        url = server.url(bucket, "a place/ü")
        options = {"endpoint": proxy.endpoint, "region": REGION}
        secrets = {"AWS_ACCESS_KEY_ID": ADMIN.key, "AWS_SECRET_ACCESS_KEY": ADMIN.secret}
        campaign(Place(url, options, secrets), load_storage(url, **server.options()), seeds)
    assert {*weather.tally} == {*DEALS}


def hdfs_campaign(server: HdfsServer, url: str, seeds: range) -> None:
    weather = Weather(seeds.start, SHARE, HDFS_DEALS)
    folder = url.removeprefix(server.url())
    with HdfsProxy(server.port, server.data_port, weather) as proxy:
        there = Place(proxy.url(folder), {"block_size_bytes": BLOCK_BYTES})
        campaign(there, load_storage(url, block_size_bytes=BLOCK_BYTES), seeds)
    assert {*weather.tally} == {*HDFS_DEALS}


@pytest.mark.slow
def test_two_drivers_fight_on_s3(s3_server: S3Server, s3_bucket: str) -> None:
    s3_campaign(s3_server, s3_bucket, range(5))


@pytest.mark.slow
def test_two_drivers_fight_on_hdfs(hdfs_server: HdfsServer, hdfs_url: str) -> None:
    hdfs_campaign(hdfs_server, hdfs_url, range(5))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("start", range(0, 120, MANY))
def test_many_drivers_fight_on_s3(s3_server: S3Server, s3_bucket: str, start: int) -> None:
    s3_campaign(s3_server, s3_bucket, range(1000 + start, 1000 + start + MANY))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("start", range(0, 120, MANY))
def test_many_drivers_fight_on_hdfs(hdfs_server: HdfsServer, hdfs_url: str, start: int) -> None:
    hdfs_campaign(hdfs_server, hdfs_url, range(1000 + start, 1000 + start + MANY))
