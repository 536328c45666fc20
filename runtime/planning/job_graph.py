"""The graph of one job in an environment that may write several: it takes no foreign streams."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from holdfast.runtime.planning.graph import Graph, Node
from holdfast.storage import Invalid

__all__ = ["JobGraph", "StartedGraph"]


class JobGraph(Graph):
    """A graph that streams of other jobs cannot come into."""

    def add(self, node: Node) -> Node:
        """Add a node whose inputs are there already.

        Raises:
            Invalid: as `Graph.add`; or an input is of another job.
        """
        for each in node.inputs:
            if each.node not in self.nodes:
                raise Invalid(
                    f"stream {each.node.uid!r} is of another job",
                    where=f"{node.name} {node.uid!r}",
                    expected="streams of one environment, made since it has last started a job",
                    fix="Begin it anew, with from_stream or from_batch of this environment",
                )
        return super().add(node)


class StartedGraph(JobGraph):
    """What stands in the place of a graph from which a job was started: nothing more can be added.

    Whoever uses an old stream learns it here. Else what is added would be of no job.
    """

    def __init__(self, job_id: str) -> None:
        self._job_id = job_id

    @property
    def nodes(self) -> list[Node]:  # type: ignore[override]
        """Refuse to show them: who looks wants to change the job.

        Raises:
            Invalid: always.
        """
        raise self._refusal("with_watermark")

    def add(self, node: Node) -> Node:
        """Refuse it.

        Raises:
            Invalid: always.
        """
        raise self._refusal(node.uid)

    def generated_uid(self, name: str) -> str:
        """Refuse it.

        Raises:
            Invalid: always.
        """
        raise self._refusal(name)

    def replace_side_schemas(self, node: Node, schemas: Mapping[str, pa.Schema]) -> None:
        """Refuse it.

        Raises:
            Invalid: always.
        """
        raise self._refusal(node.uid)

    def _refusal(self, what: str) -> Invalid:
        return Invalid(
            f"the stream is of job {self._job_id!r}, which was started already",
            where=repr(what),
            expected="streams made since then: a job is started with what was written before",
            fix="Begin with from_stream or from_batch again; the environment has an empty graph",
        )
