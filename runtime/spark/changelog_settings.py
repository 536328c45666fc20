"""Whether a job's changes are logged, and how: what the code says, or else the session.

A session says it under Flink's names, each behind `spark.holdfast.`, such as
`spark.holdfast.state.changelog.enabled`.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from holdfast.backends import StateBackend
from holdfast.changelog import ChangelogOptions, ChangelogStateBackend
from holdfast.changelog.settings import changelog_options, is_of_changelog
from holdfast.storage import Invalid

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["check_changelog", "with_changelog"]

_PREFIX = "spark.holdfast."


def check_changelog(changelog: object, backend: StateBackend) -> None:
    """Refuse what cannot be said of a changelog over this backend.

    Raises:
        Invalid: it is of another kind; or the backend is a changelog already, and more is said.
    """
    if not isinstance(changelog, bool | ChangelogOptions | None):
        raise Invalid(
            "changelog is of another kind",
            expected="True, False, ChangelogOptions, or None for what the session says",
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
    backend: StateBackend, *, changelog: bool | ChangelogOptions | None, spark: SparkSession
) -> StateBackend:
    """The backend, with its changes logged if that is said.

    Of the session is asked only what the code does not say: how, if that says True, and all if it
    says nothing.

    Raises:
        Invalid: the session has a setting for Holdfast that it does not know, or a value that
            cannot be.
    """
    if changelog is False or isinstance(backend, ChangelogStateBackend):
        return backend
    if isinstance(changelog, ChangelogOptions):
        return ChangelogStateBackend(backend, changelog)
    try:
        options = changelog_options(_settings(spark), enabled=changelog)
    except Invalid as error:
        raise Invalid(
            error.what,
            where=f"the session's settings, without {_PREFIX}",
            expected=error.expected,
            found=error.found,
            fix=error.fix,
        ) from error
    return backend if options is None else ChangelogStateBackend(backend, options)


def _settings(spark: SparkSession) -> dict[str, str]:
    """What the session says to Holdfast, by names without the prefix."""
    settings = {
        name.removeprefix(_PREFIX): value
        for name, value in spark.conf.getAll.items()
        if name.startswith(_PREFIX)
    }
    for name in settings:
        if not is_of_changelog(name):
            near = get_close_matches(name, ["state.changelog.enabled"], cutoff=0.5)
            raise Invalid(
                f"there is no setting {_PREFIX}{name}",
                where="the session's settings",
                expected=f"{_PREFIX}{near[0] if near else 'state.changelog...'}",
                fix="Take it out, or mend its name: docs/changelog.md has those that there are",
            )
    return settings
