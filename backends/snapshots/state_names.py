"""Which states a snapshot has, by what it says of itself; nothing of them is read."""

from __future__ import annotations

from typing import Any

from holdfast.storage import StateSnapshot

__all__ = ["state_names"]


def state_names(part: StateSnapshot) -> tuple[str, ...]:
    """The names of the states, timers too, that a part of a snapshot has, each once.

    Of a part of a kind that is not known here, or that does not have the shape of its kind: none.
    """
    found: list[str] = []
    _collect(part.attributes, found)
    return tuple(dict.fromkeys(found))


def _collect(attributes: Any, found: list[str]) -> None:
    """Tables of keyed state, in files or beside them; states of operators; what was logged."""
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
