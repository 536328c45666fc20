"""The room of the engine: runs a job's slots on Spark, and is the only one that imports pyspark."""

__all__: list[str] = []
