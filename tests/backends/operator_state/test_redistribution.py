"""Redistribution of operator state: its decisions for generated cases."""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.backends.operator_state.redistribution import (
    Extent,
    Mode,
    Rescale,
    Share,
    SlotElements,
    StateOfSlots,
    deal,
    shares_of,
)

Element = tuple[int, int]
"""A piece, and the number of the element in it."""

Case = tuple[dict[str, StateOfSlots], int, int]
"""What was written, the number of slots then, and now."""

parallelisms = st.integers(1, 7)


@st.composite
def cases(draw: st.DrawFn, *, same: bool = False) -> Case:
    old_parallelism = draw(parallelisms)
    pieces = st.lists(
        st.builds(SlotElements, st.integers(0, old_parallelism - 1), st.integers(0, 9)), max_size=9
    ).map(lambda drawn: tuple(sorted(drawn, key=lambda piece: piece.slot)))
    states = st.builds(StateOfSlots, st.sampled_from(Mode), pieces)
    written = draw(st.dictionaries(st.sampled_from("abcdef"), states, max_size=6))
    now = old_parallelism
    if not same:
        now = draw(parallelisms.filter(lambda each: each != old_parallelism))
    return written, old_parallelism, now


def elements_of(extents: tuple[Extent, ...]) -> list[Element]:
    return [(each.piece, number) for each in extents for number in range(each.first, each.end)]


def everything(state: StateOfSlots) -> list[Element]:
    return [
        (index, number)
        for index, piece in enumerate(state.pieces)
        for number in range(piece.elements)
    ]


def by_slot(
    written: Mapping[str, StateOfSlots], old_parallelism: int, parallelism: int
) -> list[dict[str, Share]]:
    return [
        shares_of(written, Rescale(old_parallelism, parallelism, slot))
        for slot in range(parallelism)
    ]


def dealt_as_flink(counts: Mapping[str, int], parallelism: int) -> dict[str, list[list[int]]]:
    """Elements one by one, as Flink's round robin says it.

    The even part for each slot, one more for as many slots as elements are left over; the next
    state begins with the slot after those.
    """
    start, dealt = 0, {}
    for name in sorted(counts):
        numbers = iter(range(counts[name]))
        even, left_over = divmod(counts[name], parallelism)
        slots: list[list[int]] = [[] for _ in range(parallelism)]
        next_start = start
        for turn in range(parallelism):
            slot = (start + turn) % parallelism
            has_more = turn < left_over
            slots[slot] = [next(numbers) for _ in range(even + has_more)]
            if has_more:
                next_start = (slot + 1) % parallelism
        start, dealt[name] = next_start, slots
    return dealt


@given(cases())
def test_list_elements_are_dealt_out_as_flink_does(case: Case) -> None:
    written, _, parallelism = case
    lists = {name: everything(each) for name, each in written.items() if each.mode is Mode.LIST}
    expected = dealt_as_flink({name: len(lists[name]) for name in lists}, parallelism)
    slots = by_slot(*case)
    for name, elements in lists.items():
        found = [elements_of(shares[name].loaded) for shares in slots]
        assert found == [[elements[each] for each in part] for part in expected[name]]


@given(st.one_of(cases(), cases(same=True)))
def test_undeclared_elements_are_partitioned_over_slots(case: Case) -> None:
    written, _, _ = case
    slots = by_slot(*case)
    for name, state in written.items():
        parts = [elements_of(shares[name].passed_on) for shares in slots]
        if state.mode is not Mode.BROADCAST:
            assert Counter(each for part in parts for each in part) == Counter(everything(state))


@given(cases())
def test_a_changed_number_of_slots_is_even(case: Case) -> None:
    written, _, parallelism = case
    slots = by_slot(*case)
    for mode in (Mode.LIST, Mode.UNION_LIST):
        sums = [0] * parallelism
        for name in (name for name, state in written.items() if state.mode is mode):
            lengths = [len(elements_of(shares[name].passed_on)) for shares in slots]
            assert max(lengths) - min(lengths) <= 1
            sums = [one + another for one, another in zip(sums, lengths, strict=True)]
        assert max(sums) - min(sums) <= 1


@given(st.one_of(cases(), cases(same=True)))
def test_every_carried_element_is_loaded(case: Case) -> None:
    written, _, _ = case
    for shares in by_slot(*case):
        assert shares.keys() == written.keys()
        for name, share in shares.items():
            if written[name].mode is Mode.UNION_LIST:
                assert elements_of(share.loaded) == everything(written[name])
                assert set(elements_of(share.passed_on)) <= set(elements_of(share.loaded))
            else:
                assert share.loaded == share.passed_on


@given(cases(same=True))
def test_at_the_same_parallelism_slots_keep_their_own(case: Case) -> None:
    written, _, _ = case
    for slot, shares in enumerate(by_slot(*case)):
        for name, share in shares.items():
            pieces = written[name].pieces
            own = [each for each in everything(written[name]) if pieces[each[0]].slot == slot]
            assert elements_of(share.passed_on) == own


@given(st.lists(st.integers(0, 20), max_size=6), parallelisms)
def test_elements_are_dealt_evenly_over_all_rounds(totals: list[int], parallelism: int) -> None:
    counts = [0] * parallelism
    dealt = 0
    for total in totals:
        runs = [deal(total, parallelism, slot=slot, dealt=dealt) for slot in range(parallelism)]
        assert sorted(number for run in runs for number in run) == list(range(total))
        counts = [count + len(run) for count, run in zip(counts, runs, strict=True)]
        dealt += total
        assert max(counts) - min(counts) <= 1


def copies() -> Iterator[tuple[list[int], int, int]]:
    """Every choice of old slots that have a copy, for small parallelisms."""
    for old_parallelism, parallelism in product(range(1, 5), range(1, 6)):
        for holders in product((False, True), repeat=old_parallelism):
            yield [slot for slot, has in enumerate(holders) if has], old_parallelism, parallelism


@pytest.mark.parametrize(("holders", "old_parallelism", "parallelism"), list(copies()))
def test_broadcast_copies_go_around(
    holders: list[int], old_parallelism: int, parallelism: int
) -> None:
    written = {"b": StateOfSlots(Mode.BROADCAST, tuple(SlotElements(slot, 2) for slot in holders))}
    taken = []
    for shares in by_slot(written, old_parallelism, parallelism):
        indexes = [extent.piece for extent in shares["b"].loaded]
        assert all((extent.first, extent.end) == (0, 2) for extent in shares["b"].loaded)
        taken.append([holders[index] for index in indexes])
    if not holders:
        assert taken == [[]] * parallelism
    elif old_parallelism == parallelism:
        assert taken == [[slot] if slot in holders else [] for slot in range(parallelism)]
    else:
        assert taken == [[holders[slot % len(holders)]] for slot in range(parallelism)]


def test_an_empty_map_is_a_copy() -> None:
    written = {"b": StateOfSlots(Mode.BROADCAST, (SlotElements(0, 0), SlotElements(1, 0)))}
    for shares in by_slot(written, 2, 3):
        assert [(extent.first, extent.end) for extent in shares["b"].passed_on] == [(0, 0)]


@pytest.mark.parametrize("mode", [Mode.LIST, Mode.UNION_LIST])
def test_every_small_number_of_elements_is_dealt_out_whole(mode: Mode) -> None:
    for counts in product(range(4), repeat=3):
        state = StateOfSlots(
            mode, tuple(SlotElements(slot, count) for slot, count in enumerate(counts))
        )
        for parallelism in range(1, 6):
            parts = [
                elements_of(each["s"].passed_on) for each in by_slot({"s": state}, 3, parallelism)
            ]
            assert [each for part in parts for each in part] == everything(state)
