"""Clauses of the table contract: what the tables of every backend must do."""

__all__: list[str] = []
