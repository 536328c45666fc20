"""The table of options: each room states its own rows, and one reader serves them all.

    Option(key, owner, field, codec, aliases, doc)

`key` is the name in files, on command lines and in sessions; `owner` and `field` say which setting
in code it is. A text is read by `codec`, and then checked by the owner's settings class, so that
an option and a keyword argument obey the same limits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import combinations
from typing import Any

from holdfast.storage.errors import Invalid
from holdfast.storage.options.codecs import TEXT, Codec

__all__ = [
    "COMMAND_LINE",
    "Option",
    "OptionTable",
    "Owner",
    "Settings",
    "contradicting",
    "key_value_pairs",
    "refused",
]

COMMAND_LINE = "the command line"
"""What errors call this source of options."""


@dataclass(frozen=True, slots=True, eq=False)
class Owner:
    """A settings class, or what else takes values by field."""

    name: str
    """Begins the arguments of its options, as in `checkpointing.interval`; may be empty."""
    settings: type
    """The settings class: a dataclass, whose defaults are those of the options."""
    about: str = ""
    """What to know of all its options, for documents."""
    make: Callable[..., object] | None = None
    """Takes fields by keyword, and raises `Invalid` for values that are not accepted. None: the
    settings class does."""

    def argument(self, field: str) -> str:
        """The name of one of its fields among all arguments."""
        return f"{self.name}.{field}" if self.name else field


@dataclass(frozen=True, slots=True, eq=False)
class Option:
    """One option."""

    key: str
    owner: Owner
    field: str
    """Empty: an option of Flink that is refused, and `doc` says what to do instead."""
    codec: Codec
    aliases: tuple[str, ...] = ()
    """Other keys for the same option; only one of them may be set."""
    doc: str = ""
    """What it is, for documents. Empty: as the settings class says of the field."""

    @property
    def argument(self) -> str:
        """Owner and field."""
        return self.owner.argument(self.field)


def refused(key: str, owner: Owner, fix: str, aliases: tuple[str, ...] = ()) -> Option:
    """An option that Flink has and that means nothing here: setting it is an error with a fix."""
    return Option(key, owner, "", TEXT, aliases, fix)


@dataclass(frozen=True, slots=True)
class Settings:
    """The options that one source sets."""

    source: str = ""
    """What errors call the source, such as `the command line`."""
    prefix: str = ""
    """What the source writes before a key, such as `-D`."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """By `Option.argument`; only what is set."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """The name that the source has for it, by `Option.argument`."""
    lines: Mapping[str, int] = field(default_factory=dict)
    """The line of a file, by the name there; empty for other sources."""

    def of(self, owner: Owner) -> dict[str, Any]:
        """The values of an owner by field."""
        start = len(f"{owner.name}.") if owner.name else 0
        return {name[start:]: self.values[name] for name in self.arguments(owner)}

    def arguments(self, owner: Owner) -> tuple[str, ...]:
        """The names of its values among all arguments."""
        prefix = f"{owner.name}." if owner.name else ""
        return tuple(
            name for name in self.values if name.startswith(prefix) and (prefix or "." not in name)
        )

    def where(self, key: str = "") -> str:
        """Where an option was set, for errors."""
        line = f"line {self.lines[key]}" if key in self.lines else ""
        return ", ".join(filter(None, (self.source, line, f"{self.prefix}{key}" if key else "")))


class OptionTable:
    """All options that a source may set.

    Raises:
        ValueError: two rows have a key or an argument in common.
    """

    def __init__(self, options: Iterable[Option]) -> None:
        rows = tuple(options)
        self.options = tuple(each for each in rows if each.field)
        self.refused = tuple(each for each in rows if not each.field)
        self._by_key = {key: each for each in rows for key in (each.key, *each.aliases)}
        self._by_argument = {each.argument: each for each in self.options}
        count = sum(1 + len(each.aliases) for each in rows)
        if len(self._by_key) < count or len(self._by_argument) < len(self.options):
            raise ValueError("two options have the same key, or fill the same field")

    def option(self, argument: str) -> Option:
        return self._by_argument[argument]

    def read(
        self,
        texts: Mapping[str, str],
        *,
        source: str,
        prefix: str = "",
        lines: Mapping[str, int] | None = None,
    ) -> Settings:
        """The values of texts by key. Every text is read: an unknown key is an error.

        Raises:
            Invalid: a key is unknown or refused, it is set under two names, or its value is not
                accepted, alone or beside the others.
        """
        values: dict[str, Any] = {}
        keys: dict[str, str] = {}
        settings = Settings(source, prefix, values, keys, lines or {})
        for key, text in texts.items():
            try:
                option = self._find(key)
                if option.argument in keys:
                    raise Invalid(
                        f"option {option.key!r} is there twice",
                        expected="one of its names",
                        found=f"{key!r}, and {settings.where(keys[option.argument])}",
                    )
                keys[option.argument] = key
                values[option.argument] = _read(option, key, text.strip())
            except Invalid as error:
                raise _located(error, settings.where(key)) from error
        for owner in {self.option(argument).owner for argument in values}:
            self._check(owner, settings, keys)
        return settings

    def _find(self, key: str) -> Option:
        option = self._by_key.get(key)
        if option is None:
            near = get_close_matches(key, self._by_key, cutoff=0.6)
            raise Invalid(
                f"there is no option {key!r}",
                expected=f"such as {' or '.join(near)}" if near else "",
                fix="docs/options.md lists all options",
            )
        if not option.field:
            raise Invalid(f"option {key!r} has no meaning here", fix=option.doc)
        return option

    def _check(self, owner: Owner, settings: Settings, keys: Mapping[str, str]) -> None:
        """Have an owner check its values, together and, to name the option at fault, alone."""
        given = settings.of(owner)
        error = _error_of(owner, given)
        if error is None:
            return
        for name, value in given.items():
            alone = _error_of(owner, {name: value})
            if alone is not None and alone.what == error.what:
                key = keys[owner.argument(name)]
                named = _named(alone, key)
                raise _located(named, settings.where(key)) from error
        told = [settings.where(keys[each]) for each in contradicting(owner, given, error)]
        raise _located(error, "; ".join(told)) from error


def contradicting(owner: Owner, fields: Mapping[str, Any], error: Invalid) -> tuple[str, ...]:
    """The arguments of the two fields that an error is about; of all, if it takes more than two."""
    for pair in combinations(fields, 2):
        both = _error_of(owner, {name: fields[name] for name in pair})
        if both is not None and both.what == error.what:
            return tuple(map(owner.argument, pair))
    return tuple(map(owner.argument, fields))


def key_value_pairs(texts: Iterable[str]) -> dict[str, str]:
    """The texts of a command line's `key=value` arguments, by key.

    Raises:
        Invalid: a key is given twice, or without a value.
    """
    given: dict[str, str] = {}
    for each in texts:
        key, is_set, text = each.partition("=")
        if not is_set or not key:
            raise Invalid("this is no option", expected="-Dkey=value", found=f"-D{each}")
        if key in given:
            raise Invalid(f"option {key!r} is given twice", where=COMMAND_LINE, found=f"-D{each}")
        given[key] = text
    return given


def _read(option: Option, key: str, text: str) -> Any:
    try:
        return option.codec.read(text)
    except Invalid as error:
        raise _named(error, key) from error
    except ValueError as error:
        raise Invalid(
            f"option {key!r} cannot have this value",
            expected=option.codec.expected,
            found=repr(text),
        ) from error


def _error_of(owner: Owner, fields: Mapping[str, Any]) -> Invalid | None:
    try:
        (owner.make or owner.settings)(**fields)
    except Invalid as error:
        return error
    return None


def _named(error: Invalid, key: str) -> Invalid:
    return error.replaced(what=f"option {key!r}: {error.what}")


def _located(error: Invalid, where: str) -> Invalid:
    return error.replaced(where=f"{where}, {error.where}" if error.where else where)
