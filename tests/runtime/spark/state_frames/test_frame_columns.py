"""Which columns of a DataFrame are what: nothing that is said is ignored. Without a session."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from holdfast.backends.arrow.values import ENCODING
from holdfast.runtime.spark.state_frames.frame_columns import column_of, is_packed, last_used_of
from holdfast.storage import Invalid

ANY = {"type": "any"}


def frame(*columns: str, metadata: dict[str, str] | None = None) -> Any:
    fields = [StructField(name, BinaryType(), metadata=metadata) for name in columns]
    return SimpleNamespace(columns=list(columns), schema=StructType(fields))


@pytest.mark.parametrize("argument", ["map_key", "position"])
def test_a_column_is_said_or_usual_or_refused(argument: str) -> None:
    there = frame("key", "value", argument)
    assert column_of(there, argument, "value", when=True, state="s") == "value"
    assert column_of(there, argument, None, when=True, state="s") == argument
    assert column_of(frame("key"), argument, None, when=True, state="s") is None
    assert column_of(there, argument, None, when=False, state="s") is None
    with pytest.raises(Invalid, match=f"state 's' has no use for {argument}="):
        column_of(there, argument, "value", when=False, state="s")


def test_times_of_last_use_are_not_left_out() -> None:
    there = frame("key", "value", "last_used_ms")
    assert last_used_of(there, None, has_ttl=True, state="s") == "last_used_ms"
    assert last_used_of(there, "value", has_ttl=True, state="s") == "value"
    assert last_used_of(frame("key"), None, has_ttl=True, state="s") is None
    assert last_used_of(frame("key"), None, has_ttl=False, state="s") is None
    with pytest.raises(Invalid, match="state 's' has no use for last_used="):
        last_used_of(frame("at"), "at", has_ttl=False, state="s")
    with pytest.raises(Invalid, match=r"no time to live.*with ttl=.*drop that column"):
        last_used_of(there, None, has_ttl=False, state="s")


def test_columns_read_from_state_are_known_to_be_messagepack() -> None:
    read = frame("value", metadata={ENCODING: "msgpack"})
    assert is_packed(read, "value", given=None, values=ANY, state="s") is True
    assert is_packed(read, "value", given=False, values=ANY, state="s") is False
    computed = frame("value")
    assert is_packed(computed, "value", given=None, values=ANY, state="s") is None
    assert is_packed(computed, "value", given=True, values=ANY, state="s") is True
    assert is_packed(computed, "other", given=None, values=ANY, state="s") is None
    many = {"type": "list", "items": ANY}
    assert is_packed(computed, "value", given=True, values=many, state="s") is True
    for said in (True, False):
        with pytest.raises(Invalid, match=f"no use for packed=.*packed={said}"):
            is_packed(computed, "value", given=said, values={"type": "int"}, state="s")
