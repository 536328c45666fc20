"""Finding a state backend by name, among the built-in ones and those of plug-ins."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any

from holdfast.backends.interface import StateBackend
from holdfast.storage import plugins

__all__ = ["BACKEND_GROUP", "load_backend", "registered_backends"]

BACKEND_GROUP = "holdfast.state_backends"
_WHAT = "state backend"


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


def registered_backends() -> dict[str, EntryPoint]:
    """Every registered name with its entry point.

    Raises:
        Invalid: two distributions register one name.
    """
    return plugins.registered(BACKEND_GROUP, _WHAT)
