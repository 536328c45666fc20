"""Checkpoints of a running job: when to begin one, what is known of it, and when it is complete."""

__all__: list[str] = []
