"""How a job is cut into chains, and what streams refuse."""

from __future__ import annotations

import warnings
from typing import Any

import pyarrow as pa
import pytest

from holdfast.runtime.api.functions import OutputTag, ProcessFunction
from holdfast.runtime.operators.sink_operator import SinkSpec
from holdfast.runtime.planning.graph import Graph, Node
from holdfast.runtime.planning.job_plan import EdgeKind, JobPlan, Link, plan_job
from holdfast.runtime.protocol.elements import EVENT_TIME
from holdfast.runtime.sinks import CollectSink
from holdfast.runtime.stream import DataStream, GeneratedUidWarning
from holdfast.storage import Invalid
from support.simulations.jobs import ORDERS, TOTALS, Builder, Shelf, Spend, job_plan
from support.simulations.world import World

SIDE = OutputTag("side", ORDERS)


class Nothing(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> None:
        return None


def same(row: Any) -> Any:
    return row


def planned(builder: Builder, parallelism: int = 3) -> JobPlan:
    return plan_job(builder.graph, job_id="job", parallelism=parallelism, max_parallelism=16)


def chains(plan: JobPlan) -> dict[str, tuple[str, ...]]:
    return {chain.chain_id: tuple(spec.uid for spec in chain.operators) for chain in plan.chains}


def edges(plan: JobPlan) -> list[tuple[str, str, str, tuple[str, ...]]]:
    return [
        (edge.kind.value, edge.origin, edge.target, edge.key_columns) for edge in plan.edges
    ]  # fmt: skip


def collect(stream: DataStream, uid: str) -> None:
    stream.sink_to(CollectSink(), uid=uid)


def test_operators_in_a_row_are_one_chain() -> None:
    builder = Builder()
    stream = builder.source("s", ORDERS)
    collect(stream.map(same, ORDERS, uid="m").filter(bool, uid="f"), "out")
    plan = planned(builder)
    assert chains(plan) == {"m": ("m", "f", "out")}
    assert plan.chains[0].links == (Link(0, None, 1), Link(1, None, 2))
    assert edges(plan) == [("source", "s", "m", ())]
    assert plan.edges[0].channels(3) == 1


def test_a_chain_may_be_a_tree() -> None:
    builder = Builder()
    first = builder.source("s", ORDERS).process(Nothing(), ORDERS, uid="p")
    collect(first.get_side_output(SIDE), "side")
    collect(first.map(same, ORDERS, uid="m"), "out")
    collect(first, "all")
    (chain,) = planned(builder).chains
    assert [spec.uid for spec in chain.operators] == ["p", "side", "m", "out", "all"]
    assert chain.links == (
        Link(0, "side", 1),
        Link(0, None, 2),
        Link(2, None, 3),
        Link(0, None, 4),
    )
    assert {*chain.operators[0].side_schemas} == {"side"}


def test_a_key_begins_a_chain_with_a_channel_from_each_slot() -> None:
    builder = Builder()
    stream = builder.source("s", ORDERS).map(same, ORDERS, uid="m").key_by("user")
    collect(stream.process(Spend(), TOTALS, uid="spend"), "out")
    plan = planned(builder)
    assert chains(plan) == {"m": ("m",), "spend": ("spend", "out")}
    assert edges(plan) == [("source", "s", "m", ()), ("hash", "m", "spend", ("user",))]
    assert [edge.channels(3) for edge in plan.edges] == [1, 3]
    assert plan.chains[0].links == (Link(0, None, "spend/0"),)


def test_where_streams_meet_a_chain_begins() -> None:
    builder = Builder()
    source = builder.source("s", ORDERS)
    mapped = source.map(same, ORDERS, uid="m")
    keyed = mapped.key_by("user").process(Spend(), ORDERS, uid="k")
    collect(mapped.union(keyed, source, keyed.get_side_output(SIDE)), "out")
    plan = planned(builder)
    assert chains(plan) == {"m": ("m",), "k": ("k",), "out": ("out",)}
    assert plan.chains[2].inputs == ("out/0", "out/1", "out/2", "out/3")
    assert edges(plan)[2:] == [
        ("forward", "m", "out", ()),
        ("forward", "k", "out", ()),
        ("source", "s", "out", ()),
        ("forward", "k", "out", ()),
    ]
    assert plan.chains[1].links == (Link(0, None, "out/1"), Link(0, "side", "out/3"))


def test_a_stream_may_be_united_with_itself() -> None:
    builder = Builder()
    mapped = builder.source("s", ORDERS).map(same, ORDERS, uid="m")
    collect(mapped.union(mapped), "out")
    plan = planned(builder)
    assert plan.chains[0].links == (Link(0, None, "out/0"), Link(0, None, "out/1"))


def test_a_source_may_have_several_edges_each_with_a_key_of_its_own() -> None:
    builder = Builder()
    source = builder.source("s", ORDERS)
    for uid, key in (("a", "user"), ("b", "amount")):
        collect(source.key_by(key).process(Spend(), TOTALS, uid=uid), f"out {uid}")
    collect(source, "raw")
    plan = planned(builder)
    assert [(edge.edge_id, edge.key_columns) for edge in plan.source_edges("s")] == [
        ("a/0", ("user",)),
        ("b/0", ("amount",)),
        ("raw/0", ()),
    ]
    assert plan.source_edges("other") == ()
    assert plan.edge("b/0").target == "b"


def test_united_streams_keep_their_key() -> None:
    plan = job_plan(Shelf(World(0), lambda _uid, _part: None), 2)
    spend = [edge for edge in plan.edges if edge.target == "spend"]
    assert [(edge.kind, edge.key_columns) for edge in spend] == [(EdgeKind.SOURCE, ("user",))] * 2
    assert plan.operator_uids == ("spend", "large", "towns", "twice", "out", "all")


def test_event_time_is_a_hidden_last_column_of_the_edge() -> None:
    builder = Builder()
    mapped = builder.source("s", ORDERS).map(same, ORDERS, uid="m")
    timed = mapped.with_watermark("amount", "1s", uid="w")
    collect(timed.key_by("user").process(Spend(), TOTALS, uid="k"), "out")
    plan = planned(builder)
    assert plan.edge("m/0").schema.names == ORDERS.names
    assert plan.edge("k/0").schema.names == [*ORDERS.names, EVENT_TIME]
    assert [spec.has_event_time for chain in plan.chains for spec in chain.operators] == [
        False,
        False,
        True,
        True,
    ]


def test_each_chain_comes_after_those_that_feed_it() -> None:
    plan = job_plan(Shelf(World(0), lambda _uid, _part: None), 2)
    order = [chain.chain_id for chain in plan.chains]
    for edge in plan.edges:
        if edge.kind is not EdgeKind.SOURCE:
            assert order.index(edge.origin) < order.index(edge.target)


@pytest.mark.parametrize("name", ["", " \n", None, 5])
def test_a_job_needs_a_name(name: Any) -> None:
    with pytest.raises(Invalid, match="the job has no name: expected text that is not blank"):
        plan_job(Graph(), job_id=name, parallelism=1, max_parallelism=1)


def test_a_name_has_a_length_that_messages_can_bear() -> None:
    with pytest.raises(Invalid, match="too long: expected at most 65536 characters, found 65537"):
        plan_job(Graph(), job_id="x" * 65_537, parallelism=1, max_parallelism=1)


def test_a_job_needs_a_source_that_is_read() -> None:
    with pytest.raises(Invalid, match="the job has no source"):
        plan_job(Graph(), job_id="job", parallelism=1, max_parallelism=1)
    builder = Builder()
    builder.source("s", ORDERS)
    with pytest.raises(Invalid, match="nothing reads the source 's'"):
        planned(builder)


def test_two_operators_cannot_have_one_uid() -> None:
    stream = Builder().source("s", ORDERS)
    stream.map(same, ORDERS, uid="m")
    with pytest.raises(Invalid, match="two operators have the uid 'm'"):
        stream.filter(bool, uid="m")


@pytest.mark.parametrize("uid", ["", "  ", "_mine"])
def test_some_uids_are_not_legal(uid: str) -> None:
    with pytest.raises(Invalid, match="a uid is not legal"):
        Graph().add(Node(uid=uid, name="x", schema=ORDERS))


def test_generated_uids_are_the_same_in_each_run_and_warned_about() -> None:
    found = []
    for _ in range(2):
        stream = Builder().source("s", ORDERS)
        with pytest.warns(GeneratedUidWarning, match="is called 'map-1'"):
            first = stream.map(same, ORDERS)
        with pytest.warns(GeneratedUidWarning, match="is called 'map-2'") as caught:
            second = first.map(same, ORDERS)
        assert caught[0].filename == __file__, "it points at the user's line"
        found.append((first.uid, second.uid))
        with pytest.warns(GeneratedUidWarning, match="sink-1") as caught:
            second.sink_to(CollectSink())
        assert caught[0].filename == __file__
        with pytest.warns(GeneratedUidWarning, match="watermark-1") as caught:
            second.with_watermark("amount", "1s")
        assert caught[0].filename == __file__
    assert found[0] == found[1]


def test_a_uid_of_ones_own_is_no_reason_to_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Builder().source("s", ORDERS).map(same, ORDERS, uid="m")


def test_streams_refuse_what_cannot_work() -> None:
    builder = Builder()
    stream, other = builder.source("s", ORDERS), builder.source("t", TOTALS)
    timed = builder.source("u", ORDERS, has_event_time=True)
    spend: Any = Spend()
    unkeyed: Any = Nothing()
    a_class: Any = Nothing
    for call, match in (
        (lambda: stream.key_by("town"), "town"),
        (lambda: stream.union(other), "different schemas cannot be united"),
        (lambda: stream.union(timed), "event time cannot be united with one without"),
        (lambda: stream.process(spend, TOTALS, uid="a"), "takes another kind of function"),
        (lambda: stream.process(a_class, TOTALS, uid="a"), "takes another kind of function"),
        (lambda: stream.key_by("user").process(unkeyed, TOTALS, uid="a"), "another kind"),
        (lambda: stream.map(5, ORDERS, uid="a"), "this cannot be called"),  # type: ignore[arg-type]
        (lambda: stream.get_side_output(SIDE), "only a function has side outputs"),
        (lambda: stream.sink_to("out", uid="a"), "this is no sink"),  # type: ignore[arg-type]
        (lambda: stream.union("t"), "this is no stream"),  # type: ignore[arg-type]
        (lambda: stream.key_by(["user"]), r"found .*list.*Write key_by"),  # type: ignore[arg-type]
        (lambda: stream.key_by(lambda row: row.user), "names of columns"),  # type: ignore[arg-type]
        (lambda: stream.map(same, ORDERS, uid=5), "a uid is not legal"),  # type: ignore[arg-type]
        (lambda: stream.uid("x"), r"uid is not a method.*Pass uid='x'"),  # type: ignore[operator]
        (
            lambda: stream.process(a_class, TOTALS, uid="a"),
            r"found the class Nothing\. Make an object of it: Nothing\(\)",
        ),
        (lambda: stream.get_side_output("side"), "this is no tag"),  # type: ignore[arg-type]
        (lambda: other.with_watermark("town", "1s"), "event time"),
        (lambda: other.with_watermark("at", "1s", uid="w"), "takes no uid"),
    ):
        with pytest.raises(Invalid, match=match):
            call()
    assert stream.uid == "s"
    assert [node.uid for node in builder.graph.nodes] == ["s", "t", "u"], "nothing was added"


def test_a_side_output_has_one_schema() -> None:
    stream = Builder().source("s", ORDERS).process(Nothing(), ORDERS, uid="p")
    stream.get_side_output(SIDE)
    stream.get_side_output(SIDE)
    with pytest.raises(Invalid, match="side output 'side' of 'p' is read with two schemas"):
        stream.get_side_output(OutputTag("side", TOTALS))
    with pytest.raises(Invalid, match="only a function has side outputs"):
        stream.get_side_output(SIDE).get_side_output(SIDE)


def test_operators_that_yield_no_tags_have_no_side_outputs() -> None:
    stream = Builder().source("s", ORDERS)
    kept = stream.filter(bool, uid="f")
    with pytest.raises(Invalid, match=r"only a function has side outputs.*'side' of a filter"):
        kept.get_side_output(SIDE)
    timed = kept.with_watermark("amount", 0, uid="w")
    with pytest.raises(Invalid, match="'side' of a watermark"):
        timed.get_side_output(SIDE)
    both = kept.map(same, ORDERS, uid="m").union(kept)
    with pytest.raises(Invalid, match="'side' of several streams together"):
        both.get_side_output(SIDE)
    kept.flat_map(same, ORDERS, uid="fm").get_side_output(SIDE)


STRICT = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("all", pa.list_(
    pa.field("element", pa.int64(), nullable=False)))])  # fmt: skip
LOOSE = pa.schema([("id", pa.int64()), ("all", pa.list_(pa.field("element", pa.int64())))])


@pytest.mark.parametrize("order", [(STRICT, LOOSE), (LOOSE, STRICT)])
def test_streams_that_differ_in_what_may_be_null_are_united(order: tuple[pa.Schema, ...]) -> None:
    builder = Builder()
    first, second = (builder.source(f"s{n}", schema) for n, schema in enumerate(order))
    mapped = second.map(same, order[1], uid="m")
    both = first.union(second, mapped)
    assert both.schema == LOOSE
    collect(both.filter(bool, uid="f"), "out")
    plan = planned(builder)
    (filtered,) = (spec for chain in plan.chains for spec in chain.operators if spec.uid == "f")
    assert (filtered.input_schema, filtered.output_schema) == (LOOSE, LOOSE)
    into = [edge for edge in plan.edges if edge.target == "f"]
    assert [edge.schema for edge in into] == [LOOSE] * 3
    assert [edge.is_cast for edge in into] == [schema == STRICT for schema in (*order, order[1])]
    assert plan.edge("m/0").schema == order[1]


def test_event_time_that_comes_after_a_union_is_refused() -> None:
    builder = Builder()
    one, other = builder.source("a", ORDERS), builder.source("b", ORDERS)
    both = one.union(other)
    one.with_watermark("amount", 0)
    with pytest.raises(Invalid, match="with event time cannot be united with one without"):
        both.map(same, ORDERS, uid="m")
    other.with_watermark("amount", 0)
    collect(both.map(same, ORDERS, uid="m"), "out")
    assert all(edge.schema.names[-1] == EVENT_TIME for edge in planned(builder).edges)
    builder.graph.nodes[0].has_event_time = False
    with pytest.raises(Invalid, match="with event time cannot be united with one without"):
        planned(builder)


def test_a_source_of_a_fixed_size_is_never_idle() -> None:
    stream = Builder().source("s", ORDERS, is_streaming=False)
    with pytest.raises(Invalid, match="'s' is of a fixed size, and never idle"):
        stream.with_watermark("amount", 0, idle_after="1s")
    stream.with_watermark("amount", 0)
    Builder().source("s", ORDERS).with_watermark("amount", 0, idle_after="1s")


@pytest.mark.parametrize(
    ("parallelism", "max_parallelism"), [(0, 16), (17, 16), (1, 0), (1, 10**6), (True, 16)]
)
def test_a_parallelism_that_is_not_legal(parallelism: int, max_parallelism: int) -> None:
    builder = Builder()
    collect(builder.source("s", ORDERS), "out")
    with pytest.raises(Invalid, match="parallelism is"):
        plan_job(
            builder.graph, job_id="job", parallelism=parallelism, max_parallelism=max_parallelism
        )


def test_a_sink_that_cannot_be_pickled_is_refused_where_it_is_written() -> None:
    class Strict(Builder):
        def pickled(self, function: Any, where: str) -> bytes:
            raise Invalid("a function cannot be pickled", where=where, found="a lock")

    with pytest.raises(Invalid, match=r"^a sink cannot be pickled.*sink 'out'.*found a lock"):
        collect(Strict().source("s", ORDERS), "out")


def test_a_sink_is_told_the_schema_that_it_gets() -> None:
    builder = Builder()
    stream = builder.source("s", ORDERS).process(Nothing(), TOTALS, uid="p")
    collect(stream.get_side_output(SIDE), "side")
    (chain,) = planned(builder).chains
    assert isinstance(chain.operators[1], SinkSpec)
    assert chain.operators[1].input_schema == ORDERS
    with pytest.raises(Invalid):
        CollectSink().check(pa.schema([]))
