"""The job that tests on real Spark run, its input, and its answer in plain Python.

Orders go to their users, whose running total makes a digit; digits count. Both operators have
windows of event time that timers close, and the first one a side output. Order between users does
not matter to any row of the results, so each run of the job has the same answer.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from holdfast.backends import MapStateDescriptor, ValueStateDescriptor
from holdfast.backends.working_directory import WorkingDirectory
from holdfast.runtime import (
    FileSink,
    JobHandle,
    KeyedProcessFunction,
    OutputTag,
    StreamEnvironment,
)
from holdfast.storage import SystemClock

ORDERS = "n long, user string, amount long, ts long"
SPENT = "digit long, n long, amount long, ts long"
COUNTED = "kind string, digit long, at long, value long"
NOTED = "kind string, user string, at long, value long"
ODD = OutputTag("odd", NOTED)
WINDOW_MS = 20_000
DELAY_MS = 4_000
OnRow = Callable[[str, int], None]
"""Told the operator and the number of each order that it gets."""


class Order(NamedTuple):
    """A row of the input."""

    n: int
    user: str
    amount: int
    ts: int


Answer = dict[str, Counter[tuple[Any, ...]]]
"""The rows that each sink should have, by uid, and how often."""


def make_orders(seed: int, count: int, users: int = 12) -> list[Order]:
    """So many orders, of which some come up to three seconds late."""
    chance = random.Random(seed)
    return [
        Order(
            n,
            f"u{chance.randrange(users)}",
            chance.randrange(100),
            1000 * n + 3000 - chance.randrange(3000),
        )
        for n in range(count)
    ]


def write_orders(folder: Path, orders: list[Order], files: int) -> None:
    """Divide orders over files; Spark reads the files in the order of their age."""
    folder.mkdir(parents=True, exist_ok=True)
    each = -(-len(orders) // files)
    for number in range(files):
        path = folder / f"{number:04}.json"
        part = orders[number * each : (number + 1) * each]
        path.write_text("".join(f"{json.dumps(order._asdict())}\n" for order in part))
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def window_end(ts: int) -> int:
    """The last moment of the window of a moment."""
    return ts - ts % WINDOW_MS + WINDOW_MS - 1


class Spend(KeyedProcessFunction):
    """The total of each user, and of each of the user's windows."""

    def __init__(self, on_row: OnRow | None = None) -> None:
        self._on_row = on_row

    def open(self, ctx: Any) -> None:
        self.total = ctx.get_state(ValueStateDescriptor("total", int))
        self.windows = ctx.get_map_state(MapStateDescriptor("windows", int, int))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        if self._on_row is not None:
            self._on_row("spend", value.n)
        total = (self.total.value() or 0) + value.amount
        self.total.update(total)
        end = window_end(ctx.timestamp())
        self.windows.put(end, (self.windows.get(end) or 0) + value.amount)
        ctx.timer_service().register_event_time_timer(end)
        if value.amount >= 97:
            yield ODD, ("odd", value.user, value.n, total)
        yield total % 10, value.n, value.amount, value.ts

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield ODD, ("window", ctx.get_current_key(), timestamp, self.windows.get(timestamp))
        self.windows.remove(timestamp)


class ByDigit(KeyedProcessFunction):
    """How often each digit came, in all and in each window."""

    def __init__(self, on_row: OnRow | None = None) -> None:
        self._on_row = on_row

    def open(self, ctx: Any) -> None:
        self.count = ctx.get_state(ValueStateDescriptor("count", int))
        self.windows = ctx.get_map_state(MapStateDescriptor("windows", int, int))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        if self._on_row is not None:
            self._on_row("digits", value.n)
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        end = window_end(ctx.timestamp())
        self.windows.put(end, (self.windows.get(end) or 0) + value.amount)
        ctx.timer_service().register_event_time_timer(end)
        yield "count", value.digit, count, 0
        yield "order", value.digit, value.n, value.amount

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield "window", ctx.get_current_key(), timestamp, self.windows.get(timestamp)
        self.windows.remove(timestamp)


def expected(orders: list[Order]) -> Answer:
    """What the job answers."""
    totals: Counter[str] = Counter()
    counts: Counter[int] = Counter()
    of_users: Counter[tuple[str, int]] = Counter()
    of_digits: Counter[tuple[int, int]] = Counter()
    noted: list[tuple[Any, ...]] = []
    counted: list[tuple[Any, ...]] = []
    for order in orders:
        totals[order.user] += order.amount
        of_users[order.user, window_end(order.ts)] += order.amount
        if order.amount >= 97:
            noted.append(("odd", order.user, order.n, totals[order.user]))
        digit = totals[order.user] % 10
        counts[digit] += 1
        of_digits[digit, window_end(order.ts)] += order.amount
        counted += [("count", digit, counts[digit], 0), ("order", digit, order.n, order.amount)]
    noted += [("window", user, end, value) for (user, end), value in of_users.items()]
    counted += [("window", digit, end, value) for (digit, end), value in of_digits.items()]
    return {"odd": Counter(noted), "out": Counter(counted)}


@dataclass(frozen=True)
class Sinks:
    """Where the results of the job go."""

    out: FileSink
    odd: FileSink


def sinks_at(root: Path) -> Sinks:
    """The usual sinks: one writes Parquet, one JSON."""
    return Sinks(FileSink(str(root / "out")), FileSink(str(root / "odd"), "json"))


def read_orders(env: StreamEnvironment, folder: Path, **options: Any) -> Any:
    """The files of a folder as a stream, one at a time."""
    reader = env.spark.readStream.schema(ORDERS).option("maxFilesPerTrigger", 1)
    return reader.options(**options).json(str(folder))


def build(
    env: StreamEnvironment, source: Any, sinks: Sinks, on_row: OnRow | None = None
) -> StreamEnvironment:
    """Write the job into an environment, from its stream of orders on."""
    spent = (
        source.with_watermark("ts", f"{DELAY_MS}ms")
        .key_by("user")
        .process(Spend(on_row), SPENT, uid="spend")
    )
    spent.get_side_output(ODD).sink_to(sinks.odd, uid="odd")
    counted = spent.key_by("digit").process(ByDigit(on_row), COUNTED, uid="digits")
    counted.sink_to(sinks.out, uid="out")
    return env


def build_from_files(
    env: StreamEnvironment, root: Path, sinks: Sinks | None = None, on_row: OnRow | None = None
) -> StreamEnvironment:
    """The whole job: what is in the folder `in` now, into `out` and `odd`."""
    frame = read_orders(env, root / "in")
    source = env.from_stream(frame, uid="orders", available_now=True)
    return build(env, source, sinks or sinks_at(root), on_row)


def visible_files(folder: Path) -> list[Path]:
    """The files that readers such as Spark see: none that is hidden, or in a hidden folder."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file()
        and not any(part.startswith(("_", ".")) for part in path.relative_to(folder).parts)
    )


def hidden_files(folder: Path) -> list[Path]:
    """The files at a sink's place that readers do not see."""
    seen = set(visible_files(folder))
    return sorted(path for path in folder.rglob("*") if path.is_file() and path not in seen)


def _rows(path: Path) -> Iterable[dict[str, Any]]:
    if path.suffix == ".parquet":
        rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
        return rows
    return [json.loads(line) for line in path.read_text().splitlines()]


def seen(root: Path) -> Answer:
    """What readers see of the results now."""
    found: defaultdict[str, Counter[tuple[Any, ...]]] = defaultdict(Counter)
    for uid, kind in (("out", "digit"), ("odd", "user")):
        for path in visible_files(root / uid):
            found[uid].update(
                (row["kind"], row[kind], row["at"], row["value"]) for row in _rows(path)
            )
    return {"odd": found["odd"], "out": found["out"]}


def check_complete(root: Path, answer: Answer) -> None:
    """What readers see is the answer: nothing twice, nothing lost, and nothing left aside."""
    check_answer(root, answer)
    for uid in answer:
        assert hidden_files(root / uid) == []


def check_answer(root: Path, answer: Answer) -> None:
    """What readers see is the answer: nothing twice, and nothing lost."""
    check_sound(root, answer)
    found = seen(root)
    for uid, rows in answer.items():
        assert found[uid] == rows, f"{uid} lacks {list((rows - found[uid]).items())[:5]}"


def check_sound(root: Path, answer: Answer) -> None:
    """What readers see is part of the answer, and whole."""
    found = seen(root)
    for uid, rows in answer.items():
        extra = found[uid] - rows
        assert not extra, f"{uid} has {list(extra.items())[:5]} too often"


def check_no_state_is_left(folder: Path) -> None:
    """Slots that ended left nothing of RocksDB, and the next one clears up after the killed."""

    def is_clear() -> bool:
        WorkingDirectory([str(folder)]).close()
        return not any(path.is_file() for path in folder.rglob("*"))

    await_that(is_clear, f"no files in {folder}", timeout_s=30)


def await_that(condition: Callable[[], object], what: str, timeout_s: float = 200) -> None:
    """Return as soon as it is so; a long time limit, since machines may be slow."""
    clock = SystemClock()
    end_s = clock.monotonic_s() + timeout_s
    while not condition():
        assert clock.monotonic_s() < end_s, f"not within {timeout_s} s: {what}"
        clock.sleep_s(0.05)


def await_checkpoints(job: JobHandle, more: int = 2) -> None:
    """Return when so many more checkpoints are complete: a second one began after this call."""
    goal = job.checkpoints().counts.completed + more
    await_that(
        lambda: job.checkpoints().counts.completed >= goal or job.status.is_final,
        f"{goal} checkpoints of {job.job_id}",
    )
    assert not job.status.is_final, (job.status, job.failures)
