"""The examples of docs/state-as-data.md, one after the other, word for word."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from holdfast.storage import CheckpointMetadata, OperatorState, load_storage

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).parents[4] / "docs" / "state-as-data.md").read_text()
BEGUN_MS, TOOK_MS = 1_700_000_000_000, 250


def test_the_examples_do_what_the_page_says(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    owner = load_storage(str(tmp_path / "checkpoints")).job("orders").take_over()
    state = OperatorState(parallelism=1, max_parallelism=8)
    for number in (1, 2):
        operators = {"spend": state, "out": state}
        owner.commit(
            CheckpointMetadata(
                job_id="orders",
                checkpoint_id=number,
                triggered_ms=BEGUN_MS,
                completed_ms=BEGUN_MS + TOOK_MS,
                operators=operators,
            )
        )
    found: dict[str, Any] = {"spark": spark}
    examples = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(examples) == 6
    for example in examples:
        # Spark's own process is not in the folder of this test.
        exec(example.replace('"checkpoints/', f'"{tmp_path}/checkpoints/'), found)
    totals = found["totals"]
    assert dict(zip(totals["key"], totals["value"], strict=True)) == {"ann": 30, "bob": 50, "cy": 0}
    assert [(row["key"], row["value"]) for row in found["bob"]] == [("bob", 50)]
    assert found["timers"].column("time").to_pylist() == [60_000] * 3
    assert {row.key: row.spent for row in found["spent"].collect()} == {"ann": 30, "bob": 5}
    assert [row.value for row in found["values"].collect()] == [10, 20]
    grown = found["growth"].collect()
    assert [(row.checkpoint, row.duration_ms, row.key, row.value) for row in grown] == [
        (number, TOOK_MS, uid, 0) for number in (1, 2) for uid in ("out", "spend")
    ]
    assert list(found["same"]["checkpoint"]) == [1, 2]
