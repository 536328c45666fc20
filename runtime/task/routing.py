"""Routes results of a chain to channels: of the same slot, and by the network of other slots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import pyarrow as pa

from holdfast.runtime.columns.types import cast_to
from holdfast.runtime.planning.job_plan import EdgeKind, EdgePlan, JobPlan
from holdfast.runtime.planning.partitioning import Partitioner
from holdfast.runtime.protocol.elements import Element, Mark
from holdfast.runtime.task.channel import Channel, Rings

__all__ = ["ChannelOutlet", "MakeOutlet", "Outlet", "Router", "router_of"]


class Outlet(Protocol):
    """One channel of some slot, seen from its upstream end."""

    @property
    def has_room(self) -> bool:
        """Whether the chain may go on to fill it."""
        ...

    def send(self, element: Element) -> None:
        """Append an element, in order; does not wait."""
        ...


MakeOutlet: TypeAlias = Callable[[EdgePlan, int, Rings], Outlet]
"""The upstream end of an edge's channel in another slot, by its number. The bell rings when there
is room again."""

# Both ends of a channel within a slot are the same thread, so a deep queue gains nothing: it would
# only be what a barrier has to wait for, and memory.
_HANDED_OVER_BYTES = 4 * 1024 * 1024


class ChannelOutlet:
    """A channel of this very slot, which is used up to a part of its capacity.

    `bell` rings when there is room again.
    """

    def __init__(self, channel: Channel, bell: Rings) -> None:
        self._channel = channel
        self._bell = bell
        self._is_awaited = False
        """Whether the chain has seen that there is no room."""
        channel.watch(self._taken)

    @property
    def has_room(self) -> bool:
        channel = self._channel
        has_room = channel.has_room and channel.size_bytes < _HANDED_OVER_BYTES
        # Not only what is sent takes room: restored rows do, too.
        self._is_awaited = not has_room
        return has_room

    def send(self, element: Element) -> None:
        self._channel.offer(element)

    def _taken(self) -> None:
        # The reader is in the same thread. Each ring has the loop look at the chain again.
        if self._is_awaited and self.has_room:
            self._bell.ring()


class Router:
    """One edge, seen from a slot of its upstream chain.

    With a `partitioner`, `outlets` are by slot and each row goes to the slot that has its key; else
    there is one outlet, for all rows. Rows are put under `schema` first, if that is given: where
    streams meet, more may be null.
    """

    def __init__(
        self,
        outlets: Sequence[Outlet],
        partitioner: Partitioner | None = None,
        schema: pa.Schema | None = None,
    ) -> None:
        self._outlets = outlets
        self._partitioner = partitioner
        self._schema = schema

    @property
    def has_room(self) -> bool:
        """Whether all its channels have room."""
        return all(outlet.has_room for outlet in self._outlets)

    def rows(self, batch: pa.RecordBatch) -> None:
        if self._schema is not None:
            batch = cast_to(batch.columns, self._schema)
        parts = [batch] if self._partitioner is None else self._partitioner.split(batch)
        for outlet, part in zip(self._outlets, parts, strict=True):
            if part is not None:
                outlet.send(part)

    def mark(self, mark: Mark) -> None:
        for outlet in self._outlets:
            outlet.send(mark)


def router_of(
    edge: EdgePlan,
    slot: int,
    plan: JobPlan,
    channels: Sequence[Channel],
    outlet: MakeOutlet,
    bell: Rings,
) -> Router:
    """The way from this slot to an edge: by its own `channels`, and by `outlet` to other slots.

    `bell` rings when there may be room again.
    """
    schema = edge.schema if edge.is_cast else None
    if edge.kind is EdgeKind.FORWARD:
        return Router([ChannelOutlet(channels[0], bell)], schema=schema)
    local = ChannelOutlet(channels[slot], bell)
    outlets = [local if to == slot else outlet(edge, to, bell) for to in range(plan.parallelism)]
    return Router(outlets, edge.partitioner(plan.parallelism, plan.max_parallelism), schema)
