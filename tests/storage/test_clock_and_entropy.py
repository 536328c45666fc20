import pickle
import threading

from holdfast.storage import ManualClock, SeededEntropy, SystemClock, SystemEntropy


def test_manual_clock_moves_only_when_told() -> None:
    clock = ManualClock(1_000)
    clock.sleep_s(0.5)
    clock.advance(250)
    assert (clock.now_ms(), clock.monotonic_s()) == (1_750, 1.75)


def test_system_clock_does_not_go_back() -> None:
    clock = pickle.loads(pickle.dumps(SystemClock()))
    before = clock.monotonic_s()
    clock.sleep_s(0.001)
    assert clock.monotonic_s() >= before + 0.001
    assert clock.now_ms() > 1_700_000_000_000


def test_a_wait_ends_with_its_event_or_after_its_time() -> None:
    event, clock = threading.Event(), ManualClock()
    assert not clock.wait_s(event, 2)
    assert not SystemClock().wait_s(event, 0.001)
    event.set()
    assert clock.wait_s(event, 600)
    assert SystemClock().wait_s(event, 600)
    assert clock.monotonic_s() == 2


def test_a_seed_repeats_and_the_system_does_not() -> None:
    first, second = SeededEntropy(7), SeededEntropy(7)
    assert [first.token() for _ in range(3)] == [second.token() for _ in range(3)]
    assert first.uniform(1, 2) == second.uniform(1, 2)
    tokens = {SystemEntropy().token() for _ in range(1000)}
    assert len(tokens) == 1000
    assert all(len(token) == 16 for token in tokens)
    assert all(3 <= SystemEntropy().uniform(3, 4) <= 4 for _ in range(100))
