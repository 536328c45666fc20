"""The picture of a soak shows what was read, within its panels."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import plot_soak
from support.simulations.changelog_soak import Reading, written

SVG = "{http://www.w3.org/2000/svg}"


def readings(count: int) -> list[Reading]:
    return [
        Reading(
            second=float(number),
            checkpoint_id=number,
            life=0,
            parallelism=1,
            rows=number,
            checkpoint_ms=500.0 if number == 7 else 20.0,
            stored_bytes=3 << 20,
            log_bytes=1 << 20,
            base_bytes=2 << 20,
            materializations=1,
            resident_bytes=100 << 20,
        )
        for number in range(1, count + 1)
    ]


def drawn(tmp_path: Path, *counts: int) -> ET.Element:
    sources = [
        written(readings(count), tmp_path / f"changelog-soak-{place}.csv")
        for place, count in enumerate(counts)
    ]
    target = tmp_path / "picture.svg"
    assert plot_soak.main([*map(str, sources), str(target)]) == 0
    return ET.fromstring(target.read_text("utf-8"))


def points(line: ET.Element) -> list[tuple[float, float]]:
    pairs = (pair.split(",") for pair in line.attrib["points"].split())
    return [(float(x), float(y)) for x, y in pairs]


def test_each_file_has_a_column_with_all_curves(tmp_path: Path) -> None:
    root = drawn(tmp_path, 60, 120)
    assert int(root.attrib["width"]) == 2 * plot_soak.WIDTH
    lines = list(root.iter(f"{SVG}polyline"))
    assert len(lines) == 2 * sum(len(panel.curves) for panel in plot_soak.PANELS)
    titles = [text.text for text in root.iter(f"{SVG}text") if text.get("class") == "title"]
    assert titles[0] == "0: MiB stored, with one checkpoint kept"
    assert titles[-1] == "1: MiB resident, with the model"


def test_a_curve_is_within_its_panel_and_as_high_as_what_was_read(tmp_path: Path) -> None:
    root = drawn(tmp_path, 60)
    stored, _, log, took, _ = map(points, root.iter(f"{SVG}polyline"))
    for line in (stored, log, took):
        assert all(plot_soak.LEFT <= x <= plot_soak.WIDTH - plot_soak.RIGHT for x, _ in line)
        assert all(plot_soak.TOP <= y <= plot_soak.HEIGHT - plot_soak.BOTTOM for _, y in line)
    floor = plot_soak.HEIGHT - plot_soak.BOTTOM
    assert floor - stored[0][1] == pytest.approx(3 * (floor - log[0][1]), abs=0.2)
    assert min(took, key=lambda point: point[1]) == took[6]


def test_of_many_readings_the_highest_are_drawn() -> None:
    values = [1.0] * 5000
    values[1234] = 9.0
    few = list(plot_soak.thinned(values, 600))
    assert len(few) <= 600
    assert (1234, 9.0) in few


@pytest.mark.parametrize("highest", [0.0, 0.03, 1.0, 7.3, 60.0, 999.0, 40_000.0])
def test_an_axis_goes_over_the_highest_value_in_few_steps(highest: float) -> None:
    found = plot_soak.ticks(highest)
    assert found[0] == 0
    assert found[-1] >= highest
    assert len(found) <= 6


def test_no_picture_is_drawn_without_readings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = written([], tmp_path / "changelog-soak-none.csv")
    assert plot_soak.main([str(source), str(tmp_path / "picture.svg")]) == 1
    assert "no readings in none" in capsys.readouterr().err
    assert not (tmp_path / "picture.svg").exists()


def test_too_few_arguments_get_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert plot_soak.main(["one.csv"]) == 2
    assert "plot_soak.py CSV" in capsys.readouterr().err
