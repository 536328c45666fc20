"""Backends whose metrics are no numbers of their states, or change them."""

from __future__ import annotations

from holdfast.backends import StateMetrics
from support.broken.backends.register import Keyed, Store, breaks


@breaks("metrics_are_numbers_by_state", says="by declared names, not")
class TellsTablesByNumber(Store):
    def metrics(self) -> StateMetrics:
        told = super().metrics().states.values()
        return StateMetrics(states={str(number): each for number, each in enumerate(told)})


@breaks("metrics_change_nothing", says="state, after metrics")
class CountsByTakingOut(Store):
    def metrics(self) -> StateMetrics:
        counts = {}
        for name, table in self._tables.items():
            addresses = table.entries.addresses()
            counts[name] = {"entries": float(len(addresses))}
            for address in addresses[:1]:
                table.remove(address)
        return StateMetrics(states=counts)


@breaks(
    "a_closed_backend_has_no_metrics", says="metrics, after close: Invalid is owed, but nothing"
)
class TellsAfterItsEnd(Keyed):
    def metrics(self) -> StateMetrics:
        return self.store.metrics()
