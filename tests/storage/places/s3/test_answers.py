"""What the S3 storage writes, creates and proves where a store has its bad days."""

from __future__ import annotations

import threading

import pytest

from holdfast.storage import (
    HoldfastError,
    Invalid,
    ManualClock,
    Unavailable,
)
from holdfast.storage.places.s3.storage import S3CheckpointStorage
from support.servers.s3_answerer import (
    ABSENT,
    BROKEN,
    COMPLETED,
    CUT,
    MARK,
    OK,
    REFUSED,
    SLOW_DOWN,
    Answer,
    Answerer,
    Asked,
    Told,
    begun,
    error,
    found,
    listing,
    proven,
    storage_of,
    uploads,
    xml,
)
from support.waiting import wait_until

MIB = 1024 * 1024


def as_written(probe: Asked) -> Answer:
    return found(probe.body)


def shown(probe: Asked) -> Answer:
    return listing(probe.path.removeprefix("/bucket/"))


class TestWriting:
    def test_a_small_object_costs_one_request(
        self, store: Answerer, storage: S3CheckpointStorage
    ) -> None:
        store.tell(OK)
        storage.write("a/b", b"content")
        [asked] = store.asked
        assert (asked.method, asked.path, asked.body) == ("PUT", "/bucket/root/a/b", b"content")
        assert "if-none-match" not in asked.headers

    def test_an_object_of_exactly_one_part_takes_one_request(
        self, store: Answerer, storage: S3CheckpointStorage
    ) -> None:
        store.tell(OK)
        with storage.writer("a") as writer:
            for _ in range(8):
                writer.write(bytes(MIB))
        assert store.whats == ["PUT"]

    def test_trouble_is_tried_again(self, store: Answerer, storage: S3CheckpointStorage) -> None:
        store.tell(SLOW_DOWN, BROKEN, CUT, Answer(502), Answer(429), OK)
        storage.write("a", b"content")
        assert [asked.body for asked in store.asked] == [b"content"] * 6

    def test_parts_are_tried_again_one_by_one(self, store: Answerer, clock: ManualClock) -> None:
        storage = storage_of(store, clock, max_concurrency=1)
        store.tell(begun(), SLOW_DOWN, OK, CUT, OK, COMPLETED)
        with storage.writer("a") as writer:
            writer.write(bytes(9 * MIB))
        numbers = [asked.query["partNumber"] for asked in store.asked[1:5]]
        assert numbers == [["1"], ["1"], ["2"], ["2"]]

    def test_a_completion_whose_answer_was_lost_is_known_by_its_mark(
        self, store: Answerer, clock: ManualClock
    ) -> None:
        storage = storage_of(store, clock, max_concurrency=1)
        marks: list[str] = []

        def begin(asked: Asked) -> Answer:
            marks.append(asked.headers[MARK])
            return begun()

        gone = error("NoSuchUpload", 404)
        store.tell(begin, OK, OK, CUT, gone, lambda _: found(b"x", mark=marks[0], span=(0, 1)))
        with storage.writer("a") as writer:
            writer.write(bytes(9 * MIB))
        assert store.whats[3:] == ["POST uploadId", "POST uploadId", "GET"]

    def test_a_repeated_completion_is_recognised_with_one_connection_too(
        self, store: Answerer, clock: ManualClock
    ) -> None:
        storage = storage_of(store, clock, max_concurrency=1, max_connections=1)
        marks: list[str] = []

        def begin(asked: Asked) -> Answer:
            marks.append(asked.headers[MARK])
            return begun()

        gone = error("NoSuchUpload", 404)
        store.tell(begin, OK, OK, CUT, gone, BROKEN, gone)
        store.tell(lambda _: found(b"x", mark=marks[0], span=(0, 1)))
        ended = threading.Event()

        def write() -> None:
            with storage.writer("a") as writer:
                writer.write(bytes(9 * MIB))
            ended.set()

        threading.Thread(target=write, daemon=True).start()
        assert ended.wait(20), "it waits for itself"

    @pytest.mark.parametrize("there", [ABSENT, found(b"x", mark="another", span=(0, 1))])
    def test_parts_that_are_gone_are_told(
        self, store: Answerer, clock: ManualClock, there: Answer
    ) -> None:
        storage = storage_of(store, clock, max_concurrency=1)
        gone = error("NoSuchUpload", 404)
        store.tell(begun(), OK, OK, gone, there, gone)
        with (
            pytest.raises(Unavailable, match=r"s3://bucket/root/a\b.*removed"),
            storage.writer("a") as writer,
        ):
            writer.write(bytes(9 * MIB))
        assert store.whats[-1] == "DELETE uploadId"

    def test_a_completion_that_fails_behind_its_head_is_tried_again(
        self, store: Answerer, clock: ManualClock
    ) -> None:
        storage = storage_of(store, clock, max_concurrency=1)
        late = xml("<Error><Code>InternalError</Code><Message>m</Message></Error>")
        store.tell(begun(), OK, OK, late, COMPLETED)
        with storage.writer("a") as writer:
            writer.write(bytes(9 * MIB))
        assert store.whats[3:] == ["POST uploadId", "POST uploadId"]

    def test_a_part_that_cannot_be_written_ends_the_upload(
        self, store: Answerer, clock: ManualClock
    ) -> None:
        storage = storage_of(store, clock, max_concurrency=1, max_attempts=2)
        store.tell(begun(), BROKEN, BROKEN, Answer(204))
        writer = storage.writer("a")
        with pytest.raises(Unavailable, match=r"InternalError.*tried 2 times"):
            for _ in range(40):
                writer.write(bytes(MIB))
        with pytest.raises(Invalid, match="has failed"):
            writer.write(b"more")
        with pytest.raises(Invalid, match="has failed"):
            writer.commit()
        writer.abort()
        assert store.whats == ["POST uploads", "PUT uploadId", "PUT uploadId", "DELETE uploadId"]

    def test_abort_never_raises(self, store: Answerer, clock: ManualClock) -> None:
        storage = storage_of(store, clock, max_attempts=1)
        store.tell(begun(), *[OK] * 4, error("AccessDenied", 403))
        writer = storage.writer("a")
        writer.write(bytes(33 * MIB))
        wait_until(lambda: len(store.asked) == 5)  # a part that was not sent yet would be dropped
        writer.abort()
        writer.abort()
        assert store.whats[-1] == "DELETE uploadId"


class TestCreating:
    def test_a_create_is_a_conditional_put(
        self, store: Answerer, storage: S3CheckpointStorage
    ) -> None:
        proven(store)
        store.tell(OK, REFUSED, found(b"theirs"))
        assert storage.create("a", b"mine") is None
        assert storage.create("a", b"mine") == b"theirs"
        mine = [asked for asked in store.asked if asked.path == "/bucket/root/a"]
        assert [asked.headers.get("if-none-match") for asked in mine] == ["*", "*", None]

    def test_its_own_object_is_known_after_a_lost_answer(
        self, store: Answerer, storage: S3CheckpointStorage
    ) -> None:
        marks: list[str] = []

        def cut(asked: Asked) -> Answer:
            marks.append(asked.headers[MARK])
            return CUT

        proven(store)
        store.tell(cut, REFUSED, lambda _: found(b"mine", mark=marks[0]))
        assert storage.create("a", b"mine") is None

    def test_another_s_object_is_another_s_though_it_has_the_same_bytes(
        self, store: Answerer, storage: S3CheckpointStorage
    ) -> None:
        proven(store)
        store.tell(CUT, REFUSED, found(b"mine", mark="theirs"))
        assert storage.create("a", b"mine") == b"mine"

    def test_a_conflict_is_tried_again(self, store: Answerer, storage: S3CheckpointStorage) -> None:
        proven(store)
        store.tell(*[error("ConditionalRequestConflict", 409)] * 3, OK)
        assert storage.create("a", b"mine") is None

    def test_an_object_that_goes_makes_room(
        self, store: Answerer, storage: S3CheckpointStorage
    ) -> None:
        proven(store)
        store.tell(REFUSED, ABSENT, OK)
        assert storage.create("a", b"mine") is None

    def test_an_object_that_comes_and_goes_is_unavailable(
        self, store: Answerer, storage: S3CheckpointStorage
    ) -> None:
        proven(store)
        store.tell(*[REFUSED, ABSENT] * 20, listing())
        with pytest.raises(Unavailable, match="comes and goes"):
            storage.create("a", b"mine")

    def test_a_folder_in_its_place_is_named(
        self, store: Answerer, storage: S3CheckpointStorage
    ) -> None:
        proven(store)
        store.tell(*[REFUSED, ABSENT] * 20, listing("root/a/b"))
        with pytest.raises(Invalid, match="a name that is a folder of others"):
            storage.create("a", b"mine")

    def test_conditional_creates_are_probed_once_per_process_and_place(
        self, store: Answerer, clock: ManualClock
    ) -> None:
        proven(store)
        store.tell(OK, OK)
        storage_of(store, clock).prepare()
        storage_of(store, clock).prepare()
        storage_of(store, clock).create("a", b"")
        storage_of(store, clock).create("b", b"")
        assert (
            store.whats
            == ["PUT", "PUT", "GET", "GET list-type", "GET uploads", "DELETE"] + ["PUT"] * 2
        )


class TestProving:
    def test_a_store_that_ignores_the_condition_is_refused(
        self, store: Answerer, storage: S3CheckpointStorage
    ) -> None:
        store.tell(OK, OK, found(b"another"), Answer(204))
        with pytest.raises(Invalid, match="does not honour conditional requests") as caught:
            storage.create("a", b"mine")
        assert "allow_unsafe_commit=True" in caught.value.fix
        assert caught.value.where == "s3://bucket/root"
        assert store.whats == ["PUT", "PUT", "GET", "DELETE"]

    def test_a_store_without_conditional_creates_is_refused(
        self, store: Answerer, storage: S3CheckpointStorage
    ) -> None:
        store.tell(error("NotImplemented", 501), Answer(204))
        with pytest.raises(Invalid, match="expected a store that honours conditional") as caught:
            storage.prepare()
        assert "allow_unsafe_commit=True" in caught.value.fix

    def test_either_may_be_used_at_one_s_own_risk(
        self, store: Answerer, clock: ManualClock
    ) -> None:
        storage = storage_of(store, clock, allow_unsafe_commit=True)
        assert not storage.capabilities.atomic_create
        store.tell(found(b"theirs", span=(0, 1)), found(b"theirs"), ABSENT, OK)
        assert storage.create("a", b"mine") == b"theirs"
        assert storage.create("a", b"mine") is None
        assert all("if-none-match" not in asked.headers for asked in store.asked)

    def test_a_place_that_may_not_be_deleted_from_is_refused(
        self, store: Answerer, storage: S3CheckpointStorage
    ) -> None:
        probes: list[Asked] = []

        def keep(asked: Asked) -> Answer:
            probes.append(asked)
            return OK

        denied = error("AccessDenied", 403)
        store.tell(
            keep,
            REFUSED,
            lambda _: found(probes[0].body),
            lambda _: listing(probes[0].path.removeprefix("/bucket/")),
            uploads(),
            denied,
        )
        with pytest.raises(Invalid, match=r"cannot delete.*expected permission"):
            storage.prepare()

    @pytest.mark.parametrize(
        ("told", "message"),
        [
            ([error("AccessDenied", 403)], "cannot create.*expected permission"),
            ([OK, REFUSED, error("AccessDenied", 403)], "cannot read.*expected permission"),
            ([OK, REFUSED, ABSENT], "an object cannot be read although it was written"),
            (
                [OK, REFUSED, as_written, error("AccessDenied", 403)],
                "cannot list .*expected permission",
            ),
            (
                [OK, REFUSED, as_written, shown, error("AccessDenied", 403)],
                "cannot list unfinished writes .*expected permission",
            ),
        ],
    )
    def test_missing_permissions_of_the_probe_are_reported(
        self, store: Answerer, storage: S3CheckpointStorage, told: list[Told], message: str
    ) -> None:
        probes: list[Asked] = []

        def about_the_probe(answer: Told) -> Told:
            def tell(asked: Asked) -> Answer:
                probes.append(asked)
                return answer if isinstance(answer, Answer) else answer(probes[0])

            return tell

        store.tell(*map(about_the_probe, told), Answer(204))
        with pytest.raises(HoldfastError, match=message):
            storage.prepare()

    def test_a_store_whose_listings_are_late_is_refused(
        self, store: Answerer, storage: S3CheckpointStorage
    ) -> None:
        store.tell(OK, REFUSED, lambda _: found(store.asked[0].body), listing(), Answer(204))
        with pytest.raises(Unavailable, match="a listing does not show an object that was written"):
            storage.prepare()

    @pytest.mark.parametrize("is_unsafe", [False, True])
    def test_no_probe_is_deleted_where_the_store_did_not_answer(
        self, store: Answerer, clock: ManualClock, *, is_unsafe: bool
    ) -> None:
        storage = storage_of(store, clock, max_attempts=3, allow_unsafe_commit=is_unsafe)
        store.tell(CUT, CUT, CUT)
        with pytest.raises(Unavailable, match="tried 3 times"):
            storage.prepare()
        assert store.whats == ["PUT"] * 3

    def test_probes_of_killed_processes_are_removed_an_hour_later(
        self, store: Answerer, storage: S3CheckpointStorage
    ) -> None:
        def listed(_: Asked) -> Answer:
            mine = store.asked[0].path.removeprefix("/bucket/")
            return listing(mine, "root/.holdfast-probe-of-old")

        deleted = xml("<DeleteResult></DeleteResult>")
        store.tell(OK, REFUSED, lambda _: found(store.asked[0].body), listed, uploads(), deleted)
        storage.prepare()
        assert b".holdfast-probe-of-old" in store.asked[-1].body
