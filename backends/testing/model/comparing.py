"""Comparing live slots with the model by reading both; a read may remove or renew entries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.backends.testing.model.fleet import Fleet, comparable
from holdfast.backends.testing.model.model import Model
from holdfast.backends.testing.model.subjects import Subject, reading_of

__all__ = ["DOMAINS", "compare_fired", "compare_moments", "compare_reading", "compare_states"]

DOMAINS = ("event", "processing")


def compare_reading(
    fleet: Fleet, model: Model, subject: Subject, *, key: Any, namespace: Any
) -> None:
    """Compare the state of a key and a namespace."""
    action = reading_of(subject, key, namespace)
    expected = comparable(action.verb, model.do(action))
    found = fleet.do(action)
    assert found == expected, f"{action}: expected {expected!r}, found {found!r}"


def compare_states(
    fleet: Fleet, model: Model, subjects: Mapping[str, Subject], keys: Sequence[Any]
) -> None:
    """Compare every state under every key; declares states that were not declared yet."""
    for name, subject in subjects.items():
        fleet.declare(name)
        model.declare(name)
        for namespace in subject.namespaces:
            for key in keys:
                compare_reading(fleet, model, subject, key=key, namespace=namespace)


def compare_fired(fleet: Fleet, model: Model, *, until: int, again: int = 0) -> None:
    """Compare and remove the timers that are due in both time domains; see `Fleet.fire`."""
    for domain in DOMAINS:
        found = sorted(fleet.fire(domain, until, again), key=repr)
        expected = sorted(model.fire(domain, until, again), key=repr)
        assert found == expected, f"{domain} timers: expected {expected}, found {found}"


def compare_moments(fleet: Fleet, model: Model) -> None:
    """Compare the moments of the first timers."""
    for domain in DOMAINS:
        moments = (timer.timestamp for timer in model.timers(domain))
        assert fleet.next_timer(domain) == min(moments, default=None), domain
