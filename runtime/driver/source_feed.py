"""The driver's side of a source: its commands to the slots, in order, and its position.

The watermark of a source is made here and not in tasks: splits of a batch run in any order and
several times, and rows of a rejected attempt must not move event time. Each task reports the
latest event time that it has pushed; the driver takes the latest of the admitted ones, less the
delay, and sends it after the batch. So a row is late only against earlier batches.

Cuts and admissions take turns, so a cut falls between two batches, and the position is read at the
same moment. While a savepoint that ends the job is taken, nothing is fed: rows after the snapshot
would never be committed. If the savepoint fails, feeding goes on and no row is lost.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from typing import Any

from holdfast.runtime.checkpoint.savepoint_orders import SavepointOrder
from holdfast.runtime.driver.daemon_threads import DaemonThreads
from holdfast.runtime.driver.events import (
    CutFailed,
    EventQueue,
    SavepointRefused,
    SourceBacklog,
    SourceCut,
    SourceFailed,
)
from holdfast.runtime.driver.slot_lines import SlotLink
from holdfast.runtime.protocol.elements import Barrier, EndOfInput, Idle
from holdfast.runtime.protocol.messages import (
    Admit,
    MarkSource,
    RoomFor,
    ToSlot,
    Winner,
)
from holdfast.storage import (
    Clock,
    Fenced,
    SavepointFolder,
    StateSnapshot,
    SystemClock,
    Unavailable,
)

__all__ = ["Feed", "Source"]

_ROOM_POLL_S = 1.0
_END_LOOK_S = 0.2


class Source(ABC):
    """A source in one attempt: started once, stopped once. It has its own threads."""

    uid: str

    @abstractmethod
    def start(self, feed: Feed) -> None:
        """Begin to feed, from where the restored position says."""

    @abstractmethod
    def position(self) -> Any:
        """The position of the source. Called between two admitted batches; must be quick."""

    @abstractmethod
    def store(
        self,
        position: Any,
        checkpoint_id: int,
        *,
        completed: int | None,
        savepoint: SavepointFolder | None = None,
    ) -> StateSnapshot:
        """Put a position into storage. Called in the background, in order of checkpoints.

        `completed` is the newest checkpoint in the job's folder that is known to be complete. The
        position may refer to files that this has, beside those that are written for it; others may
        be deleted at any time. That of a `savepoint` refers to files in its folder alone, and no
        later one refers to these; another thread calls for it, beside those of checkpoints.
        """

    @abstractmethod
    def stop(self) -> None:
        """Stop, and return when nothing is fed any more. Also called if it was never started."""


class Feed:
    """The commands of a source to the slots of one attempt. Safe to call from any thread.

    Batches and barriers take turns: a barrier is never inside a batch, and its position is that
    after the last batch before it. A command that may have reached only some slots is the last one:
    a barrier behind half a batch would cut the batch in two.
    """

    def __init__(
        self,
        source: Source,
        slots: Sequence[SlotLink],
        addresses: Mapping[int, str],
        events: EventQueue,
        clock: Clock | None = None,
    ) -> None:
        self._source = source
        self._clock = clock or SystemClock()
        self._newest_s = self._clock.monotonic_s()
        """When the newest batch was admitted; before the first one, when the source began."""
        self._slots = slots
        self.addresses = addresses
        """Where tasks find the slots, by slot."""
        self._events = events
        self._lock = threading.Lock()
        self._sequence = 0
        self._is_over = False
        self._is_broken = False
        self._may_feed = threading.Event()
        self._may_feed.set()
        self._has_drained = False
        self._telling = threading.Lock()
        self._withheld: SourceFailed | None = None
        """A failure that is reported only if the source is to go on."""
        self._cuts = DaemonThreads(1, f"barriers of {source.uid}")
        # Another thread than that of barriers: the next barrier would wait for a slow storage, and
        # the slots would wait for that barrier, with those of all other sources.
        self._stores = DaemonThreads(1, f"positions of {source.uid}")
        self._waiting: set[int] = set()
        """Checkpoints whose position is not yet being stored. `give_up` removes one."""
        self._saves = DaemonThreads(1, f"savepoints of {source.uid}")
        # A slot answers the question for room late, which must not hold up a barrier.
        self._commands = DaemonThreads(max(len(slots), 1), f"commands of {source.uid}")
        self._questions = DaemonThreads(max(len(slots), 1), f"room for {source.uid}")
        self.rows = 0
        self.batches = 0
        self.has_ended = False
        self._reads_backlog = False

    @property
    def is_over(self) -> bool:
        """Whether the attempt is over, so that the source must stop."""
        return self._is_over

    @property
    def is_held(self) -> bool:
        """Whether only barriers are allowed at the moment; other commands wait."""
        return not self._may_feed.is_set()

    def batch_age_s(self, now_s: float) -> float | None:
        """The time since the newest batch, or since the source began; None if it has ended."""
        return None if self.has_ended else round(max(0.0, now_s - self._newest_s), 1)

    def await_room(self, limit_bytes: int) -> None:
        """Wait until no slot has more than this of the source to process.

        Raises:
            Fenced: the attempt is over.
        """
        message = RoomFor(source=self._source.uid, limit_bytes=limit_bytes, timeout_s=_ROOM_POLL_S)
        full = list(self._slots)
        while full:
            answers = self._ask(self._questions, full, message)
            full = [slot for slot, has_room in zip(full, answers, strict=True) if not has_room]
            self._check_going_on()

    def admit(
        self,
        batch: int,
        winners: Iterable[Winner],
        *,
        rows: int,
        watermark: int | None,
        admitted: Callable[[], None],
    ) -> None:
        """Admit a batch that was pushed. `admitted` is called to move the source's position.

        Raises:
            HoldfastError: a slot could not take it; the attempt fails.
        """
        listed = list(winners)
        with self._turn() as sequence:
            self._tell_slots(
                Admit(
                    source=self._source.uid,
                    sequence=sequence,
                    batch=batch,
                    winners=listed,
                    watermark=watermark,
                )
            )
            admitted()
            self._newest_s = self._clock.monotonic_s()
            self.rows += rows
            self.batches += 1

    def idle(self) -> None:
        """Declare the source idle until its next batch."""
        with self._turn() as sequence:
            self._put_mark(sequence, Idle())

    def end(self) -> None:
        """Declare the end of the source: no rows follow."""
        with self._turn() as sequence:
            self._put_mark(sequence, EndOfInput())
            self.has_ended = True
        self.reads_backlog(is_read=False)

    def reads_backlog(self, *, is_read: bool) -> None:
        """Report whether the source reads what had gathered before it, so that it is in a hurry."""
        if is_read != self._reads_backlog and not self._is_over:
            self._reads_backlog = is_read
            self._events.put(SourceBacklog(self._source.uid, is_read))

    def fail(self, summary: str, details: str, *, is_fatal: bool = False, fault: str = "") -> None:
        """Report that the source cannot go on; for `fault` see `SourceFailed`.

        It is ignored once the source was drained: slots refuse pushes then, which fails the source.
        While the source is held, the report is withheld until `release`: if the savepoint for which
        it is held ends the job, the source is not needed any more.
        """
        failed = SourceFailed(self._source.uid, summary, details, is_fatal, fault)
        with self._telling:
            if self._has_drained:
                return
            if self.is_held:
                self._withheld = failed
                return
        self._tell(failed)

    def cut(
        self,
        checkpoint_id: int,
        completed: int | None,
        savepoint: SavepointOrder | None = None,
        announced: Sequence[Future[bool]] = (),
    ) -> None:
        """Inject a barrier in the background, as soon as no batch is being admitted.

        There is none, and `SavepointRefused` is reported, if a slot has not `announced` by True
        that it will take part; later barriers wait for these answers, too.

        `completed` is the newest checkpoint that is known to be complete, see `Barrier`. After that
        of a savepoint that ends the job nothing is fed, unless `release` is called.
        """
        self._waiting.add(checkpoint_id)
        self._cuts.submit(self._cut, checkpoint_id, completed, savepoint, announced)

    def give_up(self, checkpoint_id: int) -> None:
        """The checkpoint was aborted: do not begin to store its position."""
        self._waiting.discard(checkpoint_id)

    def drain(self) -> None:
        """Declare, in the background, that no rows follow, whatever the source has left.

        Its position stays that of its last batch: a job restored from it reads the rest.
        """
        self._cuts.submit(self._drain)

    def release(self) -> None:
        """Feed again, because the savepoint that was to end the job has failed."""
        with self._telling:
            self._may_feed.set()
            withheld, self._withheld = self._withheld, None
        if withheld is not None:
            self._tell(withheld)

    def close(self) -> None:
        """The attempt is over: the next command of the source raises `Fenced`."""
        self._is_over = True
        self._may_feed.set()
        for threads in (
            self._cuts,
            self._stores,
            self._saves,
            self._commands,
            self._questions,
        ):
            threads.shutdown(wait=False, cancel_futures=True)

    def _put_mark(self, sequence: int, mark: Barrier | Idle | EndOfInput) -> None:
        self._tell_slots(MarkSource(source=self._source.uid, sequence=sequence, mark=mark))

    def _tell_slots(self, message: ToSlot) -> None:
        """Send a command to all slots, side by side; returns when all have obeyed."""
        self._ask(self._commands, self._slots, message)

    def _ask(
        self, threads: DaemonThreads, slots: Sequence[SlotLink], message: ToSlot
    ) -> list[bool]:
        """The answers of these slots. After an error none of the calls is under way any more.

        Raises:
            HoldfastError: the first that a call has raised.
            Fenced: the attempt is over; calls may be under way.
        """
        calls: list[Future[bool]] = []
        try:
            for slot in slots:
                calls.append(threads.submit(slot.call, message))  # noqa: PERF401 - awaited below
        except RuntimeError:  # closed in the meantime
            self._check_going_on()
            raise
        finally:
            for call in calls:
                self._await(call)
        return [call.result() for call in calls]

    def _await(self, call: Future[bool]) -> None:
        while True:
            try:
                call.result(_END_LOOK_S)
            except (TimeoutError, CancelledError):
                self._check_going_on()  # a slot that stands still does not hold up its end
                if call.done():
                    return  # the call itself has raised it
            except Exception:  # noqa: BLE001
                return  # raised once all calls are done
            else:
                return

    def _drain(self) -> None:
        try:
            with self._turn(is_barrier=True) as sequence:
                self._hold()
                self._has_drained = True
                if not self.has_ended:
                    self._put_mark(sequence, EndOfInput())
        except Exception as error:  # noqa: BLE001 - an error of the thread would be lost
            self._fail(f"it could not be ended: {error}")

    def _cut(
        self,
        checkpoint_id: int,
        completed: int | None,
        savepoint: SavepointOrder | None,
        announced: Sequence[Future[bool]],
    ) -> None:
        if not all(map(_is_willing, announced)):
            self._events.put(SavepointRefused(checkpoint_id))
            return
        barrier = Barrier(checkpoint_id, completed, is_savepoint=savepoint is not None)
        try:
            with self._turn(is_barrier=True) as sequence:
                if savepoint is not None and savepoint.ends_job:
                    self._hold()
                    if savepoint.is_decided:  # it has failed already, and `release` was called
                        self.release()
                self._put_mark(sequence, barrier)
                position = self._source.position()
        except Exception as error:  # noqa: BLE001 - an error of the thread would be lost
            self._fail(f"a barrier could not be sent: {error}")
            return
        folder = None if savepoint is None else savepoint.folder
        threads = self._stores if savepoint is None else self._saves
        with suppress(RuntimeError):  # the attempt is over
            threads.submit(self._store, position, checkpoint_id, completed, folder)

    def _store(
        self,
        position: Any,
        checkpoint_id: int,
        completed: int | None,
        folder: SavepointFolder | None,
    ) -> None:
        try:
            self._waiting.remove(checkpoint_id)
        except KeyError:
            return  # it was given up
        uid = self._source.uid
        try:
            stored = self._source.store(
                position, checkpoint_id, completed=completed, savepoint=folder
            )
        except Exception as error:  # noqa: BLE001 - unreported, slots would wait for ever
            self._events.put(CutFailed(checkpoint_id, uid, str(error) or repr(error)))
        else:
            self._events.put(SourceCut(checkpoint_id, uid, stored))

    def _fail(self, summary: str) -> None:
        self._tell(SourceFailed(self._source.uid, summary, ""))

    def _tell(self, failed: SourceFailed) -> None:
        if not self._is_over:
            self._events.put(failed)

    def _hold(self) -> None:
        """Allow only barriers from now on. The caller has the turn."""
        self._may_feed.clear()
        if self._is_over:  # `close` may have run just before
            self._may_feed.set()

    def _await_turn(self, *, is_barrier: bool) -> None:
        """Take the lock, once this command is allowed."""
        while True:
            if not is_barrier:
                self._may_feed.wait()
            self._lock.acquire()
            if is_barrier or self._may_feed.is_set():
                return
            self._lock.release()  # held in the meantime

    @contextmanager
    def _turn(self, *, is_barrier: bool = False) -> Iterator[int]:
        """The number of the next command; no other command runs in this context."""
        self._await_turn(is_barrier=is_barrier)
        try:
            self._check_going_on()
            if self._is_broken:
                raise Unavailable(
                    "a command of a source did not get to all slots, so no other may follow",
                    where=f"source {self._source.uid!r}",
                    fix="The job starts again from its last checkpoint",
                )
            self._is_broken = True
            self._sequence += 1
            yield self._sequence
            self._is_broken = False
        finally:
            self._lock.release()

    def _check_going_on(self) -> None:
        if self._is_over:
            raise Fenced(
                "the attempt that a source feeds is over", where=f"source {self._source.uid!r}"
            )


def _is_willing(answer: Future[bool]) -> bool:
    """Whether a slot takes part. One that cannot be reached is reported by its line."""
    try:
        return answer.result()
    except Exception:  # noqa: BLE001 - whatever it is, the slot has not said that it will
        return False
