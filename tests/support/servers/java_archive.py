"""Options of Java for each Spark that tests start: many JVMs live short, and share few cores.

They compile little, use one thread for garbage, and load the classes of Spark from an archive that
has them parsed and verified: that is half of what it takes to start Spark. The archive is made on
first use, by a program that does what most tests do, and is kept in the virtual environment, to
whose paths it belongs. A JVM to which it does not fit passes it over.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import zlib
from functools import cache
from pathlib import Path

import pyspark  # noqa: TID251 - for its version

__all__ = ["QUICK_JAVA", "quick_java"]

QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_WITHIN_S = 240
_PROGRAM = """
import sys
from pathlib import Path
from pyspark import SparkContext
from support.jobs.spark_sessions import start_session

folder = Path(sys.argv[1])
(folder / "in").mkdir()
(folder / "in" / "1.json").write_text('{"a": 1}')
spark = start_session()
rows = spark.readStream.schema("a long").json(str(folder / "in"))
writer = rows.writeStream.foreachBatch(
    lambda frame, _: frame.mapInArrow(lambda batches: batches, "a long").collect()
)
writer = writer.option("checkpointLocation", str(folder / "log")).trigger(availableNow=True)
writer.start().awaitTermination()
java = SparkContext._gateway.proc
spark.stop()
java.stdin.close()
java.wait()
"""


@cache
def quick_java() -> str:
    """The options, with the archive if it can be made."""
    archive = _archive()
    with archive.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            _make(archive)
    # Of an archive that does not fit nothing is said: what programs print is compared.
    return f"{QUICK_JAVA} -Xlog:disable -XX:SharedArchiveFile={archive}"


def _archive() -> Path:
    java = os.environ.get("JAVA_HOME") or os.path.realpath(shutil.which("java") or "java")
    key = zlib.crc32(f"{pyspark.__version__} {java}".encode())
    return Path(sys.prefix) / f"holdfast-spark-classes-{key:08x}.jsa"


def _make(archive: Path) -> None:
    folder = archive.with_suffix(".work")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    fresh = folder / archive.name
    options = f"{QUICK_JAVA} -Xlog:disable -XX:ArchiveClassesAtExit={fresh}"
    try:
        subprocess.run(
            [sys.executable, "-c", _PROGRAM, str(folder)],
            env=os.environ | {"SPARK_SUBMIT_OPTS": options},
            check=False,
            capture_output=True,
            timeout=_WITHIN_S,
        )
        if fresh.exists():
            fresh.replace(archive)
        else:
            archive.touch()  # it cannot be made here: that is not tried in each run
    finally:
        shutil.rmtree(folder, ignore_errors=True)
