"""Clauses about `identity` and `at`: which storages are one place, and the way to another root."""

from __future__ import annotations

import pickle

import pytest

from holdfast.storage.interface import ObjectStorage
from holdfast.storage.testing.checks import is_absent, names_in, pattern, reads, require, same
from holdfast.storage.testing.place import Place, opened

__all__ = ["LocationClauses"]

_NOWHERE = ("", "no-such-kind://host/path", "no-such-kind://", "://", "a\0b")


class LocationClauses:
    """What a storage owes to callers that compare places, or go from one to another."""

    def test_one_place_has_one_identity(self, place: Place) -> None:
        """However it was opened, sent or found, before it is used and afterwards.

        By it a job recognises its own checkpoints, which must not be taken for another's.
        """
        storage, other = opened(place), place.open()
        before = storage.identity
        require(before, "an identity must not be empty")
        same(other.identity, before, "the identity of a place that was opened again")
        same(pickle.loads(pickle.dumps(storage)).identity, before, "that of a pickled storage")
        storage.prepare()
        storage.write("below/object", b"x")
        same(storage.identity, before, "the identity of a place, after it was used")
        same(place.open().identity, before, "that of a place that was opened after its use")
        for url in (storage.url, f"{storage.url}/"):
            led = storage.at(url)
            same(led is None or led.identity, led is None or before, f"that of its root {url!r}")

    def test_other_roots_have_other_identities(self, place: Place) -> None:
        """Each of them one of its own: what is below a place, or beside it, is not the place."""
        storage = opened(place)
        roots = (storage.url, *map(storage.url_of, ("below", "below/it", "below-it", "below0")))
        found = {root: _led_to(storage, root).identity for root in roots}
        same(len(set(found.values())), len(roots), f"how many identities there are of {found}")

    def test_a_folder_is_a_root_of_its_own(self, place: Place) -> None:
        """A storage of `url_of(folder)` has that folder's objects, and no others.

        The first storage stays as it was.
        """
        storage = opened(place)
        here = (storage.url, storage.identity)
        storage.write("below/mine", pattern(100))
        storage.write("beside", pattern(200))
        url = storage.url_of("below")
        led = _led_to(storage, url)
        same(led.url.rstrip("/"), url, "the URL of a storage of another root")
        led.prepare()
        same(names_in(led), ["mine"], f"the listing of {url}")
        reads(led, "mine", pattern(100), f"at {url}")
        is_absent(led, "beside", f"at {url}")
        led.write("theirs", pattern(300))
        same(led.create("mine", b"late"), pattern(100), f"creating what is there at {url}")
        same((storage.url, storage.identity), here, "where the first storage is now")
        reads(storage, "below/theirs", pattern(300), "written by a storage of the folder below")
        everything = ["below/mine", "below/theirs", "beside"]
        same(names_in(storage), everything, "the listing of the first storage")
        led.delete(names_in(led))
        same(names_in(place.open()), ["beside"], f"left after all was deleted at {url}")

    def test_the_settings_go_along_to_another_root(self, place: Place) -> None:
        """And from there to other processes: it is the same storage, but for its root."""
        storage = opened(place)
        led = _led_to(storage, storage.url_of("below"))
        same(type(led), type(storage), "the type of a storage of another root")
        same(led.capabilities, storage.capabilities, "its capabilities")
        same(led.inline_limit_bytes, storage.inline_limit_bytes, "its inline limit")
        require(led.clock is storage.clock, "its clock must be that of the first")
        require(led.entropy is storage.entropy, "its source of chance must be that of the first")
        copy = pickle.loads(pickle.dumps(led))
        same((copy.url, copy.identity), (led.url, led.identity), "where its pickled copy is")
        copy.write("object", b"x")
        reads(storage, "below/object", b"x", "written by a pickled storage of the folder below")
        back = led.at(storage.url)
        same(None if back is None else back.identity, storage.identity, "where it leads back to")

    def test_another_place_is_not_opened(self, place: Place) -> None:
        """Nothing is known of it, so None is answered; nothing is asked, and nothing raised.

        Otherwise keys would be sent to a foreign server, or a job would take a checkpoint of
        another place for its own.
        """
        opens = [place.open] if place.unusable is None else [place.open, place.unusable]
        for opens_one in opens:
            storage = opens_one()
            for url in _NOWHERE:
                same(_outcome(storage, url), None, f"a storage of {url!r}, by one of {storage.url}")
            require(storage.identity, "an identity must not be empty")


def _led_to(storage: ObjectStorage, url: str) -> ObjectStorage:
    """A storage of another root; skips the test where this one says nothing even of its own."""
    led = storage.at(url)
    if led is not None:
        return led
    if storage.at(storage.url) is None:
        pytest.skip("the storage leads to no other root")
    raise AssertionError(f"a storage of {storage.url} must know the way to {url}")


def _outcome(storage: ObjectStorage, url: str) -> object:
    try:
        return storage.at(url)
    except Exception as error:  # noqa: BLE001 (whatever it is, it is said)
        return error
