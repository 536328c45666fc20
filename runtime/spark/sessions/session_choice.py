"""Which session an environment gets that was given none: the one that its program was started for.

In this order: the active session, or the one of a context that is there; a session at the master
that is named, by spark-submit, by `MASTER`, by `PYSPARK_SUBMIT_ARGS` or in spark-defaults.conf; and
where no master is named, a session on this machine that has room for the job.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from holdfast.backends.working_directory import WorkingDirectory
from holdfast.runtime.spark import python_daemon
from holdfast.runtime.spark.sessions.session_checks import (
    CORES_FOR_SOURCES,
    on_this_machine,
    with_this_python,
)
from holdfast.storage import Invalid

__all__ = ["choose_session"]

_GATEWAY = "PYSPARK_GATEWAY_PORT"
"""Set by spark-submit for the program that it runs: its JVM is there, with all settings."""
_LOCAL_IP = "SPARK_LOCAL_IP"
_JVM_OPTIONS = "SPARK_SUBMIT_OPTS"
"""Options of Java for the JVM that pyspark starts. What is in it later takes precedence."""
_folders: list[WorkingDirectory] = []
"""Temporary folders of the JVM of this process, which holds their locks to its end."""
_ALL_CORES = "local[*]"
"""What Spark takes where no master is named; a user may have named it, too."""
_DAEMON_MODULE = "spark.python.daemon.module"
_NAMES_MASTER = re.compile(r"--master|spark\.master|--properties-file")


def choose_session(size: Callable[[Mapping[str, str]], int]) -> SparkSession:
    """The session that the program was started for, or one on this machine.

    `size` answers how many slots there will be, from the settings of a session that is yet to be
    made; only a session on this machine is made for them. `check_session` tells whether another one
    will do.

    Raises:
        Invalid: a server of Spark Connect is named; and what `size` raises.
    """
    there = SparkSession.getActiveSession()
    if there is not None:
        return there
    if SparkContext._active_spark_context is not None:
        # No setting of ours: they would change the session that this context may have already.
        return SparkSession.builder.getOrCreate()
    _refuse_connect(os.environ.get("SPARK_REMOTE"))
    is_sure = _GATEWAY not in os.environ and not _mentions_master()
    if is_sure:  # its processes may be where the machine's own name leads nowhere
        os.environ.setdefault(_LOCAL_IP, "127.0.0.1")
    # The settings are known to the JVM only, so it begins before the session does.
    _ensure_jvm()
    conf = SparkConf()
    _refuse_connect(conf.get("spark.remote", None))
    master = conf.get("spark.master", _ALL_CORES) or _ALL_CORES
    slots = size(dict(conf.getAll()))
    is_named = master != _ALL_CORES or _mentions_master() or _submit_names_master()
    if is_named:
        builder = SparkSession.builder
        if master.startswith("local"):
            with_this_python()
            builder = _with_ready_workers(builder, conf)
        return _made(builder, conf)
    builder = on_this_machine(f"local[{slots + CORES_FOR_SOURCES}]")
    builder = _with_ready_workers(builder, conf)
    if not conf.contains("spark.sql.shuffle.partitions"):
        builder = builder.config("spark.sql.shuffle.partitions", str(CORES_FOR_SOURCES))
    return _made(builder, conf)


def _ensure_jvm() -> None:
    """Start Spark's JVM, unless it runs, with its temporary files below a folder of ours."""
    if SparkContext._gateway is not None or _GATEWAY in os.environ:
        SparkContext._ensure_initialized()
        return
    # A JVM that is killed leaves `spark-*`, `blockmgr-*` and native libraries. This process locks
    # the folder, so the next start of anything of ours removes it if this one is dead.
    folder = WorkingDirectory(kind="spark")
    before = os.environ.get(_JVM_OPTIONS)
    # Not `spark.local.dir`: executors on other machines would take it too, and what a user sets
    # there counts still.
    own_folder = shlex.quote(f"-Djava.io.tmpdir={folder.path}")
    # Slots are a stage that ends with the job: a bar of its progress never moves, and is drawn
    # over what the program prints. As a property of the JVM it yields to a user's own setting.
    ours = f"{own_folder} -Dspark.ui.showConsoleProgress=false"
    os.environ[_JVM_OPTIONS] = ours if before is None else f"{ours} {before}"
    try:
        launch: Any = launch_gateway
        # In a session of its own: a signal to the program's process group is the program's alone,
        # or Spark would be stopped under the job's feet. It ends when this process does.
        gateway = launch(popen_kwargs={"start_new_session": True})
        SparkContext._ensure_initialized(gateway=gateway)
        jvm: Any = SparkContext._jvm
        # If all goes well the JVM removes the folder itself, when it ends.
        hooks = jvm.org.apache.spark.util.ShutdownHookManager
        hooks.registerShutdownDeleteDir(jvm.java.io.File(str(folder.path)))
    except BaseException:
        folder.close()
        raise
    finally:
        if before is None:
            del os.environ[_JVM_OPTIONS]
        else:
            os.environ[_JVM_OPTIONS] = before
    _folders.append(folder)


def _with_ready_workers(builder: SparkSession.Builder, conf: SparkConf) -> SparkSession.Builder:
    """Have workers on this machine forked by `python_daemon`, where they are sure to have it."""
    if os.environ["PYSPARK_PYTHON"] != sys.executable or conf.contains(_DAEMON_MODULE):
        return builder
    return builder.config(_DAEMON_MODULE, python_daemon.__name__)


def _made(builder: SparkSession.Builder, conf: SparkConf) -> SparkSession:
    # Without a name Spark says `pyspark-shell`, for every program.
    has_name = conf.get("spark.app.name", "pyspark-shell") != "pyspark-shell"
    return (builder if has_name else builder.appName("holdfast")).getOrCreate()


def _refuse_connect(url: str | None) -> None:
    if not url:
        return
    raise Invalid(
        "a server of Spark Connect cannot carry a job",
        where="SPARK_REMOTE, or the setting spark.remote",
        expected="a master, in the driver's own process",
        found=url,
        fix="Spark Connect hides the driver; start the job with spark-submit or a local master",
    )


def _mentions_master() -> bool:
    """Whether a master may be named outside of the JVM; sure only if it is not."""
    if os.environ.get("MASTER"):
        return True
    home = os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent
    folder = Path(os.environ.get("SPARK_CONF_DIR") or Path(home) / "conf")
    texts = [os.environ.get("PYSPARK_SUBMIT_ARGS", "")]
    try:
        lines = (folder / "spark-defaults.conf").read_text("utf-8", "replace").splitlines()
        texts += [line for line in lines if not line.lstrip().startswith("#")]
    except OSError:
        pass  # there is none, or Spark cannot read it either
    return any(map(_NAMES_MASTER.search, texts))


def _submit_names_master() -> bool:
    """Whether the command line of spark-submit names one; its JVM knows it."""
    if _GATEWAY not in os.environ:
        return False
    jvm: Any = SparkContext._jvm
    command = jvm.System.getProperty("sun.java.command") or ""
    return bool(_NAMES_MASTER.search(command))
