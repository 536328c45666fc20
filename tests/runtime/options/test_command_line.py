"""What `holdfast run` hands to the program that it runs."""

from __future__ import annotations

import pytest

from holdfast.runtime.options.command_line import CommandLine, command_line, running_with
from holdfast.runtime.options.table import read_settings
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
    line.check_start("orders", line.settings)
    line.check_start("orders", line.settings)  # the first try was refused
    line.started("orders", line.settings)
    assert line.has_job
    with pytest.raises(Invalid, match=r"for job 'more'.*/x/chk-1 was for job 'orders'"):
        line.check_start("more", line.settings)
    with pytest.raises(Invalid, match="only one can be restored from the path"):
        line.check_start("orders", line.settings)


def test_only_one_job_begins_from_the_path_of_a_file() -> None:
    file = read_settings({PATH: "/x/chk-1"}, source="x.yaml", lines={PATH: 3})
    line = CommandLine({}, file)
    line.check_start("own", None)
    line.started("own", None)  # the program says from where
    line.check_start("orders", file)
    line.started("orders", file)
    with pytest.raises(
        Invalid, match=r"\[x\.yaml, line 3, .*, for job 'more'.*/x/chk-1 was for job 'orders'"
    ):
        line.check_start("more", file)
    line.check_start("orders", file)  # again, as in a notebook
    line.check_start("own too", None)
    other = read_settings({PATH: "/x/chk-2"}, source="the session")
    line.check_start("more", other)


@pytest.mark.parametrize("options", [{}, {PATH: "latest"}])
def test_other_programs_start_as_many_as_they_like(options: dict[str, str]) -> None:
    line = CommandLine(options)
    source = line.settings if options else None
    for name in ("orders", "more"):
        line.check_start(name, source)
        line.started(name, source)
