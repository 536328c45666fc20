"""Channels and staging share the memory of a slot, however many slots and edges there are."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.runtime.planning.job_plan import EdgeKind, JobPlan, plan_job
from holdfast.runtime.planning.memory_shares import memory_shares
from holdfast.storage import Invalid
from support.simulations.jobs import ORDERS, TOTALS, Builder, Spend

MIB = 1 << 20


def planned(parallelism: int, exchanges: int) -> JobPlan:
    builder = Builder()
    stream = builder.source("s", ORDERS)
    for number in range(exchanges):
        stream = stream.key_by("user").process(Spend(), ORDERS, uid=f"p{number}")
    stream.key_by("user").process(Spend(), TOTALS, uid="last")
    return plan_job(builder.graph, job_id="job", parallelism=parallelism, max_parallelism=1024)


def queues(plan: JobPlan) -> int:
    """Of one slot: channels to read, and those to other slots."""
    remote = plan.parallelism - 1
    hashed = [edge for edge in plan.edges if edge.kind is EdgeKind.HASH]
    return len(plan.edges) - len(hashed) + len(hashed) * (plan.parallelism + remote)


def test_a_small_job_has_channels_of_full_size() -> None:
    shares = memory_shares(planned(2, 1), 512 * MIB)
    assert shares.channel_bytes == 32 * MIB
    assert shares.staging_bytes == 512 * MIB - queues(planned(2, 1)) * 32 * MIB


@given(st.integers(1, 200), st.integers(0, 5), st.integers(0, 4096))
def test_all_together_have_no_more_than_there_is(
    parallelism: int, exchanges: int, memory_mib: int
) -> None:
    plan, memory = planned(parallelism, exchanges), memory_mib * MIB
    try:
        shares = memory_shares(plan, memory)
    except Invalid as error:
        found = re.search(r"expected (\d+)m or more", str(error))
        assert found is not None
        least = int(found[1]) * MIB
        assert least > memory
        shares, memory = memory_shares(plan, least), least
    taken = queues(plan) * shares.channel_bytes
    assert taken + shares.staging_bytes == memory
    assert taken <= memory / 2
    assert 64 << 10 <= shares.channel_bytes <= 32 * MIB


def test_a_memory_that_is_too_small_names_the_least_that_works() -> None:
    with pytest.raises(
        Invalid,
        match=r"taskmanager\.memory\.network\.max.*expected 25m or more, for 200 channels and "
        r"queues in each of 100 slots, found 1048576 bytes",
    ):
        memory_shares(planned(100, 1), MIB)
