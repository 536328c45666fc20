"""The names of the states in a snapshot, from its attributes alone."""

from __future__ import annotations

from typing import Any

from holdfast.storage import StateSnapshot

__all__ = ["state_names"]


def state_names(part: StateSnapshot) -> tuple[str, ...]:
    """The names of the states in a part of a snapshot, timers too, each once.

    Empty for a part of an unknown kind, or without the shape of its kind.
    """
    found: list[str] = []
    _collect(part.attributes, found)
    return tuple(dict.fromkeys(found))


def _collect(attributes: Any, found: list[str]) -> None:
    """Collect tables of keyed state, in files or beside them; operator state; logs; the base."""
    if not isinstance(attributes, dict):
        return
    for table in _listed(attributes, "tables") + _listed(attributes, "states"):
        _name(table, found)
    for kept in _listed(attributes, "files") + _listed(attributes, "logs"):
        _name(kept.get("info"), found)
    _collect(attributes.get("base"), found)


def _listed(attributes: dict[str, Any], key: str) -> list[dict[str, Any]]:
    listed = attributes.get(key, ())
    if not isinstance(listed, list | tuple):
        return []
    return [each for each in listed if isinstance(each, dict)]


def _name(table: Any, found: list[str]) -> None:
    if isinstance(table, dict) and isinstance(table.get("name"), str):
        found.append(table["name"])
