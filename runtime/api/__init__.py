"""What users write and set: functions, contracts of sinks, settings, errors.

It imports no other folder of the room.
"""

__all__: list[str] = []
