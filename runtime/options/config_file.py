"""The file of options: YAML, as Flink's `config.yaml`, with nested keys, flat ones, or both.

    execution.checkpointing:
      interval: 10 s
      num-retained: 3
    parallelism.default: 8

A scalar is read as the text that is written there, by the codec of its option, and never as what
YAML would make of it: `on`, `1_000` and `010` mean what they mean on a command line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from holdfast.runtime.options.table import read_settings
from holdfast.storage import Invalid, NotFound
from holdfast.storage.options.table import Settings

__all__ = ["CONFIG_VARIABLE", "config_settings"]

CONFIG_VARIABLE = "HOLDFAST_CONF"
"""The environment variable that names the file where no command line does."""
_MOST_BYTES = 1 << 20  # of a file of options; what is larger is another one
_SCALARS = frozenset(
    f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "timestamp")
)
_NOTHING = "tag:yaml.org,2002:null"
_KINDS = {
    f"tag:yaml.org,2002:{kind}": kind
    for kind in ("str", "int", "float", "bool", "timestamp", "seq", "map", "merge")
} | {_NOTHING: "nothing"}
"""What errors call nodes. Any other tag may be a password that begins with an exclamation mark."""
_QUOTED = re.compile(r"('(?:.|<[^']*>)')|'.*", re.DOTALL)


def config_settings(
    path: str | None = None, environment: Mapping[str, str] = os.environ
) -> Settings:
    """The options of the file, or of the one that `HOLDFAST_CONF` names; none if neither is named.

    Raises:
        NotFound: there is no such file.
        Invalid: it is not YAML, or no mapping of options; names the line. Or as `read_settings`.
    """
    named = environment.get(CONFIG_VARIABLE, "") if path is None else path
    if path is None and not named:
        return Settings()
    source = named if path is not None else f"{named} ({CONFIG_VARIABLE})"
    texts: dict[str, str] = {}
    lines: dict[str, int] = {}
    for key, text, line in _entries(_root(_read(named, source), source), source):
        try:
            (key + text).encode()
        except UnicodeEncodeError:  # half of a surrogate pair, by an escape
            raise _no_such_character(f"{source}, line {line}") from None
        if key in texts:
            raise Invalid(
                f"option {key!r} is given twice", where=f"{source}, lines {lines[key]} and {line}"
            )
        texts[key], lines[key] = text, line
    return read_settings(texts, source=source, lines=lines)


def _read(path: str, source: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except FileNotFoundError as error:
        raise NotFound(
            "there is no such file of options", where=source, expected="a file of YAML"
        ) from error
    except (OSError, ValueError) as error:
        raise Invalid(
            "the file of options cannot be read",
            where=source,
            expected="a file of YAML",
            found=str(error),
        ) from error
    if len(content) > _MOST_BYTES:
        raise Invalid(
            "the file is too large for one of options",
            where=source,
            expected=f"at most {_MOST_BYTES:,} bytes",
        )
    return content


def _root(content: bytes, source: str) -> yaml.Node | None:
    """The document as nodes: nothing is made of them, whatever tags they have."""
    loader: yaml.SafeLoader | None = None
    try:
        loader = yaml.SafeLoader(content)
        node: yaml.Node | None = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        # Not its own text, which quotes the line: that may have a password.
        mark = error.problem_mark or error.context_mark
        where = source if mark is None else f"{source}, line {mark.line + 1}"
        raise Invalid(
            "the file of options is not YAML",
            where=where,
            found=_unquoted(error.problem or "") or _unquoted(error.context or ""),
        ) from None
    except (yaml.YAMLError, RecursionError, UnicodeError) as error:
        raise Invalid(
            "the file of options is not YAML", where=source, found=type(error).__name__
        ) from None
    except (OverflowError, ValueError):  # PyYAML makes characters and numbers without checks
        line = "" if loader is None else f", line {loader.get_mark().line + 1}"
        raise _no_such_character(f"{source}{line}") from None
    return node


def _no_such_character(where: str) -> Invalid:
    return Invalid(
        "the file of options is not YAML", where=where, found="no such character or number"
    )


def _unquoted(problem: str) -> str:
    """Without what it quotes of the file but one character, such as the name of an alias."""
    return _QUOTED.sub(r"\1", problem).strip()


def _entries(
    node: yaml.Node | None, source: str, prefix: str = "", seen: set[int] | None = None
) -> Iterator[tuple[str, str, int]]:
    """Each option: its whole key, its text and its line."""
    if node is None or (prefix == "" and node.tag == _NOTHING):
        return  # an empty file, or one of comments
    if not isinstance(node, yaml.MappingNode):
        raise _misfit(node, source, prefix, "a mapping of options to values")
    seen = set() if seen is None else seen
    for name, value in node.value:
        if not isinstance(name, yaml.ScalarNode) or name.tag not in _SCALARS:
            raise _misfit(name, source, prefix, "the name of an option")
        key = f"{prefix}{name.value}"
        # A small file of aliases can be a mapping without end, and no option needs one.
        if id(value) in seen:
            raise _misfit(value, source, key, "a value of its own, and no alias of another")
        seen.add(id(value))
        if isinstance(value, yaml.MappingNode):
            yield from _entries(value, source, f"{key}.", seen)
        elif isinstance(value, yaml.ScalarNode) and value.tag in _SCALARS:
            yield key, value.value, name.start_mark.line + 1
        else:
            raise _misfit(value, source, key, "one value; a list is text with commas")


def _misfit(node: yaml.Node, source: str, key: str, expected: str) -> Invalid:
    found = _KINDS.get(node.tag, "a tag; quote a text that begins with !")
    what = f"option {key.rstrip('.')!r} cannot have this value" if key else "this is no option"
    line = node.start_mark.line + 1
    return Invalid(what, where=f"{source}, line {line}", expected=expected, found=found)
