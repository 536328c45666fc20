"""The storages that a command is pointed at: by paths and URLs, and options as text."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import UnionType
from typing import Any, Union, Unpack, get_args, get_origin, get_type_hints

import msgspec

from holdfast.storage import CheckpointStorage, Invalid, JobStorage, load_storage
from holdfast.storage.jobs.cleaning import jobs_at
from holdfast.storage.options.table import key_value_pairs
from holdfast.storage.registry import storage_factory, whole_url

__all__ = ["FoundJobs", "find_jobs", "opener", "storage_options"]

_OF_NO_DIRECTORY = {"storage_options", "allow_unsafe_commit"}
"""Options of file systems that a local one refuses."""


def opener(options: Iterable[str] | None, *paths: str) -> Callable[[str], CheckpointStorage]:
    """A function that opens the storage of a URL, with the options of a command for these paths.

    Each storage gets the options that it knows, and those that no storage knows, which it refuses.
    """
    given, urls = tuple(options or ()), list(map(whole_url, paths))

    def open_storage(url: str) -> CheckpointStorage:
        return load_storage(url, **storage_options(url, given, urls))

    return open_storage


@dataclass(frozen=True, slots=True)
class FoundJobs:
    """The jobs in a storage that the arguments of a command name."""

    url: str
    """As given; a path is made absolute."""
    jobs: tuple[JobStorage, ...]


def find_jobs(path: str, options: Iterable[str] | None) -> FoundJobs:
    """The jobs at a path or URL: of a storage's root, all of them; of a job's folder, that one.

    Raises:
        Invalid: an option is unknown, or its value is not accepted.
        NotFound: there is no job.
        Unavailable: the storage did not answer.
    """
    url = whole_url(path)
    return FoundJobs(url, tuple(jobs_at(url, opener(options, path))))


def storage_options(url: str, options: Iterable[str], beside: Iterable[str] = ()) -> dict[str, Any]:
    """The options of the storage for this URL, out of `key=value`: each of the type that it has.

    A text stands for itself where the option is one, and else for what JSON or a bare word would
    be. Where an option may be a text or a number or a truth value, it is one of the latter if it
    reads as such. Options that the storage does not know are texts: it refuses them itself. But
    where a command has URLs `beside` this one, what only their storages know is left to them.

    Raises:
        Invalid: one is given twice, or without a value, or its text stands for no value of it.
    """
    given = key_value_pairs(options)
    kinds = _kinds(storage_factory(url))
    own, others = _known(url), set().union(*map(_known, beside))
    return {
        key: _value(key, text, kinds.get(key, str))
        for key, text in given.items()
        if key in own or key not in others
    }


def _known(url: str) -> set[str]:
    is_local = "://" not in url or url.startswith("file:")
    return set(_kinds(storage_factory(url))) - (_OF_NO_DIRECTORY if is_local else set())


def _kinds(factory: Any) -> dict[str, Any]:
    """The types of a storage's options; empty if they cannot be determined: then all are text."""
    makes = factory.__init__ if inspect.isclass(factory) else factory
    try:
        kinds = get_type_hints(makes)
        for parameter in inspect.signature(makes).parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                others = kinds.pop(parameter.name, None)
                if get_origin(others) is Unpack:
                    kinds |= get_type_hints(get_args(others)[0])
    except (NameError, TypeError):
        return {}
    return kinds


def _value(key: str, text: str, kind: Any) -> Any:
    for member in sorted(_members(kind), key=_rank):
        for read in (lambda: text, lambda: json.loads(text)):
            try:
                return msgspec.convert(read(), member, strict=False)
            except (msgspec.ValidationError, ValueError, TypeError):
                continue
    raise Invalid(
        f"option {key!r} of the storage cannot be this",
        expected=str(kind if len(_members(kind)) > 1 else getattr(kind, "__name__", kind)),
        found=repr(text),
    )


def _members(kind: Any) -> tuple[Any, ...]:
    """The members of a union; any other type itself."""
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _rank(kind: Any) -> int:
    """Order in which types are tried: `int`, which fewest texts are, first; `str` after `bool`."""
    ranks = (int, float, bool, str)
    return ranks.index(kind) if kind in ranks else len(ranks)
