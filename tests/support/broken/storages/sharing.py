"""Storages that cannot be shared, sent or reopened, and one whose errors are not of the house."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from holdfast.storage import (
    Buffer,
    Capabilities,
    FileSystemCheckpointStorage,
    NotFound,
    ObjectWriter,
    SystemClock,
    SystemEntropy,
)
from support.broken.storages.register import Gathering, Local, Through, WithWriter, breaks

_lock = threading.Lock()


@breaks("a_storage_says_what_it_is", says="after it was used")
class LearnsWhatItCan(Local):
    prepared = False

    def prepare(self) -> None:
        super().prepare()
        self.prepared = True

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            shared_between_processes=True, durable=self.prepared, atomic_create=True
        )


@breaks("prepare_may_be_called_again", says="after prepare was called again")
class ClearsItsPlace(Local):
    def prepare(self) -> None:
        self.delete(info.name for info in self.list(""))
        super().prepare()


@breaks("a_reopened_storage_sees_everything", says="after reopening")
def opens_a_new_place(url: str) -> FileSystemCheckpointStorage:
    return Local(f"{url}/{SystemEntropy().token()}")


class Resettable(Local):
    """Is pickled as no more than its class and one text."""

    def pickled_url(self) -> str:
        return self.url

    def __reduce__(self) -> Any:
        return type(self), (self.pickled_url(),)


@breaks("a_pickled_storage_keeps_its_settings", says="its inline limit")
class ForgetsItsLimit(Resettable):
    def __init__(self, url: str) -> None:
        limit = 20 * 1024 if url.startswith("file:") else 1000
        super().__init__(url, inline_limit_bytes=limit)


@breaks("another_process_sees_every_write", says="what another process sees")
@breaks("another_process_reads_what_a_slot_wrote", says="is missing")
class ForgetsItsRoot(Resettable):
    def pickled_url(self) -> str:
        return f"{self.url}-elsewhere"


@breaks("threads_do_not_disturb_each_other", says="in threads side by side")
class RemembersOneName(WithWriter):
    """Keeps for itself what belongs to each of its writers."""

    name = ""

    def writer(self, name: str) -> ObjectWriter:
        self.name = name
        return super().writer(name)

    class Writer(Through):
        storage: RemembersOneName

        def commit(self) -> None:
            SystemClock().sleep_s(0.001)
            if self.storage.name == self.name:
                self.inner.commit()
            else:
                self.inner.abort()


@breaks("processes_do_not_disturb_each_other", says="in processes side by side")
class HasOneScratch(WithWriter):
    """Gathers what it writes in one file, which a lock of this process guards."""

    class Writer(Gathering):
        def commit(self) -> None:
            scratch = Path(f"{urlsplit(self.storage.url).path}-scratch")
            with _lock:
                scratch.write_bytes(b"".join(self.pieces))
                SystemClock().sleep_s(0.001)
                self.pieces = [scratch.read_bytes()]
                super().commit()


@breaks("only_holdfast_errors_are_raised", says="HoldfastError is owed, but")
class LetsErrorsOut(Local):
    def read_range(self, name: str, offset: int, length: int | None) -> bytes:
        try:
            data = (Path(urlsplit(self.url).path) / name).read_bytes()
        except FileNotFoundError:
            raise NotFound("no such object", where=self.url_of(name)) from None
        return data[offset:][:length]


@breaks("threads_share_a_writer", says="is truncated")
class TakesItsOwnThreadOnly(WithWriter):
    class Writer(Through):
        def __init__(self, storage: WithWriter, name: str, inner: ObjectWriter) -> None:
            super().__init__(storage, name, inner)
            self.thread = threading.get_ident()

        def write(self, data: Buffer) -> None:
            if threading.get_ident() == self.thread:
                super().write(data)
