"""Names registered by entry point: storages, state backends, and those of plug-ins."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from holdfast.storage.errors import Invalid
from holdfast.storage.options.checks import check_known, did_you_mean

__all__ = ["check_options", "load", "registered", "unknown_name"]


def registered(group: str, what: str) -> dict[str, EntryPoint]:
    """Every name in an entry point group; `what` is the noun that errors use.

    Raises:
        Invalid: two distributions register one name.
    """
    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=group):
        other = found.setdefault(entry.name, entry)
        if other.value != entry.value:
            raise Invalid(
                f"two {what}s are registered as {entry.name!r}",
                found=f"{other.value} of {_distribution(other)} and "
                f"{entry.value} of {_distribution(entry)}",
                fix="Uninstall one of them",
            )
    return found


def unknown_name(
    name: str, names: Collection[str], group: str, what: str, also: str = ""
) -> Invalid:
    """The error for a name that nothing is registered under."""
    return Invalid(
        f"no {what} is registered as {name!r}",
        expected=f"one of {', '.join(sorted(names))}{also}",
        fix=f"{did_you_mean(name, names)}Install the plug-in that registers it in {group!r}",
    )


def load(entry: EntryPoint, what: str) -> Callable[..., Any]:
    """The object that the entry point names.

    Raises:
        Invalid: it cannot be imported; says what to install, if the entry point names an extra.
    """
    try:
        factory: Callable[..., Any] = entry.load()
    except (ImportError, AttributeError) as error:
        raise Invalid(
            f"{what} {entry.name!r} cannot be imported",
            where=f"{entry.value} of {_distribution(entry)}",
            found=str(error),
            fix=f'pip install "{_distribution(entry)}[{entry.extras[0]}]"' if entry.extras else "",
        ) from error
    return factory


def check_options(factory: Callable[..., Any], options: Collection[str], what: str) -> None:
    """Refuse options that the factory does not know.

    Raises:
        Invalid: there is one; names those that exist.
    """
    parameters = inspect.signature(factory).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return  # it checks them itself
    known = {parameter.name for parameter in parameters}
    where = getattr(factory, "__name__", repr(factory))
    root = {"url"} & known  # not to be listed among options: the place itself names it
    check_known(set(options) - root, known - root, what=what, where=where)


def _distribution(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else "an unknown distribution"
