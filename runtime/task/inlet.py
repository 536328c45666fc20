"""What was admitted into a channel of a source and waits for room, in order: in memory, on disk."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa

from holdfast.runtime.protocol.elements import Barrier, Element, size_bytes
from holdfast.runtime.task.channel import Channel, WaitingRows
from holdfast.runtime.task.spill import SpillFile

__all__ = ["Inlet"]

_Waiting: TypeAlias = Element | SpillFile


@dataclass
class Inlet:
    """A channel, and what waits for room in it. `Staging` uses it under its `lock`."""

    channel: Channel
    lock: threading.Lock
    """That of staging."""
    waiting: deque[_Waiting] = field(default_factory=deque)
    waiting_bytes: int = 0

    def fill(self) -> int:
        """Put into the channel what it has room for; returns how much of it was in memory."""
        moved_bytes = 0
        while self.waiting and self.channel.has_room:
            element = self.waiting[0]
            if isinstance(element, SpillFile):
                batch = element.read()
                self.waiting_bytes -= size_bytes(batch)
                self.channel.offer(batch)
                if not element.has_more:
                    self.waiting.popleft()
                continue
            if isinstance(element, pa.RecordBatch):
                moved_bytes += size_bytes(element)
                self.waiting_bytes -= size_bytes(element)
            self.channel.offer(self.waiting.popleft())
        return moved_bytes

    def overtake(self, barrier: Barrier) -> list[WaitingRows]:
        """See `Reserve.overtake`."""
        rows: list[WaitingRows] = []
        for place, each in enumerate(self.waiting):
            if each is barrier:
                del self.waiting[place]
                break
            if isinstance(each, SpillFile):
                rows.append(each.rest())
            elif isinstance(each, pa.RecordBatch):
                rows.append(each)
        return rows
