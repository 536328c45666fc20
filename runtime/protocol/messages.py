"""Messages between driver, slots and pushing tasks; rows are sent in streams.

A message is answered by True or False; its docstring says what False means, and where it says
nothing the answer is always True. Each may arrive twice, when an answer was lost: handling it again
has no effect.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import msgspec

from holdfast.runtime.protocol.checkpoints import SlotStatistics
from holdfast.runtime.protocol.elements import Barrier, EndOfInput, Idle
from holdfast.runtime.protocol.metrics import LongCall, SlotMetrics
from holdfast.runtime.protocol.process_facts import MemoryFacts
from holdfast.storage import StateSnapshot
from holdfast.storage.processes import ProcessIdentity

__all__ = [
    "Acknowledge",
    "Admit",
    "BeginSavepoint",
    "CancelAttempt",
    "CheckpointAborted",
    "CheckpointCompleted",
    "Collect",
    "Decline",
    "Exchange",
    "Failed",
    "Finish",
    "Finished",
    "Heartbeat",
    "MarkSource",
    "Push",
    "PushKey",
    "Ready",
    "Register",
    "RoomFor",
    "Start",
    "ToDriver",
    "ToSlot",
    "Watch",
    "Winner",
]


class PushKey(NamedTuple):
    """Which rows a push brings: those of one split of one batch for one edge, by one attempt."""

    source: str
    edge: str
    batch: int
    split: int
    attempt: int

    def __str__(self) -> str:
        return (
            f"source {self.source!r}, edge {self.edge!r}, batch {self.batch}, split {self.split}, "
            f"attempt {self.attempt}"
        )


class Winner(NamedTuple):
    """The attempt of a split that counts."""

    split: int
    attempt: int


class Start(msgspec.Struct, frozen=True, tag="start"):
    """All slots have registered. `peers` has the address of each slot, by slot."""

    peers: dict[int, str]


class Admit(msgspec.Struct, frozen=True, kw_only=True, tag="admit"):
    """Let a batch in, of which these attempts count: `Staging.admit`."""

    source: str
    sequence: int
    batch: int
    winners: list[Winner]
    watermark: int | None = None


class BeginSavepoint(msgspec.Struct, frozen=True, kw_only=True, tag="begin_savepoint"):
    """The barriers of this number will be of a savepoint; none is injected before all know.

    If it `ends_job` nothing is processed behind them, until it is known to have failed. The slot
    has been started with what it needs to get to the directory. False: it does not get there.

    The directory is a name, which a slot opens with what came with its task, secrets too. So
    neither is in a barrier, and a barrier that does not agree with what was told stops the slot.
    """

    checkpoint_id: int
    directory: str
    folder: str
    """The name of the savepoint's folder in the directory."""
    format: str
    ends_job: bool

    def __repr__(self) -> str:
        """Without the directory, whose URL may contain a password."""
        return f"BeginSavepoint({self.checkpoint_id}, {self.folder!r}, {self.format!r})"


class MarkSource(msgspec.Struct, frozen=True, kw_only=True, tag="mark_source"):
    """Cut the source here, or say that it is silent for now or has ended: `Staging.mark`."""

    source: str
    sequence: int
    mark: Barrier | Idle | EndOfInput


class CheckpointCompleted(msgspec.Struct, frozen=True, tag="checkpoint_completed"):
    """The checkpoint is committed: sinks may commit what belongs to it."""

    checkpoint_id: int


class CheckpointAborted(msgspec.Struct, frozen=True, tag="checkpoint_aborted"):
    """The checkpoint will not be committed."""

    checkpoint_id: int


class Finish(msgspec.Struct, frozen=True, tag="finish"):
    """The final checkpoint is done, or none was wanted: close everything and return."""


class CancelAttempt(msgspec.Struct, frozen=True, tag="cancel"):
    """The attempt is over: stop without finishing."""

    reason: str


class RoomFor(msgspec.Struct, frozen=True, kw_only=True, tag="room_for"):
    """Wait until no more than this is left of the source. False: not within the timeout."""

    source: str
    limit_bytes: int
    timeout_s: float


ToSlot: TypeAlias = (
    Start
    | Admit
    | BeginSavepoint
    | MarkSource
    | CheckpointCompleted
    | CheckpointAborted
    | Finish
    | CancelAttempt
    | RoomFor
)


class Register(msgspec.Struct, frozen=True, kw_only=True, tag="register"):
    """A slot has started, at this address. False: its attempt is over, and it must stop."""

    slot: int
    address: str
    holdfast_version: str
    python_version: str
    process: ProcessIdentity


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """All operators of the slot are open, with what they have restored; it processes."""

    slot: int


class Acknowledge(msgspec.Struct, frozen=True, kw_only=True, tag="acknowledge"):
    """A slot's whole part of a checkpoint is in storage: `parts` by uid of the operator.

    False: the checkpoint is over.
    """

    checkpoint_id: int
    slot: int
    parts: dict[str, list[StateSnapshot]]
    statistics: SlotStatistics
    in_flight: list[StateSnapshot] = []
    """Rows that the barrier has overtaken, a part for each edge that has any."""


class Decline(msgspec.Struct, frozen=True, kw_only=True, tag="decline"):
    """A slot cannot do its part of a checkpoint, and goes on."""

    checkpoint_id: int
    slot: int
    reason: str


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """A slot has failed: with it the attempt, and the job too if it is fatal.

    `uid` is that of the operator which failed, if it was one.
    """

    slot: int
    uid: str | None
    summary: str
    traceback: str
    is_fatal: bool
    is_users: bool = False
    """Whether the user's code raised it, for a reason that its environment does not explain."""
    memory: MemoryFacts = MemoryFacts()
    """Memory of its machine after the failure: another slot may have been killed."""


class Finished(msgspec.Struct, frozen=True, tag="finished"):
    """All chains of the slot have ended; a final checkpoint may follow."""

    slot: int


class Collect(msgspec.Struct, frozen=True, kw_only=True, tag="collect"):
    """One part of the rows of a collecting sink; a repetition has no effect."""

    uid: str
    part: str
    rows: bytes


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True, tag="heartbeat"):
    """The slot is alive. False: its attempt is over, and it must stop.

    One that `is_closing` has committed all that it was told to, and only closes its operators.
    `call` is what its thread has been in for some time.
    """

    slot: int
    metrics: SlotMetrics = SlotMetrics()
    is_closing: bool = False
    memory: MemoryFacts = MemoryFacts()
    call: LongCall | None = None


ToDriver: TypeAlias = (
    Register | Ready | Acknowledge | Decline | Failed | Finished | Collect | Heartbeat
)


class Push(msgspec.Struct, frozen=True, tag="push"):
    """The stream that this opens brings rows of a source, to be staged."""

    key: PushKey


class Exchange(msgspec.Struct, frozen=True, kw_only=True, tag="exchange"):
    """The stream that this opens brings all elements of these edges from one upstream slot."""

    sender: int
    edges: list[str]


class Watch(msgspec.Struct, frozen=True, tag="watch"):
    """The stream that this opens brings nothing, and ends with the slot's server.

    So a process that is killed is noticed by the end of its connection.
    """
