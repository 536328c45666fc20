"""Finding a storage by URL or by name, among the built-in ones and those of plug-ins.

A storage registers its URL scheme, or any other name, in the entry point group
`holdfast.checkpoint_storages`; the built-in ones take the same way. Any other URL that fsspec knows
goes to the filesystem storage.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from holdfast.storage.errors import Invalid
from holdfast.storage.filesystem import FileSystemCheckpointStorage
from holdfast.storage.interface import CheckpointStorage

__all__ = ["STORAGE_GROUP", "load_storage", "registered_storages"]

STORAGE_GROUP = "holdfast.checkpoint_storages"


def load_storage(url_or_name: str, **options: Any) -> CheckpointStorage:
    """The storage for a URL (`file:///…`, `memory://`, `s3://…`), a path, or a registered name.

    `options` go to the storage; given a name, the root is its option `url`.

    Raises:
        Invalid: an unknown scheme, name or option, two plug-ins of one name, or a missing extra
            (the message says what to install).
    """
    factory, is_place = _find(url_or_name)
    if is_place:
        if "url" in options:
            raise Invalid(
                "the root of a storage is given twice", where=url_or_name, found="option url"
            )
        options["url"] = url_or_name
    _check_options(factory, options)
    return factory(**options)


def _find(url_or_name: str) -> tuple[Callable[..., CheckpointStorage], bool]:
    """What makes the storage, and whether the text names its root rather than a registered one."""
    scheme, colon, _ = url_or_name.partition(":")
    is_url = bool(colon) and "/" not in scheme
    if not is_url and any(mark in url_or_name for mark in "/\\."):
        return FileSystemCheckpointStorage, True
    registered = registered_storages()
    entry = registered.get(scheme if is_url else url_or_name)
    if entry is not None:
        return _load(entry), is_url
    if is_url:
        return FileSystemCheckpointStorage, True
    raise Invalid(
        f"no checkpoint storage is registered as {url_or_name!r}",
        expected=f"one of {', '.join(sorted(registered))}, or a URL",
        fix=f"Install the plug-in that registers it in {STORAGE_GROUP!r}",
    )


def registered_storages() -> dict[str, EntryPoint]:
    """Every registered name with its entry point.

    Raises:
        Invalid: two distributions register one name.
    """
    return _unique(entry_points(group=STORAGE_GROUP))


def _unique(entries: Iterable[EntryPoint]) -> dict[str, EntryPoint]:
    found: dict[str, EntryPoint] = {}
    for entry in entries:
        other = found.setdefault(entry.name, entry)
        if other.value != entry.value:
            raise Invalid(
                f"two checkpoint storages are registered as {entry.name!r}",
                found=f"{other.value} of {_distribution(other)} and "
                f"{entry.value} of {_distribution(entry)}",
                fix="Uninstall one of them",
            )
    return found


def _distribution(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else "an unknown distribution"


def _load(entry: EntryPoint) -> Callable[..., CheckpointStorage]:
    try:
        factory: Callable[..., CheckpointStorage] = entry.load()
    except ImportError as error:
        raise Invalid(
            f"checkpoint storage {entry.name!r} cannot be imported",
            where=f"{entry.value} of {_distribution(entry)}",
            found=str(error),
            fix=f'pip install "{_distribution(entry)}[{entry.extras[0]}]"' if entry.extras else "",
        ) from error
    return factory


def _check_options(factory: Callable[..., Any], options: Collection[str]) -> None:
    """Refuse what the factory does not know, and the lack of what it needs."""
    parameters = inspect.signature(factory).parameters.values()
    name = getattr(factory, "__name__", repr(factory))
    known = {parameter.name for parameter in parameters}
    unknown = sorted(set(options) - known)
    if unknown and not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        raise Invalid(
            f"checkpoint storage option {unknown[0]!r} is not known",
            where=name,
            expected=f"one of {', '.join(sorted(known - {'url'}))}",
        )
    if "url" in known and "url" not in options:
        url = next(parameter for parameter in parameters if parameter.name == "url")
        if url.default is url.empty:
            raise Invalid("a checkpoint storage needs option 'url'", where=name)
