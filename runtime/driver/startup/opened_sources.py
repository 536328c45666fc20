"""Opens the sources of an attempt at their positions."""

from __future__ import annotations

import logging
from contextlib import ExitStack

from holdfast.runtime.driver.run_parts import RunParts, SourceOpening
from holdfast.runtime.driver.source_feed import Source
from holdfast.runtime.network import Credentials
from holdfast.storage.restore_points import RestorePoint

__all__ = ["open_sources"]

_logger = logging.getLogger(__name__)


def open_sources(
    parts: RunParts, point: RestorePoint | None, credentials: Credentials
) -> dict[str, Source]:
    """Open all sources at their positions; if one fails, close those that were opened."""
    sources: dict[str, Source] = {}
    with ExitStack() as opened:
        for uid, plan in parts.sources.items():
            opening = SourceOpening(
                uid=uid,
                edges=parts.plan.source_edges(uid),
                plan=parts.plan,
                credentials=credentials,
                job=parts.job,
                restored=None if point is None else point.source(uid),
                restored_from=parts.job if point is None else point.folder,
                clock=parts.clock,
            )
            sources[uid] = plan.open(opening)
            opened.callback(_stop_quietly, sources[uid])
        opened.pop_all()
    return sources


def _stop_quietly(source: Source) -> None:
    try:
        source.stop()
    except Exception as error:  # noqa: BLE001 - the first source's error is reported
        _logger.warning("source %r could not be stopped: %s", source.uid, error)
