"""A slot with its network: what runs in one task of Spark for the whole life of an attempt."""

from __future__ import annotations

import os
import platform
import threading
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

from holdfast.runtime.api.addresses import Listening
from holdfast.runtime.api.errors import NotOpened, OperatorFailed, UserCodeFailed, may_pass
from holdfast.runtime.api.network_config import NetworkConfig
from holdfast.runtime.network import (
    Credentials,
    DriverClient,
    ExchangeSender,
    SlotCommand,
    SlotServer,
)
from holdfast.runtime.planning.job_plan import EdgeKind, EdgePlan
from holdfast.runtime.planning.memory_shares import memory_shares
from holdfast.runtime.protocol.messages import (
    BeginSavepoint,
    CancelAttempt,
    CheckpointAborted,
    CheckpointCompleted,
    Failed,
    Finish,
    Heartbeat,
    Register,
    Start,
)
from holdfast.runtime.protocol.process_facts import memory_facts
from holdfast.runtime.task.channel import Bell, Channel, Rings
from holdfast.runtime.task.routing import Outlet
from holdfast.runtime.task.slot import Slot
from holdfast.runtime.task.slot_assignment import SlotAssignment
from holdfast.runtime.task.spill import Spill
from holdfast.runtime.task.staging import Staging
from holdfast.storage import (
    Clock,
    Corrupt,
    Fenced,
    HoldfastError,
    Invalid,
    SystemClock,
    Unavailable,
)
from holdfast.storage.distribution import holdfast_version
from holdfast.storage.jobs.job import with_restore_advice
from holdfast.storage.processes import my_identity

__all__ = ["SlotFailed", "SlotLaunch", "host_slot"]

_HEARTBEAT_S = 1.0
_START_TIMEOUT_S = 120.0
_STOP_TIMEOUT_S = 20.0
_LOOK_S = 0.5
_CLOSING_S = 5.0


@dataclass(frozen=True, kw_only=True)
class SlotLaunch(SlotAssignment):
    """What every slot of an attempt is started with. Plain data, pickled with the task."""

    credentials: Credentials
    driver_address: str
    network: NetworkConfig = field(default_factory=NetworkConfig)
    restored_number: int = 0
    """Of the checkpoint that is in `restored_from`."""


class SlotFailed(HoldfastError):
    """The slot has failed, by `__cause__`, and its driver knows."""


def host_slot(
    launch: SlotLaunch, slot: int, listening: Listening, clock: Clock | None = None
) -> None:
    """Be this slot until the job has finished.

    Raises:
        Fenced: the attempt is over.
        SlotFailed: it failed here, and the driver was told.
        Exception: it failed here, and the driver could not be told.
    """
    with ExitStack() as stack:
        driver = stack.enter_context(DriverClient(launch.driver_address, launch.credentials))

        def tell(error: Exception) -> bool:
            return _report(driver, slot, _with_advice(error, launch))

        try:
            process = _SlotProcess(launch, slot, listening, driver, clock or SystemClock(), stack)
            process.run(partial(_tell_late, tell, stack))
        except Fenced:
            raise
        except Exception as error:
            if not tell(error):
                raise
            raise SlotFailed(str(error)) from error


def _tell_late(tell: Callable[[Exception], bool], stack: ExitStack, error: Exception) -> None:
    """Have a failure told though operators do not get closed; otherwise that comes first.

    The driver stops the slot when it hears of it, and what is not closed by then would be left.
    """
    if not isinstance(error, Fenced):
        timer = threading.Timer(_CLOSING_S, tell, [error])
        timer.daemon = True
        timer.start()
        stack.callback(timer.cancel)


def _report(driver: DriverClient, slot: int, error: Exception) -> bool:
    """Tell the driver, which ends the attempt; False if it is not there."""
    cause: BaseException = error
    if isinstance(error, OperatorFailed) and error.__cause__ is not None:
        cause = error.__cause__
    told = (
        cause.user_traceback
        if isinstance(cause, UserCodeFailed)
        else "".join(traceback.format_exception(cause))
    )
    summary = cause.summary if isinstance(cause, UserCodeFailed) else str(error)
    uid = error.uid if isinstance(error, OperatorFailed) else None
    message = Failed(
        slot=slot,
        uid=uid,
        summary=summary,
        traceback=told,
        is_fatal=_is_fatal(error, cause),
        is_users=isinstance(cause, UserCodeFailed) and not _may_pass(cause),
        memory=memory_facts(),
    )
    try:
        driver.call(message)
    except Fenced:
        return True  # it knows, and the attempt is over
    except HoldfastError:
        return False
    return True


def _may_pass(error: BaseException | None) -> bool:
    """Whether what a user's function met may be gone by itself: a network, a server, a disk."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if may_pass(type(error)):
            return True
        error = error.__cause__ or error.__context__
    return False


def _with_advice(error: Exception, launch: SlotLaunch) -> Exception:
    """The error, which names what to restore instead if what was restored is damaged."""
    cause, folder = error.__cause__, launch.restored_from
    if not (isinstance(error, NotOpened) and isinstance(cause, Corrupt) and folder is not None):
        return error
    advised = cause.replaced(
        fix=with_restore_advice(cause.fix, cause, folder, launch.restored_number)
    )
    named = NotOpened(error.uid, advised)
    named.__cause__ = advised.with_traceback(cause.__traceback__)
    return named


def _is_fatal(error: Exception, cause: BaseException) -> bool:
    """Whether another attempt would fail in the same way: what cannot be opened stays so."""
    return isinstance(error, NotOpened) and isinstance(cause, Corrupt | Invalid)


class _SlotProcess:
    def __init__(
        self,
        launch: SlotLaunch,
        slot: int,
        listening: Listening,
        driver: DriverClient,
        clock: Clock,
        stack: ExitStack,
    ) -> None:
        self._launch = launch
        self._shares = memory_shares(launch.plan, launch.network.memory_bytes)
        self._number = slot
        self._driver = driver
        self._stack = stack
        self._bell = Bell()
        self._peers: dict[int, str] = {}
        self._has_peers = threading.Event()
        self._has_ended = threading.Event()
        self._is_unwanted = threading.Event()
        self._senders: dict[int, ExchangeSender] = {}
        self._channels = self._make_channels()
        spill = Spill(launch.network.directories)
        stack.callback(spill.close)
        self._slot = Slot(
            launch,
            slot,
            self._channels,
            self._outlet,
            driver.call,
            self._bell,
            clock,
            spill=spill,
        )
        staging = Staging(
            self._source_channels(),
            memory_bytes=self._shares.staging_bytes,
            spill=spill,
            on_failure=self._slot.fail,
        )
        self._server = stack.enter_context(
            SlotServer(
                listening,
                launch.credentials,
                staging=staging,
                channels=self._exchange_channels(),
                handle=self._handle,
                on_lost=self._lost,
            )
        )

    def run(self, on_failure: Callable[[Exception], None]) -> None:
        self._stack.callback(self._has_ended.set)
        wanted = self._driver.call(
            Register(
                slot=self._number,
                address=self._server.address,
                holdfast_version=holdfast_version(),
                python_version=platform.python_version(),
                process=my_identity(),
            )
        )
        if not wanted:
            raise Fenced("the driver does not want this slot", found=f"slot {self._number}")
        threading.Thread(target=self._beat, name="holdfast-heartbeat", daemon=True).start()
        if not self._has_peers.wait(_START_TIMEOUT_S):
            raise Unavailable(
                "the other slots did not come",
                expected=f"{self._launch.plan.parallelism} slots within {_START_TIMEOUT_S:g} s",
                fix="Give the session more task slots, or the job a lower parallelism",
            )
        try:
            self._slot.run(on_failure)
            self._await_peers()
        finally:
            for sender in self._senders.values():
                sender.close()

    def _await_peers(self) -> None:
        """Stay until the others are done too, as long as the driver wants the attempt.

        All is committed here, and nothing that counts is on the way. A peer may still commit, for
        as long as its sink takes; it would take a stream that breaks for a failure of the job.
        """
        for sender in self._senders.values():
            while not sender.end(_LOOK_S) and not self._is_unwanted.is_set():
                pass
        while not self._server.await_ends(_LOOK_S) and not self._is_unwanted.is_set():
            pass

    def _make_channels(self) -> dict[str, list[Channel]]:
        plan, capacity = self._launch.plan, self._shares.channel_bytes
        return {
            edge.edge_id: [
                Channel(capacity, self._bell, schema=edge.schema)
                for _ in range(edge.channels(plan.parallelism))
            ]
            for edge in plan.edges
        }

    def _source_channels(self) -> dict[str, dict[str, Channel]]:
        sources: dict[str, dict[str, Channel]] = {}
        for edge in self._launch.plan.edges:
            if edge.kind is EdgeKind.SOURCE:
                channels = sources.setdefault(edge.origin, {})
                channels[edge.edge_id] = self._channels[edge.edge_id][0]
        return sources

    def _exchange_edges(self) -> list[EdgePlan]:
        return [edge for edge in self._launch.plan.edges if edge.kind is EdgeKind.HASH]

    def _exchange_channels(self) -> dict[tuple[str, int], Channel]:
        return {
            (edge.edge_id, sender): channel
            for edge in self._exchange_edges()
            for sender, channel in enumerate(self._channels[edge.edge_id])
            if sender != self._number
        }

    def _outlet(self, edge: EdgePlan, slot: int, bell: Rings) -> Outlet:
        if slot not in self._senders:
            self._senders[slot] = ExchangeSender(
                self._peers[slot],
                self._launch.credentials,
                sender=self._number,
                edges={each.edge_id: each.schema for each in self._exchange_edges()},
                capacity_bytes=self._shares.channel_bytes,
                buffer_timeout_s=self._launch.network.buffer_timeout_s,
                bell=self._bell,
                on_error=self._slot.fail,
            )
        channel = self._senders[slot].channel(edge.edge_id)
        channel.bell = bell
        return channel

    def _handle(self, command: SlotCommand) -> bool:
        match command:
            case Start(peers=peers):
                self._peers = peers
                self._has_peers.set()
            case BeginSavepoint() as savepoint:
                return self._slot.begin_savepoint(savepoint)
            case CheckpointCompleted() | CheckpointAborted() | Finish() | CancelAttempt():
                self._slot.command(command)
        return True

    def _lost(self, sender: int, error: HoldfastError) -> None:
        del sender  # the error names it
        self._slot.fail(error)

    def _beat(self) -> None:
        """Tell the driver that the slot lives, and stop it when there is no driver for it."""
        reason = ""
        while not reason and not self._has_ended.wait(_HEARTBEAT_S):
            slot = self._slot
            message = Heartbeat(
                slot=self._number,
                metrics=slot.metrics(),
                is_closing=slot.is_done,
                memory=memory_facts(),
                call=slot.long_call(),
            )
            try:
                if not self._driver.call(message):
                    reason = "the driver does not want this attempt any more"
            except HoldfastError as error:
                reason = str(error)
        if reason:
            self._is_unwanted.set()
            self._slot.command(CancelAttempt(reason))
            self._has_peers.set()  # if it waits for them still: it sees the command first
            if not self._has_ended.wait(_STOP_TIMEOUT_S):
                # The slot's thread is stuck in a user's function, whose result is void.
                os._exit(1)
