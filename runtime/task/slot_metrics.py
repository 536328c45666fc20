"""Reads the metrics of a slot in the slot's own thread, for state is nobody else's to look at."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from holdfast.backends import StateBackend
from holdfast.runtime.protocol.metrics import OperatorMetrics, SlotMetrics
from holdfast.runtime.task.chain import Chain

__all__ = ["Gauges"]

_logger = logging.getLogger(__name__)
_T = TypeVar("_T")


class Gauges:
    """Whoever wants metrics gets the last ones, and has them read anew: so nobody waits."""

    def __init__(self, backend: StateBackend, chains: Sequence[Chain]) -> None:
        self._backend = backend
        self._chains = chains
        self._last = SlotMetrics()
        self._is_asked = False
        self._silent: set[str] = set()

    def ask(self) -> SlotMetrics:
        """What was read last. Any thread."""
        self._is_asked = True
        return self._last

    def read_if_asked(self) -> None:
        """Read them, if anybody has asked since. The slot's thread, once operators are open."""
        if self._is_asked:
            self._is_asked = False
            tell = self._backend.metrics
            self._last = SlotMetrics(
                backend=self._told("the state backend", tell, dict[str, float]),
                operators={
                    spec.uid: self._told(
                        f"operator {spec.uid!r}", operator.metrics, OperatorMetrics
                    )
                    for chain in self._chains
                    for spec, operator in zip(chain.plan.operators, chain.operators, strict=True)
                },
            )

    def _told(self, who: str, tell: Callable[[], Any], kind: type[_T]) -> _T:
        """What somebody tells, as it will arrive.

        Who cannot tell, or tells what is no number, is not asked again: no job fails for that.
        """
        if who not in self._silent:
            try:
                return msgspec.msgpack.decode(msgspec.msgpack.encode(tell()), type=kind)
            except Exception:
                self._silent.add(who)
                _logger.warning("there are no metrics of %s", who, exc_info=True)
        return kind()
