"""Writes docs/options.md from the table of options: `python tools/options_page.py`."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import textwrap
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any

from holdfast.runtime.options.table import OPTIONS
from holdfast.storage.options.codecs import SECONDS, SIZE, Codec
from holdfast.storage.options.table import Option

__all__ = ["PAGE", "options_page"]

PAGE = Path(__file__).resolve().parents[1] / "docs" / "options.md"
_HEAD = """# Options

This page is generated from the table of options (`python tools/options_page.py`).

Options set arguments that a program leaves out. Their names and meaning are Flink's where it has
them. They are set

- on a command line: `holdfast run -DKEY=VALUE app.py`;
- in a file: `holdfast run --config FILE app.py`, or the one that the environment variable
  `HOLDFAST_CONF` names, for programs that Python or spark-submit runs as well. It is YAML, as
  Flink's `config.yaml`, with nested keys, flat ones, or both;
- in a Spark session, with `spark.holdfast.` before the key: by `spark-submit --conf`, in
  spark-defaults.conf, or by `spark.conf.set`.

**What counts if several set the same**: the program, then the command line, then the file, then the
session, then the default. A command line that contradicts the program is refused. A file or a
session is passed over where the program sets something else, since it may be made for many
programs. An unknown option, or a value that is not accepted, is refused before a job starts; the
error says where it was set, with the line of the file. An option that is set under an older name is
honoured, with a warning.

Values: a duration is `500 ms` or `1h 30min`, a bare number is in milliseconds. A size is `64 mb`,
with units of 1024; a bare number is in bytes. Words may be in upper or lower case."""
_TITLES = {
    "": "The job",
    "checkpointing": "Checkpoints",
    "execute": "Where a job begins",
    "restart": "Restarts",
    "rocksdb": "RocksDB",
    "changelog": "The changelog",
    "network": "The network",
}
_WIDTH = 100


def options_page() -> str:
    """The page as it should be."""
    parts = [_HEAD]
    for owner, options in itertools.groupby(OPTIONS.options, key=lambda option: option.owner):
        if owner.name in _TITLES:
            parts += [f"## {_TITLES[owner.name]}", textwrap.fill(owner.about, _WIDTH, **_WHOLE)]
        rows = "\n".join(_row(option) for option in options)
        if owner.name in _TITLES:
            parts.append(f"{_COLUMNS}\n{rows}")
        else:  # another owner of the same section
            parts[-1] += f"\n{rows}"
    older = [f"| `{name}` | `{each.key}` |" for each in OPTIONS.options for name in each.aliases]
    parts += [
        "## Other names",
        "Only one name of an option may be set.",
        "| Older name in Flink | Option |\n|---|---|\n" + "\n".join(older),
        "## Options of Flink that are refused",
        "| Option | What to do |\n|---|---|\n"
        + "\n".join(f"| `{each.key}` | {each.doc} |" for each in OPTIONS.refused),
    ]
    return "\n\n".join(parts) + "\n"


_WHOLE: Any = {"break_long_words": False, "break_on_hyphens": False}
_COLUMNS = "| Option | Values | Default | In code | What it is |\n|---|---|---|---|---|"


def _row(option: Option) -> str:
    cells = (
        f"`{option.key}`",
        option.codec.values,
        _default(option),
        _in_code(option),
        option.doc or _doc(option),
    )
    return f"| {' | '.join(cells)} |"


def _in_code(option: Option) -> str:
    owner = option.owner
    if owner.name == "restart":
        return "`restart`"
    if option.field.partition(".")[0] not in _defaults(owner.settings):
        return ""
    name = {"": "StreamEnvironment", "execute": "execute"}.get(owner.name, owner.settings.__name__)
    return f"`{name}: {option.field}`"


def _defaults(settings: Any) -> dict[str, Any]:
    known = fields(settings) if is_dataclass(settings) else ()
    return {each.name: each.default for each in known}


def _default(option: Option) -> str:
    value = _defaults(option.owner.settings).get(option.field)
    return "" if value in (MISSING, None, ()) else f"`{_text(option.codec, value)}`"


def _text(codec: Codec, value: Any) -> str:
    for word in re.findall("`([^`]+)`", codec.values):
        read = codec.read(word)
        if read == value and type(read) is type(value):
            return str(word)
    if codec.values.startswith(SECONDS.values) and isinstance(value, float):
        return f"{value:g} s"
    if codec.read is SIZE.read and isinstance(value, int):
        return f"{value >> 20} mb"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _doc(option: Option) -> str:
    if "." in option.field:
        return f"RocksDB's `{option.field.partition('.')[2]}`."
    for settings in option.owner.settings.__mro__[:-1]:
        text = " ".join(dict(_docs(settings)).get(option.field, "").split())
        if text:
            return f"{text[0].upper()}{text[1:]}"
    raise LookupError(f"nothing says what {option.key} is: {option.owner.settings}")


def _docs(settings: type) -> Iterator[tuple[str, str]]:
    """What a settings class says of its fields: in its docstring, or in a text behind each."""
    lines = f"{inspect.getdoc(settings)}\n"
    yield from re.findall(r"^(\w+): (.*\n(?:    .*\n)*)", lines, re.MULTILINE)
    tree = ast.parse(textwrap.dedent(inspect.getsource(settings))).body[0]
    body = tree.body if isinstance(tree, ast.ClassDef) else []
    for field, behind in itertools.pairwise(body):
        match field, behind:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                yield name, text


if __name__ == "__main__":
    PAGE.write_text(options_page(), "utf-8")
