"""Pickles of users' objects for other processes, with all that the classes of a script are.

cloudpickle sends classes of scripts and notebooks (`__main__`) and of functions by value. It loses:

| what | why | here |
|---|---|---|
| that a field of a dataclass has no default | `MISSING` is known by identity | sent by name |
| the fields of a msgspec Struct | they are made with the class | made anew |
| annotations that are text | they are looked up in a module that is not there | looked up here |

and refuses a class of which a codec was made, for what msgspec keeps in it.
Whatever a user's class may be in goes through this module (`tests/support/tidy.py` sees to it).
"""

from __future__ import annotations

import copyreg
import dataclasses
import inspect
import pickle
import traceback
import typing
from collections import ChainMap
from collections.abc import Iterator
from functools import partial
from io import BytesIO
from typing import Any, Generic, TypeVar

import msgspec
from pyspark import cloudpickle

from holdfast.backends import StateBackend
from holdfast.runtime.planning.job_plan import JobPlan
from holdfast.storage import CheckpointStorage, Invalid

__all__ = ["ByValue", "check_pickles", "pickled", "pickled_by_spark"]

_T = TypeVar("_T")

_CACHE = "__msgspec_cache__"
_NONE = msgspec.NODEFAULT
_StructMeta = type(msgspec.Struct)
_StructField: Any = type(msgspec.field(default=None))
_StructFactory = type(msgspec.defstruct("_", [("a", Any, [])]).__struct_defaults__[0])


def pickled(value: object) -> bytes:
    """The bytes of anything; `pickle.loads` reads them in any process that has this package."""
    with BytesIO() as file:
        pickler: Any = _Pickler
        pickler(file).dump(value)
        return file.getvalue()


def pickled_by_spark(value: object) -> bytes:
    """The bytes that Spark itself makes of something that is sent with a task."""
    return bytes(cloudpickle.dumps(value))  # type: ignore[no-untyped-call]


@dataclasses.dataclass(frozen=True)
class ByValue(Generic[_T]):
    """A value that any pickler, such as Spark's for tasks, pickles as `pickled` does."""

    value: _T

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (pickled(self.value),)


def _unpickled(data: bytes) -> ByValue[Any]:
    return ByValue(pickle.loads(data))


def _by_name(name: str, _: object) -> tuple[Any, ...]:
    return getattr, (dataclasses, name)


_SENTINELS = {
    type(vars(dataclasses)[name]): partial(_by_name, name)
    for name in ("MISSING", "KW_ONLY", "_HAS_DEFAULT_FACTORY")
}
"""What `dataclasses` compares by identity. An instance of these types is the one of that name."""


_REDUCERS: Any = ChainMap(_SENTINELS, cloudpickle.Pickler.dispatch_table, copyreg.dispatch_table)


class _Pickler(cloudpickle.Pickler):
    dispatch_table = _REDUCERS

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, _StructField):
            return partial(msgspec.field, default_factory=obj.default_factory), ()
        reduced = super().reducer_override(obj)  # type: ignore[no-untyped-call]
        # Of a class that goes by value: how to make an empty one, its arguments, its attributes
        if not isinstance(obj, type) or reduced is NotImplemented or len(reduced) < 6:
            return reduced
        make, arguments, (namespace, slots), *rest = reduced
        namespace.pop(_CACHE, None)
        namespace["__qualname__"] = obj.__qualname__  # by which state and errors name it
        if _has_fields(obj):
            namespace["__annotations__"] = _resolved(obj)
        if isinstance(obj, _StructMeta):
            namespace.pop("__slots__", None)
            arguments = _struct_arguments(obj, *arguments)
        return make, arguments, (namespace, slots), *rest


def _has_fields(cls: Any) -> bool:
    """Whether the annotations of a class are the types of what its values consist of."""
    return (
        isinstance(cls, _StructMeta)
        or dataclasses.is_dataclass(cls)
        or hasattr(cls, "__attrs_attrs__")
        or (issubclass(cls, tuple) and hasattr(cls, "_fields"))
        or typing.is_typeddict(cls)
    )


def _resolved(cls: Any) -> dict[str, Any]:
    """The annotations of a class itself; text is looked up here, where its module is."""
    own = inspect.get_annotations(cls)
    try:
        hints = typing.get_type_hints(cls, include_extras=True)
    except Exception:  # noqa: BLE001 - an annotation may be any expression; it stays as it is
        return own
    return {name: hints.get(name, each) for name, each in own.items()}


def _struct_arguments(
    cls: Any, meta: Any, name: str, bases: Any, namespace: dict[str, Any], *rest: Any
) -> tuple[Any, ...]:
    """What makes a Struct with the fields of `cls`; their types and all else come afterwards."""
    names = cls.__struct_fields__
    own = [each for each in inspect.get_annotations(cls) if each in names]
    defaults = dict(zip(reversed(names), reversed(cls.__struct_defaults__), strict=False))
    given = {each: defaults[each] for each in own if defaults.get(each, _NONE) is not _NONE}
    found = cls.__struct_config__
    config = {each: getattr(found, each) for each in dir(found) if not each.startswith("_")}
    # A class without a tag may have a base with one
    config["tag"] = False if found.tag is None else found.tag
    config["rename"] = dict(zip(names, cls.__struct_encode_fields__, strict=True))
    config["kw_only"] = bool(own) and own[0] not in cls.__match_args__
    namespace = {**namespace, "__annotations__": dict.fromkeys(own, Any)}
    namespace |= {each: _struct_default(default) for each, default in given.items()}
    if "__post_init__" in vars(cls):
        namespace["__post_init__"] = _post_init
    return partial(meta, **config), name, bases, namespace, *rest


def _struct_default(default: Any) -> Any:
    if isinstance(default, _StructFactory):
        return msgspec.field(default_factory=default.factory)
    return default


def _post_init(self: Any) -> None:
    """In the place of a method that comes later: msgspec looks only when a class is made."""
    self.__post_init__()


def check_pickles(plan: JobPlan, backend: StateBackend, storage: CheckpointStorage) -> None:
    """Pickle, as Spark will, what slots are started with. Functions and sinks were tried before.

    Raises:
        Invalid: something cannot be pickled; names it.
    """
    for what, part in _parts(plan, backend, storage):
        try:
            pickled_by_spark(part)
        except Exception as error:
            raise Invalid(
                f"{what} cannot be pickled, so it cannot get into slots",
                expected="settings, in attributes that can be pickled",
                found="".join(traceback.format_exception_only(error)).strip(),
                fix="Keep settings only, and make what cannot travel (locks, connections, clients) "
                "where it is used, or leave it out in __getstate__",
            ) from error


def _parts(
    plan: JobPlan, backend: StateBackend, storage: CheckpointStorage
) -> Iterator[tuple[str, Any]]:
    yield f"the state backend {type(backend).__qualname__}", backend
    yield f"the checkpoint storage {type(storage).__qualname__}", storage
    yield "the job", plan
