"""What the S3 storage reads, lists and deletes where a store has its bad days."""

from __future__ import annotations

import threading

import pytest

from holdfast.storage import (
    Invalid,
    ManualClock,
    NotFound,
    Unavailable,
)
from holdfast.storage.places.s3.storage import S3CheckpointStorage
from support.servers.s3_answerer import (
    ABSENT,
    Answer,
    Answerer,
    Asked,
    error,
    found,
    listing,
    storage_of,
    uploads,
    xml,
)

MIB = 1024 * 1024


class TestReading:
    def test_a_body_that_is_cut_is_read_again(
        self, store: Answerer, storage: S3CheckpointStorage
    ) -> None:
        data = bytes(range(200))
        store.tell(Answer(200, data[:50], length=200), Answer(200, b"", length=200), found(data))
        assert storage.read("a") == data

    def test_a_store_without_ranges_is_understood(
        self, store: Answerer, storage: S3CheckpointStorage
    ) -> None:
        store.tell(found(b"0123456789"), found(b"0123456789"))
        assert storage.read_range("a", 3, 4) == b"3456"
        assert storage.read_range("a", 8, None) == b"89"

    def test_past_the_end_there_is_nothing(
        self, store: Answerer, storage: S3CheckpointStorage
    ) -> None:
        store.tell(*[error("InvalidRange", 416)] * 2)
        assert storage.read_range("a", 30, 4) == b""
        assert storage.read_range("a", 30, 0) == b""

    def test_a_missing_bucket_is_no_missing_object(
        self, store: Answerer, storage: S3CheckpointStorage
    ) -> None:
        store.tell(error("NoSuchBucket", 404), ABSENT)
        with pytest.raises(Invalid, match="Create bucket bucket at http://127"):
            storage.read("a")
        with pytest.raises(NotFound, match="s3://bucket/root/a"):
            storage.read("a")

    def test_an_answer_that_is_not_s3_s_is_no_missing_object(
        self, store: Answerer, storage: S3CheckpointStorage
    ) -> None:
        store.tell(Answer(404, b"<html>nothing here</html>"))
        with pytest.raises(Invalid, match="expected a store that speaks S3"):
            storage.read("a")

    def test_a_long_read_is_of_one_version(self, store: Answerer, clock: ManualClock) -> None:
        storage = storage_of(store, clock, part_size_bytes=5 * MIB)
        old, new = bytes(12 * MIB), bytes([7]) * (12 * MIB)
        versions = [("one", old)] * 2 + [("two", new)] * 10

        def serve(asked: Asked) -> Answer:
            etag, data = versions.pop(0)
            begin, end = asked.headers["range"].removeprefix("bytes=").split("-")
            return found(data, etag=etag, span=(int(begin), min(int(end) + 1, len(data))))

        store.tell(*[serve] * 6)
        assert storage.read_range("a", 0, 12 * MIB) == new

    def test_versions_of_a_shrinking_object_are_not_mixed(
        self, store: Answerer, clock: ManualClock
    ) -> None:
        storage = storage_of(store, clock, part_size_bytes=5 * MIB, max_concurrency=1)
        data = bytes(range(256)) * (12 * MIB // 256)
        short = b"short"
        store.tell(
            found(data, span=(0, 5 * MIB)),
            error("InvalidRange", 416),
            error("InvalidRange", 416),
            found(short, span=(0, 5)),
            error("InvalidRange", 416),
            error("InvalidRange", 416),
        )
        assert storage.read_range("a", 0, 12 * MIB) == short

    def test_an_object_that_keeps_changing_is_unavailable(
        self, store: Answerer, clock: ManualClock
    ) -> None:
        storage = storage_of(store, clock, part_size_bytes=5 * MIB, max_concurrency=1)
        data = bytes(10 * MIB)
        for number in range(10):
            store.tell(
                found(data, etag=f"{number}", span=(0, 5 * MIB)),
                found(data, etag=f"{number}'", span=(5 * MIB, 10 * MIB)),
            )
        with pytest.raises(Unavailable, match="expected one version"):
            storage.read_range("a", 0, 10 * MIB)

    def test_a_whole_object_is_read_side_by_side_once_its_size_is_known(
        self, store: Answerer, clock: ManualClock
    ) -> None:
        storage = storage_of(store, clock, part_size_bytes=5 * MIB, max_concurrency=3)
        data = bytes(range(256)) * (17 * MIB // 256)
        meeting = threading.Barrier(3, timeout=20)

        def serve(asked: Asked) -> Answer:
            begin, end = asked.headers["range"].removeprefix("bytes=").split("-")
            if 1 < len(store.asked) <= 4:
                meeting.wait()
            return found(data, span=(int(begin), min(int(end) + 1, len(data))))

        store.tell(*[serve] * 5)
        assert storage.read("a") == data


class TestListing:
    def test_pages_are_followed_and_put_in_order(
        self, store: Answerer, storage: S3CheckpointStorage
    ) -> None:
        store.tell(listing("root/a/b", "root/a-b", more="t 1"), listing("root/A", "root/.hidden"))
        assert [info.name for info in storage.list("")] == ["A", "a-b", "a/b"]
        assert store.asked[1].query["continuation-token"] == ["t 1"]

    def test_a_page_without_the_next_is_no_end(
        self, store: Answerer, storage: S3CheckpointStorage
    ) -> None:
        store.tell(listing("root/a", is_cut=True))
        with pytest.raises(Unavailable, match="expected the beginning of the next page"):
            list(storage.list(""))

    def test_a_document_that_is_cut_is_asked_for_again(
        self, store: Answerer, storage: S3CheckpointStorage
    ) -> None:
        whole = listing("root/a", "root/b")
        store.tell(Answer(200, whole.body[:-30]), whole)
        assert [info.name for info in storage.list("")] == ["a", "b"]

    def test_impossible_prefixes_cost_no_request(self, storage: S3CheckpointStorage) -> None:
        assert [*storage.list("../"), *storage.list("a b")] == []
        assert [*storage.unfinished("a//")] == []


class TestDeleting:
    def test_deleting_one_object_costs_one_plain_request(
        self, store: Answerer, storage: S3CheckpointStorage
    ) -> None:
        store.tell(Answer(204), ABSENT)
        storage.delete(["a"])
        storage.delete(["a"])
        assert store.whats == ["DELETE", "DELETE"]

    def test_a_thousand_go_at_once(self, store: Answerer, storage: S3CheckpointStorage) -> None:
        done = xml("<DeleteResult></DeleteResult>")
        store.tell(done, done, Answer(204))
        storage.delete(f"n{number}" for number in range(2001))
        assert [asked.body.count(b"<Key>") for asked in store.asked] == [1000, 1000, 0]
        assert "content-md5" in store.asked[0].headers

    def test_only_failed_keys_are_deleted_again(
        self, store: Answerer, storage: S3CheckpointStorage
    ) -> None:
        store.tell(refused_keys("SlowDown", "b", "c"), refused_keys("InternalError", "c"))
        store.tell(refused_keys("NoSuchKey", "c"))
        storage.delete(["a", "b", "c"])
        assert [asked.body.count(b"<Key>") for asked in store.asked] == [3, 2, 1]

    def test_a_refused_key_is_reported_after_all_others_are_deleted(
        self, store: Answerer, storage: S3CheckpointStorage
    ) -> None:
        done = xml("<DeleteResult></DeleteResult>")
        store.tell(refused_keys("AccessDenied", "n5"), done)
        with pytest.raises(Invalid, match=r"cannot delete \[s3://bucket/root/n5\].*permission"):
            storage.delete(f"n{number}" for number in range(1100))

    def test_an_illegal_name_keeps_no_other(
        self, store: Answerer, storage: S3CheckpointStorage
    ) -> None:
        store.tell(Answer(204))
        with pytest.raises(Invalid, match="not legal"):
            storage.delete(["a b", "ok"])


def refused_keys(code: str, *names: str) -> Answer:
    lines = "".join(
        f"<Error><Key>root/{name}</Key><Code>{code}</Code><Message>m</Message></Error>"
        for name in names
    )
    return xml(f"<DeleteResult>{lines}</DeleteResult>")


class TestUnfinished:
    def test_pages_are_followed(self, store: Answerer, storage: S3CheckpointStorage) -> None:
        store.tell(
            uploads(("root/a", "1"), more=True),
            parts(5, 7, more=True),
            parts(9),
            uploads(("root/b c", "2"), ("root/d", "3")),
            error("NoSuchUpload", 404),
        )
        [write] = storage.unfinished("")
        assert (write.target, write.size_bytes) == ("a", 21)
        store.tell(Answer(204))
        storage.delete([write.name])
        assert store.asked[-1].query["uploadId"] == ["1"]

    def test_to_be_refused_is_no_end(self, store: Answerer, storage: S3CheckpointStorage) -> None:
        store.tell(error("AccessDenied", 403))
        with pytest.raises(Invalid, match=r"cannot list unfinished writes.*permission"):
            list(storage.unfinished(""))


def parts(*sizes: int, more: bool = False) -> Answer:
    shown = "".join(f"<Part><PartNumber>1</PartNumber><Size>{size}</Size></Part>" for size in sizes)
    tail = "<NextPartNumberMarker>2</NextPartNumberMarker>" if more else ""
    return xml(
        f"<ListPartsResult><IsTruncated>{str(more).lower()}</IsTruncated>{tail}{shown}"
        "</ListPartsResult>"
    )
