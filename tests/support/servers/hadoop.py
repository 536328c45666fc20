"""What the programs of Hadoop need: jars, Java, and a folder with their settings."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from xml.sax.saxutils import escape

from java_artifacts import ArtifactsError, jars, java
from support.servers.guarded import ServerFailed

LOCK = Path(__file__).with_name("hdfs-jars.lock")
NAME_NODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
DATA_NODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"
DFS_ADMIN = "org.apache.hadoop.hdfs.tools.DFSAdmin"
HA_ADMIN = "org.apache.hadoop.hdfs.tools.DFSHAAdmin"
SHELL = "org.apache.hadoop.fs.FsShell"

_JAVA_OPTIONS = (
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",  # on few cores a server starts sooner, and is as fast for a test
    "-XX:-UsePerfData",  # which leaves files
    "-Djava.net.preferIPv4Stack=true",
)
_LOGGING = """\
log4j.rootLogger=INFO, out
log4j.logger.http.requests=WARN
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d %p %c{1}: %m%n
"""


@cache
def hdfs_jars() -> Path:
    """The folder of the jars, downloaded on first use on this machine.

    Raises:
        ServerFailed: they cannot be had.
    """
    try:
        return jars(LOCK)
    except ArtifactsError as error:
        raise ServerFailed(f"the HDFS server for tests is missing: {error}") from error


def java_command(settings: Path, main_class: str, *arguments: str) -> list[str]:
    """A program of Hadoop with the settings of a folder."""
    try:
        program = java()
    except ArtifactsError as error:
        raise ServerFailed(f"the HDFS server for tests cannot run: {error}") from error
    classes = f"{settings}:{hdfs_jars()}/*"
    return [program, *_JAVA_OPTIONS, "-cp", classes, main_class, *arguments]


def write_settings(folder: Path, core: Mapping[str, str], hdfs: Mapping[str, str]) -> Path:
    """A folder as HADOOP_CONF_DIR names it, for clients too."""
    for pages in ("hdfs", "datanode"):  # the jars leave them out, and servers end without them
        (folder / "webapps" / pages).mkdir(parents=True, exist_ok=True)
    (folder / "log4j.properties").write_text(_LOGGING)
    # What servers count is told as it was at most so many seconds ago.
    (folder / "hadoop-metrics2.properties").write_text("*.period=1\n")
    (folder / "core-site.xml").write_text(_site(core))
    (folder / "hdfs-site.xml").write_text(_site(hdfs))
    return folder


def _site(properties: Mapping[str, str]) -> str:
    lines = [
        f"  <property><name>{escape(name)}</name><value>{escape(value)}</value></property>\n"
        for name, value in properties.items()
    ]
    return f"<configuration>\n{''.join(lines)}</configuration>\n"
