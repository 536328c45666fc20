"""The command `holdfast`."""

from holdfast.runtime.cli.main import main

__all__ = ["main"]
