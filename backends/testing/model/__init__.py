"""The model-based test: a Hypothesis state machine against a model of plain dicts."""

__all__: list[str] = []
