"""Encoding of values: MessagePack by declared type; pickle only if it is declared and allowed.

A value is checked against its type before it is encoded, and comes back equal and of the same
types. `check` makes these conversions: scalars of NumPy and Arrow, and subclasses of builtins,
become plain builtins; an int where a float is declared becomes a float; aware datetimes are kept in
UTC. An `int` has 64 bits with sign, as in Arrow, Parquet and Spark.

A record is written with all its fields, so that defaults of later versions do not change stored
values (`holdfast.backends.schema.steps`). Fields that a TypedDict does not require may be missing,
since they have no default.
"""

from __future__ import annotations

import pickle
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import inspect

from holdfast.backends.values.checks import Check, Misfit
from holdfast.backends.values.compound_checks import Unsupported, check_for
from holdfast.backends.values.normalizing import full_name, shown
from holdfast.backends.values.omitted_defaults import completing, leaves_out_defaults
from holdfast.backends.values.type_descriptions import Schema, describe_type
from holdfast.storage.errors import Corrupt, Invalid

__all__ = ["PICKLE", "ValueCodec", "misfit_in", "pack_value", "value_codec_for"]

_V = TypeVar("_V")

PICKLE = "pickle"
"""The type of a schema whose bytes are pickles; reading them must be allowed."""

_READ_ERRORS = (msgspec.DecodeError, ValueError, TypeError, OverflowError, RecursionError)
"""The errors of msgspec for bytes that are no value: its own, and Python's."""

pack_value = msgspec.msgpack.Encoder(uuid_format="bytes", decimal_format="string").encode
"""Encodes checked values, in the same way for every type of immutable values."""


class ValueCodec(ABC, Generic[_V]):
    """One type of values. A codec has no state beside its type, so threads may share it.

    What is no value of the type is refused with `Invalid`, which names the place in the value, what
    was expected and what was found. Bytes that are no value are `Corrupt`.
    """

    name: str
    """The type, as errors name it."""

    is_immutable: bool
    """Whether values of the type cannot change, so that sharing one is safe."""

    exact: type | None = None
    """The class whose every instance is a valid value, if there is one. An int can be too large,
    and a str can contain half of a surrogate pair, so these types have none."""

    @abstractmethod
    def check(self, value: object) -> _V:
        """The value, converted to the exact types that `decode` returns.

        Answers the same object if nothing had to be converted.
        """

    @abstractmethod
    def encode(self, value: object) -> bytes:
        """`check` the value, then write it."""

    @abstractmethod
    def decode(self, data: bytes) -> _V:
        """The value that was written.

        Raises:
            Invalid: the bytes are a pickle, and reading pickles is not allowed.
        """

    @abstractmethod
    def describe(self) -> Schema:
        """The type as JSON, for a snapshot's metadata."""

    def check_many(self, values: Iterable[object]) -> list[_V]:
        """`check` for each value."""
        return list(map(self.check, values))

    def encode_many(self, values: Iterable[object]) -> list[bytes]:
        """`encode` for each value."""
        return list(map(self.encode, values))

    def decode_many(self, data: Iterable[bytes]) -> list[_V]:
        """`decode` for each value."""
        return list(map(self.decode, data))


@typing.overload
def value_codec_for(
    annotation: type[_V], *, pickle: bool = False, allow_pickle: bool = False
) -> ValueCodec[_V]: ...
@typing.overload
def value_codec_for(
    annotation: Any, *, pickle: bool = False, allow_pickle: bool = False
) -> ValueCodec[Any]: ...


def value_codec_for(
    annotation: Any, *, pickle: bool = False, allow_pickle: bool = False
) -> ValueCodec[Any]:
    """The codec of values of this type: a class, or any other annotation.

    Args:
        annotation: the type. `Any` is for plain data as in JSON, and bytes.
        pickle: write pickles of any object; only the outermost class of the type is checked.
        allow_pickle: read pickles. A pickle can run any code in the process that reads it.

    Raises:
        Invalid: values of this type are not supported.
    """
    if pickle:
        return _PickleCodec(annotation, allow_pickle=allow_pickle)
    try:
        node = inspect.type_info(annotation)
        check = check_for(node)
        pack = completing(pack_value) if leaves_out_defaults(node) else pack_value
        decoder = msgspec.msgpack.Decoder(annotation)
    except (TypeError, NameError, Unsupported) as error:
        raise Invalid(
            "a type of values is not supported",
            expected="Python's plain types, containers and unions of them, classes with fields",
            found=f"{annotation!r}: {error}",
            fix="Declare another type, or ask for pickle",
        ) from error
    return _MsgpackCodec(check, describe_type(node), decoder, pack)


class _MsgpackCodec(ValueCodec[_V]):
    """MessagePack by declared type."""

    def __init__(
        self,
        check: Check,
        schema: Schema,
        decoder: msgspec.msgpack.Decoder[_V],
        pack: Callable[[Any], bytes],
    ) -> None:
        self.name = check.name
        self.is_immutable = check.is_immutable
        self.exact = check.exact
        self._check = check.one
        self._fit = check.many
        self._schema = schema
        self._decode = decoder.decode
        self._pack = pack

    def check(self, value: object) -> _V:
        try:
            checked: _V = self._check(value)
            return checked
        except (Misfit, RecursionError) as error:
            raise self._refused(value, error) from None

    def encode(self, value: object) -> bytes:
        try:
            return self._pack(self._check(value))
        except (Misfit, RecursionError) as error:
            raise self._refused(value, error) from None

    def decode(self, data: bytes) -> _V:
        try:
            return self._decode(data)
        except _READ_ERRORS as error:
            raise self._damaged(data, error) from error

    def describe(self) -> Schema:
        return self._schema

    def check_many(self, values: Iterable[object]) -> list[_V]:
        listed: list[Any] = list(values)
        return listed if self._fit(listed) else super().check_many(listed)

    def encode_many(self, values: Iterable[object]) -> list[bytes]:
        values = list(values)
        if self._fit(values):
            return list(map(self._pack, values))
        return super().encode_many(values)

    def decode_many(self, data: Iterable[bytes]) -> list[_V]:
        data = list(data)
        try:
            return list(map(self._decode, data))
        except _READ_ERRORS:
            return super().decode_many(data)

    def _refused(self, value: object, error: Misfit | RecursionError) -> Invalid:
        if isinstance(error, RecursionError):
            found = f"{full_name(type(value))}, nested too deep, or within itself"
            return Invalid("a value does not fit its type", expected=self.name, found=found)
        return Invalid(
            "a value does not fit its type",
            where=f"at {error.path}" if error.path else "",
            expected=error.expected,
            found=error.found,
            fix=error.fix or (f"The declared type is {self.name}" if error.path else ""),
        )

    def _damaged(self, data: bytes, error: Exception) -> Corrupt:
        return Corrupt(
            "the bytes of a value cannot be read",
            expected=f"a value of type {self.name}",
            found=f"{len(data)} bytes ({error})",
        )


class _PickleCodec(ValueCodec[Any]):
    """Pickles of any object."""

    is_immutable = False

    def __init__(self, annotation: Any, *, allow_pickle: bool) -> None:
        cls = typing.get_origin(annotation) or annotation
        self._cls = cls if isinstance(cls, type) else object
        self._allow_pickle = allow_pickle
        self.name = full_name(self._cls)

    def check(self, value: object) -> Any:
        if not isinstance(value, self._cls):
            raise Invalid("a value does not fit its type", expected=self.name, found=shown(value))
        return value

    def encode(self, value: object) -> bytes:
        try:
            return pickle.dumps(self.check(value), protocol=5)
        except (pickle.PicklingError, TypeError, AttributeError, RecursionError) as error:
            raise Invalid(
                "a value cannot be pickled",
                expected=self.name,
                found=f"{shown(value)}: {error}",
                fix="Pickles name classes: put those of a script or a function into a module that "
                "every process can import, or declare their type, which needs no pickle",
            ) from error

    def decode(self, data: bytes) -> Any:
        if not self._allow_pickle:
            raise Invalid(
                "a value is pickled, and reading pickles is not allowed",
                expected="allow_pickle=True, if the source of the state is trusted",
                found=f"a pickle of {self.name}",
            )
        try:
            return self.check(pickle.loads(data))
        except Exception as error:
            raise Corrupt(
                "the pickle of a value cannot be read",
                expected=f"a value of type {self.name}",
                found=f"{len(data)} bytes ({error!r})",
            ) from error

    def describe(self) -> Schema:
        return {"type": PICKLE, "name": self.name}


def misfit_in(what: str, where: str, error: Invalid) -> Invalid:
    """The error `what` of a value that does not fit, located in its state and operator."""
    return error.replaced(what=what, where=", ".join(filter(None, (where, error.where))))
