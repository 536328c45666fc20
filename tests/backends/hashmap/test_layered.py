"""A layered dict behaves as a dict, and its frozen views never change."""

from itertools import chain

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from holdfast.backends.hashmap.layered import FrozenDict, LayeredDict

ADDRESSES = st.integers(0, 9)


class LayeredMachine(RuleBasedStateMachine):
    views = Bundle("views")

    def __init__(self) -> None:
        super().__init__()
        self.layered = LayeredDict()
        self.model: dict[int, list[int]] = {}

    @rule(address=ADDRESSES, value=st.integers(0, 99))
    def put(self, address: int, value: int) -> None:
        self.layered.put(address, [value])
        self.model[address] = [value]

    @rule(address=ADDRESSES, value=st.integers(0, 99))
    def change_in_place(self, address: int, value: int) -> None:
        there = self.layered.own(address, list.copy)
        assert there == self.model.get(address)
        if there is not None:
            there.append(value)
            self.model[address] = [*self.model[address], value]

    @rule(address=ADDRESSES)
    def remove(self, address: int) -> None:
        self.layered.remove(address)
        self.model.pop(address, None)

    @rule(target=views)
    def freeze(self) -> tuple[FrozenDict, dict[int, list[int]]]:
        return self.layered.freeze(), {key: list(value) for key, value in self.model.items()}

    @rule(view=consumes(views), rows=st.integers(1, 4))
    def read_and_release(self, view: tuple[FrozenDict, dict[int, list[int]]], rows: int) -> None:
        frozen, expected = view
        pieces = list(frozen.pieces(rows))
        addresses = list(chain.from_iterable(piece for piece, _ in pieces))
        values = list(chain.from_iterable(piece for _, piece in pieces))
        assert len(addresses) == len(set(addresses))
        assert dict(zip(addresses, values, strict=True)) == expected
        assert all(len(piece) <= rows for piece, _ in pieces)
        frozen.release()

    @rule(chunks=st.integers(0, 3))
    def fold(self, chunks: int) -> None:
        asked = iter(range(chunks))
        self.layered.fold(lambda: next(asked, None) is None)

    @invariant()
    def is_as_the_model(self) -> None:
        assert sorted(self.layered.addresses()) == sorted(self.model)
        addresses = list(range(10))
        expected = [self.model.get(address) for address in addresses]
        assert [self.layered.get(address) for address in addresses] == expected
        assert self.layered.get_many(addresses) == expected
        assert len(self.layered) >= len(self.model)


TestLayered = LayeredMachine.TestCase
TestLayered.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)


def test_layers_are_folded_into_one() -> None:
    layered = LayeredDict()
    for number in range(5):
        layered.put(number, str(number))
        layered.freeze().release()
    layered.remove(3)
    layered.fold(lambda: False)
    assert sorted(layered.addresses()) == [0, 1, 2, 4]
    assert layered.get_many(range(5)) == ["0", "1", "2", None, "4"]
    assert len(layered._frozen) == 1
