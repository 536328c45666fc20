"""`holdfast backends`: the registered plug-ins, their capabilities, and why some cannot load."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import EntryPoint
from tempfile import gettempdir
from typing import Any

import msgspec
import typer

from holdfast.runtime.cli.output import say, show, show_json, table
from holdfast.runtime.cli.parameters import JsonOption
from holdfast.storage import Invalid, load_storage
from holdfast.storage.plugins import load
from holdfast.storage.registry import registered_storages

__all__ = ["list_registered"]

_PATHS = ("file", "filesystem")


@dataclass(frozen=True, slots=True)
class _Kind:
    title: str
    entries: Callable[[], Mapping[str, EntryPoint]]
    tried: Callable[[str, Callable[..., Any]], Mapping[str, Any]]


class _Registered(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One registered name."""

    name: str
    target: str
    """The target of the entry point."""
    distribution: str
    purpose: str = ""
    capabilities: Mapping[str, Any] | None = None
    unknown: str = ""
    """Why its capabilities are unknown; empty if they are known."""
    error: str = ""
    """Why it cannot be used; empty if it can."""


def list_registered(*, as_json: JsonOption = False) -> None:
    """Show the state backends, checkpoint storages and changelog storages that are registered.

    Those of plug-ins too, each with what it can do. What cannot be loaded says why, and what to
    install. A name is what StreamEnvironment(backend=..., storage=...) and options take.

    For example:

        holdfast backends

        holdfast backends --json | jq '.state_backends[].name'

    Exit codes: 0 all that is registered can be loaded; 1 something cannot; 2 wrong arguments.
    """
    kinds = _kinds()
    found = {
        name: [_described(entry, kind) for _, entry in sorted(kind.entries().items())]
        for name, kind in kinds.items()
    }
    if as_json:
        show_json(msgspec.to_builtins(found))
    else:
        for name, listed in found.items():
            _show(kinds[name].title, listed)
    if any(each.error for listed in found.values() for each in listed):
        raise typer.Exit(1)


def _described(entry: EntryPoint, kind: _Kind) -> _Registered:
    known: dict[str, Any] = {
        "name": entry.name,
        "target": entry.value,
        "distribution": "" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}",
    }
    try:
        factory = load(entry, kind.title.removesuffix("s"))
        known["purpose"] = (inspect.getdoc(factory) or "").partition("\n")[0]
        known |= kind.tried(entry.name, factory)
    except Invalid as error:
        known["error"] = str(error)
    except Exception as error:  # noqa: BLE001 - a plug-in may raise anything
        known["error"] = f"it cannot be made: {error!r}"
    return _Registered(**known)


def _tried_storage(name: str, factory: Callable[..., Any]) -> Mapping[str, Any]:
    """The capabilities of a storage, made for an imaginary place: it connects when it is used."""
    url = inspect.signature(factory).parameters.get("url")
    options = {}
    if url is not None and url.default is url.empty:
        options["url"] = gettempdir() if name in _PATHS else f"{name}://somewhere/checkpoints"
    try:
        return {"capabilities": asdict(load_storage(name, **options).capabilities)}
    except Invalid as error:
        if "pip install" in error.fix:
            raise
        return {"unknown": str(error)}  # it notices that the place is imaginary


def _kinds() -> Mapping[str, _Kind]:
    """Backends are imported here: other commands start a second faster without them."""
    from holdfast.backends import load_backend, registered_backends  # noqa: PLC0415
    from holdfast.changelog.writing.storages import (  # noqa: PLC0415
        load_changelog_storage,
        registered_changelog_storages,
    )

    def tried_backend(name: str, _: Callable[..., Any]) -> Mapping[str, Any]:
        return {"capabilities": asdict(load_backend(name).capabilities)}

    def tried_log(name: str, _: Callable[..., Any]) -> Mapping[str, Any]:
        load_changelog_storage(name)
        return {"capabilities": {}}

    return {
        "state_backends": _Kind("state backends", registered_backends, tried_backend),
        "checkpoint_storages": _Kind("checkpoint storages", registered_storages, _tried_storage),
        "changelog_storages": _Kind("changelog storages", registered_changelog_storages, tried_log),
    }


def _show(title: str, listed: list[_Registered]) -> None:
    lines = table(title, "name", "what it is", "what it can", "from")
    for each in listed:
        lines.add_row(
            each.name,
            "cannot be used" if each.error else each.purpose,
            "depends on the place"
            if each.unknown
            else ", ".join(map(_ability, (each.capabilities or {}).items())),
            each.distribution,
        )
    show(lines)
    for each in listed:
        if each.error:
            say(f"{each.name}: {each.error}")


def _ability(item: tuple[str, Any]) -> str:
    name, value = item
    words = name.replace("_", " ")
    if isinstance(value, bool):
        return words if value else f"not {words}"
    return f"{words}: {value}"
