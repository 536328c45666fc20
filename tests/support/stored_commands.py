"""The commands for stored snapshots, called as a person calls them, in this process."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner, Result

from holdfast.runtime.cli.application import application

__all__ = ["call", "document"]


def call(*arguments: str) -> Result:
    """What `holdfast savepoint` with these arguments has come to."""
    return CliRunner().invoke(
        application, ["savepoint", *arguments], env={"COLUMNS": "220"}, catch_exceptions=True
    )


def document(*arguments: str, code: int = 0) -> Any:
    """What it tells with `--json`, if it ends as it should."""
    result = call(*arguments, "--json")
    assert result.exit_code == code, (result.output, result.exception)
    assert result.stdout, result.exception
    return json.loads(result.stdout)
