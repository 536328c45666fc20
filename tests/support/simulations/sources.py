"""Sources that are simulated: lists of batches that can be read again from anywhere."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from holdfast.runtime.driver.run_parts import SourceOpening
from holdfast.runtime.driver.source_feed import Feed, Source
from holdfast.runtime.protocol.elements import MIN_WATERMARK
from holdfast.runtime.protocol.messages import PushKey, Winner
from holdfast.storage import (
    Fenced,
    HoldfastError,
    SavepointFolder,
    StateSnapshot,
    Unavailable,
)
from support.simulations.cluster import SimulatedSlot
from support.simulations.jobs import Batch, Order
from support.simulations.world import Action, World

__all__ = ["SimulatedSource", "SimulatedSourcePlan"]

_BACKLOG_BYTES = 2_000
_KIND = "test.simulated-source/1"


class SimulatedSource(Source):
    """A list of batches that can be read again from anywhere."""

    def __init__(
        self, world: World, batches: list[Batch], opening: SourceOpening, weight: float
    ) -> None:
        self._weight = weight
        self.uid = opening.uid
        self._world = world
        self._process = world.process
        self._batches = batches
        self._opening = opening
        restored = opening.restored
        assert restored is None or restored.kind == _KIND
        self._position: dict[str, Any] = {"done": 0, "has_ended": False}
        if restored is not None:
            self._position = dict(restored.attributes)
        self._feed: Feed | None = None
        self._failure: str | None = None
        self._is_stopped = False
        self._is_idle = False

    def start(self, feed: Feed) -> None:
        self._feed = feed
        self._world.actors.append(self)

    def actions(self) -> Iterable[Action]:
        if self._failure is not None:
            # Late, as if its thread was stopped just before: what can go wrong until then?
            yield Action("source says why it failed", self._process, self._fail, 0.05)
        elif not self._is_stopped and self._has_room() and not self._is_held:
            yield Action(f"push of {self.uid}", self._process, self._go_on, self._weight)

    def position(self) -> dict[str, Any]:
        return dict(self._position)

    def store(
        self,
        position: Any,
        checkpoint_id: int,
        *,
        completed: int | None,
        savepoint: SavepointFolder | None = None,
    ) -> StateSnapshot:
        if self._world.mishap("position is not stored", rate=0.02):
            raise Unavailable("the position cannot be stored")
        return StateSnapshot(kind=_KIND, attributes=position)

    def stop(self) -> None:
        self._is_stopped = True
        self._failure = None
        if self in self._world.actors:
            self._world.actors.remove(self)

    @property
    def _is_held(self) -> bool:
        """Whether it would have to wait, which is impossible in this world."""
        return self._feed is not None and self._feed.is_held

    def _slots(self) -> list[SimulatedSlot]:
        assert self._feed is not None
        addresses = self._feed.addresses
        return [SimulatedSlot.at(addresses[slot]) for slot in sorted(addresses)]

    def _has_room(self) -> bool:
        return all(
            slot.staging.backlog_bytes(self.uid) < _BACKLOG_BYTES
            for slot in self._slots()
            if slot.process.is_alive
        )

    def _fail(self) -> None:
        assert self._feed is not None
        self._feed.fail(self._failure or "", "")
        self._failure, self._is_stopped = None, True

    def _go_on(self) -> None:
        feed = self._feed
        assert feed is not None
        try:
            if self._world.mishap("source fails", rate=0.001):
                raise Unavailable("the source does not answer")
            done = self._position["done"]
            at_end = self._position["has_ended"] or done == len(self._batches)
            if at_end and not self._is_idle and self._world.random.random() < 0.3:
                self._is_idle = True
                feed.idle()
            elif at_end:
                self._position = {"done": done, "has_ended": True}
                self._is_stopped = True
                feed.end()
            else:
                self._push(feed, done)
        except Fenced:
            self._is_stopped = True
        except HoldfastError as error:
            self._failure = str(error)

    def _push(self, feed: Feed, number: int) -> None:
        """Splits are pushed by one or two attempts, of which any may win; then they are let in."""
        batch = self._batches[number]
        winners = []
        for split, rows in enumerate(batch):
            attempts = self._world.random.choice((1, 1, 2))
            for attempt in range(attempts):
                self._stage(rows, number, split, attempt)
            winners.append(Winner(split, self._world.random.randrange(attempts)))
        latest = max((order.at for rows in batch for order in rows), default=MIN_WATERMARK + 1)

        def admitted() -> None:
            self._position = {"done": number + 1, "has_ended": False}

        feed.admit(
            number,
            winners,
            rows=sum(map(len, batch)),
            watermark=latest - 1 if latest > 0 else None,
            admitted=admitted,
        )

    def _stage(self, rows: list[Order], number: int, split: int, attempt: int) -> None:
        plan = self._opening.plan
        for edge in self._opening.edges:
            columns = [pa.array(each, kind) for each, kind in zip(
                zip(*rows, strict=True) if rows else ((), (), ()), edge.schema.types, strict=True
            )]  # fmt: skip
            batch = pa.RecordBatch.from_arrays(columns, schema=edge.schema)
            parts = edge.partitioner(plan.parallelism, plan.max_parallelism).split(batch)
            for slot, part in zip(self._slots(), parts, strict=True):
                if not slot.process.is_alive:
                    raise Unavailable("a slot does not take rows")
                push = slot.staging.open(PushKey(self.uid, edge.edge_id, number, split, attempt))
                if part is not None and part.num_rows:
                    slot.staging.add(push, part)
                slot.staging.complete(push)


@dataclass(frozen=True)
class SimulatedSourcePlan:
    """A source as the job was planned."""

    batches: list[Batch]
    weight: float = 0.5
    """How eager it is to push."""

    def open(self, opening: SourceOpening) -> Source:
        return SimulatedSource(World.current(), self.batches, opening, self.weight)
