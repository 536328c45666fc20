"""Draw what a soak of the changelog has written down: `plot_soak.py CSV… SVG`.

Each CSV is a column of panels, named after its file: what is stored, the log, the time that
checkpoints took and memory, over minutes. The picture needs nothing but a browser, light or dark.
"""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 420, 150
LEFT, RIGHT, TOP, BOTTOM = 58, 12, 34, 30
MOST_POINTS = 600
STEPS = (1, 2, 2.5, 5, 10)
MIB = 1 << 20
STYLE = """text { font: 11px sans-serif; fill: #555 } .title { font-weight: bold }
line { stroke: #bbb; stroke-width: 0.5 } polyline { fill: none; stroke-width: 1.2 }
@media (prefers-color-scheme: dark) { text { fill: #bbb } line { stroke: #666 } }"""


@dataclass(frozen=True)
class Curve:
    """One line of a panel."""

    name: str
    color: str
    value: Callable[[Mapping[str, float]], float]


@dataclass(frozen=True)
class Panel:
    """Curves over one axis."""

    title: str
    curves: tuple[Curve, ...]


PANELS = (
    Panel(
        "MiB stored, with one checkpoint kept",
        (
            Curve("all that is stored", "#2a78d6", lambda row: row["stored_bytes"] / MIB),
            Curve("materialization", "#1baf7a", lambda row: row["base_bytes"] / MIB),
            Curve("log", "#d9822b", lambda row: row["log_bytes"] / MIB),
        ),
    ),
    Panel(
        "ms until a checkpoint is committed",
        (Curve("", "#2a78d6", lambda row: row["checkpoint_ms"]),),
    ),
    Panel(
        "MiB resident, with the model",
        (Curve("", "#2a78d6", lambda row: row["resident_bytes"] / MIB),),
    ),
)


def read(path: Path) -> list[dict[str, float]]:
    """The readings, with all that is in them as numbers."""
    with path.open(newline="") as file:
        return [{name: float(text) for name, text in row.items()} for row in csv.DictReader(file)]


def thinned(values: Sequence[float], most: int) -> Iterator[tuple[int, float]]:
    """Places and values, so few that they can be drawn: of each stretch the highest one."""
    size = max(math.ceil(len(values) / most), 1)
    for start in range(0, len(values), size):
        yield max(
            enumerate(values[start : start + size], start),
            key=lambda place_and_value: place_and_value[1],
        )


def ticks(highest: float, most: int = 4) -> list[float]:
    """Round numbers from 0 to above the highest value."""
    rough = max(highest, 1e-9) / most
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * each for each in STEPS if power * each >= rough * 0.999)
    return [step * number for number in range(math.ceil(highest / step - 1e-9) + 1)]


def drawn(panel: Panel, rows: Sequence[Mapping[str, float]], name: str) -> Iterator[str]:
    """The elements of one panel, from its own upper left corner."""
    values = {curve.name: [curve.value(row) for row in rows] for curve in panel.curves}
    minutes = [row["second"] / 60 for row in rows]
    across, up = ticks(max(minutes)), ticks(max(map(max, values.values())))

    def x(minute: float) -> float:
        return LEFT + minute / across[-1] * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - value / up[-1] * (HEIGHT - TOP - BOTTOM)

    yield f'<text class="title" x="{LEFT}" y="14">{escape(f"{name}: {panel.title}")}</text>'
    for value in up:
        yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>'
        yield f'<text x="{LEFT - 5}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>'
    for minute in across:
        where = f'x="{x(minute):.1f}" y="{HEIGHT - BOTTOM + 14}"'
        yield f'<text {where} text-anchor="middle">{minute:g}</text>'
    yield f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 3}" text-anchor="end">minutes</text>'
    place = LEFT
    for curve in panel.curves:
        points = " ".join(
            f"{x(minutes[number]):.1f},{y(value):.1f}"
            for number, value in thinned(values[curve.name], MOST_POINTS)
        )
        yield f'<polyline stroke="{curve.color}" points="{points}"/>'
        yield f'<text x="{place}" y="28" style="fill: {curve.color}">{escape(curve.name)}</text>'
        place += 7 * len(curve.name) + 10


def picture(soaks: Mapping[str, Sequence[Mapping[str, float]]]) -> str:
    """The whole SVG: a column a soak, a row a panel."""
    size = f'width="{WIDTH * len(soaks)}" height="{HEIGHT * len(PANELS)}"'
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" {size}>', f"<style>{STYLE}</style>"]
    for column, (name, rows) in enumerate(soaks.items()):
        for line, panel in enumerate(PANELS):
            lines.append(f'<g transform="translate({column * WIDTH} {line * HEIGHT})">')
            lines += drawn(panel, rows, name)
            lines.append("</g>")
    return "\n".join([*lines, "</svg>"]) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Draw what the arguments name."""
    if len(arguments) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    *sources, target = map(Path, arguments)
    soaks = {path.stem.removeprefix("changelog-soak-"): read(path) for path in sources}
    empty = [name for name, rows in soaks.items() if not rows]
    if empty:
        print(f"no readings in {', '.join(empty)}", file=sys.stderr)
        return 1
    target.write_text(picture(soaks), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
