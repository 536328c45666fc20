"""Spark reads a canonical savepoint, as docs/savepoint-format.md says."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support.documents.savepoint_page import AMOUNTS, PAGE, TOTALS, make_savepoint, run_example

pytestmark = pytest.mark.slow


def test_spark_reads_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_savepoint(tmp_path)
    page = PAGE.replace('"savepoint/', f'"{tmp_path}/savepoint/')  # for a JVM in another folder
    monkeypatch.setattr("support.documents.savepoint_page.PAGE", page)
    found = run_example("Spark", spark=spark)
    assert {row.key: row.value for row in found["totals"].collect()} == TOTALS
    assert {row.key: row.amounts for row in found["lists"].collect()} == AMOUNTS
