"""Jobs whose sinks would not commit all rows are refused; others may be as they are."""

from __future__ import annotations

import pytest

from holdfast.runtime.api.checkpoint_config import CheckpointConfig
from holdfast.runtime.driver.startup.start_notes import check_commits
from holdfast.runtime.planning.job_plan import JobPlan, plan_job
from holdfast.runtime.sinks import CollectSink
from holdfast.storage import Invalid
from support.simulations.jobs import ORDERS, Builder


def a_plan(*, has_sink: bool = True) -> JobPlan:
    builder = Builder()
    stream = builder.source("in", ORDERS).filter(bool, uid="some")
    if has_sink:
        stream.sink_to(CollectSink(), uid="out")
    return plan_job(builder.graph, job_id="job", parallelism=1, max_parallelism=16)


NO_FINAL = CheckpointConfig(interval="1s", final_checkpoint=False)


@pytest.mark.parametrize(
    ("endless", "config", "what"),
    [
        ([], NO_FINAL, "sink 'out' would lose the last rows"),
        (["in"], CheckpointConfig(), "sink 'out' would never commit a row"),
    ],
)
def test_rows_that_no_checkpoint_follows_are_refused(
    endless: list[str], config: CheckpointConfig, what: str
) -> None:
    with pytest.raises(Invalid) as caught:
        check_commits(a_plan(), endless, config)
    assert caught.value.what == what
    check_commits(a_plan(has_sink=False), endless, config)


def test_others_are_as_they_are() -> None:
    check_commits(a_plan(), ["in"], NO_FINAL)
    check_commits(a_plan(), [], CheckpointConfig())
