"""Which source of a value counts: the program, then the command line, then the session.

As in Flink the program comes first. Flink ignores the others then. Here the command line must not
contradict the program: its user has just typed it, and would believe that it has an effect. A
session may be made for many programs, so what it sets is passed over without an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from holdfast.runtime.options.table import OPTIONS
from holdfast.storage import Invalid
from holdfast.storage.options.table import Owner, Settings

__all__ = ["choose_fields", "disagreement", "fields_set"]


def choose_fields(
    owner: Owner, code: Mapping[str, Any], *, line: Settings, session: Settings
) -> dict[str, Any]:
    """The fields of an owner that any source sets; `code` has those that the program sets.

    Raises:
        Invalid: the command line contradicts the program.
    """
    given = line.of(owner)
    for name, value in given.items():
        if name in code:
            option = OPTIONS.option(owner.argument(name))
            if not option.codec.is_same(code[name], value):
                raise disagreement(line, option.key, option.field, code[name], value)
    return {**session.of(owner), **given, **code}


def fields_set(config: Any) -> dict[str, Any]:
    """The fields of a dataclass that have other values than by default."""
    values = {each.name: (getattr(config, each.name), _default(each)) for each in fields(config)}
    return {name: value for name, (value, default) in values.items() if value != default}


def _default(field: Any) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def disagreement(line: Settings, key: str, field: str, code: Any, value: Any) -> Invalid:
    """The error for an option of the command line that contradicts the program."""
    name = field.rpartition(".")[2]
    return Invalid(
        f"the program and {line.source} do not agree about {name}",
        where=line.where(key),
        expected=f"what the program says: {code!r}",
        found=repr(value),
        fix=f"Leave {name} out of the program, so that it can be set where it is started; or "
        f"leave out -D{key}",
    )
