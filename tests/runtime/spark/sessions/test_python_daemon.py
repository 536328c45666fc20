"""Workers of a session on this machine are forked with all that slots need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession


@pytest.mark.slow
def test_workers_are_forked_of_a_daemon_that_has_all_and_draw_numbers_of_their_own(
    spark: SparkSession,
) -> None:
    def told(batches: Iterable[Any]) -> Iterator[Any]:
        import os  # noqa: PLC0415 - it travels by value
        from pathlib import Path  # noqa: PLC0415

        import numpy as np  # noqa: PLC0415
        import pyarrow as pa  # noqa: PLC0415

        for _ in batches:
            pass
        maps = Path(f"/proc/{os.getppid()}/maps").read_text()
        drawn = float(np.random.random())
        yield pa.RecordBatch.from_pydict({"has": ["libarrow_flight" in maps], "drawn": [drawn]})

    rows = spark.range(0, 4, 1, 4).mapInArrow(told, "has boolean, drawn double").collect()
    assert all(row.has for row in rows)
    assert len({row.drawn for row in rows}) == len(rows)
