"""Which clauses of jobs need no server each time."""

from __future__ import annotations

import pytest


@pytest.hookimpl(tryfirst=True)  # before any are left out by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All orders of calls are run on servers by `make soak`, and in memory by each run.

    One call is made at a time, so a server sees nothing that other clauses do not ask of it.
    """
    for item in items:
        if item.path.name == "test_jobs_on_servers.py" and "_in_every_order" in item.name:
            item.add_marker(pytest.mark.soak)
