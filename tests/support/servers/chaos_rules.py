"""What can go wrong between a client and a server, and when: for `chaos_http.py`, `chaos_rpc.py`.

A *rule* says by hand which request meets which fault. A *weather* deals faults by a seed: a request
meets the same one in each run, whatever else is under way, since its method, its path and how often
it came decide.
"""

from __future__ import annotations

import random
import re
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

__all__ = [
    "Chooser",
    "CutAnswer",
    "CutRequest",
    "Delay",
    "DropHeader",
    "Fault",
    "Refuse",
    "Repeat",
    "Request",
    "Rule",
    "Rules",
    "Shorten",
    "Weather",
]


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it came: of HTTP with the path as it was sent, or one call of Hadoop's RPC."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    """By lower-case name; Hadoop's calls have none."""
    body: bytes


@dataclass(frozen=True, slots=True)
class Delay:
    """It takes a while."""

    seconds: float


@dataclass(frozen=True, slots=True)
class CutRequest:
    """The server gets that many bytes of it, head included, and the connection is gone.

    A negative number says how many are missing.
    """

    after_bytes: int


@dataclass(frozen=True, slots=True)
class CutAnswer:
    """The server gets all of it, the client that many bytes of the answer; none is a lost one."""

    after_bytes: int


@dataclass(frozen=True, slots=True)
class Refuse:
    """The client is told of an error, and the server hears of the request never, before or later.

    One that took effect is ambiguous; one that takes effect later is the worst that a network does.
    """

    status: int = 503
    code: str = "SlowDown"
    passes: Literal["never", "before", "later"] = "never"
    later_s: float = 0.3


@dataclass(frozen=True, slots=True)
class Repeat:
    """The server gets it twice, one after the other; the client one of the answers."""

    answer: Literal["first", "second"] = "second"


@dataclass(frozen=True, slots=True)
class DropHeader:
    """The server does not see a header, as if it did not know it."""

    name: str


@dataclass(frozen=True, slots=True)
class Shorten:
    """The answer's body is shorter, and its head says so: its length does not give it away."""

    by_bytes: int = 1


Fault: TypeAlias = Delay | CutRequest | CutAnswer | Refuse | Repeat | DropHeader | Shorten


class Chooser(Protocol):
    """Decides what happens to a request. Called from the proxy's thread."""

    def choose(self, request: Request) -> Fault | None: ...


@dataclass(kw_only=True)
class Rule:
    """A fault, and the requests that meet it: the `first`-th that fits, and `times` from there."""

    fault: Fault
    method: str = ""
    path: str = ""
    """A regular expression, found anywhere in path and query."""
    first: int = 1
    times: int | None = 1
    """None: all from there."""
    fits: int = field(default=0, init=False)

    def takes(self, request: Request) -> bool:
        """Whether this is such a request; counts it if it fits."""
        if self.method and self.method != request.method:
            return False
        if not re.search(self.path, f"{request.path}?{request.query}"):
            return False
        self.fits += 1
        return self.first <= self.fits and (
            self.times is None or self.fits < self.first + self.times
        )

    @property
    def was_met(self) -> bool:
        """Whether any request did."""
        return self.fits >= self.first


class Rules:
    """Rules, of which the first one that takes a request says what happens."""

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        self._rules = list(rules)

    def choose(self, request: Request) -> Fault | None:
        taking = [rule for rule in self._rules if rule.takes(request)]
        return taking[0].fault if taking else None


class Deal(Protocol):
    """Makes a fault for a request."""

    def __call__(self, chance: random.Random, request: Request, /) -> Fault: ...


def _delay(chance: random.Random, _: Request) -> Fault:
    return Delay(chance.uniform(0, 0.1))


def _cut_request(chance: random.Random, request: Request) -> Fault:
    return CutRequest(chance.randrange(len(request.body) + 300))


def _cut_answer(chance: random.Random, _: Request) -> Fault:
    return CutAnswer(chance.choice((0, 0, 0, 20, 200, 600)))


def _refuse(chance: random.Random, _: Request) -> Fault:
    status, code = chance.choice(((503, "SlowDown"), (500, "InternalError"), (502, "BadGateway")))
    return Refuse(status, code, passes="never")


def _refuse_after(_chance: random.Random, _: Request) -> Fault:
    return Refuse(500, "InternalError", passes="before")


def _refuse_before(chance: random.Random, _: Request) -> Fault:
    return Refuse(500, "InternalError", passes="later", later_s=chance.uniform(0, 0.3))


def _repeat(chance: random.Random, _: Request) -> Fault:
    return Repeat(chance.choice(("first", "second")))


DEALS: Mapping[str, Deal] = {
    "delay": _delay,
    "cut request": _cut_request,
    "cut answer": _cut_answer,
    "refuse": _refuse,
    "refuse after": _refuse_after,
    "refuse before": _refuse_before,
    "repeat": _repeat,
}
"""All faults that a storage must survive without its caller noticing more than time."""


class Weather:
    """Deals faults to a share of all requests, by a seed; `tally` says which. Never three in a row.

    A request that came three times at the same path goes through, so that retries come to an end
    whatever their number is.
    """

    def __init__(self, seed: int, share: float, deals: Iterable[str] = tuple(DEALS)) -> None:
        self._seed = seed
        self._share = share
        self._deals = tuple(deals)
        self._turns: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()
        self.tally: Counter[str] = Counter()

    def choose(self, request: Request) -> Fault | None:
        place = request.method, request.path
        with self._lock:
            self._turns[place] += 1
            turn = self._turns[place]
        chance = random.Random(f"{self._seed}/{place}/{turn}")
        if turn % 3 == 0 or chance.random() >= self._share:
            return None
        deal = chance.choice(self._deals)
        with self._lock:
            self.tally[deal] += 1
        return DEALS[deal](chance, request)
