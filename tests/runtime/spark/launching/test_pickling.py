"""Classes of users' scripts in other processes: they are there what they are in the script."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.runtime.spark.launching.pickling import pickled
from support.states import script_classes
from support.states.script_classes import EXAMPLES

_SCRIPT = Path(script_classes.__file__)
_TESTS = _SCRIPT.parents[2]
_TEXT = "from __future__ import annotations\n"
_READER = """
import json, pickle, sys
from pathlib import Path

def found(data):
    try:
        facts, cls, make = pickle.loads(data)
        return facts(cls, make)
    except Exception as error:
        return f"{type(error).__name__}: {error}"

sent = pickle.loads((Path(sys.argv[1]) / "sent.pickle").read_bytes())
print(json.dumps([{name: found(data) for name, data in each.items()} for each in sent]))
"""
# The forms of annotations that are evaluated name no class before it is there
_FORWARD = {"list[Tree]": 'list["Tree"]', "ArrayStruct | None": '"ArrayStruct | None"'}


@pytest.fixture(scope="module", params=["text", "evaluated"])
def facts(request: pytest.FixtureRequest, tmp_path_factory: Any) -> tuple[Any, Any]:
    """What is known of the classes of a script there, and in another process."""
    directory = tmp_path_factory.mktemp("classes")
    script = directory / "users_script.py"
    text = _SCRIPT.read_text()
    if request.param == "evaluated":
        text = text.replace(_TEXT, "")
        for each, forward in _FORWARD.items():
            text = text.replace(each, forward)
    script.write_text(text)
    _python(str(script), str(directory))
    there = _python("-c", _READER, str(directory))
    return json.loads((directory / "known.json").read_text()), json.loads(there)


def test_a_class_of_a_module_goes_by_its_name(tmp_path: Path) -> None:
    known = {name: script_classes.facts(*each) for name, each in EXAMPLES.items()}
    sent = {name: pickled((script_classes.facts, *each)) for name, each in EXAMPLES.items()}
    assert b"many" not in pickled(script_classes.Plain)
    (tmp_path / "sent.pickle").write_bytes(pickle.dumps([sent]))
    (there,) = json.loads(_python("-c", _READER, str(tmp_path), PYTHONPATH=str(_TESTS)))
    assert there == json.loads(json.dumps(known))


def _python(*arguments: str, **environment: str) -> str:
    command = [sys.executable, *arguments]
    around = os.environ | environment
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=around)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_a_class_of_a_script_is_the_same_in_another_process(
    facts: tuple[Any, Any], name: str
) -> None:
    known, (first, again) = facts
    assert first[name] == known[name]
    assert again[name] == known[name], "it was sent after a codec was made of it"
