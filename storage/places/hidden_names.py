"""The hidden names under which storages write before they move a file to its name.

<folder>/<name>  is written as  <folder>/.<name>.<token>.unfinished
"""

from __future__ import annotations

from holdfast.storage.entropy import Entropy

__all__ = ["UNFINISHED_SUFFIX", "hidden_name", "target_of"]

UNFINISHED_SUFFIX = ".unfinished"


def hidden_name(name: str, entropy: Entropy) -> str:
    """A name beside `name` that no listing shows and no other writer uses."""
    folder, separator, target = name.rpartition("/")
    return f"{folder}{separator}.{target}.{entropy.token()}{UNFINISHED_SUFFIX}"


def target_of(hidden: str) -> str | None:
    """The name that `hidden_name` was given; None when it is no such name."""
    folder, separator, last = hidden.rpartition("/")
    if not (last.startswith(".") and last.endswith(UNFINISHED_SUFFIX)):
        return None
    target = last[1:].removesuffix(UNFINISHED_SUFFIX).rpartition(".")[0]
    return f"{folder}{separator}{target}" if target else None
