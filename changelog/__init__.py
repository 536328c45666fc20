"""The room of the changelog: makes the checkpoints of any state backend incremental."""

__all__: list[str] = []
