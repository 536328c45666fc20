"""One slot's loop: channels, gates, chains, alignment, its part of a checkpoint.

It imports `operators`, `planning` and all below, and knows nothing of the network.
"""

from __future__ import annotations

__all__: list[str] = []
