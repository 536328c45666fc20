"""The command `holdfast`: argument parsing and output. Imports every other folder of the room."""

from holdfast.runtime.cli.main import main

__all__ = ["main"]
