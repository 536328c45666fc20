"""The command `holdfast`, also as `python -m holdfast_spark`.

Beside the package `holdfast`, so that it can say why that cannot be imported: another project of
this name, if it is installed too, takes its place.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

__all__ = ["main"]


def main() -> None:
    """Run the command that the arguments of this process name, and exit with its code."""
    found = find_spec("holdfast")
    if found is not None and found.origin is not None:  # a namespace, as ours is, has no file
        print(  # noqa: T201 - a program for a terminal
            "error: another project's package `holdfast` is installed beside holdfast-spark, and "
            f"takes its place: {found.origin}. Do: pip uninstall holdfast holdfast-spark; pip "
            "install holdfast-spark",
            file=sys.stderr,
        )
        sys.exit(1)
    from holdfast.runtime.cli.main import main as run  # noqa: PLC0415 - only if it is ours

    run()


if __name__ == "__main__":
    main()
