"""A slot learns that a checkpoint is complete: by a command, or by the barrier of a later one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.runtime.protocol.elements import Barrier, EndOfInput
from holdfast.runtime.protocol.messages import CheckpointCompleted
from support.jobs.lone_slot import ORDERS, Stage
from support.simulations.jobs import expected

UIDS = {"spend", "towns", "twice", "out", "large", "all"}


class Noting:
    """A slot whose operators write down what they are told of checkpoints."""

    def __init__(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stage = Stage(url)
        self.noted: list[tuple[str, int, str]] = []
        for chain in self._opened():
            for spec, operator in zip(chain.plan.operators, chain.operators, strict=True):
                for verb in ("completed", "prepare", "snapshot"):
                    self._watch(monkeypatch, operator, verb, spec.uid)

    def _opened(self) -> Sequence[Any]:
        self.stage.slot.open()
        return self.stage.slot.chains

    def _watch(self, monkeypatch: pytest.MonkeyPatch, operator: Any, verb: str, uid: str) -> None:
        real = getattr(operator, verb)

        def noting(number: int, *rest: Any, **more: Any) -> Any:
            self.noted.append((verb, number, uid))
            return real(number, *rest, **more)

        monkeypatch.setattr(operator, verb, noting)

    def told(self) -> list[tuple[str, int]]:
        """What they were told, all of them alike, since this was asked before."""
        order = list(dict.fromkeys((verb, number) for verb, number, _ in self.noted))
        for each in order:
            uids = [uid for *what, uid in self.noted if tuple(what) == each]
            assert sorted(uids) == sorted(UIDS), f"{each} is for all, once"
        self.noted.clear()
        return order

    def completed(self) -> list[int]:
        return [number for verb, number in self.told() if verb == "completed"]


@pytest.fixture
def noting(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Noting:
    return Noting(f"file://{tmp_path}", monkeypatch)


def test_the_first_barrier_that_says_so_is_enough(noting: Noting) -> None:
    stage = noting.stage
    stage.sources[0].offer(Barrier(8, 5))
    stage.work()
    assert noting.told() == [("completed", 5)], "before the checkpoint is aligned anywhere"
    stage.sources[1].offer(Barrier(8, 5))
    stage.work()
    assert "completed" not in {verb for verb, _ in noting.told()}
    stage.slot.close()


def test_all_know_it_before_any_takes_a_snapshot(noting: Noting) -> None:
    noting.stage.checkpoint(8, completed=5)
    first, *rest = noting.noted[: len(UIDS)]
    assert {first[:2], *(each[:2] for each in rest)} == {("completed", 5)}
    noting.stage.slot.close()


def test_operators_are_notified_once_and_never_of_an_older_checkpoint(noting: Noting) -> None:
    stage = noting.stage
    stage.slot.command(CheckpointCompleted(3))
    stage.work()
    assert noting.completed() == [3]
    stage.checkpoint(8, completed=3)
    assert noting.completed() == [], "a command had told it"
    stage.checkpoint(9, completed=6)
    assert noting.completed() == [6]
    for number in (6, 5, 3, 6):
        stage.slot.command(CheckpointCompleted(number))
    stage.work()
    assert noting.completed() == [], "a barrier had told it"
    for number in (9, 9):
        stage.slot.command(CheckpointCompleted(number))
    stage.work()
    stage.checkpoint(10, completed=6)
    assert noting.completed() == [9], "the barrier was sent before"
    stage.slot.close()


def test_no_checkpoint_is_complete_before_a_barrier_or_command_says_so(noting: Noting) -> None:
    noting.stage.checkpoint(8)
    assert noting.completed() == []
    noting.stage.slot.close()


def test_sinks_commit_what_a_barrier_says_is_complete(tmp_path: Any) -> None:
    """Also behind the end of all input, before the final checkpoint."""
    stage = Stage(f"file://{tmp_path}")
    stage.slot.open()
    stage.orders(*ORDERS)
    stage.checkpoint(1)
    assert stage.shelf.committed == {}
    stage.offer(EndOfInput(), Barrier(2, 1))
    stage.work()
    assert {part.split("/")[2] for part in stage.shelf.committed} == {"1"}
    stage.offer(Barrier(3, 2))
    stage.work()
    assert stage.shelf.seen == expected({"web": [[ORDERS]]})
    stage.slot.command(CheckpointCompleted(2))
    stage.work()
    stage.slot.close()
    assert stage.shelf.seen == expected({"web": [[ORDERS]]})
