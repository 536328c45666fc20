"""Every option of a storage can be given to a command, as text, and is what it should be."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from holdfast.runtime.cli.storages import storage_options
from holdfast.storage import HoldfastError, Invalid, load_storage
from holdfast.storage.places.hdfs.storage import HdfsCheckpointStorage, HdfsKeywords
from holdfast.storage.places.s3.options import S3Arguments
from holdfast.storage.places.s3.storage import S3CheckpointStorage

COMPONENTS = {"self", "url", "clock", "entropy", "options"}
"""What no text can stand for, or is no option."""

OF_BOTH = [
    ("inline_limit_bytes=7", 7),
    ("max_attempts=3", 3),
    ("retry_timeout_s=5", 5.0),
]
OF_S3 = [
    *OF_BOTH,
    ("allow_unsafe_commit=true", True),
    ("endpoint=http://host:9000", "http://host:9000"),
    ("region=1", "1"),
    ("key=123", "123"),
    ("secret=null", "null"),
    ("session_token=a=b", "a=b"),
    ("profile=true", "true"),
    ("provider=environment,instance", "environment,instance"),
    ("anon=True", True),
    ("path_style=false", False),
    ("path_style=null", None),
    ("ssl=true", True),
    ("verify=false", False),
    ("verify=TRUE", True),
    ("verify=/etc/ca.pem", "/etc/ca.pem"),
    ("part_size_bytes=8388608", 8 << 20),
    ("max_concurrency=2", 2),
    ("max_connections=5", 5),
    ("connect_timeout_s=2.5", 2.5),
    ("read_timeout_s=30", 30.0),
    ("sign_payload=true", True),
    ("server_side_encryption=AES256", "AES256"),
    ("kms_key_id=arn:k", "arn:k"),
    (
        'put_arguments={"ACL": "private", "BucketKeyEnabled": true}',
        {"ACL": "private", "BucketKeyEnabled": True},
    ),
]
OF_HDFS = [
    *OF_BOTH,
    ("config_dir=/etc/hadoop", "/etc/hadoop"),
    ('config={"dfs.replication": "2"}', {"dfs.replication": "2"}),
    ("kerberos_principal=me@REALM", "me@REALM"),
    ("kerberos_keytab=/keytab", "/keytab"),
    ("kerberos_cache=7", "7"),
    ("replication=2", 2),
    ("block_size_bytes=1048576", 1 << 20),
    ("block_size_bytes=null", None),
    ("call_timeout_s=9", 9.0),
]
NEEDS = {
    "key": {"secret": "s"},
    "secret": {"key": "k"},
    "session_token": {"key": "k", "secret": "s"},
    "kms_key_id": {"server_side_encryption": "aws:kms"},
    "ssl": {"endpoint": "host:1"},
    "kerberos_keytab": {"kerberos_principal": "me@REALM"},
    "kerberos_cache": {"kerberos_principal": "me@REALM"},
}
URLS = {"s3": "s3://bucket/x", "hdfs": "hdfs://host:1/x"}
CASES = [
    *(("s3", text, value) for text, value in OF_S3),
    *(("hdfs", text, value) for text, value in OF_HDFS),
]


@pytest.mark.parametrize(("scheme", "text", "value"), CASES)
def test_an_option_is_what_its_text_stands_for(
    scheme: str, text: str, value: object, tmp_path: Path
) -> None:
    name = text.partition("=")[0]
    found = storage_options(URLS[scheme], [text])
    assert (found, type(found[name])) == ({name: value}, type(value))
    if name == "config_dir":
        (tmp_path / "hdfs-site.xml").write_text("<configuration/>")
        found = {name: str(tmp_path)}
    load_storage(URLS[scheme], **{**found, **NEEDS.get(name, {})})


@pytest.mark.parametrize(
    ("scheme", "made", "keywords"),
    [
        ("s3", S3CheckpointStorage, S3Arguments),
        ("hdfs", HdfsCheckpointStorage, HdfsKeywords),
    ],
)
def test_every_option_of_every_storage_is_tried(scheme: str, made: Any, keywords: Any) -> None:
    own = set(inspect.signature(made).parameters) - COMPONENTS
    tried = {text.partition("=")[0] for of, text, _ in CASES if of == scheme}
    assert tried == own | set(keywords.__annotations__)


@pytest.mark.parametrize(
    ("scheme", "text"),
    [
        ("s3", "anon=maybe"),
        ("s3", "anon="),
        ("s3", "part_size_bytes=8M"),
        ("s3", "part_size_bytes=true"),
        ("s3", "connect_timeout_s=soon"),
        ("s3", "put_arguments=ACL"),
        ("s3", 'put_arguments={"ACL": 7}'),
        ("s3", "clock=now"),
        ("hdfs", "replication=two"),
        ("hdfs", 'config={"dfs.replication": 2}'),
    ],
)
def test_a_text_that_stands_for_none_is_refused(scheme: str, text: str) -> None:
    with pytest.raises(Invalid, match=f"option '{text.partition('=')[0]}' .* cannot be this"):
        storage_options(URLS[scheme], [text])


def test_an_unknown_option_is_passed_to_the_storage() -> None:
    options = storage_options("s3://bucket/x", ["speed=9"])
    assert options == {"speed": "9"}
    with pytest.raises(HoldfastError, match="option 'speed' is not known"):
        load_storage("s3://bucket/x", **options)


BOTH = ["/from", "s3://bucket/x"]


@pytest.mark.parametrize(
    ("urls", "options", "expected"),
    [
        (BOTH, ["endpoint=http://h:9"], [{}, {"endpoint": "http://h:9"}]),
        (BOTH, ["inline_limit_bytes=7"], [{"inline_limit_bytes": 7}] * 2),
        (BOTH, ["speed=9"], [{"speed": "9"}] * 2),
        (BOTH, ["allow_unsafe_commit=true"], [{}, {"allow_unsafe_commit": True}]),
        (
            ["file:///from", "memory://", "gs://bucket/x"],
            ['storage_options={"project": "p"}'],
            [{}, {}, {"storage_options": {"project": "p"}}],
        ),
        (
            ["hdfs://host:1/x", "s3://bucket/x"],
            ["replication=2", "region=r", "max_attempts=3"],
            [{"replication": 2, "max_attempts": 3}, {"region": "r", "max_attempts": 3}],
        ),
        (["s3://a/x", "s3://b/x"], ["region=r"], [{"region": "r"}] * 2),
        (["/from"], ["allow_unsafe_commit=true"], [{"allow_unsafe_commit": True}]),
    ],
)
def test_each_storage_gets_what_it_knows(
    urls: list[str], options: list[str], expected: Any
) -> None:
    """What none of them knows all get, and refuse."""
    assert [storage_options(url, options, urls) for url in urls] == expected
