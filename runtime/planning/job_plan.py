"""The job as slots run it: chains of operators, and the edges between them.

An operator that reads one unkeyed input is put into the chain of the operator before it, and
called directly. Wherever rows may change their slot, or several inputs meet, a chain begins.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import pyarrow as pa

from holdfast.backends.keys.groups import check_parallelism
from holdfast.backends.values.normalizing import shown
from holdfast.runtime.planning.graph import Graph, Input, Node, check_event_time
from holdfast.runtime.planning.partitioning import Partitioner
from holdfast.runtime.protocol.elements import EVENT_TIME
from holdfast.runtime.protocol.operator import OperatorSpec
from holdfast.storage import Invalid

__all__ = ["ChainPlan", "EdgeKind", "EdgePlan", "JobPlan", "Link", "plan_job", "with_event_time"]

_LONGEST_NAME = 1 << 16
"""In characters: names are in messages and logs. Folders shorten names that are too long."""


class EdgeKind(Enum):
    """How rows get from one chain to another."""

    SOURCE = "source"
    """From a source outside: pushed by tasks of Spark."""
    HASH = "hash"
    """To the slot that has the key: a channel from each slot."""
    FORWARD = "forward"
    """Within the slot: one channel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgePlan:
    """One edge. `origin` is a source's uid or the id of a chain."""

    edge_id: str
    kind: EdgeKind
    origin: str
    target: str
    schema: pa.Schema
    """With the column of event time, if there is one."""
    is_cast: bool = False
    """Whether rows of the origin are under another schema, and must be put under this one."""
    key_columns: tuple[str, ...] = ()
    input_index: int = 0
    """Which input of the first operator of its target it is."""

    def partitioner(self, parallelism: int, max_parallelism: int) -> Partitioner:
        return Partitioner(self.key_columns, self.schema, parallelism, max_parallelism)

    def channels(self, parallelism: int) -> int:
        """How many channels the edge has in each slot."""
        return parallelism if self.kind is EdgeKind.HASH else 1


@dataclass(frozen=True, slots=True)
class Link:
    """From an operator in a chain, by its results or a side output, to where they go.

    `target` is the place of an operator in the same chain, which has one input, or the id of an
    edge.
    """

    operator: int
    tag: str | None
    target: int | str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainPlan:
    """Operators that one thread calls one after the other; the first one reads the gate."""

    chain_id: str
    operators: tuple[OperatorSpec, ...]
    inputs: tuple[str, ...]
    links: tuple[Link, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """Everything that a slot must know of the job. Chains are in the order of the flow."""

    job_id: str
    parallelism: int
    max_parallelism: int
    chains: tuple[ChainPlan, ...]
    edges: tuple[EdgePlan, ...]

    def edge(self, edge_id: str) -> EdgePlan:
        return next(edge for edge in self.edges if edge.edge_id == edge_id)

    def source_edges(self, uid: str) -> tuple[EdgePlan, ...]:
        return tuple(
            edge for edge in self.edges if edge.kind is EdgeKind.SOURCE and edge.origin == uid
        )

    @property
    def operator_uids(self) -> tuple[str, ...]:
        return tuple(spec.uid for chain in self.chains for spec in chain.operators)


def plan_job(graph: Graph, *, job_id: str, parallelism: int, max_parallelism: int) -> JobPlan:
    """Cut the graph into chains.

    Raises:
        Invalid: the job has no name; there is no source, or rows of a source go nowhere; streams
            are united that do not fit any more; or the parallelism is not legal.
    """
    _check_name(job_id)
    check_parallelism(parallelism, max_parallelism)
    _check(graph)
    planner = _Planner(graph)
    for node in graph.nodes:
        if not node.is_source:
            planner.place(node)
    return JobPlan(
        job_id=job_id,
        parallelism=parallelism,
        max_parallelism=max_parallelism,
        chains=tuple(chain.plan() for chain in planner.chains),
        edges=tuple(planner.edges),
    )


def _check_name(name: object) -> None:
    """Any text that is not blank is a name: users have to type it to name the job."""
    if not isinstance(name, str) or not name.strip():
        raise Invalid(
            "the job has no name",
            expected='text that is not blank, such as "orders"',
            found=shown(name),
            fix="Give it one: its checkpoints and the command line find it by that",
        )
    if len(name) > _LONGEST_NAME:
        raise Invalid(
            "the name of the job is too long",
            expected=f"at most {_LONGEST_NAME} characters",
            found=f"{len(name)}, beginning with {name[:20]!r}",
        )


def _check(graph: Graph) -> None:
    read = {id(each.node) for node in graph.nodes for each in node.inputs}
    if not any(node.is_source for node in graph.nodes):
        raise Invalid("the job has no source", fix="Begin with from_stream or from_batch")
    for node in graph.nodes:
        if node.is_source and id(node) not in read:
            raise Invalid(
                f"nothing reads the source {node.uid!r}", fix="Process it, or remove the source"
            )
        check_event_time(node.inputs)  # a source may have got it after it was united


class _Chain:
    def __init__(self, head: Node) -> None:
        self.chain_id = head.uid
        self.nodes = [head]
        self.inputs: list[str] = []
        self.links: list[Link] = []

    def plan(self) -> ChainPlan:
        return ChainPlan(
            chain_id=self.chain_id,
            operators=tuple(node.spec() for node in self.nodes),
            inputs=tuple(self.inputs),
            links=tuple(self.links),
        )


class _Planner:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.chains: list[_Chain] = []
        self.edges: list[EdgePlan] = []
        self._chain_of: dict[int, _Chain] = {}

    def place(self, node: Node) -> None:
        """Put a node into the chain of its input, or begin one with it."""
        first, *others = node.inputs
        if others or first.key_columns or first.node.is_source:
            chain = _Chain(node)
            self.chains.append(chain)
            for number, each in enumerate(node.inputs):
                self._connect(each, number, chain)
        else:
            chain = self._chain_of[id(first.node)]
            chain.nodes.append(node)
            place = chain.nodes.index(first.node)
            chain.links.append(Link(place, first.tag, len(chain.nodes) - 1))
        self._chain_of[id(node)] = chain

    def _connect(self, each: Input, number: int, chain: _Chain) -> None:
        edge_id = f"{chain.chain_id}/{number}"
        origin = each.node
        if origin.is_source:
            kind, origin_id = EdgeKind.SOURCE, origin.uid
        else:
            kind = EdgeKind.HASH if each.key_columns else EdgeKind.FORWARD
            upstream = self._chain_of[id(origin)]
            origin_id = upstream.chain_id
            upstream.links.append(Link(upstream.nodes.index(origin), each.tag, edge_id))
        schema = chain.nodes[0].input_schema
        chain.inputs.append(edge_id)
        self.edges.append(
            EdgePlan(
                edge_id=edge_id,
                kind=kind,
                origin=origin_id,
                target=chain.chain_id,
                schema=with_event_time(schema) if origin.has_event_time else schema,
                is_cast=not schema.equals(each.schema),
                key_columns=each.key_columns,
                input_index=each.index,
            )
        )


def with_event_time(schema: pa.Schema) -> pa.Schema:
    """The schema of batches in a stream with event time."""
    return schema.append(pa.field(EVENT_TIME, pa.int64()))
