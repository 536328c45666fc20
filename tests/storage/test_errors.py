import pickle

import pytest

from holdfast.storage import Corrupt, HoldfastError, Invalid, TooLarge, errors


def test_message_names_thing_place_facts_and_fix() -> None:
    error = Corrupt(
        "a file was changed", where="chk-1/x", expected="XXH3 1", found="XXH3 2", fix="Restore it"
    )
    assert str(error) == "a file was changed [chk-1/x]: expected XXH3 1, found XXH3 2. Restore it"


def test_message_leaves_out_what_is_not_known() -> None:
    assert str(Invalid("no such state")) == "no such state"
    assert str(Invalid("no such state", found="sum")) == "no such state: found sum"


@pytest.mark.parametrize(
    "kind",
    [errors.Unavailable, errors.Fenced, errors.Taken, Corrupt, Invalid, TooLarge, errors.NotFound],
)
def test_errors_keep_kind_and_parts_through_pickle(kind: type[HoldfastError]) -> None:
    error = kind("what", where="where", expected="one", found="two", fix="do")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert (str(copy), copy.fix) == (str(error), "do")


def test_docstring_draws_every_kind() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    drawn = [kind for kind in kinds if issubclass(kind, HoldfastError)]
    assert len(drawn) == 8
    for kind in drawn:
        assert kind.__name__ in str(errors.__doc__)


def test_parts_of_an_error_are_replaced_and_the_others_stay() -> None:
    error = TooLarge("a name is too long", where="here", expected="less", found="more", fix="Cut")
    other = error.replaced(what="a key is too long", where="there")
    assert type(other) is TooLarge
    assert str(other) == "a key is too long [there]: expected less, found more. Cut"
    assert error.what == "a name is too long"
