"""Finding a state backend by name, among the built-in ones and those of plug-ins."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any

from holdfast.storage import plugins

if TYPE_CHECKING:  # whoever restores finds the backend of a snapshot's files here
    from holdfast.backends.interface import StateBackend

__all__ = ["BACKEND_GROUP", "OpenBackend", "load_backend", "registered_backends", "usual_backend"]

BACKEND_GROUP = "holdfast.state_backends"
_WHAT = "state backend"
_IN_LITTLE_MEMORY: dict[str, dict[str, Any]] = {"rocksdb": {"memory": "64m", "statistics": False}}
"""Who only reads from the beginning to the end has no use for a large cache."""

OpenBackend = Callable[[str], "StateBackend"]
"""What makes a backend of a name, to read through: its files, or what has changed since."""


def load_backend(name: str, **options: Any) -> StateBackend:
    """The state backend that is registered under the name, with these options.

    Raises:
        Invalid: an unknown name or option, two plug-ins of one name, or a missing extra (the
            message says what to install).
    """
    registered = registered_backends()
    if name not in registered:
        raise plugins.unknown_name(name, registered, BACKEND_GROUP, _WHAT)
    factory = plugins.load(registered[name], _WHAT)
    plugins.check_options(factory, options, _WHAT)
    backend: StateBackend = factory(**options)
    return backend


def usual_backend(name: str) -> StateBackend:
    """The backend of this name, in little memory: for who reads what it has written.

    Raises:
        Invalid: as `load_backend`.
    """
    return load_backend(name, **_IN_LITTLE_MEMORY.get(name, {}))


def registered_backends() -> dict[str, EntryPoint]:
    """Every registered name with its entry point.

    Raises:
        Invalid: two distributions register one name.
    """
    return plugins.registered(BACKEND_GROUP, _WHAT)
