"""Clauses of keyed state over a backend: states, timers, snapshots, restores."""

__all__: list[str] = []
