"""Whether a job's changes are logged, and how: what the code says, or else options.

Options have Flink's names, such as `state.changelog.enabled`.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.backends import StateBackend
from holdfast.changelog import ChangelogOptions, ChangelogStateBackend
from holdfast.changelog.settings import changelog_options
from holdfast.runtime.options.command_line import COMMAND_LINE
from holdfast.storage import Invalid

__all__ = ["check_changelog", "with_changelog"]


def check_changelog(changelog: object, backend: StateBackend) -> None:
    """Refuse what cannot be said of a changelog over this backend.

    Raises:
        Invalid: it is of another kind; or the backend is a changelog already, and more is said.
    """
    if not isinstance(changelog, bool | ChangelogOptions | None):
        raise Invalid(
            "changelog is of another kind",
            expected="True, False, ChangelogOptions, or None for what options say",
            found=repr(changelog),
        )
    if isinstance(backend, ChangelogStateBackend) and changelog is not None:
        raise Invalid(
            "the backend is a changelog, and `changelog` is given too",
            expected="one of them",
            found=f"backend={backend!r}, changelog={changelog!r}",
            fix="Leave `changelog` out, or pass the backend that the changelog is over",
        )


def with_changelog(
    backend: StateBackend,
    *,
    changelog: bool | ChangelogOptions | None,
    line: Mapping[str, str],
    session: Mapping[str, str],
) -> StateBackend:
    """The backend, with its changes logged if that is said.

    Of options is asked only what the code does not say: how, if that says True, and all if it says
    nothing. Those of the command line go before those of the session, and must not contradict the
    code.

    Raises:
        Invalid: they do; or options have no meaning beside each other.
    """
    if line:
        _check_line(backend, changelog=changelog, line=line)
    if changelog is False or isinstance(backend, ChangelogStateBackend):
        return backend
    if isinstance(changelog, ChangelogOptions):
        return ChangelogStateBackend(backend, changelog)
    options = changelog_options({**session, **line}, enabled=changelog)
    return backend if options is None else ChangelogStateBackend(backend, options)


def _check_line(
    backend: StateBackend,
    *,
    changelog: bool | ChangelogOptions | None,
    line: Mapping[str, str],
) -> None:
    """Refuse options of the command line that could not be honoured."""
    if isinstance(backend, ChangelogStateBackend):
        said, is_same = f"backend={backend!r}", False
    elif changelog is None:
        return
    else:
        said = f"changelog={changelog!r}"
        is_on = line.get("state.changelog.enabled", "true").strip().lower() == "true"
        if isinstance(changelog, ChangelogOptions):
            is_same = is_on and changelog_options(line, enabled=True) == changelog
        else:
            is_same = is_on is changelog
    if not is_same:
        raise Invalid(
            f"the program and {COMMAND_LINE} do not agree about the changelog",
            where=COMMAND_LINE,
            expected=f"what the program says: {said}",
            found=", ".join(f"{key}={text}" for key, text in line.items()),
            fix="Leave it out of one of them",
        )
