"""Clauses about cells and addresses, the representation of values and keys in a store."""

from __future__ import annotations

from holdfast.backends.keys.codec import key_codec_for
from holdfast.backends.tables.contract import NO_NAMESPACE, StateKind
from holdfast.backends.testing.place import Place
from holdfast.backends.testing.samples import INT64_MAX, INT64_MIN, KEYS, PREFIXES, VALUES
from holdfast.backends.testing.table_clauses.tables import tables
from holdfast.backends.values.normalizing import has_none
from holdfast.storage.errors import Invalid
from holdfast.storage.testing.checks import owed, require, same

__all__ = ["FormClauses"]

_STAMPS = (INT64_MIN, -1, 0, 1, 1_700_000_000_000, INT64_MAX)


class FormClauses:
    """Clauses about `form`, `address` and `addresses`."""

    def test_values_come_back_from_cells(self, place: Place) -> None:
        """Equal and of the same type, one by one and many at once, whatever type was declared."""
        with tables(place) as scene:
            for kind in StateKind:
                for name, sample in VALUES.items():
                    form = scene.store.form(scene.spec("t", kind, values=sample.annotation))
                    values = list(sample.instances)
                    cells = form.encode_many(values)
                    for found in (
                        form.decode_many(cells),
                        [form.decode(cell) for cell in cells],
                        form.decode_many([form.encode(value) for value in values]),
                    ):
                        what = f"values of type {name} in a {kind.value}"
                        same(found, values, what)
                        same(list(map(type, found)), list(map(type, values)), f"types: {what}")

    def test_a_form_refuses_what_does_not_fit(self, place: Place) -> None:
        """`Invalid` from both ways of encoding; a wrong value must not get into a table."""
        with tables(place) as scene:
            for annotation, wrong in ((int, "1"), (int, 2**63), (str, 1), (list[int], ["1"])):
                form = scene.store.form(scene.spec("t", StateKind.VALUE, values=annotation))
                with owed(Invalid, f"encoding {wrong!r} as {annotation}"):
                    form.encode(wrong)
                with owed(Invalid, f"encoding {wrong!r} among others as {annotation}"):
                    form.encode_many([wrong])

    def test_exact_values_are_cells_already(self, place: Place) -> None:
        """Where `exact` names a type, its instances get into the table past `encode`."""
        with tables(place) as scene:
            for name, sample in VALUES.items():
                form = scene.store.form(scene.spec("t", StateKind.VALUE, values=sample.annotation))
                if form.exact is not None:
                    for value in sample.instances:
                        require(type(value) is form.exact, f"{value!r} must be a {form.exact}")
                        same(
                            form.encode(value), value, f"the cell of an exact value of type {name}"
                        )
                        same(form.decode(value), value, f"an exact value of type {name}, decoded")

    def test_stamps_come_back(self, place: Place) -> None:
        """A cell and its milliseconds, to the ends of 64 bits; time may be before 1970, or far."""
        with tables(place) as scene:
            for sample in VALUES.values():
                spec = scene.spec("t", StateKind.VALUE, values=sample.annotation, stamped=True)
                form = scene.store.form(spec)
                for value in sample.instances:
                    for stamp in _STAMPS:
                        found, cell = form.unstamp(form.stamp(stamp, form.encode(value)))
                        same(found, stamp, f"the stamp of {value!r:.80}")
                        same(form.decode(cell), value, "the value that was stamped")

    def test_null_in_a_map_has_a_cell(self, place: Place) -> None:
        """None is a value of a map; only the None of a table means absent."""
        with tables(place) as scene:
            form = scene.store.form(scene.spec("t", StateKind.MAP, map_keys=str, values=int | None))
            cells = [form.encode(None), *form.encode_many([None, 0])]
            require(not has_none(cells), "the cell of a null must not be None")
            same(form.decode_many(cells), [None, None, 0], "nulls of a map, decoded")
            same([form.decode(cell) for cell in cells], [None, None, 0], "and one by one")

    def test_many_addresses_are_those_of_each(self, place: Place) -> None:
        """The batch view and the row view of state meet at one address, which can be hashed."""
        with tables(place) as scene:
            for name, sample in KEYS.items():
                for namespaces in (NO_NAMESPACE, str):
                    cells = scene.values(
                        f"{name} {namespaces}", keys=sample.annotation, namespaces=namespaces
                    )
                    namespace = NO_NAMESPACE if namespaces is NO_NAMESPACE else "a\0"
                    keys = [*sample.instances, sample.instances[0]]
                    one_by_one = [cells.at(key, namespace) for key in keys]
                    many = scene.store.addresses(cells.spec, keys, namespace)
                    same(list(many), one_by_one, f"addresses of many keys of type {name}")
                    require(
                        len(set(one_by_one)) == len(sample.instances),
                        f"addresses of keys of type {name} must be as distinct as the keys",
                    )

    def test_keys_and_namespaces_are_not_confused(self, place: Place) -> None:
        """Where one ends and the other begins is clear, whatever bytes they are made of."""
        with tables(place) as scene:
            cells = scene.values(namespaces=str)
            pairs = [(key, namespace) for key in PREFIXES for namespace in PREFIXES]
            addresses = [cells.at(*pair) for pair in pairs]
            require(
                len(set(addresses)) == len(pairs),
                "every pair of key and namespace must have an address of its own",
            )
            for number, pair in enumerate(pairs):
                cells.put(pair[0], number, pair[1])
            for number, pair in enumerate(pairs):
                same(cells.get(*pair), number, f"the value at key and namespace {pair!r}")
            same(sorted(cells.owners()), sorted(pairs), "all keys with their namespaces")

    def test_equal_keys_have_one_address(self, place: Place) -> None:
        """A key that came by another way than before finds what was kept under it."""
        with tables(place) as scene:
            for name, sample in KEYS.items():
                cells = scene.values(name, keys=sample.annotation)
                codec = key_codec_for(sample.annotation)
                for key in sample.instances:
                    again = codec.decode(codec.encode(key))
                    same(
                        [cells.at(again)], [cells.at(key)], f"the address of {key!r:.80} once more"
                    )
                    same(hash(cells.at(again)), hash(cells.at(key)), "and its hash")
