"""Backends whose tables are sound, and whose keyed state is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pyarrow as pa

from holdfast.backends import SnapshotFuture, StateDescriptor, Timer, TimerService
from holdfast.backends.keyed.undeclared_state import UndeclaredState
from holdfast.backends.snapshots.neutral import FILES_KIND, SnapshotTarget
from holdfast.backends.tables.contract import NO_NAMESPACE
from holdfast.storage import Corrupt, Invalid
from support.broken.backends.register import WAIT_S, Keyed, breaks


@breaks("keys_of_other_slots_are_refused", says="Invalid is owed, but nothing was raised")
class TakesKeysOfOthers(Keyed):
    def keys_of(self, keys: Any) -> Sequence[Any]:
        return [self._keys.codec.canonical(key) for key in pa.array(keys).to_pylist()]


@breaks("keys_of_tuples_reduce_by_the_batch", says="sums of keys that are structs")
class ReadsTheFirstField(Keyed):
    def keys_of(self, keys: Any) -> Sequence[Any]:
        if isinstance(keys, pa.StructArray):
            return [(row["a"], 1) for row in keys.to_pylist()]
        return super().keys_of(keys)


@breaks("a_namespace_must_be_chosen", says="a value without a current namespace")
class ChoosesANamespace(Keyed):
    def get_state(self, descriptor: StateDescriptor, *, namespace_type: Any = None) -> Any:
        is_new = descriptor.name not in self._states
        state = super().get_state(descriptor, namespace_type=namespace_type)
        if namespace_type is not None and is_new:
            state.set_current_namespace(namespace_type())
        return state


@breaks("all_keys_may_be_changed", says="the current key must be the one before")
@breaks("the_current_key_survives_a_failure", says="the value of the key before")
class StaysAtTheLastKey(Keyed):
    def apply_to_all_keys(
        self,
        descriptor: StateDescriptor,
        function: Callable[[Any, Any], None],
        *,
        namespace: Any = NO_NAMESPACE,
        namespace_type: Any = None,
    ) -> None:
        state = self.get_state(descriptor, namespace_type=namespace_type)
        for key in list(self.keys(descriptor.name, namespace)):
            self.key = key
            function(key, state)


@breaks("a_key_must_be_chosen", says="under no key: Invalid is owed, but nothing was raised")
class BeginsAtNone(Keyed):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.key = None


@breaks("a_state_is_declared_once", says="must answer the same object")
class DeclaresAgain(Keyed):
    def get_state(self, descriptor: StateDescriptor, *, namespace_type: Any = None) -> Any:
        self._states.pop(descriptor.name, None)
        return super().get_state(descriptor, namespace_type=namespace_type)


class _Timers(TimerService):
    """All of another service."""

    def __init__(self, inner: TimerService) -> None:
        vars(self).update(vars(inner))


class _ListedFirst(_Timers):
    def due_event_time(self, watermark: int) -> Iterator[Timer]:
        return iter(list(super().due_event_time(watermark)))


class _LatestFirst(_Timers):
    def due_event_time(self, watermark: int) -> Iterator[Timer]:
        return reversed(list(super().due_event_time(watermark)))


@breaks("a_timer_may_register_others", says="timers that were registered by timers")
class ListsTimersFirst(Keyed):
    def timers(self, name: str, *, namespace_type: Any = None) -> TimerService:
        return _ListedFirst(super().timers(name, namespace_type=namespace_type))


@breaks("timers_fire_in_order_of_time", says="timers up to")
class FiresTheLatestFirst(Keyed):
    def timers(self, name: str, *, namespace_type: Any = None) -> TimerService:
        return _LatestFirst(super().timers(name, namespace_type=namespace_type))


@breaks("a_timer_is_registered_once", says="timers of another service")
class HasOneService(Keyed):
    def timers(self, name: str, *, namespace_type: Any = None) -> TimerService:
        return super().timers("all", namespace_type=namespace_type)


@breaks("a_snapshot_can_be_cancelled", says="a snapshot that is written can be given up")
class CannotCancel(Keyed):
    def snapshot(
        self, checkpoint_id: int, target: SnapshotTarget, **options: Any
    ) -> SnapshotFuture:
        future = super().snapshot(checkpoint_id, target, **options)
        vars(future)["cancel"] = lambda: False
        return future


@breaks("a_snapshot_says_what_it_is", says="the key groups of a snapshot")
class NamesNoKeyGroups(Keyed):
    def snapshot(
        self, checkpoint_id: int, target: SnapshotTarget, **options: Any
    ) -> SnapshotFuture:
        whole = super().snapshot(checkpoint_id, target, **options).result(WAIT_S)
        future = SnapshotFuture()
        future.set_result(msgspec.structs.replace(whole, key_groups=None))
        return future


@breaks("a_snapshot_is_in_the_form_that_is_told", says="asked for as SnapshotForm")
class HasAFormOfItsOwn(Keyed):
    def snapshot(
        self, checkpoint_id: int, target: SnapshotTarget, **options: Any
    ) -> SnapshotFuture:
        whole = super().snapshot(checkpoint_id, target, **options).result(WAIT_S)
        future = SnapshotFuture()
        future.set_result(msgspec.structs.replace(whole, kind=FILES_KIND))
        return future


@breaks("notifications_are_taken", says="unknown checkpoint")
class WantsToKnowCheckpoints(Keyed):
    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        super().notify_checkpoint_aborted(checkpoint_id)
        if checkpoint_id > 10:
            raise Invalid("an unknown checkpoint was aborted")


@breaks("undeclared_state_is_kept", says="state that was carried on")
class WritesWhatWasAskedFor(Keyed):
    def snapshot(
        self, checkpoint_id: int, target: SnapshotTarget, **options: Any
    ) -> SnapshotFuture:
        undeclared, self._undeclared = self._undeclared, UndeclaredState(self.store, self._where)
        try:
            return super().snapshot(checkpoint_id, target, **options)
        finally:
            self._undeclared = undeclared


@breaks("state_may_be_declared_late", says="state that was asked for bit by bit")
class ForgetsWhatItHasWritten(Keyed):
    def snapshot(
        self, checkpoint_id: int, target: SnapshotTarget, **options: Any
    ) -> SnapshotFuture:
        future = super().snapshot(checkpoint_id, target, **options)
        self._undeclared = UndeclaredState(self.store, self._where)
        return future


@breaks("a_state_may_have_a_new_name", says="state under an alias")
class KnowsNoAliases(Keyed):
    def get_state(self, descriptor: StateDescriptor, *, namespace_type: Any = None) -> Any:
        return super().get_state(replace(descriptor, aliases=()), namespace_type=namespace_type)


@breaks(
    "an_unreadable_declaration_is_refused",
    says="a restore as .*Invalid is owed, but nothing was raised",
)
class BeginsAnewIfItMust(Keyed):
    def get_state(self, descriptor: StateDescriptor, *, namespace_type: Any = None) -> Any:
        try:
            return super().get_state(descriptor, namespace_type=namespace_type)
        except Invalid:
            self._undeclared._tables.pop(descriptor.name, None)
            return super().get_state(descriptor, namespace_type=namespace_type)


@breaks("a_value_that_cannot_be_migrated_is_refused", says="keys of state that was asked for again")
@breaks("a_changed_file_is_named", says="state from a file that was flipped")
class GivesUpAfterAFailure(Keyed):
    def get_state(self, descriptor: StateDescriptor, *, namespace_type: Any = None) -> Any:
        try:
            return super().get_state(descriptor, namespace_type=namespace_type)
        except (Corrupt, Invalid):
            self._undeclared._tables.pop(descriptor.name, None)
            raise


@breaks("a_missing_file_is_named", says="a file that is missing: Corrupt is owed, but nothing")
class DoesWithout(Keyed):
    def get_state(self, descriptor: StateDescriptor, *, namespace_type: Any = None) -> Any:
        try:
            return super().get_state(descriptor, namespace_type=namespace_type)
        except Corrupt:
            self._undeclared._tables.pop(descriptor.name, None)
            return super().get_state(descriptor, namespace_type=namespace_type)


@breaks("a_truncated_file_is_named", says="the error must name")
class NamesNoFile(Keyed):
    def get_state(self, descriptor: StateDescriptor, *, namespace_type: Any = None) -> Any:
        try:
            return super().get_state(descriptor, namespace_type=namespace_type)
        except Corrupt:
            raise Corrupt("a file of the snapshot is damaged") from None
