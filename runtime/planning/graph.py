"""The job graph as its user wrote it: sources, operators, sinks, and the streams between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from holdfast.runtime.columns.types import listed, united
from holdfast.runtime.protocol.operator import OperatorSpec
from holdfast.storage import Invalid

__all__ = [
    "Graph",
    "Input",
    "Node",
    "check_event_time",
    "united_schema",
]


@dataclass(frozen=True, slots=True)
class Input:
    """Where a node's rows come from: the results of a node, or one of its side outputs.

    With `key_columns` rows go to the slot that has their key; without, they stay in their slot.
    """

    node: Node
    tag: str | None = None
    key_columns: tuple[str, ...] = ()
    index: int = 0
    """Which of the node's inputs it is; streams that are united are one."""

    @property
    def schema(self) -> pa.Schema:
        return self.node.schema if self.tag is None else self.node.side_schemas[self.tag]


@dataclass(eq=False, slots=True, kw_only=True)
class Node:
    """A source, if it has no inputs; else an operator or a sink.

    `source` is what the environment reads a source from; nothing here looks into it.
    """

    uid: str
    name: str
    schema: pa.Schema
    inputs: tuple[Input, ...] = ()
    side_schemas: dict[str, pa.Schema] = field(default_factory=dict)
    has_event_time: bool = False
    make_spec: Callable[[Node], OperatorSpec] | None = None
    source: Any = None

    @property
    def is_source(self) -> bool:
        """Whether rows come from outside of the job."""
        return not self.inputs

    @property
    def input_schema(self) -> pa.Schema:
        """The columns of the rows that come in: those of all inputs, null where one may be."""
        return united_schema(self.inputs)

    @property
    def gets_event_time(self) -> bool:
        return self.inputs[0].node.has_event_time

    def spec(self) -> OperatorSpec:
        """The operator as slots build it."""
        if self.make_spec is None:
            raise AssertionError(f"{self.uid} is a source")
        return self.make_spec(self)


class Graph:
    """All nodes of one job, in an order in which inputs come first.

    Once a job was started from it nothing can be added: what an old stream adds would belong to no
    job. Then all methods raise `Invalid`.
    """

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._generated: Counter[str] = Counter()
        self._started_as: str | None = None

    def add(self, node: Node) -> Node:
        """Add a node whose inputs are there already.

        Raises:
            Invalid: another node has its uid; or the uid is no text that can be one; or an input is
                of another job; or not all inputs have event time, or none.
        """
        self._check_open(node.uid)
        for each in node.inputs:
            if each.node not in self.nodes:
                raise Invalid(
                    f"stream {each.node.uid!r} is of another job",
                    where=f"{node.name} {node.uid!r}",
                    expected="streams of one environment, made since it has last started a job",
                    fix="Begin it anew, with from_stream or from_batch of this environment",
                )
        uid: Any = node.uid
        if not isinstance(uid, str) or not uid.strip() or uid.startswith("_"):
            raise Invalid(
                "a uid is not legal",
                where=f"{node.name}",
                expected="text that does not begin with an underscore",
                found=repr(uid),
            )
        check_event_time(node.inputs)
        for other in self.nodes:
            if other.uid == uid:
                raise Invalid(
                    f"two operators have the uid {uid!r}",
                    expected="a uid of its own for each: state is found by it",
                    found=f"{other.name} and {node.name}",
                    fix="Give one of them another uid",
                )
        self.nodes.append(node)
        return node

    def generated_uid(self, name: str) -> str:
        """A uid for an operator without one: the same in every run of the same program.

        It changes when an operator of the same name is added before it.
        """
        self._check_open(name)
        self._generated[name] += 1
        return f"{name}-{self._generated[name]}"

    def replace_side_schemas(self, node: Node, schemas: Mapping[str, pa.Schema]) -> None:
        """Register that a side output of a node is read.

        Raises:
            Invalid: one of that name is read with another schema.
        """
        self._check_open(node.uid)
        for tag, schema in schemas.items():
            there = node.side_schemas.setdefault(tag, schema)
            if there != schema:
                raise Invalid(
                    f"side output {tag!r} of {node.uid!r} is read with two schemas",
                    expected=str(there),
                    found=str(schema),
                )

    def is_read(self, node: Node) -> bool:
        """Whether another node has it as an input, so that what it emits must not change."""
        self._check_open(node.uid)
        return any(each.node is node for other in self.nodes for each in other.inputs)

    def start(self, job_id: str) -> None:
        """A job was started from it, under this name."""
        self._started_as = job_id

    def _check_open(self, what: str) -> None:
        if self._started_as is not None:
            raise Invalid(
                f"the stream is of job {self._started_as!r}, which was started already",
                where=repr(what),
                expected="streams made since then: a job is started with what was written before",
                fix="Begin with from_stream or from_batch again; the environment has an empty "
                "graph",
            )


def united_schema(inputs: Sequence[Input]) -> pa.Schema:
    """The columns of the rows of all inputs together.

    Raises:
        Invalid: they have other names or types; what may be null may differ.
    """
    schema = united(each.schema for each in inputs)
    if schema is not None:
        return schema
    first, other = next(
        (inputs[0], each) for each in inputs if united([inputs[0].schema, each.schema]) is None
    )
    raise Invalid(
        "streams of different schemas cannot be united",
        where=f"{first.node.uid!r} and {other.node.uid!r}",
        expected=listed(first.schema),
        found=listed(other.schema),
        fix="Give both the same columns in the same order, by select in Spark or by map",
    )


def check_event_time(inputs: Sequence[Input]) -> None:
    """Make sure that rows of all inputs have event time, or none.

    Raises:
        Invalid: one has it and another has not.
    """
    for each in inputs:
        if each.node.has_event_time != inputs[0].node.has_event_time:
            raise Invalid(
                "a stream with event time cannot be united with one without",
                where=f"{inputs[0].node.uid!r} and {each.node.uid!r}",
                fix="Call with_watermark on all of them, before union, or on none",
            )
