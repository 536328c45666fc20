"""What an S3 storage may be set up with, and what becomes of its secrets."""

from __future__ import annotations

import json
import logging
import os
import pickle
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any, get_type_hints

import pytest

from holdfast.storage import Invalid, ManualClock, Unavailable, load_storage
from holdfast.storage.places.s3.connection import S3Connection, connection
from holdfast.storage.places.s3.options import MIB, S3Arguments, S3Options, S3Place, s3_place
from holdfast.storage.places.s3.secrets import Secret, keep_out_of_logs, scrubbed
from holdfast.storage.places.s3.storage import S3CheckpointStorage
from support.servers.s3_answerer import OK, Answer, Answerer, Asked

KEYS = {"key": "AKIAOPTIONSTEST", "secret": "a/secret+of-options"}


def options_of(storage: object) -> S3Options:
    assert isinstance(storage, S3CheckpointStorage)
    return storage._options


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is found by chance."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def metadata_at(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have this machine be an instance, with its metadata there."""
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", endpoint)


def role(asked: Asked) -> Answer:
    assert asked.path.endswith("/security-credentials/")
    return Answer(200, b"the-role")


def of_role(_: Asked) -> Answer:
    told = {"AccessKeyId": "AKIAINSTANCE", "SecretAccessKey": "the-secret-of-the-instance"}
    told |= {"Token": "the-token", "Expiration": "2099-01-01T00:00:00Z", "Code": "Success"}
    return Answer(200, json.dumps(told).encode())


class TestPlaces:
    @pytest.mark.parametrize(
        ("url", "place"),
        [
            ("s3://bucket", S3Place("bucket", "")),
            ("s3://bucket/", S3Place("bucket", "")),
            ("s3a://bucket/a/b", S3Place("bucket", "a/b/")),
            ("s3://bucket/a/b/", S3Place("bucket", "a/b/")),
            (
                "s3://my.bucket-1/größe 100% #1?x=y&z",
                S3Place("my.bucket-1", "größe 100% #1?x=y&z/"),
            ),
        ],
    )
    def test_both_schemes_name_the_same_place(self, url: str, place: S3Place) -> None:
        assert s3_place(url) == place
        storage = load_storage(url, **KEYS)
        assert storage.url == url.rstrip("/")
        assert storage.url_of("x/y") == f"{url.rstrip('/')}/x/y"

    @pytest.mark.parametrize(
        ("url", "message"),
        [
            ("s3://", "no name of a bucket"),
            ("s3:///path", "no name of a bucket"),
            ("s3:bucket", "not the URL of a bucket"),
            ("s3://ab", "3 letters or more"),
            ("s3://bu cket/x", "no name of a bucket"),
            ("s3://arn:aws:s3:us-west-2:123456789012:accesspoint/mine/x", "its alias"),
            ("s3://directory--use1-az4--x-s3/a", "directory bucket"),
            ("s3://bucket/a//b", "is not plain"),
            ("s3://bucket/../b", "is not plain"),
            ("s3://bucket/a/./b", "is not plain"),
            ("s3://bucket/a\nb", "is not plain"),
        ],
    )
    def test_other_urls_are_refused(self, url: str, message: str) -> None:
        with pytest.raises(Invalid, match=message):
            S3CheckpointStorage(url)

    def test_keys_in_a_url_are_refused_and_not_shown(self) -> None:
        with pytest.raises(Invalid, match="has credentials in it") as caught:
            S3CheckpointStorage("s3a://AKID:topsecret@bucket/a")
        assert "topsecret" not in str(caught.value)
        assert "AKID" not in str(caught.value)


class TestOptions:
    def test_arguments_are_the_options(self) -> None:
        own = set(S3Options.__dataclass_fields__)
        assert set(S3Arguments.__annotations__) == own | {"server_side_encryption", "kms_key_id"}
        given = get_type_hints(S3Arguments)
        kept = get_type_hints(S3Options)
        for name in own - {"key", "secret", "session_token", "put_arguments"}:
            assert given[name] == kept[name], name

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"nonsense": 1}, r"option 'nonsense' is not known.*allow_unsafe_commit.*verify"),
            ({"endpoint": "not a url"}, "option endpoint .*http://host:port"),
            ({"endpoint": "http://host:1/path"}, "option endpoint"),
            ({"endpoint": "http://host:99999"}, "option endpoint"),
            ({"endpoint": "http://u:topsecret@host"}, "option endpoint"),
            ({"endpoint": "http://host", "ssl": True}, "option ssl .*what the endpoint says"),
            ({"endpoint": 5}, "option endpoint"),
            ({"region": ""}, "option region"),
            ({"key": "k"}, "option secret is missing"),
            ({"secret": "s"}, "option key is missing"),
            ({"key": 5, "secret": "s"}, "option key .*found 'int'"),
            ({"session_token": "topsecret"}, "session_token is given without key"),
            ({"anon": True, **KEYS}, "exclude each other.*key and anon"),
            ({"profile": "p", **KEYS}, "exclude each other.*key and profile"),
            ({"profile": "p", "provider": "environment"}, "exclude each other"),
            ({"provider": "magic"}, "option provider .*environment.*web-identity"),
            ({"provider": "environment,"}, "option provider"),
            ({"anon": "yes"}, "option anon"),
            ({"path_style": 1}, "option path_style"),
            ({"verify": ""}, "option verify"),
            ({"part_size_bytes": 5 * MIB - 1}, "option part_size_bytes"),
            ({"part_size_bytes": 1024 * MIB + 1}, "option part_size_bytes"),
            ({"part_size_bytes": 8.5e6}, "option part_size_bytes"),
            ({"max_concurrency": 0}, "option max_concurrency"),
            ({"max_connections": True}, "option max_connections"),
            ({"connect_timeout_s": 0}, "option connect_timeout_s"),
            ({"read_timeout_s": float("nan")}, "option read_timeout_s"),
            ({"max_attempts": 0}, "option max_attempts"),
            ({"retry_timeout_s": -1}, "option retry_timeout_s"),
            ({"server_side_encryption": "rot13"}, "option server_side_encryption"),
            ({"kms_key_id": "k"}, "option kms_key_id .*aws:kms"),
            ({"server_side_encryption": "AES256", "kms_key_id": "k"}, "option kms_key_id"),
            ({"put_arguments": {"Body": "x"}}, "option put_arguments .*StorageClass"),
            ({"put_arguments": {"SSECustomerKey": "topsecret"}}, "key of the customer"),
            ({"put_arguments": {"StorageClass": "GLACIER"}}, "can be read at once"),
            ({"put_arguments": {"Tagging": 5}}, "option put_arguments"),
            ({"put_arguments": ["ACL"]}, "option put_arguments"),
            (
                {
                    "server_side_encryption": "AES256",
                    "put_arguments": {"ServerSideEncryption": "x"},
                },
                "option server_side_encryption .*it once",
            ),
            ({"inline_limit_bytes": -1}, "option inline_limit_bytes"),
            ({"allow_unsafe_commit": "no"}, "option allow_unsafe_commit"),
        ],
    )
    def test_an_invalid_option_is_refused(self, options: dict[str, Any], message: str) -> None:
        with pytest.raises(Invalid, match=message) as caught:
            load_storage("s3://bucket/x", **options)
        assert "topsecret" not in str(caught.value)

    @pytest.mark.parametrize(
        ("options", "endpoint_url"),
        [
            ({}, None),
            ({"endpoint": "host:9000"}, "https://host:9000"),
            ({"endpoint": "host:9000", "ssl": False}, "http://host:9000"),
            ({"endpoint": "https://host", "ssl": True}, "https://host"),
            ({"endpoint": "http://[::1]:9000/"}, "http://[::1]:9000/"),
        ],
    )
    def test_an_endpoint_has_a_scheme(
        self, options: dict[str, Any], endpoint_url: str | None
    ) -> None:
        assert options_of(load_storage("s3://bucket", **options)).endpoint_url == endpoint_url

    def test_options_of_objects_are_sent_with_writes(self, store: Answerer) -> None:
        storage = load_storage(
            "s3://bucket/x",
            endpoint=store.endpoint,
            **KEYS,
            server_side_encryption="aws:kms",
            kms_key_id="the-key",
            put_arguments={
                "StorageClass": "STANDARD_IA",
                "ExpectedBucketOwner": "123456789012",
                "RequestPayer": "requester",
            },
        )
        store.tell(OK, OK)
        storage.write("a", b"x")
        storage.read("a")
        written, read = (asked.headers for asked in store.asked)
        assert written["x-amz-server-side-encryption"] == "aws:kms"
        assert written["x-amz-server-side-encryption-aws-kms-key-id"] == "the-key"
        assert written["x-amz-storage-class"] == "STANDARD_IA"
        assert written["x-amz-expected-bucket-owner"] == "123456789012"
        assert read["x-amz-expected-bucket-owner"] == "123456789012"
        assert [each["x-amz-request-payer"] for each in (written, read)] == ["requester"] * 2
        assert "x-amz-storage-class" not in read


class TestConnections:
    @pytest.mark.parametrize(
        ("options", "style", "is_signed"),
        [
            ({}, None, False),
            ({"endpoint": "https://minio.example"}, "path", False),
            ({"endpoint": "http://minio.example"}, "path", True),
            ({"endpoint": "http://minio.example", "sign_payload": False}, "path", False),
            ({"endpoint": "https://minio.example", "path_style": False}, "virtual", False),
            ({"endpoint": "https://s3.eu-west-1.amazonaws.com", "sign_payload": True}, None, True),
        ],
    )
    def test_client_defaults_depend_on_the_endpoint(
        self, options: dict[str, Any], style: str | None, is_signed: object
    ) -> None:
        given: Any = {"region": "eu-west-1", **KEYS, **options}
        here = S3Connection(S3Options.of(given))
        config = here.client.meta.config
        assert config.s3["addressing_style"] == (style or "auto")
        assert config.s3["payload_signing_enabled"] is is_signed
        assert config.retries == {"total_max_attempts": 1, "mode": "standard"}
        assert here.lists_in_order == ("amazonaws" in here.endpoint)

    def test_a_part_may_take_as_long_as_it_is(self) -> None:
        for part_mib, seconds in ((8, 40.0), (64, 256.0)):
            options = S3Options.of({"part_size_bytes": part_mib * MIB, "connect_timeout_s": 40.0})
            config = S3Connection(options).client.meta.config
            assert config.connect_timeout == seconds
            assert config.read_timeout == 60

    def test_the_environment_may_name_the_endpoint(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://minio.example:9000")
        here = S3Connection(S3Options.of({"region": "r"}))
        assert here.endpoint == "http://minio.example:9000"
        assert here.client.meta.config.s3["addressing_style"] == "path"
        assert here.client.meta.config.s3["payload_signing_enabled"]
        assert not here.lists_in_order

    def test_equal_options_share_one(self) -> None:
        one, two = (options_of(load_storage("s3://bucket/x", **KEYS)) for _ in range(2))
        assert connection(one) is connection(two)
        other = options_of(load_storage("s3://bucket/x", **KEYS, max_attempts=3))
        assert connection(other) is not connection(one)

    def test_a_forked_child_makes_its_own(self) -> None:
        """In a process without other threads, of which one might hold a lock at the fork."""
        program = """
            import os
            from holdfast.storage.places.s3 import connection as s3_connection
            from holdfast.storage.places.s3.connection import connection
            from holdfast.storage.places.s3.options import S3Options
            options = S3Options.of({"region": "r"})
            mine = connection(options)
            child = os.fork()
            if not child:
                os._exit(len(s3_connection._connections))
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            assert connection(options) is mine
        """
        subprocess.run([sys.executable, "-c", dedent(program)], check=True, timeout=60)

    def test_a_profile_that_is_not_there_is_invalid(self) -> None:
        storage = load_storage("s3://bucket/x", profile="nobody", max_attempts=1)
        with pytest.raises(Invalid, match=r"cannot connect \[s3://bucket/x\].*nobody"):
            storage.read("a")

    def test_missing_credentials_are_invalid(self) -> None:
        storage = load_storage(
            "s3://bucket/x", provider="environment", endpoint="http://127.0.0.1:9"
        )
        with pytest.raises(Invalid, match="expected credentials"):
            storage.read("a")


class TestProviders:
    @pytest.fixture
    def told(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """Finds some everywhere."""
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAENVIRONMENT")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "the-secret-of-the-environment")
        (tmp_path / "credentials").write_text(
            "[default]\naws_access_key_id = AKIADEFAULT\naws_secret_access_key = of-default\n"
            "[mine]\naws_access_key_id = AKIAMINE\naws_secret_access_key = of-mine-alone\n"
        )

    @pytest.mark.usefixtures("told")
    @pytest.mark.parametrize(
        ("options", "key"),
        [
            ({}, "AKIAENVIRONMENT"),
            ({"provider": "environment"}, "AKIAENVIRONMENT"),
            ({"provider": "profile"}, "AKIADEFAULT"),
            ({"provider": "instance, profile, environment"}, "AKIADEFAULT"),
            ({"profile": "mine"}, "AKIAMINE"),
            ({"profile": "mine", "provider": "profile"}, "AKIAMINE"),
            (KEYS, KEYS["key"]),
        ],
    )
    def test_the_one_that_is_named_is_asked(
        self, store: Answerer, options: dict[str, Any], key: str
    ) -> None:
        store.tell(OK)
        load_storage("s3://bucket/x", endpoint=store.endpoint, **options).write("a", b"x")
        assert f"Credential={key}/" in store.asked[0].headers["authorization"]

    def test_anonymous_requests_are_not_signed(self, store: Answerer) -> None:
        store.tell(OK)
        load_storage("s3://bucket/x", endpoint=store.endpoint, anon=True).write("a", b"x")
        assert "authorization" not in store.asked[0].headers

    @pytest.mark.parametrize("options", [{}, {"provider": "environment"}])
    def test_credentials_that_were_missing_once_are_looked_for_again(
        self, store: Answerer, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
    ) -> None:
        given = {"endpoint": store.endpoint, "region": "of-this-test", **options}
        storage = load_storage("s3://bucket/x", **given)
        with pytest.raises(Invalid, match=r"expected credentials, .*tried once"):
            storage.write("a", b"x")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIALATER")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "the-secret-that-came-later")
        store.tell(OK)
        storage.write("a", b"x")
        assert "Credential=AKIALATER/" in store.asked[0].headers["authorization"]

    def test_metadata_of_an_instance_that_fail_are_asked_for_again(
        self, store: Answerer, monkeypatch: pytest.MonkeyPatch, clock: ManualClock
    ) -> None:
        metadata_at(store.endpoint, monkeypatch)
        storage = load_storage(
            "s3://bucket/x", endpoint=store.endpoint, provider="instance", clock=clock
        )
        no_token = Answer(404)
        store.tell(no_token, Answer(500), no_token, role, of_role, OK, OK)
        storage.write("a", b"x")
        storage.write("b", b"x")
        assert "Credential=AKIAINSTANCE/" in store.asked[-1].headers["authorization"]
        assert 0 < clock.monotonic_s() < 60

    def test_metadata_that_fail_for_long_are_unavailable(
        self, store: Answerer, monkeypatch: pytest.MonkeyPatch, clock: ManualClock
    ) -> None:
        metadata_at(store.endpoint, monkeypatch)
        storage = load_storage(
            "s3://bucket/y",
            endpoint=store.endpoint,
            provider="environment,instance",
            max_attempts=2,
            clock=clock,
        )
        store.tell(*[Answer(404), Answer(500)] * 2)
        with pytest.raises(Unavailable, match=r"expected credentials, .*tried 2 times") as caught:
            storage.write("a", b"x")
        assert "provider answers on this machine" in caught.value.fix

    def test_a_container_s_service_that_fails_is_asked_again(
        self, store: Answerer, monkeypatch: pytest.MonkeyPatch, clock: ManualClock
    ) -> None:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{store.endpoint}/creds")
        monkeypatch.setattr("time.sleep", lambda _: None)  # of the library, between its own tries
        storage = load_storage(
            "s3://bucket/x", endpoint=store.endpoint, provider="container", clock=clock
        )
        store.tell(*[Answer(500)] * 3, of_role, OK)
        storage.write("a", b"x")
        assert "Credential=AKIAINSTANCE/" in store.asked[-1].headers["authorization"]

    @pytest.mark.usefixtures("told")
    def test_credentials_found_by_a_provider_are_not_pickled(self, store: Answerer) -> None:
        storage = load_storage("s3://bucket/x", endpoint=store.endpoint)
        store.tell(OK, OK)
        storage.write("a", b"x")
        pickled = pickle.dumps(storage)
        assert b"environment" not in pickled.lower()
        assert b"AKIA" not in pickled
        pickle.loads(pickled).write("a", b"x")
        assert "AKIAENVIRONMENT" in store.asked[1].headers["authorization"]


class TestSecrets:
    def test_keys_given_as_text_are_pickled_and_never_shown(self) -> None:
        storage = load_storage("s3://bucket/x", **KEYS, session_token="the-token-of-a-session")
        copy = pickle.loads(pickle.dumps(storage))
        options = options_of(copy)
        assert options == options_of(storage)
        assert options.secret is not None
        assert options.secret.reveal() == KEYS["secret"]
        shown = f"{storage!r} {vars(storage)} {options} {options.secret}"
        for secret in (*KEYS.values(), "the-token-of-a-session"):
            assert secret not in shown

    def test_secrets_may_be_given_as_such(self) -> None:
        given = {name: Secret(text) for name, text in KEYS.items()}
        assert options_of(load_storage("s3://bucket/x", **given)) == options_of(
            load_storage("s3://bucket/x", **KEYS)
        )

    def test_text_is_warned_of_once(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.WARNING)
        for _ in range(3):
            load_storage("s3://bucket/warned-of", **KEYS)
        load_storage("s3://bucket/not-warned-of", anon=True)
        [record] = caplog.records
        assert record.getMessage().startswith("s3://bucket/warned-of has its credentials as text")

    @pytest.mark.parametrize(
        "text",
        [
            "<AWSAccessKeyId>HIDDEN</AWSAccessKeyId>",
            "<SecretAccessKey>HIDDEN",
            '{"SecretAccessKey": "HIDDEN", "Token" : "HIDDEN"}',
            "{'AccessKeyId': 'HIDDEN'}",
            "AWS4-HMAC-SHA256 Credential=HIDDEN/2026/s3, Signature=ab12HIDDEN".replace(
                "ab12HIDDEN", "ab12"
            ),
            "headers={'X-Amz-Security-Token': b'HIDDEN+/=', 'Host': 'h'}",
            "x-amz-security-token:HIDDEN\nother:1",
            "https://h/b?X-Amz-Credential=HIDDEN%2F2026&X-Amz-Signature=HIDDEN",
            "http://user:HIDDEN@proxy:3128/",
            "Signature:\nHIDDEN",
        ],
    )
    def test_text_that_looks_like_a_secret_is_masked(self, text: str) -> None:
        assert "HIDDEN" not in scrubbed(text)
        assert "***" in scrubbed(text)

    def test_plain_text_stays(self) -> None:
        text = "s3://bucket/a=b: SlowDown: Token bucket is empty, Signature does not match"
        assert scrubbed(text) == text

    def test_a_known_secret_is_masked_anywhere_unless_it_is_too_short_to_be_one(self) -> None:
        keep_out_of_logs([Secret("known-secret-1"), Secret("short"), None])
        assert scrubbed("a known-secret-1 is short") == "a *** is short"

    def test_long_lines_of_the_library_are_cut(self, caplog: pytest.LogCaptureFixture) -> None:
        keep_out_of_logs([Secret("known-secret-2")])
        caplog.set_level(logging.DEBUG)
        logger = logging.getLogger("botocore.endpoint")
        logger.debug("plain %s", "x" * 10)
        logger.debug("body %s", "known-secret-2" + "x" * 10_000)
        plain, cut = caplog.messages
        assert plain == "plain " + "x" * 10
        assert "known-secret-2" not in cut
        assert len(cut) < 5000
