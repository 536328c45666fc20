"""A world without threads: processes, their background work and time, one action after another.

A seed chooses what happens next, so it replays the whole run. Classes that the runtime uses to
wait or to work in the background are replaced by those here; the rest of it is the real thing.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import mean
from typing import Any, NamedTuple, Protocol, Self

from holdfast.runtime.driver.events import AttemptEvent, EventQueue
from holdfast.storage import ManualClock

MOST_STEPS = 10_000
Task = tuple[Future[Any], Callable[[], Any]]


class Killed(BaseException):
    """The process in which this is raised is dead: nothing of it goes on."""


class Broken(BaseException):
    """A promise is broken. Nothing that is simulated catches it."""


@dataclass(eq=False)
class Process:
    """Something that can be killed, or stand still for a while."""

    name: str
    is_alive: bool = True
    frozen_until_ms: int = 0
    at_death: list[Callable[[], None]] = field(default_factory=list)
    """What the system does for a process that has died, such as closing its files."""


class Action(NamedTuple):
    """Something that may happen next."""

    label: str
    process: Process
    act: Callable[[], None]
    weight: float = 1.0


class Actor(Protocol):
    """A participant of the world, which offers actions now and then."""

    def actions(self) -> Iterable[Action]:
        """What it could do now."""
        ...


class World:
    """Everything that happens, in an order that the seed chooses."""

    _current: World | None = None

    def __init__(self, seed: int, *, faults: int | None = None) -> None:
        self.random = random.Random(seed)
        self.clock = ManualClock(1_000_000)
        self.process = Process("no process")
        self.actors: list[Actor] = []
        self.busy: dict[SimulatedExecutor, None] = {}
        """Executors with something to do, in an order that is the same each time."""
        self.trace: list[str] = []
        self.steps = 0
        self.toiled_ms = 0
        self.faults_left = self.random.randint(0, 10) if faults is None else faults
        self.happened: list[str] = []
        self.calamity: Callable[[], None] = lambda: None
        """Called before each step."""
        self._pace = {kind: self.random.choice((0.3, 1.0, 1.0, 3.0)) for kind in _PACED}

    @classmethod
    def current(cls) -> World:
        """The world that is simulated now."""
        assert cls._current is not None, "nothing is simulated now"
        return cls._current

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Be the current world."""
        before, World._current = World._current, self
        try:
            yield
        finally:
            World._current = before

    @contextmanager
    def within(self, process: Process) -> Iterator[None]:
        """What is done inside is done by this process."""
        before, self.process = self.process, process
        try:
            yield
        finally:
            self.process = before

    def note(self, line: str) -> None:
        """Put something into the trace."""
        self.trace.append(f"{self.clock.now_ms()} {line}")

    def mishap(self, *kinds: str, rate: float = 0.004) -> str | None:
        """One of these faults, seldom, as long as there are any left; mostly None."""
        if not self.faults_left or self.random.random() >= rate * len(kinds):
            return None
        self.faults_left -= 1
        kind = self.random.choice(kinds)
        self.happened.append(kind)
        self.note(f"mishap in {self.process.name}: {kind}")
        return kind

    def kill(self, process: Process) -> None:
        """Nothing of a process happens any more."""
        self.note(f"{process.name} is killed")
        process.is_alive = False
        self.busy = {each: None for each in self.busy if each.process is not process}
        for clean_up in list(process.at_death):
            clean_up()

    def step(self) -> None:
        """Let one thing happen."""
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise Broken("the job does not come to an end")
        self.calamity()
        now_ms = self.clock.now_ms()
        actions = [each.action for each in self.busy if each.process.frozen_until_ms <= now_ms]
        for actor in self.actors:
            for action in actor.actions():
                process = action.process
                if process.is_alive and process.frozen_until_ms <= now_ms:
                    actions.append(action)
        if not actions:
            self.clock.advance(self.random.choice((20, 100, 500)))
            return
        actions.append(Action("time passes", self.process, self._pass_time, _TIME_WEIGHT))
        pace = self._pace
        weights = [each.weight * pace.get(each.label.partition(" ")[0], 1.0) for each in actions]
        (action,) = self.random.choices(actions, weights)
        self.act(action)

    def act(self, action: Action) -> None:
        """Let this happen."""
        self.note(f"{action.process.name}: {action.label}")
        with self.within(action.process):
            try:
                action.act()
            except Killed:
                return

    def wait_ms(self, kind: str, weight: float = 1.0) -> float:
        """How long an action of this kind waits for its turn, on average."""
        time_weight = _TIME_WEIGHT * self._pace["time"]
        return mean(_MOMENTS_MS) * time_weight / (weight * self._pace[kind])

    def settle(self) -> None:
        """Let happen what still can, until there is nothing but time, for a while."""
        self.faults_left = 0
        for _ in range(400):
            self.step()

    def toil(self, milliseconds: int) -> None:
        """What is just done takes so long."""
        self.toiled_ms += milliseconds
        self.clock.advance(milliseconds)

    def _pass_time(self) -> None:
        self.clock.advance(self.random.choice(_MOMENTS_MS))


_PACED = ("step", "deliver", "task", "push", "time")
_TIME_WEIGHT = 0.5
_MOMENTS_MS = (1, 1, 2, 5, 20)


class _SimulatedFuture(Future[Any]):
    def __init__(self, executor: SimulatedExecutor) -> None:
        super().__init__()
        self._executor = executor

    def drain(self) -> None:
        """Do what its executor has to do."""
        self._executor.drain()

    def result(self, timeout: float | None = None) -> Any:
        self.drain()
        return super().result(0)


class SimulatedExecutor:
    """Stands for a `ThreadPoolExecutor` of one thread: its tasks are actions of the world."""

    def __init__(self, workers: int = 1, name: str = "telling") -> None:
        self._world = World.current()
        self.process = self._world.process
        self._tasks: deque[Task] = deque()
        self._is_shut_down = False
        self._is_busy = False
        self.action = Action(f"task of {name}", self.process, self._run_first)

    def submit(self, call: Callable[..., Any], *arguments: Any) -> Future[Any]:
        if self._is_shut_down:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future = _SimulatedFuture(self)
        self._tasks.append((future, lambda: call(*arguments)))
        if self.process.is_alive:
            self._world.busy[self] = None
        return future

    def map(self, call: Callable[..., Any], *columns: Iterable[Any]) -> Iterator[Any]:
        futures = [self.submit(call, *row) for row in zip(*columns, strict=False)]
        return (future.result() for future in futures)

    def shutdown(self, *, wait: bool = True, cancel_futures: bool = False) -> None:
        self._is_shut_down = True
        if cancel_futures:
            for future, _ in self._tasks:
                future.cancel()
        if wait:
            self.drain()

    def drain(self) -> None:
        """Do all that there is to do, unless the process is dead, or it is just doing something."""
        while self._tasks and self.process.is_alive and not self._is_busy:
            with self._world.within(self.process):
                self._run_first()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.shutdown()

    def _run_first(self) -> None:
        future, call = self._tasks.popleft()
        if not self._tasks:
            self._world.busy.pop(self, None)
        if not future.set_running_or_notify_cancel():
            return
        self._is_busy = True
        try:
            answer = call()
        except Exception as error:  # noqa: BLE001 - as the real one
            future.set_exception(error)
        else:
            future.set_result(answer)
        finally:
            self._is_busy = False


def wait_for_others(_futures: Iterable[Any], *_: Any) -> None:
    """Stands for `wait` in a background thread: other threads of the process do all they have."""
    world = World.current()
    for executor in [each for each in world.busy if each.process is world.process]:
        executor.drain()
    if not world.process.is_alive:
        raise Killed


def wait_for_all(futures: Iterable[Any], **_: Any) -> tuple[set[Any], set[Any]]:
    """Stands for `wait` of such futures: all that a process does before it is killed."""
    futures = set(futures)
    for future in futures:
        future.drain()
    done = {future for future in futures if future.done()}
    return done, futures - done


class SimulatedQueue(EventQueue):
    """The events of an attempt. Waiting for one lets the world go on."""

    def __init__(self) -> None:
        self._world = World.current()
        self._process = self._world.process
        self._waiting: deque[AttemptEvent] = deque()

    def put(self, event: AttemptEvent) -> None:
        self._waiting.append(event)

    def next(self, timeout_s: float) -> AttemptEvent | None:
        world = self._world
        until_s = world.clock.monotonic_s() + timeout_s
        while True:
            world.step()
            if not self._process.is_alive:
                raise Killed
            if self._waiting and world.random.random() < 0.4:
                event = self._waiting.popleft()
                world.note(f"{self._process.name} learns {type(event).__name__}")
                return event
            if not self._waiting and world.clock.monotonic_s() >= until_s:
                return None
