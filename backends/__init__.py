"""The room of live state: where the keyed state of a task is while the task runs."""

__all__: list[str] = []
