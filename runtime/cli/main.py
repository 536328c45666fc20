"""Entry point of the command `holdfast`. It ends with an exit code, and without a traceback."""

from __future__ import annotations

import io
import os
import signal
import sys
from typing import NoReturn

from holdfast.runtime.cli.exit_codes import INTERRUPTED, TERMINATED

__all__ = ["main"]

_FAILED = 1
_JSON = "--json"
_RUN = "run"
"""The command whose output is the program's own."""


def main() -> None:
    """Run the command that the arguments of this process name, and exit with its code."""
    if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminate)
    try:
        _run()
    except (KeyboardInterrupt, _Terminated) as stop:
        is_terminated = isinstance(stop, _Terminated)
        if not getattr(stop, "is_told", False):  # else a job has reported it, and how to continue
            word = "terminated" if is_terminated else "interrupted"
            print(word, file=sys.stderr)  # noqa: T201 - a program for a terminal
        sys.exit(TERMINATED if is_terminated else INTERRUPTED)


class _Terminated(SystemExit):
    """SIGTERM was received: unwinds as Ctrl-C does."""


def _terminate(*_: object) -> NoReturn:
    raise _Terminated(TERMINATED)


def _run() -> None:
    # Imported here, inside the handling of Ctrl-C, since these imports take a while.
    from holdfast.runtime.cli.application import application  # noqa: PLC0415
    from holdfast.runtime.cli.output import show_error  # noqa: PLC0415
    from holdfast.storage import HoldfastError, Unavailable  # noqa: PLC0415

    if sys.stdout is None:  # it was closed: discard the output
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - until the end
    if isinstance(sys.stdout, io.TextIOWrapper):  # escape what the terminal cannot show
        sys.stdout.reconfigure(errors="backslashreplace")
    as_json = _JSON in sys.argv and sys.argv[1] != _RUN
    try:
        try:
            application()
        except HoldfastError as error:
            show_error(error, as_json=as_json)
            sys.exit(_FAILED)
        except OSError as error:
            show_error(Unavailable("the system has refused", found=str(error)), as_json=as_json)
            sys.exit(_FAILED)
        finally:
            sys.stdout.flush()
    except OSError as error:  # the output itself cannot be written
        print(f"error: the output cannot be written: {error}", file=sys.stderr)  # noqa: T201
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # do not try again at exit
        sys.exit(_FAILED)
