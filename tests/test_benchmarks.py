"""Every benchmark runs, and its answer is right; how fast it is, is not a test's business."""

import json
from pathlib import Path

import pytest

from benchmarks.__main__ import BENCHMARKS
from benchmarks.harness import Result, Scale, compare, result_line

ANSWERS = json.loads((Path(__file__).parent / "golden" / "benchmark-answers.json").read_text())


MARKS = {
    "spine": pytest.mark.slow,
    "state_rocksdb": pytest.mark.slow,
    "state_changelog": pytest.mark.slow,
    "changelog_load": pytest.mark.slow,
    "savepoints": pytest.mark.slow,
    "state_data": pytest.mark.slow,
    # They start servers or Spark again, for what other tests have by the same modules.
    "conversion": pytest.mark.soak,
    "storage_remote": pytest.mark.soak,
    "latency": pytest.mark.soak,
}
MODULES = [pytest.param(name, marks=MARKS.get(name, ())) for name in BENCHMARKS]


@pytest.mark.parametrize("module", MODULES)
def test_tiny_run_gives_the_known_answers(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_BENCH_DIR", str(tmp_path))
    lines = [json.loads(result_line(each, Scale.TINY)) for each in BENCHMARKS[module](Scale.TINY)]
    assert {f"{line['benchmark']}: {line['unit']}": line["answer"] for line in lines} == ANSWERS[
        module
    ]
    assert all(line["median"] >= 0 for line in lines)
    assert list(tmp_path.iterdir()) == []


def test_a_comparison_takes_turns_in_going_first() -> None:
    order: list[str] = []

    def ours() -> None:
        order.append("ours")

    def peer() -> None:
        order.append("peer")

    assert len(compare(ours, peer, Scale.FULL, clean=lambda: order.append("-"))) == 5
    assert order[:8] == ["-", "peer", "-", "ours", "-", "ours", "-", "peer"]


def test_a_line_has_median_spread_and_machine() -> None:
    result = Result("name", "unit", (3.0, 1.0, 20.0), "answer", ">= 2", {"size": 1})
    line = json.loads(result_line(result, Scale.FULL))
    assert (line["median"], line["low"], line["high"]) == (3.0, 1.0, 20.0)
    assert (line["target"], line["parameters"]) == (">= 2", {"size": 1})
    assert line["machine"]["cores"] >= 1
