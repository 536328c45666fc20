"""Backends whose cells or addresses are wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from holdfast.backends.tables.contract import CellForm, StateKind, TableSpec
from support.broken.backends.register import Store, WithForm, breaks

_INT32 = 0xFFFF_FFFF
_INT64 = 1 << 64


def _decoded(form: CellForm, change: Callable[[Any], Any]) -> CellForm:
    """The form, with a change to each value that comes back."""
    return replace(
        form,
        decode=lambda cell: change(form.decode(cell)),
        decode_many=lambda cells: list(map(change, form.decode_many(cells))),
    )


def _encoded(form: CellForm, change: Callable[[Any], Any]) -> CellForm:
    """The form, with a change to each value that goes in."""
    return replace(
        form,
        exact=None,
        encode=lambda value: form.encode(change(value)),
        encode_many=lambda values: form.encode_many(list(map(change, values))),
    )


@breaks("values_come_back_from_cells", says="types: values of type bool")
class ReadsNumbersForTruth(WithForm):
    def altered(self, form: CellForm, spec: TableSpec) -> CellForm:
        return _decoded(form, lambda value: int(value) if type(value) is bool else value)


@breaks("a_form_refuses_what_does_not_fit", says="encoding '1' as .*Invalid is owed")
@breaks("a_batch_that_does_not_fit_changes_nothing", says="values.*Invalid is owed, but nothing")
class TakesWhateverComes(WithForm):
    def altered(self, form: CellForm, spec: TableSpec) -> CellForm:
        return replace(form, encode=lambda value: value, encode_many=list)


@breaks(
    "a_value_that_does_not_fit_changes_nothing", says="update of True: Invalid is owed, but nothing"
)
class TakesTruthForNumbers(WithForm):
    def altered(self, form: CellForm, spec: TableSpec) -> CellForm:
        return _encoded(form, lambda value: int(value) if type(value) is bool else value)


@breaks("a_sum_past_64_bits_is_refused", says="a sum past 64 bits, by the row")
class WrapsAround(WithForm):
    def altered(self, form: CellForm, spec: TableSpec) -> CellForm:
        half = _INT64 // 2
        return _encoded(form, lambda value: (value + half) % _INT64 - half)


@breaks("exact_values_are_cells_already", says="the cell of an exact value of type int")
class PacksWhatItTakesUnpacked(WithForm):
    def altered(self, form: CellForm, spec: TableSpec) -> CellForm:
        if form.exact is not int:
            return form
        return replace(form, encode=str, decode=int, encode_many=lambda all_: list(map(str, all_)))


@breaks("stamps_come_back", says="the stamp of 0")
@breaks("a_huge_time_to_live_never_ends", says="a value for ever, from 4611686018427387904")
class StampsIn32Bits(WithForm):
    def altered(self, form: CellForm, spec: TableSpec) -> CellForm:
        return replace(form, stamp=lambda stamp, cell: form.stamp(stamp & _INT32, cell))


@breaks("a_value_lives_from_its_last_write", says="a value that was written again")
class StampsByTheSecond(WithForm):
    def altered(self, form: CellForm, spec: TableSpec) -> CellForm:
        return replace(form, stamp=lambda stamp, cell: form.stamp(stamp // 1000 * 1000, cell))


@breaks("reading_renews_nothing_else", says="just before its time: expected .None")
class ReadsStampsTooLate(WithForm):
    def altered(self, form: CellForm, spec: TableSpec) -> CellForm:
        def unstamp(cell: Any) -> tuple[int, Any]:
            stamp, plain = form.unstamp(cell)
            return stamp + 1, plain

        return replace(form, unstamp=unstamp)


@breaks("nothing_is_added_to_an_expired_value", says="a sum after its time had passed")
class StampsAhead(WithForm):
    def altered(self, form: CellForm, spec: TableSpec) -> CellForm:
        return replace(form, stamp=lambda stamp, cell: form.stamp(stamp + 500, cell))


@breaks("null_in_a_map_has_a_cell", says="must not be None")
class HasNoNull(WithForm):
    def altered(self, form: CellForm, spec: TableSpec) -> CellForm:
        def encode(value: Any) -> Any:
            return None if value is None else form.encode(value)

        return replace(form, encode=encode, encode_many=lambda values: list(map(encode, values)))


@breaks(
    "changing_a_passed_or_returned_object_does_not_change_state",
    says="a value that was changed outside",
)
class KeepsWhatItIsGiven(WithForm):
    def altered(self, form: CellForm, spec: TableSpec) -> CellForm:
        codec = spec.values
        return replace(
            form,
            encode=codec.check,
            decode=lambda cell: cell,
            encode_many=codec.check_many,
            decode_many=list,
        )


@breaks("values_of_every_type", says="values of type str")
class KeepsShortText(WithForm):
    def altered(self, form: CellForm, spec: TableSpec) -> CellForm:
        return _encoded(form, lambda value: value[:65535] if type(value) is str else value)


@breaks("large_values", says="a large value")
class KeepsAMebibyte(WithForm):
    def altered(self, form: CellForm, spec: TableSpec) -> CellForm:
        return _encoded(form, lambda value: value[: 1 << 20])


@breaks("many_addresses_are_those_of_each", says="addresses of many keys of type int")
class ForgetsTheNamespaceOfMany(Store):
    def addresses(self, spec: TableSpec, keys: Sequence[Any], namespace: Any) -> Sequence[Any]:
        return keys


@breaks("keys_and_namespaces_are_not_confused", says="an address of its own")
class JoinsKeyAndNamespace(Store):
    def address(self, spec: TableSpec, key: Any, namespace: Any) -> Any:
        return super().address(spec, "", f"{key}{namespace}")


@breaks("equal_keys_have_one_address", says="once more")
class TakesEqualForOther(Store):
    def address(self, spec: TableSpec, key: Any, namespace: Any) -> Any:
        return super().address(spec, id(key), namespace)


@breaks("namespaces_are_apart", says="state of .*, found")
class CutsNamespaces(Store):
    def address(self, spec: TableSpec, key: Any, namespace: Any) -> Any:
        return super().address(spec, key, namespace[:2] if spec.namespaces else namespace)


@breaks("keys_of_all_bytes_are_apart", says=r"the list of key '\\x00")
class EndsAtNul(Store):
    def address(self, spec: TableSpec, key: Any, namespace: Any) -> Any:
        is_text = type(key) is str and spec.kind is StateKind.LIST
        return super().address(
            spec, key[:1] + key[1:].split("\0")[0] if is_text else key, namespace
        )
