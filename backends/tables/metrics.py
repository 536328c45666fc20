"""Numbers about state, for whoever watches a job: how large it is, and what makes it wait."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

__all__ = ["StateMetrics"]


class StateMetrics(msgspec.Struct, frozen=True):
    """Numbers by name, with the unit last. What they mean is in docs/metrics.md.

    Sizes are those of the moment; what is counted is counted from the opening of the store on.
    """

    store: Mapping[str, float] = {}
    """Of all states together, where there is no telling which of them it was."""
    states: Mapping[str, Mapping[str, float]] = {}
    """By the name of a state."""
