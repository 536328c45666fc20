"""Whether the values of options can be, beyond their form: asked before a program runs.

What a job would refuse when it starts is refused where the options are given, also if the program
never makes an environment. What only a session can tell, such as how a bucket is reached, is not
asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.backends import load_backend
from holdfast.backends.interface import registered_backends
from holdfast.backends.keys.groups import check_parallelism
from holdfast.runtime.api.checkpoint_config import CheckpointConfig
from holdfast.runtime.api.network_config import NetworkConfig
from holdfast.storage import Invalid, load_storage
from holdfast.storage.registry import registered_storages, storage_factory

__all__ = ["check_together", "check_value", "rocksdb_fields"]

_ROCKSDB = "rocksdb"
_OF_A_SESSION = frozenset({"hdfs", "viewfs", "s3", "s3a"})
"""Storages that a session has more to say of."""
_MOST_PARALLELISM = 32_768
_GROUPS: Mapping[str, Any] = {"checkpointing": CheckpointConfig, "network": NetworkConfig}


def check_value(key: str, argument: str, value: Any) -> None:
    """Refuse a value that cannot be, whatever the others are.

    Raises:
        Invalid: it cannot; names the option.
    """
    kind, _, name = argument.partition(".")
    try:
        if kind in _GROUPS:
            _GROUPS[kind](**{name: value})
        elif argument in ("parallelism", "max_parallelism"):
            check_parallelism(value, _MOST_PARALLELISM)
        elif argument == "backend" and value not in registered_backends():
            load_backend(value)  # raises, and says which there are
        if argument in ("storage", "checkpointing.savepoint_dir"):
            _check_place(value)
    except Invalid as error:
        raise Invalid(
            f"option {key!r}: {error.what}",
            where=error.where,
            expected=error.expected,
            found=error.found,
            fix=error.fix,
        ) from error


def check_together(values: Mapping[str, Any]) -> None:
    """Refuse values that cannot be beside each other.

    Raises:
        Invalid: as `CheckpointConfig`, `check_parallelism` and the backend say.
    """
    for kind, config in _GROUPS.items():
        config(**_of(values, kind))
    if "parallelism" in values and "max_parallelism" in values:
        check_parallelism(values["parallelism"], values["max_parallelism"])
    rocksdb = rocksdb_fields(values)
    if rocksdb:
        if values.get("backend", _ROCKSDB) != _ROCKSDB:
            raise Invalid(
                "options of the state backend rocksdb are given, and another one",
                expected="state.backend.type=rocksdb",
                found=f"state.backend.type={values['backend']}",
            )
        load_backend(_ROCKSDB, **rocksdb)


def rocksdb_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of the backend `rocksdb`; its own options together, under `options`."""
    fields = _of(values, _ROCKSDB)
    options = {
        name.partition(".")[2]: fields.pop(name)
        for name in list(fields)
        if name.startswith("options.")
    }
    return {**fields, "options": options} if options else fields


def _of(values: Mapping[str, Any], kind: str) -> dict[str, Any]:
    prefix = f"{kind}."
    return {
        name.removeprefix(prefix): value
        for name, value in values.items()
        if name.startswith(prefix)
    }


def _check_place(text: str) -> None:
    scheme = text.partition(":")[0]
    if scheme in _OF_A_SESSION:
        return
    if scheme in registered_storages():
        storage_factory(text)
        return
    load_storage(text)  # asks nobody before it is used
