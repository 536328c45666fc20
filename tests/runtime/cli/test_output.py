"""Results come out as they are: Rich finds no markup and no emoji in them."""

import json

import pytest

from holdfast.runtime.cli.output import show, show_json, table

NAMES = ["x:a:y", ":+1:", "[/x]", "[bold]a[/bold]", "spend[user]", "ü"]


@pytest.mark.parametrize("name", NAMES)
def test_json_is_what_it_was_made_of(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    show_json({"rows": [{name: name}]})
    assert json.loads(capsys.readouterr().out) == {"rows": [{name: name}]}


@pytest.mark.parametrize("name", NAMES)
def test_titles_and_cells_are_as_they_are(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = table(f"state {name}", "value", "#rows")
    lines.add_row(f"cell {name}", "1")
    show(lines)
    told = capsys.readouterr().out
    assert f"state {name}" in told
    assert f"cell {name}" in told
