"""What `holdfast run` hands to the program that it runs."""

from __future__ import annotations

import pytest

from holdfast.runtime.options.command_line import CommandLine, command_line, running_with
from holdfast.storage import Invalid

PATH = "execution.state-recovery.path"


def test_without_the_command_a_program_has_no_command_line_options() -> None:
    line = command_line()
    assert line.settings.values == {}
    assert not line.has_job
    line = CommandLine({"parallelism.default": "3"})
    with running_with(line):
        assert command_line() is line
    assert command_line() is not line


def test_an_option_that_there_is_not_is_refused_at_once() -> None:
    with pytest.raises(Invalid, match=r"no option 'nothing' \[the command line, -Dnothing\]"):
        CommandLine({"nothing": "x"})


@pytest.mark.parametrize("key", [PATH, "execution.savepoint.path"])
def test_only_one_job_begins_from_the_path(key: str) -> None:
    line = CommandLine({key: "/x/chk-1"})
    line.check_start("orders")
    line.check_start("orders")  # the first try was refused
    line.started("orders")
    assert line.has_job
    with pytest.raises(Invalid, match=r"for job 'more'.*/x/chk-1 was for job 'orders'"):
        line.check_start("more")


@pytest.mark.parametrize("options", [{}, {PATH: "latest"}])
def test_other_programs_start_as_many_as_they_like(options: dict[str, str]) -> None:
    line = CommandLine(options)
    for name in ("orders", "more"):
        line.check_start(name)
        line.started(name)
