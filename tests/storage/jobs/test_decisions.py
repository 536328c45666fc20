"""The decisions about commits, over every combination of small facts."""

from itertools import chain, combinations, product

import pytest

from holdfast.storage.jobs import decisions
from holdfast.storage.jobs.decisions import Created, Facts, Spared, StoredObject
from holdfast.storage.jobs.owner_records import Start

NUMBERS = (1, 2, 3, 4)


def subsets(items: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [*chain.from_iterable(combinations(items, size) for size in range(len(items) + 1))]


def test_the_next_epoch_is_above_every_claim() -> None:
    assert decisions.next_epoch([]) == 1
    for claimed in subsets(NUMBERS):
        assert all(decisions.next_epoch(claimed) > epoch for epoch in claimed)


def test_an_owner_is_fenced_by_a_newer_claim_and_by_the_loss_of_its_own() -> None:
    for claimed, mine in product(subsets(NUMBERS), NUMBERS):
        may_go_on = mine in claimed and not any(epoch > mine for epoch in claimed)
        expected = None if may_go_on else max(claimed, default=0)
        assert decisions.fenced_by(mine, claimed) == expected


def test_without_a_start_document_everything_counts() -> None:
    for listed in subsets(NUMBERS):
        assert decisions.unjudged(listed, None) == []
        assert decisions.judge(listed, None, {}) == decisions.Judgement(listed, ())


def test_the_first_owner_s_checkpoints_need_no_reading() -> None:
    start = Start(epoch=1, owner="a")
    for listed in subsets(NUMBERS):
        assert decisions.unjudged(listed, start) == []
        assert decisions.judge(listed, start, {}).completed == listed


@pytest.mark.parametrize("accepted", subsets(NUMBERS))
def test_a_checkpoint_counts_if_accepted_or_the_owner_s_or_unreadable(
    accepted: tuple[int, ...],
) -> None:
    start = Start(epoch=3, owner="c", accepted=accepted)
    for listed in subsets(NUMBERS):
        unjudged = decisions.unjudged(listed, start)
        assert set(unjudged) == set(listed) - set(accepted)
        for epochs in product((None, 1, 2, 3), repeat=len(unjudged)):
            known = dict(zip(unjudged, epochs, strict=True))
            judgement = decisions.judge(listed, start, known)
            counts = [
                number
                for number in listed
                if number in accepted or known[number] is None or known[number] == 3
            ]
            assert judgement.completed == tuple(counts)
            assert sorted(judgement.completed + judgement.void) == list(listed)


def test_an_ambiguous_create_is_told_from_a_lost_race() -> None:
    assert decisions.judge_create(b"mine", None) is Created.COMMITTED
    assert decisions.judge_create(b"mine", b"mine") is Created.COMMITTED
    assert decisions.judge_create(b"mine", b"theirs") is Created.TAKEN
    assert decisions.judge_create(b"mine", b"") is Created.TAKEN


def test_files_of_other_or_unknown_writers_are_borrowed() -> None:
    writers = {"a": 3, "b": 4, "c": None, "d": 3}
    assert decisions.borrowed(writers, 3) == {"b", "c"}
    assert decisions.borrowed(writers, 5) == set(writers)
    assert decisions.borrowed({}, 3) == set()


def test_retention_keeps_the_newest() -> None:
    for completed, keep in product(subsets(NUMBERS), range(1, 6)):
        kept, dropped = decisions.plan_retention(reversed(completed), keep, None)
        assert dropped + kept == completed
        assert len(kept) == min(keep, len(completed))


def test_retention_keeps_what_is_built_on_and_all_after_it() -> None:
    for completed, keep, since in product(subsets(NUMBERS), range(1, 6), range(6)):
        kept, dropped = decisions.plan_retention(reversed(completed), keep, since)
        assert dropped + kept == completed
        newest = decisions.plan_retention(completed, keep, None)[0]
        assert set(kept) == {*newest, *(number for number in completed if number >= since)}


def stored_objects() -> list[StoredObject]:
    """Every kind of object there is, finished and not."""
    found = []
    for finished in (True, False):
        for epoch, is_claim in product((1, 2, 3), (False, True)):
            found.append(StoredObject("name", finished, owner_epoch=epoch, is_claim=is_claim))
        found += [StoredObject("name", finished, 7, is_metadata=either) for either in (True, False)]
        found.append(StoredObject("name", finished))
    return found


@pytest.mark.parametrize("stored", stored_objects())
def test_orphans_are_exactly_the_unneeded_objects(stored: StoredObject) -> None:
    for referenced, completed, in_flight in product((False, True), repeat=3):
        facts = Facts(
            epoch=2,
            completed={7} if completed else set(),
            referenced={"name"} if referenced else set(),
            in_flight={7} if in_flight else set(),
        )
        if stored.owner_epoch is not None:
            lost = (
                stored.is_claim and not stored.finished
            )  # another process's: the owner's is written
            needed = stored.owner_epoch >= (3 if lost else 2)
        elif stored.checkpoint_id is None or in_flight:
            needed = True
        elif stored.is_metadata:
            needed = completed and stored.finished
        else:
            needed = referenced and stored.finished
        assert decisions.is_orphan(stored, facts) == (not needed)


def test_no_commit_is_below_the_newest_completed_checkpoint() -> None:
    for completed in subsets(NUMBERS):
        assert decisions.settled_below(completed, has_ended=False) == max(completed, default=0)
        for begun_from in (None, *range(7)):
            told = decisions.settled_below(completed, has_ended=False, begun_from=begun_from)
            newest = max(completed, default=0)
            assert told == (newest if begun_from is None else min(newest, begun_from))
            ended = decisions.settled_below(completed, has_ended=True, begun_from=begun_from)
            assert ended > 10**20


def test_open_is_what_is_above_the_newest_or_was_begun_before_it() -> None:
    for completed, begun_from, number in product(range(5), (None, *range(7)), range(8)):
        is_open = number > completed or (begun_from is not None and number >= begun_from)
        assert (number >= decisions.open_from(completed, begun_from)) == is_open


def test_spared_is_what_every_search_has_spared() -> None:
    searches = [(), (3,), (2, 4), range(2, 100), range(4, 100), range(1, 4), range(2, 5, 2)]
    for first, second, third in product(searches, repeat=3):
        spared = Spared(2).by(first).by(second).from_number(3).by(third)
        for number in range(6):
            kept = number >= 3 and all(number in each for each in (first, second, third))
            assert (number in spared) == kept
    assert 10**30 in Spared(1)
    assert 7 in Spared(7).from_number(3)


@pytest.mark.parametrize("stored", stored_objects())
def test_without_ownership_only_old_unreferenced_files_are_deleted(
    stored: StoredObject,
) -> None:
    for below, referenced in product((0, 6, 7, 8, float("inf")), (False, True)):
        is_old = stored.checkpoint_id is not None and stored.checkpoint_id < below
        is_free = not stored.finished or not (stored.is_metadata or referenced)
        told = decisions.is_leftover(
            stored, below=below, referenced={"name"} if referenced else set()
        )
        assert told == (is_old and is_free)
