"""Reads the metrics of a slot in the slot's own thread: no other thread may touch state."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from holdfast.backends import StateBackend
from holdfast.runtime.protocol.metrics import OperatorMetrics, SlotMetrics
from holdfast.runtime.task.chain import Chain
from holdfast.runtime.task.loop import SlotLoop

__all__ = ["Gauges"]

_logger = logging.getLogger(__name__)
_T = TypeVar("_T")


class Gauges:
    """Returns the metrics that were read last and requests new ones, so that no caller waits."""

    def __init__(self, backend: StateBackend, chains: Sequence[Chain], loop: SlotLoop) -> None:
        self._backend = backend
        self._chains = chains
        self._loop = loop
        self._last = SlotMetrics()
        self._is_asked = False
        self._silent: set[str] = set()

    def ask(self) -> SlotMetrics:
        """The latest metrics; requests a new reading. Safe to call from any thread."""
        self._is_asked = True
        return self._last

    def read_if_asked(self) -> None:
        """Read them if requested. Called by the slot's thread, once operators are open."""
        if self._is_asked:
            self._is_asked = False
            tell = self._backend.metrics
            self._last = SlotMetrics(
                chains={
                    chain.plan.chain_id: self._loop.metrics(place)
                    for place, chain in enumerate(self._chains)
                },
                backend=self._read("the state backend", tell, dict[str, float]),
                operators={
                    spec.uid: self._read(
                        f"operator {spec.uid!r}", operator.metrics, OperatorMetrics
                    )
                    for chain in self._chains
                    for spec, operator in zip(chain.plan.operators, chain.operators, strict=True)
                },
            )

    def _read(self, part: str, tell: Callable[[], Any], kind: type[_T]) -> _T:
        """The metrics of one part, converted as the network will convert them.

        A part that fails, or returns something else than numbers, is not asked again: metrics must
        not fail a job.
        """
        if part not in self._silent:
            try:
                return msgspec.msgpack.decode(msgspec.msgpack.encode(tell()), type=kind)
            except Exception:
                self._silent.add(part)
                _logger.warning("there are no metrics of %s", part, exc_info=True)
        return kind()
