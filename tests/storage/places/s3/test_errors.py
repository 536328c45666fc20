"""What the S3 storage says of what a store answers, and what it keeps to itself."""

from __future__ import annotations

import logging
import threading

import pytest

from holdfast.storage import (
    HoldfastError,
    Invalid,
    ManualClock,
    TooLarge,
    Unavailable,
)
from holdfast.storage.places.s3.connection import connection
from holdfast.storage.places.s3.storage import S3CheckpointStorage
from support.servers.s3_answerer import (
    OK,
    SLOW_DOWN,
    Answer,
    Answerer,
    Asked,
    error,
    storage_of,
)


class TestErrors:
    @pytest.mark.parametrize(
        ("told", "kind", "message"),
        [
            (error("AccessDenied", 403), Invalid, "Allow these credentials to .* in bucket bucket"),
            (error("InvalidAccessKeyId", 403), Invalid, "expected credentials that are valid"),
            (error("ExpiredToken", 400), Invalid, "expected credentials that are valid"),
            (error("NoSuchBucket", 404), Invalid, "expected bucket bucket"),
            (error("MethodNotAllowed", 405), Invalid, "Check the endpoint, http://127"),
            (error("EntityTooLarge", 400), TooLarge, "EntityTooLarge"),
            (error("InvalidArgument", 400), Invalid, "InvalidArgument: because"),
            (error("XMinioStorageFull", 507), Unavailable, "expected room to write"),
            (error("QuotaExceeded", 403), Unavailable, "Free space"),
        ],
    )
    def test_a_refusal_is_not_retried_and_gives_advice(
        self,
        store: Answerer,
        storage: S3CheckpointStorage,
        told: Answer,
        kind: type[HoldfastError],
        message: str,
    ) -> None:
        store.tell(told)
        with pytest.raises(kind, match=message) as caught:
            storage.write("a", b"x")
        assert type(caught.value) is kind
        assert caught.value.where == "s3://bucket/root/a"
        assert "tried once" in caught.value.found

    def test_another_region_is_named(self, store: Answerer, storage: S3CheckpointStorage) -> None:
        store.tell(error("PermanentRedirect", 301), Answer(400))  # the library asks for the region
        with pytest.raises(Invalid, match="Pass the region of bucket bucket, or its endpoint"):
            storage.write("a", b"x")
        assert store.whats == ["PUT", "HEAD"]

    def test_a_clock_that_is_wrong_is_named(
        self, store: Answerer, storage: S3CheckpointStorage
    ) -> None:
        store.tell(*[error("RequestTimeTooSkewed", 403)] * 3)
        with pytest.raises(Unavailable, match="Set the clock of this machine"):
            storage.write("a", b"x")

    def test_trouble_ends_within_its_time(self, store: Answerer, clock: ManualClock) -> None:
        storage = storage_of(store, clock, max_attempts=1000, retry_timeout_s=90)
        store.tell(*[SLOW_DOWN] * 5)
        told = threading.Event()

        def more(_: Asked) -> Answer:
            store.tell(more)
            told.set()
            return SLOW_DOWN

        store.tell(more)
        with pytest.raises(Unavailable, match=r"SlowDown.*tried \d+ times in"):
            storage.write("a", b"x")
        assert told.is_set()
        assert 40 < clock.monotonic_s() <= 90
        store._told.clear()

    def test_an_unreachable_endpoint_is_unavailable_and_named(self, clock: ManualClock) -> None:
        storage = S3CheckpointStorage(
            "s3://bucket/root", endpoint="http://127.0.0.1:9", anon=True, clock=clock
        )
        with pytest.raises(Unavailable, match=r"Check that http://127.0.0.1:9 is right") as caught:
            storage.prepare()
        assert "tried 8 times" in caught.value.found

    def test_an_endpoint_that_does_not_encrypt_is_told_from_one_that_is_down(
        self, store: Answerer, clock: ManualClock
    ) -> None:
        storage = S3CheckpointStorage(
            "s3://bucket/root",
            endpoint=store.endpoint.replace("http:", "https:"),
            anon=True,
            clock=clock,
        )
        with pytest.raises(Invalid, match="http:// if the endpoint does not encrypt"):
            storage.read("a")
        assert clock.now_ms() == 0

    def test_a_wrong_signature_shows_no_key_and_nothing_signed(
        self,
        store: Answerer,
        storage: S3CheckpointStorage,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        inner = (
            "<AWSAccessKeyId>AKIDAKIDAKIDAKID</AWSAccessKeyId>"
            "<StringToSign>AWS4-HMAC-SHA256 what was to be signed</StringToSign>"
            "<CanonicalRequest>PUT /what/else</CanonicalRequest>"
        )
        caplog.set_level(logging.DEBUG)
        message = "The key AKIDAKIDAKIDAKID signs otherwise"
        store.tell(error("SignatureDoesNotMatch", 403, message, inner))
        with pytest.raises(Invalid, match=r"The key .*signs otherwise") as caught:
            storage.write("a", b"x")
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None
        shown = f"{caught.value!r} {caught.value} {caplog.text}"
        for secret in ("AKIDAKID", "a-secret-of-length", "what was to be signed", "/what/else"):
            assert secret not in shown
        assert "SignatureDoesNotMatch" in caplog.text  # the library has said all else

    def test_a_session_token_is_in_no_log(
        self, store: Answerer, clock: ManualClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        storage = storage_of(store, clock, session_token="a-token-of-temporary-kind")
        caplog.set_level(logging.DEBUG)
        store.tell(OK)
        storage.write("a", b"x")
        assert store.asked[0].headers["x-amz-security-token"] == "a-token-of-temporary-kind"
        assert "X-Amz-Security-Token" in caplog.text
        assert "a-token-of-temporary-kind" not in caplog.text
        signature = store.asked[0].headers["authorization"].rpartition("=")[2]
        assert signature not in caplog.text

    def test_errors_of_the_library_become_holdfast_errors(
        self, storage: S3CheckpointStorage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(*_: object, **__: object) -> None:
            raise RuntimeError("a mistake\nof many lines")

        here = connection(storage._options)
        monkeypatch.setattr(here.client, "get_object", broken)
        with pytest.raises(Unavailable, match=r"RuntimeError: a mistake \(tried once\)"):
            storage.read("a")
