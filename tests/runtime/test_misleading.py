"""What a new user gets wrong is told by its own name, and with what to do; nothing is begun."""

from collections.abc import Callable
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from holdfast.backends import (
    AggregateFunction,
    AggregatingStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
    load_backend,
)
from holdfast.changelog import ChangelogStateBackend
from holdfast.runtime import (
    CheckpointConfig,
    DataStream,
    FileSink,
    KeyedProcessFunction,
    NetworkConfig,
    ProcessFunction,
)
from holdfast.runtime.checkpoint.savepoint_orders import SavepointPurpose
from holdfast.runtime.cli.application import application
from holdfast.runtime.driver.checkpoints.savepoint_requests import SavepointPlaces
from holdfast.runtime.operators.user_code import UserCode
from holdfast.runtime.options.arguments import (
    CodeArguments,
    choose_all,
    choose_checkpointing,
    choose_restoring,
)
from holdfast.runtime.options.environment_options import Restoring
from holdfast.runtime.options.table import GivenOptions
from holdfast.runtime.spark.sessions.session_checks import check_classic as check_session
from holdfast.runtime.spark.sources.frame_checks import check_classic as check_frame
from holdfast.savepoints.finding import find_snapshot
from holdfast.storage import HoldfastError, Invalid, NotFound, load_storage
from holdfast.storage.options.table import Settings
from support.simulations.jobs import Builder

SCHEMA = pa.schema([("n", pa.int64())])
_NOTHING = GivenOptions(Settings(), Settings())
_HOUR = timedelta(hours=1)
_ANY: Any = None
"""A name for what types would not let pass."""


class Sum(AggregateFunction[int, int, int]):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: int, accumulator: int) -> int:
        return accumulator + value

    def get_result(self, accumulator: int) -> int:
        return accumulator


def _environment(**said: Any) -> object:
    unsaid = {each.name: None for each in fields(CodeArguments)}
    code = CodeArguments(**{**unsaid, **said})
    return choose_all(code, _NOTHING)


def _checkpointing(value: Any) -> object:
    return choose_checkpointing(value, _NOTHING)


_REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "a negative interval": (
        lambda: CheckpointConfig(interval=_any(-1)),
        r"^interval is not a duration: expected a timedelta.* found -1",
    ),
    "ssl": (lambda: NetworkConfig(ssl="yes"), r"ssl .*expected True, False or 'auto', found 'yes'"),
    "ssl that is 1": (lambda: NetworkConfig(ssl=_any(1)), r"expected True, False or 'auto'"),
    "a host with a port": (
        lambda: NetworkConfig(driver_host="host:99"),
        r"driver_host .*without brackets and port, found 'host:99'",
    ),
    "a storage that is a Path": (
        lambda: _environment(storage=Path("/checkpoints")),
        r'storage is of another kind.*Pass it as text: "/checkpoints"',
    ),
    "a class of backends": (
        lambda: _environment(backend=type(load_backend("hashmap"))),
        r"backend is of another kind.*Make an object of it: HashMapStateBackend\(…\)",
    ),
    "checkpointing that is a class": (
        lambda: _checkpointing(CheckpointConfig),
        r"checkpointing is of another kind: expected a CheckpointConfig, such as",
    ),
    "checkpointing that is a dict": (
        lambda: _checkpointing({"interval": "1s"}),
        r"checkpointing is of another kind.*found \{'interval': '1s'\}",
    ),
    "a storage that is nothing": (
        lambda: load_storage(_ANY),
        r"does not name a storage: expected text: a path, a URL, a registered name, found None",
    ),
    "a job without a name": (
        lambda: load_storage("memory").job(_ANY),
        r"a name is not text: expected text, found None",
    ),
    "a storage of pages": (
        lambda: load_storage("http://host/checkpoints"),
        r"cannot be kept at, or read from, http \[http://host/checkpoints\].*Copy what is there",
    ),
    "a session that is text": (
        lambda: check_session("local[2]"),
        r"cannot carry a job.*found builtins.str. Pass a SparkSession",
    ),
    "a source that is a list": (
        lambda: check_frame([1], "orders"),
        r"'orders' is not a DataFrame.*found builtins.list. Read it by the environment's spark",
    ),
    "a sink at a Path": (
        lambda: FileSink(_any(Path("/out"))),
        r'names no place: expected a path or URL, as text.*Pass it as text: "/out"',
    ),
    "savepoints in a Path": (
        lambda: CheckpointConfig(savepoint_dir=_any(Path("/saved"))),
        r'savepoint_dir is not a directory.*Pass it as text: "/saved"',
    ),
    "a savepoint to a Path": (
        lambda: SavepointPlaces().order(
            load_storage("memory://").job("job"),
            _any(Path("/saved")),
            "canonical",
            SavepointPurpose.KEEP_RUNNING,
        ),
        r'names no place: expected text: a path or a URL.*Pass it as text: "/saved"',
    ),
    "a restore from a Path": (
        lambda: choose_restoring(Restoring(_any(Path("/saved/1")), None, False), _NOTHING),
        r'restore says nothing.*Pass it as text: "/saved/1"',
    ),
    "a savepoint at a Path": (
        lambda: find_snapshot(_any(Path("/saved/1"))),
        r'names no place.*Pass it as text: "/saved/1"',
    ),
    "local copies at a Path": (
        lambda: ChangelogStateBackend("hashmap", local_copies=_any(Path("/copies"))),
        r'local_copies.*Pass it as text: "/copies"',
    ),
    "an option of RocksDB that is like no other": (
        lambda: load_backend("rocksdb", options={"zzz": 1}),
        r"'zzz' of RocksDB is not known: expected a name that RocksDB has in its file OPTIONS",
    ),
    "an option of a backend": (
        lambda: load_backend("rocksdb", memroy="1g"),
        r"'memroy' is not known.*Did you mean 'memory'\?",
    ),
    "a backend": (lambda: load_backend("rocksb"), r"'rocksb'.*Did you mean 'rocksdb'\?"),
    "a storage": (lambda: load_storage("hfds"), r"'hfds'.*Did you mean 'hdfs'\?"),
    "an empty uid": (
        lambda: _stream().process(_any(Plain()), SCHEMA, uid="  "),
        r"uid",
    ),
    "a sink at a URL of one slash": (
        lambda: FileSink("s3:/bucket/out"),
        r"names no place.*found 's3:/bucket/out'. Write s3://… if it is a URL, and \./s3:/bucket",
    ),
    "a time to live without its class": (
        lambda: ValueStateDescriptor("seen", int, ttl=_any(_HOUR)),
        r"time to live of state 'seen'.*expected a StateTtlConfig.*ttl=StateTtlConfig\(ttl=",
    ),
    "a time to live that is text": (
        lambda: StateTtlConfig(ttl=_any("1h")),
        r"no timedelta: expected a timedelta, such as timedelta\(hours=1\), found '1h'",
    ),
    "an update type that is text": (
        lambda: StateTtlConfig(ttl=_HOUR, update_type=_any("on-read-and-write")),
        r"update_type .*TtlUpdateType.ON_READ_AND_WRITE.*found 'on-read-and-write'",
    ),
    "a visibility that is a number": (
        lambda: StateTtlConfig(ttl=_HOUR, visibility=_any(1)),
        r"visibility .*StateVisibility.NEVER_RETURN_EXPIRED.*found 1",
    ),
    "aliases that are a number": (
        lambda: ValueStateDescriptor("seen", int, aliases=_any(5)),
        r"aliases of state 'seen' are not legal: expected a tuple of names, found 5",
    ),
    "a type in the place of a function": (
        lambda: ReducingStateDescriptor("total", int),
        r"'total' is not reduced by a function: .*operator.add; .*found <class 'int'>",
    ),
    "a number in the place of a function": (
        lambda: ReducingStateDescriptor("total", _any(5), int),
        r"'total' is not reduced by a function.*found 5",
    ),
    "a class of aggregates": (
        lambda: AggregatingStateDescriptor("total", _any(Sum)),
        r"'total' is not aggregated by.*Make an object of it: Sum\(\)",
    ),
    "a lambda that should aggregate": (
        lambda: AggregatingStateDescriptor("total", _any(max)),
        r"'total' is not aggregated by an AggregateFunction.*found <built-in function max>",
    ),
}


class Echo(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value


class Plain(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value


def _stream() -> DataStream:
    return Builder().source("numbers", SCHEMA)


def test_a_function_is_sent_to_where_it_goes() -> None:
    with pytest.raises(Invalid) as keyed:
        _stream().process(_any(Echo()), SCHEMA, uid="echo")
    assert keyed.value.fix.endswith("process of a keyed stream: call key_by first")
    with pytest.raises(Invalid) as plain:
        _stream().key_by("n").process(_any(Plain()), SCHEMA, uid="plain")
    assert plain.value.fix.endswith("process of a stream that is not keyed: leave out key_by")


def test_a_class_of_sinks_is_told_as_one() -> None:
    with pytest.raises(Invalid, match=r"no sink \[sink_to\].*found the class FileSink"):
        _stream().sink_to(_any(FileSink))


def _any(value: Any) -> Any:
    return value


@pytest.mark.parametrize("case", _REFUSED)
def test_common_mistakes_are_refused_by_name_with_advice(case: str) -> None:
    make, message = _REFUSED[case]
    with pytest.raises(Invalid, match=message):
        make()


def test_a_sink_may_have_a_colon_in_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert FileSink("./s3:/out").url == str(tmp_path / "s3:/out")  # whole: slots run elsewhere


def _of_one_argument(order: object) -> None:
    """Takes one argument, and is given two."""


def test_a_method_with_other_arguments_is_not_told_of_rows() -> None:
    code = UserCode("orders", _of_one_argument)
    given: Any = _of_one_argument
    with pytest.raises(TypeError) as caught:
        given(1, 2)
    error = caught.value.with_traceback(None)  # no line of the function's own was reached
    failure = code.failure(error, "process_element", "row 1")
    assert "positional argument" in failure.found
    assert failure.fix == "Give it the arguments that this method of its base class takes"
    assert code.failure(ValueError("no"), "", "").fix == ""


@pytest.mark.parametrize("command", [["clean", ""], ["list", ""], ["clean", " "]])
def test_an_empty_path_is_not_where_you_are(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    load_storage(str(tmp_path)).job("orders").take_over()
    before = sorted(tmp_path.rglob("*"))
    result = CliRunner().invoke(application, ["checkpoints", *command])
    assert isinstance(result.exception, HoldfastError)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_file_is_no_folder_of_savepoints(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine")
    result = CliRunner().invoke(application, ["savepoint", "list", str(tmp_path / "notes")])
    assert isinstance(result.exception, Invalid)
    assert "expected a directory, found" in str(result.exception)
    assert "Check the path" in result.exception.fix


def test_a_word_that_is_neither_a_job_nor_a_command_is_told_as_both() -> None:
    result = CliRunner().invoke(application, ["savepoint", "inspct", "/savepoints/1"])
    assert isinstance(result.exception, NotFound)
    assert "'inspct' is no command of `holdfast savepoint`" in str(result.exception)
    assert "Did you mean `holdfast savepoint inspect`?" in result.exception.fix
