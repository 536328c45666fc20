"""What is tried again, how long it is waited, and when it is given up."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.storage import Invalid, ManualClock, SeededEntropy, Unavailable
from holdfast.storage.retries import (
    _BACKOFFS,
    _MOST_ATTEMPTS,
    Backoff,
    Retries,
    RetryPolicy,
    Tried,
    Trouble,
    repeat_while_unavailable,
)


class Failure(Exception):
    def __init__(self, trouble: Trouble | None) -> None:
        super().__init__(str(trouble))
        self.trouble = trouble


class Longest:
    """The entropy whose jitter is always the whole of what it may be."""

    def token(self) -> str:
        return "0" * 16

    def uniform(self, low: float, high: float) -> float:
        return high


def trouble_of(error: Exception) -> Trouble | None:
    return error.trouble if isinstance(error, Failure) else None


def given_up(error: Exception, tried: Tried) -> Exception:
    return Unavailable("cannot", found=f"{error}, {tried}")


def failing(*troubles: Trouble | None) -> Callable[[], str]:
    """Fails so, one call after the other, and then answers."""
    left = list(troubles)

    def call() -> str:
        if left:
            raise Failure(left.pop(0))
        return "done"

    return call


def pauses(trouble: Trouble, policy: RetryPolicy) -> list[float]:
    found: list[float] = []
    while True:
        pause_s = policy.pause_s(
            trouble, attempts=len(found) + 1, elapsed_s=sum(found), entropy=Longest()
        )
        if pause_s is None:
            return found
        found.append(pause_s)


def run(call: Callable[[], str], policy: RetryPolicy, clock: ManualClock) -> str:
    retries = Retries(policy, clock, SeededEntropy(1))
    return retries.run(call, trouble_of=trouble_of, failed=given_up)


@pytest.mark.parametrize("trouble", Trouble)
def test_pauses_double_up_to_the_cap(trouble: Trouble) -> None:
    found = pauses(trouble, RetryPolicy(max_attempts=12, timeout_s=10_000))
    base, cap = _BACKOFFS[trouble].first_s, _BACKOFFS[trouble].longest_s
    most = _MOST_ATTEMPTS.get(trouble, 12)
    assert found == [min(cap, base * 2**n) for n in range(most - 1)]


def test_a_pause_is_any_part_of_what_it_may_be() -> None:
    entropy = SeededEntropy(7)
    found = [
        RetryPolicy().pause_s(Trouble.THROTTLED, attempts=4, elapsed_s=0, entropy=entropy)
        for _ in range(1000)
    ]
    known = [pause for pause in found if pause is not None]
    assert len(known) == 1000
    assert min(known) < 0.1
    assert 3.9 < max(known) <= 4.0
    assert 1.8 < sum(known) / 1000 < 2.2


@pytest.mark.parametrize("trouble", Trouble)
def test_the_time_of_all_attempts_is_bounded(trouble: Trouble) -> None:
    policy = RetryPolicy(max_attempts=10_000, timeout_s=30)
    assert sum(pauses(trouble, policy)) <= 30
    assert policy.pause_s(trouble, attempts=1, elapsed_s=30.001, entropy=Longest()) is None


def test_the_number_of_attempts_cannot_overflow_the_pause() -> None:
    policy = RetryPolicy(max_attempts=100_000, timeout_s=1e9)
    assert policy.pause_s(Trouble.SERVER, attempts=99_999, elapsed_s=0, entropy=Longest()) == 10


def test_a_call_that_works_is_made_once() -> None:
    clock = ManualClock()
    assert run(failing(), RetryPolicy(), clock) == "done"
    assert clock.now_ms() == 0


@pytest.mark.parametrize("trouble", Trouble)
def test_a_call_in_trouble_is_made_again_after_a_pause(trouble: Trouble) -> None:
    clock = ManualClock()
    assert run(failing(trouble, trouble), RetryPolicy(), clock) == "done"
    assert 0 < clock.now_ms() <= 1000 * 3 * _BACKOFFS[trouble].first_s + 2


def test_a_call_that_says_no_is_made_once() -> None:
    clock = ManualClock()
    with pytest.raises(Unavailable, match="found None, tried once"):
        run(failing(None), RetryPolicy(), clock)
    assert clock.now_ms() == 0


def test_a_refusal_after_trouble_ends_the_retries() -> None:
    with pytest.raises(Unavailable, match="found None, tried 2 times in"):
        run(failing(Trouble.SERVER, None, Trouble.SERVER), RetryPolicy(), ManualClock())


def test_attempts_run_out() -> None:
    with pytest.raises(Unavailable, match=r"found Trouble.SERVER, tried 3 times in \d"):
        run(failing(*[Trouble.SERVER] * 3), RetryPolicy(max_attempts=3), ManualClock())
    troubles = failing(*[Trouble.SERVER] * 2)
    assert run(troubles, RetryPolicy(max_attempts=3), ManualClock()) == "done"


def test_time_runs_out_also_when_calls_are_slow() -> None:
    clock = ManualClock()
    made = []

    def call() -> str:
        made.append(clock.monotonic_s())
        clock.advance(25_000)
        raise Failure(Trouble.CONNECTION)

    with pytest.raises(Unavailable, match="tried 3 times"):
        run(call, RetryPolicy(max_attempts=100, timeout_s=60), clock)
    assert made[-1] <= 60


def test_retries_end_when_the_result_is_not_wanted_any_more() -> None:
    wanted = [True, True, False]
    made = []

    def call() -> str:
        made.append(1)
        raise Failure(Trouble.SERVER)

    retries = Retries(RetryPolicy(), ManualClock(), SeededEntropy(1))
    with pytest.raises(Unavailable, match="tried 3 times"):
        retries.run(
            call, trouble_of=trouble_of, failed=given_up, wanted=lambda: bool(wanted.pop(0))
        )
    assert len(made) == 3


def test_the_error_of_the_library_is_chained_only_on_purpose() -> None:
    with pytest.raises(Unavailable) as caught:
        run(failing(None), RetryPolicy(), ManualClock())
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


@pytest.mark.parametrize("number", [0, -1, 1.5, True, "3", None])
def test_a_number_of_attempts_out_of_range_is_refused(number: int) -> None:
    with pytest.raises(Invalid, match="max_attempts"):
        RetryPolicy(max_attempts=number)


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), True, "3", None])
def test_a_time_out_of_range_is_refused(seconds: float) -> None:
    with pytest.raises(Invalid, match="retry_timeout_s"):
        RetryPolicy(timeout_s=seconds)


def test_pauses_of_a_backoff_double_up_to_the_longest() -> None:
    backoff = Backoff(first_s=0.1, longest_s=5.0)
    assert [backoff.pause_s(failures) for failures in (1, 2, 3, 6, 7, 10_000)] == pytest.approx(
        [0.1, 0.2, 0.4, 3.2, 5.0, 5.0]
    )


def unavailable(times: int) -> Callable[[], str]:
    left = [Unavailable(f"failure {number}") for number in range(1, times + 1)]

    def call() -> str:
        if left:
            raise left.pop(0)
        return "done"

    return call


def test_a_call_is_repeated_while_it_is_unavailable() -> None:
    clock, seen = ManualClock(), list[str]()
    answer = repeat_while_unavailable(
        unavailable(3),
        Backoff(first_s=1.0, longest_s=2.0),
        pause=clock.sleep_s,
        failed=lambda error, tries: seen.append(f"{tries} {error}"),
    )
    assert answer == "done"
    assert seen == ["1 failure 1", "2 failure 2", "3 failure 3"]
    assert clock.now_ms() == 1000 + 2000 + 2000


@pytest.mark.parametrize(("most", "gives_up"), [(2, 0), (9, 2)])
def test_a_call_is_given_up_with_its_last_failure(most: int, gives_up: int) -> None:
    pauses_s = list[float]()

    def pause(seconds: float) -> bool:
        pauses_s.append(seconds)
        return len(pauses_s) == gives_up

    with pytest.raises(Unavailable, match="failure 2"):
        repeat_while_unavailable(unavailable(5), Backoff(1.0), pause=pause, most=most)
    assert pauses_s == ([1.0, 2.0] if gives_up else [1.0])


def test_a_failure_callback_may_end_the_retries() -> None:
    def refuse(error: Unavailable, tries: int) -> None:
        raise Invalid("no more", found=str(tries)) from error

    with pytest.raises(Invalid, match="no more"):
        repeat_while_unavailable(unavailable(1), Backoff(1.0), pause=bool, failed=refuse)
