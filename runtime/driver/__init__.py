"""The driver of a job: starts its slots and sources, coordinates checkpoints, restarts it."""

__all__: list[str] = []
