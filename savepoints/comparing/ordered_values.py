"""Values as they are written whatever order their dicts were filled in."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.storage.errors import UNREADABLE

__all__ = ["settled"]

_decode = msgspec.msgpack.Decoder().decode
_encode = msgspec.msgpack.Encoder().encode


def settled(packed: bytes) -> bytes:
    """The same value in MessagePack, with the entries of maps in the order of their keys.

    One in which a map has maps for keys stays as it is.
    """
    try:
        return _encode(_in_order(_decode(packed)))
    except (*UNREADABLE, TypeError):
        return packed


def _in_order(value: Any) -> Any:
    if isinstance(value, dict):
        entries = sorted((_encode(key), key, each) for key, each in value.items())
        return {key: _in_order(each) for _, key, each in entries}
    if isinstance(value, list | tuple):
        return [_in_order(each) for each in value]
    return value
