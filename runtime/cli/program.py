"""Runs a Python program in this process as `python PROGRAM` would."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, ModuleType, TracebackType

import typer

from holdfast.storage import Invalid, NotFound

__all__ = ["run_program"]

_MAIN = "__main__"


def run_program(path: Path, arguments: Sequence[str]) -> None:
    """Run it to its end.

    An exception is shown as Python shows it.

    Raises:
        NotFound: there is no such file.
        Invalid: it cannot be read as a program.
        typer.Exit: it raised an exception.
        SystemExit: it exited.
    """
    code = _compiled(path)
    module = ModuleType(_MAIN)
    module.__file__ = str(path)
    module.__dict__["__builtins__"] = __builtins__
    with _as_main(module, path, arguments):
        try:
            exec(code, module.__dict__)
        except Exception as error:
            _show(error, path)
            raise typer.Exit(1) from error


def _compiled(path: Path) -> CodeType:
    try:
        return compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    except (FileNotFoundError, IsADirectoryError) as error:
        raise NotFound(
            "there is no such program", where=str(path), expected="a file of Python"
        ) from error
    except (OSError, SyntaxError, ValueError) as error:
        told = "".join(traceback.format_exception_only(error)).strip()
        raise Invalid("the program cannot be read", where=str(path), found=told) from error


@contextmanager
def _as_main(module: ModuleType, path: Path, arguments: Sequence[str]) -> Iterator[None]:
    """Set `sys.argv`, `sys.path` and `__main__` as for a program that Python runs."""
    argv, first, main = sys.argv, sys.path[0], sys.modules[_MAIN]
    sys.argv = [str(path), *arguments]
    sys.path[0] = str(path.parent.resolve())
    sys.modules[_MAIN] = module
    try:
        yield
    finally:
        sys.argv, sys.path[0], sys.modules[_MAIN] = argv, first, main


def _show(error: Exception, path: Path) -> None:
    """Print the traceback from the program's first frame on, without those of this command."""
    found: TracebackType | None = error.__traceback__
    while found is not None and found.tb_frame.f_code.co_filename != str(path):
        found = found.tb_next
    traceback.print_exception(type(error), error, found or error.__traceback__)
