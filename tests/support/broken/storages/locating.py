"""Storages that do not know where they are, or lead elsewhere than to where they are asked."""

from __future__ import annotations

import copy

from holdfast.storage import Invalid
from support.broken.storages.register import Local, breaks


@breaks("one_place_has_one_identity", says="of a place that was opened again")
class IsOfItsOwn(Local):
    @property
    def identity(self) -> str:
        return f"{super().identity} {id(self)}"


@breaks("other_roots_have_other_identities", says="how many identities there are")
class TellsTheServerOnly(Local):
    @property
    def identity(self) -> str:
        return super().identity.partition("/below")[0]


@breaks("a_folder_is_a_root_of_its_own", says="where the first storage is now")
class GoesThereItself(Local):
    def at(self, url: str) -> Local | None:
        led = super().at(url)
        if led is not None:
            self.__dict__.update(led.__dict__)
        return led


@breaks("the_settings_go_along_to_another_root", says="its inline limit")
class OpensAnotherAnew(Local):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.inline_limit_bytes = 20 * 1024 if "below" in url else 1000

    def at(self, url: str) -> Local | None:
        try:
            return type(self)(url)
        except Invalid:
            return None


@breaks("another_place_is_not_opened", says="a storage of 'no-such-kind://host/path'")
class LeadsAnywhere(Local):
    def at(self, url: str) -> Local | None:
        if "://" not in url or url.startswith("file:"):
            return super().at(url)
        other = copy.copy(self)  # with its keys, and the objects that are here
        other._url = url
        return other
