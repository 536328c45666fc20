"""Where results go: the contracts of sinks, and those of the house."""

__all__: list[str] = []
