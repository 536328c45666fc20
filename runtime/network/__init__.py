"""How slots and the driver speak with each other, over Arrow Flight on addresses of their own."""

__all__: list[str] = []
