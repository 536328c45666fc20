"""The name of this project where packages are installed, and a check that it is alone there.

The name `holdfast` belongs to another project on the package index: the distribution is
`holdfast-spark`, and imports are `holdfast.<room>`. That project has a package `holdfast` of its
own, which hides ours or is imported instead.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import version

__all__ = ["DISTRIBUTION", "check_alone", "holdfast_version", "install_line"]

DISTRIBUTION = "holdfast-spark"


@cache  # each attempt and each of its slots asks, and the answer is in a file
def holdfast_version() -> str:
    """The version that is installed."""
    return version(DISTRIBUTION)


def install_line(extra: str) -> str:
    """The command that installs an extra."""
    return f'pip install "{DISTRIBUTION}[{extra}]"'


def check_alone() -> None:
    """Refuse to run behind a package `holdfast` of another project.

    Raises:
        ImportError: there is one; says where, and what to do.
    """
    # Ours is a namespace, which has no file: it has no module of its own.
    found = getattr(import_module("holdfast"), "__file__", None)
    if found is not None:
        raise ImportError(
            f"another project's package `holdfast` is installed beside {DISTRIBUTION}, and takes "
            f"its place: {found}. Do: pip uninstall holdfast {DISTRIBUTION}; "
            f"pip install {DISTRIBUTION}",
            name="holdfast",
            path=found,
        )


# At import, so that no code runs that is half replaced by the other project's.
check_alone()
