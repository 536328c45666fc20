"""What is said of slots that are gone, by what Spark tells of them and what they told before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

import pytest

from holdfast.runtime.driver.events import AttemptEvent, SlotLost, SlotsEnded, SourceFailed
from holdfast.runtime.driver.failure import lost_slots
from holdfast.runtime.driver.failure.failures import RepeatedFailures
from holdfast.runtime.driver.failure.lost_slots import Loss, LostSlots, loss_in, shortened
from holdfast.runtime.driver.outcomes import FailureKind, Unsuccessful
from holdfast.runtime.protocol.messages import CancelAttempt, Failed
from holdfast.runtime.protocol.process_facts import MemoryFacts, memory_facts
from holdfast.storage import Unavailable
from holdfast.storage.processes import ProcessIdentity, my_identity
from support.jobs.attempt_with_played_slots import EXECUTORS, InlineExecutor, Stage, Step


@pytest.fixture(autouse=True)
def nothing_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in EXECUTORS:
        monkeypatch.setattr(f"holdfast.runtime.driver.{module}.DaemonThreads", InlineExecutor)


ABORTED = (
    "An error occurred while calling o413.collectToPython.\n: org.apache.spark.SparkException: Job "
    "aborted due to stage failure: Could not recover from a failed barrier ResultStage. Most "
    "recent failure reason: Stage failed because barrier task ResultTask(6, 1) finished "
    "unsuccessfully.\n"
)
KILLED = (
    f"{ABORTED}org.apache.spark.SparkException: Python worker exited unexpectedly (crashed). "
    "Consider setting 'spark.python.worker.faulthandler.enabled' configuration to 'true' for the "
    "better Python traceback.\n\tat org.apache.spark.api.python.BasePythonRunner.read(Python:5)\n"
)
CRASHED = (
    f"{ABORTED}org.apache.spark.SparkException: Python worker exited unexpectedly (crashed): Fatal "
    "Python error: Segmentation fault\n\nCurrent thread 0x1 (most recent call first):\n"
    '  File "job.py", line 3 in process_element\n\n'
    "\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.read(Python.scala:5)\n"
)
EXECUTOR_KILLED = (
    f"{ABORTED}ExecutorLostFailure (executor 1 exited caused by one of the running tasks) "
    "Reason: Command exited with code 137"
)
WORKER_LOST = (
    f"{ABORTED}ExecutorLostFailure (executor 2 exited unrelated to the running tasks) Reason: "
    "worker lost: 127.0.0.2:35693 got disassociated"
)
IN_A_POD = (
    f"{ABORTED}ExecutorLostFailure (executor 3 exited caused by one of the running tasks) Reason: "
    "\nThe executor with id 3 exited with exit code 137(SIGKILL, OOM)."
)


KILLS, OTHER = FailureKind.SLOT_KILLED, FailureKind.OTHER
LOST = (
    f"{ABORTED}ExecutorLostFailure (executor 1 exited caused by one of the running tasks) Reason: "
)


def process(number: int, host: str = "north") -> ProcessIdentity:
    return ProcessIdentity(pid=number, host=host, boot=host, space="1", started=number)


def slots(*, host_of_2: str = "north") -> LostSlots:
    lost = LostSlots()
    lost.came(0, process(10))
    lost.came(1, process(11))
    lost.came(2, process(12, host_of_2))
    return lost


@pytest.mark.parametrize(
    ("error", "loss"),
    [
        (None, None),
        ("the attempt is over", None),
        (KILLED, Loss(1)),
        (EXECUTOR_KILLED, Loss(1, "1", "Command exited with code 137")),
        (WORKER_LOST, Loss(1, "2", "worker lost: 127.0.0.2:35693 got disassociated")),
    ],
)
def test_errors_of_spark_are_classified(error: str | None, loss: Loss | None) -> None:
    assert loss_in(error) == loss


def test_a_crash_is_told_as_python_tells_it() -> None:
    loss = loss_in(CRASHED)
    assert loss is not None
    outcome = slots().outcome(loss, silent=[1])
    assert outcome.reason == "slot 1 (process 11 on north) has crashed: Segmentation fault"
    assert outcome.details.endswith('File "job.py", line 3 in process_element')
    assert outcome.kind is FailureKind.SLOT_KILLED


@pytest.mark.parametrize(
    ("error", "how", "kind"),
    [
        (EXECUTOR_KILLED, "executor 1|Command exited with code 137 (SIGKILL)", KILLS),
        (WORKER_LOST, "executor 2|worker lost: 127.0.0.2:35693 got disassociated", OTHER),
        (
            IN_A_POD,
            "executor 3|The executor with id 3 exited with exit code 137(SIGKILL, OOM)",
            KILLS,
        ),
    ],
)
def test_a_lost_executor_is_named_as_such(error: str, how: str, kind: FailureKind) -> None:
    """Spark then kills the other slots, so they are silent too."""
    loss = loss_in(error)
    reason = how.replace("|", " on north is lost, where slots 0, 1 ran: ")
    assert loss is not None
    assert slots(host_of_2="south").outcome(loss, silent=[0, 1, 2]) == Unsuccessful(
        reason, kind=kind
    )


@pytest.mark.parametrize(
    ("how", "kind"),
    [
        (
            "Container killed by YARN for exceeding physical memory limits. 5 GB of 5 GB used.",
            KILLS,
        ),
        ("Container from a bad node: container_1 on host: a. Exit status: 1.", OTHER),
        ("Container marked as failed: c1 on host: a. Exit code is 137. Diagnostics: Killed", KILLS),
        ("Command exited with code 52", KILLS),
        ("Command exited with code 1", OTHER),
        ("Executor heartbeat timed out after 137000 ms", OTHER),
        ("Container container_1 was preempted.", OTHER),
    ],
)
def test_an_executor_that_is_lost_for_want_of_memory_is_one_that_was_killed(
    how: str, kind: FailureKind
) -> None:
    loss = loss_in(f"{LOST}{how}")
    assert loss is not None
    outcome = slots().outcome(loss, silent=[1])
    assert outcome.kind is kind
    assert how.removesuffix(".") in outcome.reason
    repeats = RepeatedFailures(2)
    assert [repeats.failed(outcome, {}).is_final for _ in range(2)] == [False, kind is KILLS]


@pytest.mark.parametrize("error", [KILLED, CRASHED, EXECUTOR_KILLED, WORKER_LOST, IN_A_POD])
@pytest.mark.parametrize("before", ["", "x" * 300 + "\n\tat a.b(1)\n", "x" * 9000 + "\n"])
def test_long_errors_are_classified_after_shortening(error: str, before: str) -> None:
    cut = shortened(f"{before}{error}\n{'y' * 9000}", 400)
    assert loss_in(cut) == loss_in(error)
    assert len(cut) < 1_500


def killed(lost: LostSlots) -> str:
    return lost.outcome(Loss(1), silent=[1]).reason


def test_the_memory_of_a_lost_slot_is_reported() -> None:
    lost = slots()
    lost.lives(1, MemoryFacts(used_bytes=2_000 * 1024 * 1024))
    assert killed(lost) == (
        "slot 1 (process 11 on north) was killed, or has died; it had 2,000 MiB of memory"
    )


@pytest.mark.parametrize(("host", "is_known"), [("north", True), ("south", False)])
def test_a_slot_on_the_same_host_sees_the_kernel_s_kill(
    host: str,
    is_known: bool,  # noqa: FBT001
) -> None:
    lost = slots(host_of_2=host)
    lost.lives(1, MemoryFacts(oom_kills=4))
    lost.saw(2, MemoryFacts(oom_kills=5))
    assert ("the kernel has killed a process there for want of memory" in killed(lost)) is is_known


def test_a_slot_that_failed_before_it_was_known_says_nothing_of_others() -> None:
    lost = slots()
    lost.lives(1, MemoryFacts(oom_kills=4))
    lost.saw(7, MemoryFacts(oom_kills=5))  # its own coming is still to be looked at
    assert killed(lost) == "slot 1 (process 11 on north) was killed, or has died"


class _TellsMeanwhile(ProcessIdentity, frozen=True, kw_only=True):
    """Looking the slot up makes it fail at that moment, as if by another thread."""

    tell: Callable[[], None]

    def is_beside(self, other: ProcessIdentity) -> bool:
        self.tell()
        return super().is_beside(other)


def test_slots_may_fail_while_it_is_asked_what_they_saw() -> None:
    lost = slots()
    failing = count(3)

    def another_fails() -> None:
        slot = next(failing)
        lost.came(slot, process(slot))
        lost.saw(slot, MemoryFacts())

    for slot in (0, 1):
        host = process(slot)
        lost.came(
            slot, _TellsMeanwhile(pid=slot, host=host.host, boot=host.boot, tell=another_fails)
        )
    lost.lives(1, MemoryFacts(oom_kills=4))
    lost.saw(0, MemoryFacts(oom_kills=4))
    lost.saw(2, MemoryFacts(oom_kills=5))
    assert "for want of memory" in killed(lost)


def test_the_driver_sees_it_where_it_is_beside_the_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = slots()
    monkeypatch.setattr(lost_slots, "my_identity", lambda: process(1))
    for now, is_known in ((4, False), (5, True)):
        monkeypatch.setattr(lost_slots, "memory_facts", lambda now=now: MemoryFacts(oom_kills=now))
        lost.lives(1, MemoryFacts(oom_kills=4))
        assert ("for want of memory" in killed(lost)) is is_known


def test_unknown_slots_are_not_named() -> None:
    assert LostSlots().outcome(Loss(None), []).reason == (
        "the process of a slot was killed, or has died"
    )
    assert LostSlots().outcome(Loss(3), []).reason == "slot 3 was killed, or has died"


def test_a_process_knows_itself_and_its_memory() -> None:
    mine = my_identity()
    assert mine == my_identity()
    assert mine.is_beside(mine)
    assert not process(1).is_beside(process(1, "south"))
    assert (memory_facts().used_bytes or 0) > 1024 * 1024


def failure(stage: Stage, *then: Step) -> Unsuccessful:
    def script(stage: Stage) -> Iterator[Step]:
        yield from stage.running()
        yield from then

    outcome = stage.run(script)
    assert isinstance(outcome, Unsuccessful)
    return outcome


DIED = SlotsEnded("… Python worker exited unexpectedly (crashed) …")
LOST_PEER = Failed(slot=0, uid=None, summary="no peer", traceback="", is_fatal=False)


def test_the_message_names_a_process_that_was_killed() -> None:
    stage = Stage()
    stage.slots[1].error, stage.slots[1].fails_at = Unavailable("gone"), CancelAttempt
    outcome = failure(stage, DIED)
    assert outcome.reason == "slot 1 (process 1 on here) was killed, or has died"
    assert outcome.kind is FailureKind.SLOT_KILLED


def test_one_killed_slot_is_told_apart_from_those_that_spark_removes() -> None:
    stage = Stage()
    for slot in stage.slots:
        slot.error, slot.fails_at = Unavailable("gone"), CancelAttempt
    died = SlotsEnded(f"barrier task ResultTask(1, 1) finished unsuccessfully.\n{DIED.error}")
    outcome = failure(stage, LOST_PEER, died)
    assert outcome.reason == "slot 1 (process 1 on here) was killed, or has died"


@pytest.mark.parametrize(
    "symptom", [LOST_PEER, SlotLost(1, "no answer"), SourceFailed("a", "a push broke off", "")]
)
def test_a_slot_that_lost_its_peer_is_not_blamed_for_the_death(symptom: AttemptEvent) -> None:
    assert "was killed" in failure(Stage(), symptom, DIED).reason


def test_a_slot_that_lost_its_peer_is_not_blamed_for_the_failure() -> None:
    failed = Failed(slot=1, uid="sum", summary="no", traceback="line 1", is_fatal=False)
    outcome = failure(Stage(), LOST_PEER, failed)
    assert outcome == Unsuccessful("operator 'sum' failed: no", "line 1", uid="sum")
