"""Streams as users build a job of them. Each call adds an operator to the job's graph."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn, Protocol

import pyarrow as pa

from holdfast.backends.values.normalizing import shown
from holdfast.runtime.api.functions import (
    KeyedBatchFunction,
    KeyedProcessFunction,
    OutputTag,
    ProcessFunction,
)
from holdfast.runtime.operators import (
    FilterSpec,
    FlatMapSpec,
    KeyedBatchSpec,
    KeyedProcessSpec,
    MapSpec,
    ProcessSpec,
    UserFunctionSpec,
    WatermarkSpec,
    key_type_of,
)
from holdfast.runtime.operators.sink_operator import SinkSpec
from holdfast.runtime.planning.graph import Graph, Input, Node, check_event_time, united_schema
from holdfast.runtime.protocol.operator import OperatorSpec
from holdfast.runtime.sinks import Sink, TwoPhaseCommitSink
from holdfast.storage import Invalid
from holdfast.storage.options.durations import Duration, duration_ms

__all__ = [
    "DataStream",
    "GeneratedUidWarning",
    "KeyedStream",
    "SourceFrame",
    "SourceWatermark",
    "StreamBuilder",
]


class GeneratedUidWarning(UserWarning):
    """An operator has no uid of its own, so its state is lost when the job changes around it."""


@dataclass(frozen=True, slots=True)
class SourceWatermark:
    """Event time of a source: a column, how late rows may be, and when it counts as idle."""

    column: str
    max_delay_ms: int
    idle_after_ms: int | None


@dataclass(frozen=True, slots=True)
class SourceFrame:
    """What a source is read from: a DataFrame, which only the room of Spark looks into."""

    frame: Any
    is_bounded: bool
    watermark: SourceWatermark | None = None

    @property
    def may_be_idle(self) -> bool:
        """Whether rows may come late, because the DataFrame is streaming."""
        return bool(self.frame.isStreaming)


class StreamBuilder(Protocol):
    """What streams need of their environment."""

    graph: Graph

    def arrow_schema(self, schema: Any, where: str) -> pa.Schema:
        """The Arrow schema of DDL, of a Spark schema, or of an Arrow schema.

        Raises:
            Invalid: it is none of these, or has a type that Arrow has not.
        """

    def pickled(self, function: Any, where: str) -> bytes:
        """A user's function, to be unpickled in slots.

        Raises:
            Invalid: it cannot be pickled; says what in it cannot.
        """


class DataStream:
    """Rows of one schema. From `StreamEnvironment.from_stream` and its like.

    Operators without a `uid` get one that depends on their place, and a warning says so.
    """

    def __init__(self, builder: StreamBuilder, inputs: tuple[Input, ...]) -> None:
        self._builder = builder
        self._inputs = inputs

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        return united_schema(self._inputs)

    @property
    def uid(self) -> str:
        """The uid of the operator whose results these are; of several, the first one's."""
        return _Uid(self._inputs[0].node.uid)

    def key_by(self, *columns: str) -> KeyedStream:
        """Rows by key: the value of a column, or those of several together.

        Raises:
            Invalid: there is no such column, or its type cannot be a key.
        """
        if not all(isinstance(column, str) for column in columns):
            raise Invalid(
                "the key is not made of columns",
                where=f"key_by of {self.uid!r}",
                expected="names of columns, one argument each",
                found=", ".join(map(shown, columns)),
                fix='Write key_by("user"), or key_by("user", "shop"); make a column of what has to '
                "be computed first, by select in Spark or by map",
            )
        key_type_of(self.schema, columns, self.uid)
        keyed = tuple(replace(each, key_columns=columns) for each in self._inputs)
        return KeyedStream(self._builder, keyed)

    def process(
        self,
        function: ProcessFunction,
        schema: Any,
        *,
        uid: str | None = None,
        name: str = "process",
    ) -> DataStream:
        """Process each row by a function, which yields rows of `schema`."""
        _check_kind(function, ProcessFunction, "process of a stream that is not keyed")
        return self._with_function(ProcessSpec, function, schema, uid, name)

    def map(
        self, function: Callable[[Any], Any], schema: Any, *, uid: str | None = None
    ) -> DataStream:
        """One row of `schema` for each row."""
        return self._with_function(MapSpec, _callable(function), schema, uid, "map")

    def flat_map(
        self, function: Callable[[Any], Any], schema: Any, *, uid: str | None = None
    ) -> DataStream:
        """Any number of rows of `schema` for each row."""
        return self._with_function(FlatMapSpec, _callable(function), schema, uid, "flat_map")

    def filter(self, function: Callable[[Any], Any], *, uid: str | None = None) -> DataStream:
        """Those rows for which the function answers something true."""
        return self._with_function(FilterSpec, _callable(function), self.schema, uid, "filter")

    def union(self, *others: DataStream) -> DataStream:
        """The rows of this stream and of others of the same schema, in no particular order.

        What may be null in one of them may be null in all.

        Raises:
            Invalid: a stream has another schema, or event time where another has none.
        """
        inputs = self._inputs
        for other in others:
            if not isinstance(other, DataStream):
                raise Invalid("this is no stream", expected="a DataStream", found=repr(other))
            inputs += other._inputs
        united_schema(inputs)
        check_event_time(inputs)
        return DataStream(self._builder, inputs)

    def with_watermark(
        self,
        column: str,
        max_delay: Duration,
        *,
        idle_after: Duration | None = None,
        uid: str | None = None,
    ) -> DataStream:
        """Take event time from a column; rows may come up to `max_delay` late.

        After `idle_after` without rows, operators stop waiting for this stream; None: never.

        Raises:
            Invalid: there is no such column, or it is no time.
        """
        delay_ms = duration_ms(max_delay, name="max_delay")
        idle_ms = None if idle_after is None else duration_ms(idle_after, name="idle_after")
        first = self._inputs[0]
        if first.node.is_source and len(self._inputs) == 1:
            return self._with_source_watermark(SourceWatermark(column, delay_ms, idle_ms), uid)

        def make(node: Node) -> WatermarkSpec:
            return WatermarkSpec(
                uid=node.uid,
                name=node.name,
                input_schema=node.input_schema,
                output_schema=node.schema,
                has_event_time=node.gets_event_time,
                column=column,
                max_delay_ms=delay_ms,
                idle_after_ms=idle_ms,
            )

        node = self._add("watermark", uid, self.schema, make, depth=1)
        node.has_event_time = True
        return DataStream(self._builder, (Input(node),))

    def get_side_output(self, tag: OutputTag) -> DataStream:
        """The rows that the function of this operator yields with a tag.

        Raises:
            Invalid: the stream is not that of one function, or the tag has two schemas.
        """
        first = self._inputs[0]
        if not isinstance(tag, OutputTag):
            raise Invalid("this is no tag", expected="an OutputTag", found=shown(tag))
        is_one = len(self._inputs) == 1 and not first.node.is_source and first.tag is None
        if not (is_one and first.node.spec().has_side_outputs):
            raise Invalid(
                "only a function has side outputs",
                where=repr(self.uid),
                expected="the result of process, process_batch, map or flat_map itself",
                found=f"side output {tag.name!r} of {_kind_of(self._inputs)}",
                fix="Call get_side_output on the operator whose function yields the tag",
            )
        schema = self._builder.arrow_schema(tag.schema, f"side output {tag.name!r}")
        self._builder.graph.replace_side_schemas(first.node, {tag.name: schema})
        return DataStream(self._builder, (Input(first.node, tag.name),))

    def sink_to(self, sink: Sink, *, uid: str | None = None) -> None:
        """Write all rows to a sink.

        Raises:
            Invalid: the sink cannot take such rows, or cannot be pickled.
        """
        if not isinstance(sink, TwoPhaseCommitSink):
            given: object = sink  # whatever the program has passed
            raise Invalid(
                "this is no sink",
                where="sink_to",
                expected="an object of a class below TwoPhaseCommitSink, such as FileSink(path)",
                found=f"the class {given.__qualname__}"
                if isinstance(given, type)
                else shown(given),
            )
        sink.check(self.schema)
        pickled = self._pickled_sink(sink, uid)

        def make(node: Node) -> SinkSpec:
            return SinkSpec(
                uid=node.uid,
                name=node.name,
                input_schema=node.input_schema,
                has_event_time=node.gets_event_time,
                sink=sink,
                pickled=pickled,
            )

        self._add("sink", uid, pa.schema([]), make, depth=1)

    def _pickled_sink(self, sink: Sink, uid: str | None) -> bytes:
        try:
            return self._builder.pickled(sink, f"sink {uid or type(sink).__qualname__!r}")
        except Invalid as error:
            raise error.replaced(
                what="a sink cannot be pickled, so it cannot get into slots",
                expected="a sink whose attributes can be pickled",
                fix="Make such things (locks, connections) in its method open_writer",
            ) from error

    def _with_source_watermark(self, watermark: SourceWatermark, uid: str | None) -> DataStream:
        node = self._inputs[0].node
        if uid is not None:
            raise Invalid(
                "event time of a source has no state, and takes no uid", where=repr(node.uid)
            )
        WatermarkSpec(  # made to be checked: a source's event time has no operator
            uid=node.uid,
            name="watermark",
            input_schema=node.schema,
            output_schema=node.schema,
            column=watermark.column,
            max_delay_ms=watermark.max_delay_ms,
            idle_after_ms=watermark.idle_after_ms,
        )
        if watermark.idle_after_ms is not None and not node.source.may_be_idle:
            raise Invalid(
                f"source {node.uid!r} is of a fixed size, and never idle",
                where="with_watermark",
                expected="no idle_after",
                found=f"idle_after of {watermark.idle_after_ms} ms",
                fix="Leave it out: all of its rows are there, and its end ends the wait for it",
            )
        if node.has_event_time and node.source.watermark != watermark:
            raise Invalid(
                f"source {node.uid!r} has event time already",
                expected=str(node.source.watermark),
                found=str(watermark),
            )
        if self._builder.graph.is_read(node):
            raise Invalid(
                f"source {node.uid!r} is read already",
                fix="Call with_watermark right after from_stream, and use what it answers",
            )
        node.has_event_time = True
        node.source = replace(node.source, watermark=watermark)
        return self

    def _with_function(
        self,
        spec: type[UserFunctionSpec],
        function: Any,
        schema: Any,
        uid: str | None,
        name: str,
        **more: Any,
    ) -> DataStream:
        output = self._builder.arrow_schema(schema, f"operator {uid or name!r}")
        pickled = self._builder.pickled(function, f"operator {uid or name!r}")

        def make(node: Node) -> UserFunctionSpec:
            return spec(
                uid=node.uid,
                name=node.name,
                input_schema=node.input_schema,
                output_schema=output,
                side_schemas=dict(node.side_schemas),
                has_event_time=node.gets_event_time,
                function=pickled,
                **more,
            )

        node = self._add(name, uid, output, make, depth=2)
        return DataStream(self._builder, (Input(node),))

    def _add(
        self,
        name: str,
        uid: str | None,
        schema: pa.Schema,
        make: Callable[[Node], OperatorSpec],
        *,
        depth: int,
    ) -> Node:
        """Add an operator; `depth` says how many calls from here to the user's line."""
        graph = self._builder.graph
        if uid is None:
            uid = graph.generated_uid(name)
            warnings.warn(
                f"an operator has no uid and is called {uid!r}; its state will not be found when "
                "operators before it come or go: pass uid=",
                GeneratedUidWarning,
                stacklevel=depth + 2,
            )
        node = Node(
            uid=uid,
            name=name,
            schema=schema,
            inputs=self._inputs,
            has_event_time=self._inputs[0].node.has_event_time,
            make_spec=make,
        )
        node.spec()  # what does not fit shows here, where it was written
        return graph.add(node)


class KeyedStream(DataStream):
    """Rows by key; from `key_by`."""

    def process(  # type: ignore[override]  # by key, functions are of another kind
        self,
        function: KeyedProcessFunction,
        schema: Any,
        *,
        uid: str | None = None,
        name: str = "process",
    ) -> DataStream:
        """Process each row under its key by a function, which yields rows of `schema`."""
        _check_kind(function, KeyedProcessFunction, "process of a keyed stream")
        keys = self._inputs[0].key_columns
        return self._with_function(KeyedProcessSpec, function, schema, uid, name, key_columns=keys)

    def process_batch(
        self,
        function: KeyedBatchFunction,
        schema: Any,
        *,
        uid: str | None = None,
        name: str = "process_batch",
    ) -> DataStream:
        """Process whole batches by a function, which answers batches of `schema`."""
        _check_kind(function, KeyedBatchFunction, "process_batch")
        keys = self._inputs[0].key_columns
        return self._with_function(KeyedBatchSpec, function, schema, uid, name, key_columns=keys)


class _Uid(str):
    """A uid that explains itself when it is called: operators get their uids when they are made."""

    __slots__ = ()

    def __call__(self, *uid: Any, **_: Any) -> NoReturn:
        raise Invalid(
            "uid is not a method",
            where=f"operator {str(self)!r}",
            fix=f"Pass uid={next(iter(uid), str(self))!r} to the method that makes the operator, "
            "such as process or sink_to",
        )


def _kind_of(inputs: Sequence[Input]) -> str:
    first = inputs[0]
    if len(inputs) > 1:
        return "several streams together"
    if first.tag is not None:
        return f"side output {first.tag!r}"
    return "a source" if first.node.is_source else f"a {first.node.name}"


def _callable(function: Any) -> Any:
    if not callable(function):
        raise Invalid("this cannot be called", expected="a function", found=shown(function))
    return function


def _check_kind(function: Any, kind: type, what: str) -> None:
    if isinstance(function, kind):
        return
    is_class = isinstance(function, type)
    fix = ""
    if is_class and issubclass(function, kind):
        fix = f"Make an object of it: {function.__name__}()"
    elif other := next((base for base in _RIGHT_PLACES if isinstance(function, base)), None):
        fix = f"A {other.__name__} goes to {_RIGHT_PLACES[other]}"
    raise Invalid(
        f"{what} takes another kind of function",
        expected=f"an object of a class below {kind.__name__}",
        found=f"the class {function.__qualname__}" if is_class else shown(function),
        fix=fix,
    )


_RIGHT_PLACES = {
    KeyedProcessFunction: "process of a keyed stream: call key_by first",
    KeyedBatchFunction: "process_batch of a keyed stream: call key_by first",
    ProcessFunction: "process of a stream that is not keyed: leave out key_by",
}
