"""Results come out as they are: Rich finds no markup and no emoji in them."""

import json

import pytest

from holdfast.runtime.cli.output import show, show_error, show_json, table
from holdfast.storage import NotFound

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


def test_numbers_that_json_does_not_have_are_texts(capsys: pytest.CaptureFixture[str]) -> None:
    inf = float("inf")
    show_json({"rows": [{"value": [float("nan"), inf, -inf, 0.5, None]}]})
    told = json.loads(capsys.readouterr().out)
    assert told == {"rows": [{"value": ["NaN", "Infinity", "-Infinity", 0.5, None]}]}


def test_errors_are_documents_too(capsys: pytest.CaptureFixture[str]) -> None:
    show_error(NotFound("there is none", where="here", fix="Look"), as_json=True)
    told = capsys.readouterr()
    assert told.err == "error: there is none [here]. Look\n"
    assert json.loads(told.out)["error"] == {
        "kind": "NotFound",
        "what": "there is none",
        "where": "here",
        "expected": "",
        "found": "",
        "fix": "Look",
    }
