"""Whole jobs at other addresses than those by default."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from holdfast.runtime import JobStatus, NetworkConfig, StreamEnvironment
from support.jobs.spark_jobs import (
    await_that,
    build_from_files,
    check_complete,
    expected,
    make_orders,
    write_orders,
)

pytestmark = pytest.mark.slow

ORDERS = make_orders(5, 60)


def test_a_job_on_ipv6_whose_slots_listen_everywhere_is_encrypted(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_orders(tmp_path / "in", ORDERS, 2)
    env = StreamEnvironment(
        spark,
        parallelism=2,
        storage=str(tmp_path / "checkpoints"),
        checkpointing="200ms",
        network=NetworkConfig(driver_host="::1", slot_host="::1", slot_bind_address="::"),
    )
    job = build_from_files(env, tmp_path).execute_async("on IPv6")
    run: Any = job._run
    await_that(lambda: run._attempt is not None and len(run._attempt._addresses) == 2, "slots")
    addresses = [*run._attempt._addresses.values()]
    assert all(each.startswith("grpc+tls://[::1]:") for each in addresses), addresses
    assert job.result(120) is JobStatus.FINISHED
    check_complete(tmp_path, expected(ORDERS))
