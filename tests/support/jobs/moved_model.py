"""What the job that is moved answers, in plain Python: one dictionary for each state."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from support.jobs.moved_job import (
    ALARM_MS,
    END_MS,
    PARTITIONS,
    START_MS,
    TTL_MS,
    Row,
    Step,
    window_of,
)

__all__ = ["Model", "answer_to"]


class Model:
    """All state of the job, that of users by user; what is stamped is (when, what)."""

    def __init__(self) -> None:
        self.now = START_MS
        self.total: Counter[str] = Counter()
        self.orders: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
        self.windows: defaultdict[str, dict[int, int]] = defaultdict(dict)
        self.best: dict[str, int] = {}
        self.mean: dict[str, tuple[int, int]] = {}
        self.alarm: dict[str, int] = {}
        self.recent: dict[str, tuple[int, str]] = {}
        self.visits: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        self.seen: defaultdict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
        self.buffered: list[int] = []
        self.partitions = Counter[int]()
        self.rules: dict[str, int] = {}
        self.event_timers: set[tuple[int, str]] = set()
        self.clock_timers: set[tuple[int, str]] = set()
        self.sums: Counter[tuple[str, int]] = Counter()

    def answer(self, steps: Iterable[Step]) -> Counter[Row]:
        """All rows of both operators."""
        return Counter(row for step in steps for row in self._step(step))

    def restamp(self, state: str, at: int) -> None:
        """Have all of a state that is stamped be of that moment."""
        of_users = getattr(self, state)
        for user, left in of_users.items():
            if isinstance(left, tuple):
                of_users[user] = at, left[1]
            elif isinstance(left, list):
                of_users[user] = [(at, value) for _, value in left]
            else:
                of_users[user] = {name: (at, value) for name, (_, value) in left.items()}

    def _step(self, step: Step) -> list[Row]:
        told: list[Row] = []
        if step.now_ms is not None:
            self.now = step.now_ms
            while due := sorted(each for each in self.clock_timers if each[0] <= self.now):
                self.clock_timers.remove(due[0])
                told.append(self._alarm(*due[0]))
        for row in step.rows:
            told += self._row(*row)
        if step.to_all is not None:
            told += self._to_all(*step.to_all)
        if step.watermark is not None:
            for at, user in sorted(each for each in self.event_timers if each[0] <= step.watermark):
                self.event_timers.remove((at, user))
                value = self.windows[user].pop(at, None)
                told.append(("window", user, at % 5, repr((at, value, self.best.get(user)))))
        return told + self._summed(told, step.watermark)

    def _summed(self, told: list[Row], watermark: int | None) -> list[Row]:
        several = {(what, digit) for what, _, digit, _ in told}
        self.sums.update((what, digit) for what, _, digit, _ in told)
        found = [(*key, -1, self.sums[key]) for key in several]
        if watermark == END_MS:
            found += [(*key, END_MS, count) for key, count in self.sums.items()]
        return found

    def _row(self, kind: str, user: str, n: int, amount: int) -> list[Row]:
        if kind == "forget":
            self.event_timers -= {(end, user) for end in self.windows.pop(user, {})}
            self.orders.pop(user, None)
            return []
        self.total[user] += amount
        self.orders[user].append((n, kind))
        windows, end = self.windows[user], window_of(n)
        windows[end] = windows.get(end, 0) + amount
        self.event_timers.add((end, user))
        self.best[user] = max(self.best.get(user, amount), amount)
        total, count = self.mean.get(user, (0, 0))
        self.mean[user] = total + amount, count + 1
        self._set_alarm(user, self.now + ALARM_MS)
        of_late = self._of_late(user)
        self.recent[user] = self.now, f"{kind} {n}"
        self.visits[user].append((self.now, n))
        self.seen[user][kind] = self.now, n
        self.buffered.append(n)
        told = (
            self.total[user] * self.rules.get(kind, 1),
            self.orders[user],
            sorted(windows.items()),
            self.best[user],
            (total + amount) / (count + 1),
            of_late,
        )
        return [("order", user, self.total[user] % 5, repr(told))]

    def _of_late(self, user: str) -> Row:
        """What is read of `visits` is new again."""
        seen = [(kind, n) for kind, (at, n) in self.seen[user].items() if self._lives(at)]
        visits = [n for at, n in self.visits[user] if self._lives(at)]
        self.visits[user] = [(self.now, n) for n in visits]
        return self._alive(self.recent, user), visits, sorted(seen)

    def _alive(self, stamped: dict[str, tuple[int, Any]], user: str) -> Any:
        at, value = stamped.get(user, (0, None))
        return value if self._lives(at) else None

    def _lives(self, at: int) -> bool:
        return self.now < at + TTL_MS

    def _set_alarm(self, user: str, at: int) -> None:
        self.clock_timers.discard((self.alarm.get(user, 0), user))
        self.alarm[user] = at
        self.clock_timers.add((at, user))

    def _alarm(self, at: int, user: str) -> Row:
        alarm = self.alarm.pop(user, None)
        if alarm is not None and self.total[user] % 2:
            self._set_alarm(user, alarm + 2 * ALARM_MS)
        return "alarm", user, at % 5, repr((at, alarm, self._of_late(user)))

    def _to_all(self, kind: str, number: int) -> list[Row]:
        kind, _, name = kind.partition(":")
        if kind == "rule":
            self.rules[name] = number
        elif kind == "no rule":
            self.rules.pop(name, None)
        else:
            told = [("buffered", "", n % 5, str(n)) for n in self.buffered]
            self.buffered.clear()
            for each in range(PARTITIONS):
                self.partitions[each] += 1
                at = self.partitions[each]
                told.append(("partition", "", at % 5, f"{each} at {at}"))
            return told
        return []


def answer_to(*halves: Iterable[Step]) -> Counter[Row]:
    """What the job answers to the input."""
    model = Model()
    return sum((model.answer(half) for half in halves), Counter())
