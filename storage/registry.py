"""Finding a storage by URL or by name, among the built-in ones and those of plug-ins.

A storage registers its URL scheme, or any other name, in the entry point group
`holdfast.checkpoint_storages`; the built-in ones are registered in the same way. What a path, and a
URL of any other scheme, goes to is registered as `path` and `url` in `holdfast.default_storages`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

from holdfast.storage import plugins
from holdfast.storage.checkpoint_storage import CheckpointStorage
from holdfast.storage.errors import Invalid
from holdfast.storage.interface import ObjectStorage
from holdfast.storage.options.checks import text_fix

__all__ = [
    "STORAGE_GROUP",
    "OpenStorage",
    "load_storage",
    "named_for_all",
    "registered_storages",
    "storage_at",
    "storage_factory",
    "whole_url",
]

STORAGE_GROUP = "holdfast.checkpoint_storages"
_DEFAULT_GROUP = "holdfast.default_storages"
OpenStorage = Callable[[str], CheckpointStorage]
"""Opens the storage of a root: `load_storage`, or a function that adds options."""
_WHAT = "checkpoint storage"


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
    plugins.check_options(factory, options, _WHAT)
    url = inspect.signature(factory).parameters.get("url")
    if url is not None and url.default is url.empty and "url" not in options:
        raise Invalid("a checkpoint storage needs option 'url'", where=url_or_name)
    return factory(**options)


def storage_at(
    root: str, mine: ObjectStorage, open_storage: OpenStorage = load_storage
) -> ObjectStorage:
    """The storage of a root: the job's own if it has this root.

    Else one with the settings of the job's own if these apply, or what `open_storage` opens.

    Raises:
        Invalid: it cannot be opened.
    """
    if root.rstrip("/") == mine.url.rstrip("/"):
        return mine
    storage = mine.at(root) or open_storage(root)
    return mine if storage.identity == mine.identity else storage


def storage_factory(url_or_name: str) -> Callable[..., CheckpointStorage]:
    """The callable that `load_storage` calls, by which its options are known; raises likewise."""
    return _find(url_or_name)[0]


def registered_storages() -> dict[str, EntryPoint]:
    """Every registered name with its entry point.

    Raises:
        Invalid: two distributions register one name.
    """
    return plugins.registered(STORAGE_GROUP, _WHAT)


def whole_url(path: str) -> str:
    """A URL unchanged; a relative path as an absolute one.

    Raises:
        Invalid: it is empty, the user of `~user` does not exist, or the current folder is gone.
    """
    _check_text(path, "this names no place", "text: a path or a URL")
    if "://" in path:
        return path
    if not path.strip():  # an unset shell variable, say: it would mean the current folder
        raise Invalid("a path is empty", expected="a path or a URL", found=repr(path))
    try:
        return str(Path(path).expanduser().absolute())
    except (OSError, RuntimeError) as error:
        raise Invalid(
            "this path cannot be made absolute",
            found=f"{path}: {error}",
            fix="Give an absolute path",
        ) from error


def named_for_all(url_or_name: str) -> str:
    """A text that names the same place in every process: a relative path becomes absolute.

    Raises:
        Invalid: as `whole_url`.
    """
    is_text = isinstance(url_or_name, str)
    return whole_url(url_or_name) if not is_text or _is_path(url_or_name) else url_or_name


def _is_path(text: str) -> bool:
    scheme, colon, _ = text.partition(":")
    is_url = bool(colon) and "/" not in scheme
    return not is_url and any(mark in text for mark in "/\\.")


def _find(url_or_name: str) -> tuple[Callable[..., CheckpointStorage], bool]:
    """The callable that makes the storage, and whether the text names its root."""
    expected = "text: a path, a URL, a registered name"
    _check_text(url_or_name, "this does not name a storage", expected)
    if _is_path(url_or_name):
        return _default("path"), True
    scheme, colon, _ = url_or_name.partition(":")
    is_url = bool(colon)
    registered = registered_storages()
    entry = registered.get(scheme if is_url else url_or_name)
    if entry is not None:
        return plugins.load(entry, _WHAT), is_url
    if is_url:
        return _default("url"), True
    raise plugins.unknown_name(url_or_name, registered, STORAGE_GROUP, _WHAT, ", or a URL")


def _check_text(given: object, what: str, expected: str) -> None:
    """Refuse what untyped callers may pass."""
    if not isinstance(given, str):
        raise Invalid(what, expected=expected, found=repr(given), fix=text_fix(given))


def _default(kind: str) -> Callable[..., CheckpointStorage]:
    return plugins.load(plugins.registered(_DEFAULT_GROUP, f"default {_WHAT}")[kind], _WHAT)
