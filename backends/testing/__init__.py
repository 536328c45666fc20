"""The suite that every state backend must pass, ours and a plug-in's. Needs pytest."""

__all__: list[str] = []
