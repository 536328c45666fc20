"""Operators as they run in a slot: user functions over batches, and sinks."""

__all__: list[str] = []
