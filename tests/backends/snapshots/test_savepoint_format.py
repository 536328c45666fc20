"""Tools without Holdfast read a canonical savepoint, as docs/savepoint-format.md describes.

Spark does so in tests/runtime/spark/state_frames/test_savepoint_format.py.
"""

from pathlib import Path

import pytest

from support.documents.savepoint_page import AMOUNTS, TOTALS, make_savepoint, run_example


@pytest.fixture(autouse=True)
def in_savepoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_savepoint(tmp_path)
    monkeypatch.chdir(tmp_path)


def test_pandas_reads_it() -> None:
    totals = run_example("pandas")["totals"]
    assert dict(zip(totals["key"], totals["value"], strict=True)) == TOTALS


def test_duckdb_reads_it() -> None:
    found = run_example("DuckDB")
    assert dict(zip(found["totals"]["key"], found["totals"]["value"], strict=True)) == TOTALS
    assert dict(found["spent"]) == {key: sum(amounts) for key, amounts in AMOUNTS.items()}


def test_polars_reads_it() -> None:
    assert dict(run_example("Polars")["totals"].iter_rows()) == TOTALS


def test_pyarrow_reads_it() -> None:
    found = run_example("pyarrow")
    assert found["kind"] == b"value"
    rows = found["totals"].to_pylist()
    assert {row["key"]: row["value"] for row in rows} == TOTALS
