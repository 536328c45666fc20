import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_the_storage_tour_tells_its_story(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "storage_tour.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert "retained the newest two: (2, 3)" in lines[4]
    assert "the first driver commits late and is refused" in lines[6]
    assert "completed is still (2, 3)" in lines[7]
    assert "left: 0" in lines[8]
    assert "one bit flipped on disk: a file of a checkpoint was changed" in lines[9]


def test_the_state_tour_tells_its_story(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "state_tour.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert "user-7 now has 1000045" in lines[2]
    assert "together 1000 users, who spent 45000" in lines[-1]
