"""Sessions of Spark for tests: small, quiet, and with the tests' helpers on every path."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession  # noqa: TID251 - here sessions are made

from holdfast.runtime.spark import python_daemon

TESTS = Path(__file__).resolve().parents[2]
LOOPBACK = "127.0.0.1"


def prepare_environment() -> None:
    """Have Spark start this Python, which finds what this process finds in `tests`."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = LOOPBACK
    there = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    paths = dict.fromkeys(
        [
            str(TESTS),
            str(TESTS / "sqlite_plugin"),
            str(TESTS / "support" / "golden"),
            *filter(None, there),
        ]
    )
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)


def start_session(master: str = "local[4]", **settings: str) -> SparkSession:
    """A session of this process; there must be none yet."""
    prepare_environment()
    builder = (
        SparkSession.builder.master(master)
        .appName("holdfast tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", LOOPBACK)
        .config("spark.driver.host", LOOPBACK)
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.python.daemon.module", python_daemon.__name__)
        .config("spark.executor.extraJavaOptions", os.environ.get("SPARK_SUBMIT_OPTS", ""))
    )
    for name, value in settings.items():
        builder = builder.config(name.replace("_", "."), value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark
