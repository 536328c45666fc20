"""What a command is told of a place: its URL and options, and the jobs that are there."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from holdfast.storage import CheckpointStorage, Invalid, JobStorage, NotFound, load_storage, names
from holdfast.storage.cleaning import is_job_folder, jobs_in
from holdfast.storage.registry import storage_factory

__all__ = ["Place", "find_jobs"]


@dataclass(frozen=True, slots=True)
class Place:
    """What the arguments of a command name."""

    url: str
    """As it was given, but for a path, which is absolute."""
    jobs: tuple[JobStorage, ...]


def find_jobs(path: str, options: Iterable[str]) -> Place:
    """The jobs at a path or URL: of a storage's root, all of them; of a job's folder, that one.

    `options` are `key=value` for the storage.

    Raises:
        Invalid: an option is unknown or cannot be what it is.
        NotFound: there is no job.
        Unavailable: the storage did not answer.
    """
    url = path if "://" in path else str(Path(path).expanduser().absolute())
    storage = _opened(url, options)
    if is_job_folder(storage):
        root, _, folder = url.rstrip("/").rpartition("/")
        jobs = [names.unescape(folder)]
        storage = _opened(root or "/", options)
    else:
        jobs = jobs_in(storage)
    if not jobs:
        raise NotFound(
            "there are no checkpoints of any job",
            where=url,
            expected="the root of a storage, with a folder for each job, or the folder of one",
            fix="Look whether the path is right: it is what the job has as its storage",
        )
    return Place(url, tuple(map(storage.job, jobs)))


def _opened(url: str, options: Iterable[str]) -> CheckpointStorage:
    given: dict[str, Any] = {}
    for option in options:
        key, is_set, text = option.partition("=")
        if not is_set or not key:
            raise Invalid(
                "this is no option of a storage", expected="-Dkey=value", found=f"-D{option}"
            )
        if key in given:
            raise Invalid(f"option {key!r} is given twice", found=f"-D{option}")
        given[key] = text
    factory = storage_factory(url)
    kinds = _kinds(factory)
    return load_storage(
        url, **{key: _value(key, text, kinds.get(key, str)) for key, text in given.items()}
    )


def _kinds(factory: Any) -> dict[str, Any]:
    """The types of a storage's options; such as cannot be told are taken for text."""
    makes = factory.__init__ if inspect.isclass(factory) else factory
    try:
        return get_type_hints(makes)
    except (NameError, TypeError):
        return {}


def _value(key: str, text: str, kind: Any) -> Any:
    """The value that a text stands for: itself where text will do, else JSON, or a bare word."""
    for read in (lambda: text, lambda: json.loads(text)):
        try:
            return msgspec.convert(read(), kind, strict=False)
        except (msgspec.ValidationError, ValueError, TypeError):
            continue
    raise Invalid(
        f"option {key!r} of the storage cannot be this",
        expected=str(getattr(kind, "__name__", kind)),
        found=repr(text),
    )
