"""Slots, the network between them, and the driver's ear, in a simulated world.

Each stands for a class of the runtime that speaks to machines: `SimulatedSlot` for the process of
a slot, `Wire` for a stream between two, `SimulatedLink` for the driver's connection to one,
`SimulatedServer` for the driver's ear, `SimulatedCluster` for Spark.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import ClassVar

import msgspec

from holdfast.runtime.api.addresses import Listening
from holdfast.runtime.driver.events import EventQueue, SlotsEnded, TaskSlotsFound
from holdfast.runtime.network import Credentials, Protection, SourceCommand, obey_source
from holdfast.runtime.planning.job_plan import EdgeKind, EdgePlan
from holdfast.runtime.protocol.elements import Element, size_bytes
from holdfast.runtime.protocol.messages import (
    BeginSavepoint,
    CancelAttempt,
    CheckpointCompleted,
    Failed,
    Heartbeat,
    Register,
    RoomFor,
    Start,
    ToDriver,
    ToSlot,
)
from holdfast.runtime.slot_process import SlotLaunch
from holdfast.runtime.task.channel import Bell, Channel, Closed, Rings
from holdfast.runtime.task.routing import Outlet
from holdfast.runtime.task.slot import Slot
from holdfast.runtime.task.staging import Staging
from holdfast.storage import Fenced, HoldfastError, Unavailable
from holdfast.storage.distribution import holdfast_version
from holdfast.storage.processes import ProcessIdentity
from support.simulations.missed_chains import checked_step
from support.simulations.world import Action, Process, World

_CAPACITY_BYTES = 600
_BEAT_MS = 1_000
STEP_WEIGHT = 2.0
"""How much more than other things slots do steps."""


class SimulatedServer:
    """The driver's ear: stands for `DriverServer`."""

    _addresses: ClassVar[dict[str, SimulatedServer]] = {}

    def __init__(self, listening: Listening, token: str, protection: Protection) -> None:
        self._world = World.current()
        self._process = self._world.process
        self._serving: tuple[int, Callable[[ToDriver], bool]] | None = None
        assert protection == Protection()
        self.address = f"{listening.host}/{token}"
        self._addresses[self.address] = self

    @classmethod
    def at(cls, address: str) -> SimulatedServer | None:
        return cls._addresses.get(address)

    def serve(self, attempt: int, handle: Callable[[ToDriver], bool]) -> None:
        self._serving = (attempt, handle)

    def pause(self) -> None:
        self._serving = None

    def close(self) -> bool:
        self._addresses.pop(self.address, None)
        return True

    def answer(self, attempt: int, message: ToDriver) -> bool:
        if not self._process.is_alive:
            raise Unavailable("the driver is gone")
        serving = self._serving
        if serving is None or serving[0] != attempt:
            raise Fenced("the attempt of the job is over", found=f"attempt {attempt}")
        with self._world.within(self._process):
            return serving[1](message)


@dataclass(frozen=True)
class _ToDriver:
    """A slot's connection to the driver: stands for `DriverClient`."""

    world: World
    launch: SlotLaunch

    def call(self, message: ToDriver) -> bool:
        server = SimulatedServer.at(self.launch.driver_address)
        if server is None:
            raise Unavailable("the driver is gone")
        mishap = self.world.mishap("call is lost", "answer is lost", "call comes twice", rate=0.003)
        if mishap == "call is lost":
            raise Unavailable(mishap)
        answer = server.answer(self.launch.credentials.attempt, message)
        if mishap == "call comes twice":
            answer = server.answer(self.launch.credentials.attempt, message)
        if mishap == "answer is lost":
            raise Unavailable(mishap)
        return answer


class Wire:
    """From a slot to a channel of another one, in order: stands for `ExchangeSender`."""

    def __init__(self, receiver: SimulatedSlot, channel: Channel, bell: Rings) -> None:
        self.receiver = receiver
        self._process = World.current().process
        self._channel = channel
        self._bell = bell
        self._waiting: deque[Element] = deque()
        self._size_bytes = 0

    @property
    def has_room(self) -> bool:
        return self._size_bytes < _CAPACITY_BYTES

    @property
    def is_empty(self) -> bool:
        return not self._waiting or not self.receiver.process.is_alive

    def send(self, element: Element) -> None:
        self._waiting.append(element)
        self._size_bytes += size_bytes(element)

    def actions(self) -> Iterable[Action]:
        if self._waiting and self.receiver.process.is_alive and self._channel.has_room:
            yield Action("deliver", self._process, self._deliver)

    def _deliver(self) -> None:
        element = self._waiting.popleft()
        self._size_bytes -= size_bytes(element)
        try:
            self._channel.offer(element)
        except Closed:
            self._waiting.clear()
        self._bell.ring()


class Life(Enum):
    """What the process of a slot is doing."""

    STARTING = "starting"
    WAITING = "waiting for peers"
    OPENING = "opening"
    RUNNING = "running"
    DRAINING = "draining"
    ENDED = "ended"
    FAILED = "failed"


class SimulatedSlot:
    """The process of one slot: stands for `host_slot`."""

    _addresses: ClassVar[dict[str, SimulatedSlot]] = {}

    def __init__(
        self, world: World, launch: SlotLaunch, number: int, watch: Callable[[SimulatedSlot], bool]
    ) -> None:
        self._watch = watch
        name = f"slot {number} of {launch.epoch}.{launch.attempt}"
        self.process = Process(name)
        self.life = Life.STARTING
        self.number = number
        self.launch = launch
        self.wires: list[Wire] = []
        self.peers: dict[int, SimulatedSlot] = {}
        self._world = world
        self._address = name
        self._driver = _ToDriver(world, launch)
        self._bell = Bell()
        self._last_beat_ms = 0
        self._idle_since_ms: int | None = None
        self._news: deque[ToSlot] = deque()
        """That a checkpoint is complete, and what was said after it: heard late."""
        plan = launch.plan
        self._channels = {
            edge.edge_id: [
                Channel(_CAPACITY_BYTES, self._bell, schema=edge.schema)
                for _ in range(edge.channels(plan.parallelism))
            ]
            for edge in plan.edges
        }
        sources: dict[str, dict[str, Channel]] = {}
        for edge in plan.edges:
            if edge.kind is EdgeKind.SOURCE:
                sources.setdefault(edge.origin, {})[edge.edge_id] = self._channels[edge.edge_id][0]
        self.staging = Staging(sources)
        with world.within(self.process):
            self.slot = Slot(
                launch,
                number,
                self._channels,
                self._outlet,
                self._driver.call,
                self._bell,
                world.clock,
            )
        self.watchers: list[Callable[[HoldfastError], None]] = []
        """What drivers have called when the process is gone."""
        self._addresses[self._address] = self

    @classmethod
    def at(cls, address: str) -> SimulatedSlot:
        return cls._addresses[address]

    def actions(self) -> Iterable[Action]:
        process = self.process
        if self.life is Life.STARTING:
            yield Action("registers", process, lambda: self._doing(self._register))
        elif self.life is Life.OPENING:
            yield Action("opens", process, lambda: self._doing(self._open))
        elif self.life is Life.RUNNING and self._has_work():
            yield Action("step", process, lambda: self._doing(self._step), STEP_WEIGHT)
        elif self.life is Life.DRAINING and self._may_end():
            yield Action("ends", process, self._end)
        if self._news:
            yield Action("hears news", process, self._hear, 0.3)
        if self.life in _BEATING and self._world.clock.now_ms() - self._last_beat_ms >= _BEAT_MS:
            yield Action("beats", process, self._beat)

    def channel(self, edge: str) -> Channel:
        """The channel of an edge that has but one in each slot."""
        (channel,) = self._channels[edge]
        return channel

    def receive(self, message: ToSlot) -> bool:
        """What the driver says, in a thread of the network."""
        if isinstance(message, RoomFor):
            message = msgspec.structs.replace(message, timeout_s=0)  # waiting is impossible here
        if isinstance(message, SourceCommand):
            return obey_source(self.staging, message)
        if isinstance(message, BeginSavepoint):
            return self.slot.begin_savepoint(message)
        if isinstance(message, CheckpointCompleted) or self._news:
            self._news.append(message)
        elif not isinstance(message, Start):
            self._command(message)
        elif self.life is Life.WAITING:
            self.peers = {slot: SimulatedSlot.at(each) for slot, each in message.peers.items()}
            self.life = Life.OPENING
        return True

    def stop(self) -> None:
        """The process is killed."""
        self._world.kill(self.process)
        if self.life is not Life.ENDED:
            self.life = Life.FAILED

    def lose(self, peer: str) -> None:
        """A stream to or from another slot broke."""
        self.slot.fail(Unavailable(f"{peer} is gone"))

    def _hear(self) -> None:
        self._command(self._news.popleft())

    def _command(self, command: ToSlot) -> None:
        if isinstance(command, CancelAttempt) and self.life in (Life.WAITING, Life.OPENING):
            self.stop()
        else:
            self.slot.command(command)  # type: ignore[arg-type]

    def _outlet(self, edge: EdgePlan, slot: int, bell: Rings) -> Outlet:
        receiver = self.peers[slot]
        channel = receiver._channels[edge.edge_id][self.number]
        wire = Wire(receiver, channel, bell)
        self.wires.append(wire)
        return wire

    def _doing(self, act: Callable[[], None]) -> None:
        if self._world.mishap("user code fails", rate=0.0005):
            act = self._raise
        try:
            act()
        except Exception as error:  # noqa: BLE001 - as `host_slot` does
            self._world.note(f"{self.process.name} fails: {error}")
            self._close_quietly()
            if not isinstance(error, Fenced):
                self._report(error)
            self.stop()

    def _raise(self) -> None:
        raise ValueError("a user's function")

    def _report(self, error: Exception) -> None:
        message = Failed(
            slot=self.number, uid=None, summary=str(error), traceback="", is_fatal=False
        )
        try:
            self._driver.call(message)
        except HoldfastError:
            return

    def _close_quietly(self) -> None:
        for failure in self.slot.close():
            self._world.note(f"{self.process.name} fails to close: {failure}")

    def _register(self) -> None:
        message = Register(
            slot=self.number,
            address=self._address,
            holdfast_version=holdfast_version(),
            python_version="3",
            process=ProcessIdentity(pid=id(self), host="host"),
        )
        self.life = Life.WAITING
        self._last_beat_ms = self._world.clock.now_ms()
        if not self._driver.call(message):
            raise Fenced("the driver does not want this slot")

    def _open(self) -> None:
        self.life = Life.RUNNING
        self.slot.open()

    def _has_work(self) -> bool:
        if self._idle_since_ms is None or self._bell.wait(0):
            return True
        return self._world.clock.now_ms() > self._idle_since_ms

    def _step(self) -> None:
        has_done = self._watch(self)
        self._idle_since_ms = None if has_done else self._world.clock.now_ms()
        if self.slot.is_done:
            self.slot.close()
            self.life = Life.DRAINING

    def _may_end(self) -> bool:
        over = (Life.DRAINING, Life.ENDED, Life.FAILED)
        return all(wire.is_empty for wire in self.wires) and all(
            peer.life in over for peer in self.peers.values()
        )

    def _end(self) -> None:
        self.staging.close()
        self.life = Life.ENDED
        self.stop()

    def _beat(self) -> None:
        self._last_beat_ms = self._world.clock.now_ms()
        try:
            is_wanted = self._driver.call(Heartbeat(slot=self.number))
        except HoldfastError:
            is_wanted = False
        if not is_wanted:
            self._command(CancelAttempt("this slot is not wanted any more"))


_BEATING = (Life.WAITING, Life.OPENING, Life.RUNNING, Life.DRAINING)


class SimulatedLink:
    """The driver's connection to a slot: stands for `SlotClient`."""

    def __init__(self, address: str, credentials: Credentials) -> None:
        self._world = World.current()
        self._process = self._world.process
        self._slot = SimulatedSlot.at(address)
        assert credentials == self._slot.launch.credentials

    @property
    def slot(self) -> SimulatedSlot:
        return self._slot

    def call(self, message: ToSlot) -> bool:
        if not self._process.is_alive:
            return False
        if not self._slot.process.is_alive:
            raise Unavailable("the slot is gone")
        mishap = self._world.mishap("command is lost", "answer is lost", "twice", rate=0.003)
        if mishap == "command is lost":
            raise Unavailable(mishap)
        with self._world.within(self._slot.process):
            answer = self._slot.receive(message)
            if mishap == "twice":
                self._slot.receive(message)
        if mishap == "answer is lost":
            raise Unavailable(mishap)
        return answer

    def watch(self, on_lost: Callable[[HoldfastError], None]) -> None:
        self._slot.watchers.append(on_lost)

    def close(self) -> None:
        self._slot.watchers.clear()


@dataclass
class SimulatedDeployment:
    """The slots of one attempt, as Spark runs them: one that dies takes the others with it."""

    world: World
    driver: Process
    events: EventQueue
    slots: list[SimulatedSlot]
    has_told: bool = False
    _noticed: set[tuple[int, int]] = field(default_factory=set)

    def actions(self) -> Iterable[Action]:
        is_over = self.has_told or not self.driver.is_alive
        if is_over and not any(slot.process.is_alive for slot in self.slots):
            self.world.actors.remove(self)
            return
        for slot in self.slots:
            if slot.process.is_alive:
                yield from slot.actions()
            for wire in slot.wires:
                yield from wire.actions()
        failed = [slot for slot in self.slots if slot.life is Life.FAILED]
        if failed and not self.has_told:
            yield Action("spark notices", self.driver, self._tell_failure, 0.2)
            yield from self._peers_notice(failed)
            for slot in failed:
                if slot.watchers:
                    yield Action("connection breaks", self.driver, partial(self._tell_loss, slot))
        if not self.has_told and all(slot.life is Life.ENDED for slot in self.slots):
            yield Action("slots have ended", self.driver, self._tell_end)

    def ending(self) -> None:
        """There is no log that had to be quiet."""

    def cancel(self) -> None:
        """Most slots are killed at once; some go on until they learn that they are not wanted."""
        if not self.driver.is_alive:
            return
        self.has_told = True
        for slot in self.slots:
            if slot.process.is_alive and self.world.random.random() < 0.6:
                slot.stop()

    def _peers_notice(self, failed: list[SimulatedSlot]) -> Iterator[Action]:
        for dead in failed:
            for slot in self.slots:
                if slot.life is Life.RUNNING and (slot.number, dead.number) not in self._noticed:
                    lose = partial(self._lose, slot, dead)
                    yield Action("peer is lost", slot.process, lose, 0.3)

    def _lose(self, slot: SimulatedSlot, dead: SimulatedSlot) -> None:
        self._noticed.add((slot.number, dead.number))
        slot.lose(dead.process.name)

    def _tell_loss(self, slot: SimulatedSlot) -> None:
        slot.watchers.pop()(Unavailable("the slot is gone"))

    def _tell_failure(self) -> None:
        self.cancel()
        self.events.put(SlotsEnded("a task failed"))

    def _tell_end(self) -> None:
        self.has_told = True
        self.events.put(SlotsEnded(None))


class SimulatedCluster:
    """Runs slots: stands for Spark."""

    driver = Listening("driver")

    def __init__(self, world: World) -> None:
        self._world = world
        self.watch: Callable[[SimulatedSlot], bool] = lambda slot: checked_step(slot.slot)
        """Has a slot do a step; a test may look before and after."""
        self.deployments: list[SimulatedDeployment] = []
        self.restored: dict[str, int] = {}
        """By attempt, as sinks call it: the number of the checkpoint that it was restored from."""

    def deploy(self, launch: SlotLaunch, events: EventQueue) -> SimulatedDeployment:
        slots = [
            SimulatedSlot(self._world, launch, number, self.watch)
            for number in range(launch.plan.parallelism)
        ]
        self.restored[f"{launch.epoch:020d}.{launch.attempt:010d}"] = launch.restored_number
        deployment = SimulatedDeployment(self._world, self._world.process, events, slots)
        self.deployments.append(deployment)
        self._world.actors.append(deployment)
        events.put(TaskSlotsFound())
        return deployment

    def room(self) -> None:
        """There is always enough."""

    def close(self) -> None:
        """No other job needs the task slots."""

    def slots(self) -> list[SimulatedSlot]:
        """All that live."""
        return [
            slot
            for deployment in self.deployments
            for slot in deployment.slots
            if slot.process.is_alive
        ]
