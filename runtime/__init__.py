"""The room of the running job: sources, slots, barriers, coordinator, sinks and savepoints."""

__all__: list[str] = []
