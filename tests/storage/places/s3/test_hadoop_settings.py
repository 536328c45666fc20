"""What Spark's users have set as fs.s3a.* is understood, or refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.storage import Invalid
from holdfast.storage.places.s3.hadoop_settings import s3a_options
from holdfast.storage.places.s3.options import MIB
from holdfast.storage.places.s3.storage import S3CheckpointStorage

AMAZON = "software.amazon.awssdk.auth.credentials"
HADOOP = "org.apache.hadoop.fs.s3a"
KEYS = {"fs.s3a.access.key": "AKID", "fs.s3a.secret.key": "topsecret"}
STANDARD_IA = {"put_arguments": {"StorageClass": "STANDARD_IA"}}
GIVEN = {"key": "AKID", "secret": "topsecret"}


@pytest.mark.parametrize(
    ("conf", "options"),
    [
        ({}, {}),
        ({"fs.s3a.fast.upload": "true", "spark.app.name": "x", "fs.s3.endpoint": "no"}, {}),
        ({"fs.s3a.endpoint": "http://minio:9000"}, {"endpoint": "http://minio:9000"}),
        ({"fs.s3a.endpoint": " minio:9000 "}, {"endpoint": "minio:9000"}),
        (
            {"fs.s3a.endpoint": "minio:9000", "fs.s3a.connection.ssl.enabled": "FALSE"},
            {"endpoint": "minio:9000", "ssl": False},
        ),
        (
            {"fs.s3a.endpoint": "http://minio:9000", "fs.s3a.connection.ssl.enabled": "true"},
            {"endpoint": "http://minio:9000"},  # in Hadoop too the scheme is stronger
        ),
        ({"fs.s3a.connection.ssl.enabled": "true"}, {}),
        ({"fs.s3a.endpoint": "s3.amazonaws.com"}, {}),
        (
            {"fs.s3a.endpoint": "s3.eu-central-1.amazonaws.com"},
            {"endpoint": "s3.eu-central-1.amazonaws.com", "region": "eu-central-1"},
        ),
        (
            {
                "fs.s3a.endpoint": "https://s3-eu-west-1.amazonaws.com",
                "fs.s3a.endpoint.region": "r",
            },
            {"endpoint": "https://s3-eu-west-1.amazonaws.com", "region": "r"},
        ),
        ({"fs.s3a.path.style.access": "true"}, {"path_style": True}),
        ({"fs.s3a.multipart.size": "64M"}, {"part_size_bytes": 64 * MIB}),
        ({"fs.s3a.multipart.size": "16 mb"}, {"part_size_bytes": 16 * MIB}),
        ({"fs.s3a.multipart.size": "8388608"}, {"part_size_bytes": 8 * MIB}),
        ({"fs.s3a.multipart.size": "1G"}, {"part_size_bytes": 1024 * MIB}),
        # Hadoop keeps parts on disks, and raises what S3 finds too small.
        ({"fs.s3a.multipart.size": "2G"}, {"part_size_bytes": 1024 * MIB}),
        ({"fs.s3a.multipart.size": "1M"}, {"part_size_bytes": 5 * MIB}),
        ({"fs.s3a.connection.timeout": "200000"}, {"read_timeout_s": 200.0}),
        ({"fs.s3a.connection.timeout": "200s"}, {"read_timeout_s": 200.0}),
        ({"fs.s3a.connection.timeout": "1 M"}, {"read_timeout_s": 60.0}),
        ({"fs.s3a.connection.establish.timeout": "30s"}, {"connect_timeout_s": 30.0}),
        ({"fs.s3a.requester.pays.enabled": "false"}, {}),
        (
            {
                "fs.s3a.requester.pays.enabled": "true",
                "fs.s3a.create.storage.class": "intelligent_tiering",
                "fs.s3a.acl.default": "Private",
            },
            {
                "put_arguments": {
                    "ACL": "private",
                    "RequestPayer": "requester",
                    "StorageClass": "INTELLIGENT_TIERING",
                }
            },
        ),
        ({"fs.s3a.create.storage.class": "STANDARD_IA"}, STANDARD_IA),
        ({"fs.s3a.proxy.port": "8080", "fs.s3a.proxy.host": " "}, {}),
        ({"fs.s3a.endpoint.fips": "false"}, {}),
        ({"fs.s3a.connection.maximum": "96"}, {"max_connections": 96}),
        ({"fs.s3a.connection.maximum": "5000"}, {"max_connections": 1000}),
        ({"fs.s3a.attempts.maximum": "5"}, {"max_attempts": 6}),
        ({"fs.s3a.attempts.maximum": "0"}, {"max_attempts": 1}),
        (KEYS, GIVEN),
        ({**KEYS, "fs.s3a.session.token": "t"}, {**GIVEN, "session_token": "t"}),
        (
            {"fs.s3a.encryption.algorithm": "SSE-KMS", "fs.s3a.encryption.key": "arn:k"},
            {"server_side_encryption": "aws:kms", "kms_key_id": "arn:k"},
        ),
        (
            {"fs.s3a.server-side-encryption-algorithm": "AES256"},
            {"server_side_encryption": "AES256"},
        ),
        (
            {"fs.s3a.acl.default": "BucketOwnerFullControl"},
            {"put_arguments": {"ACL": "bucket-owner-full-control"}},
        ),
    ],
)
def test_hadoop_settings_become_options(conf: dict[str, str], options: dict[str, Any]) -> None:
    assert s3a_options(conf) == options
    assert s3a_options({f"spark.hadoop.{name}": value for name, value in conf.items()}) == options
    if "AKID" not in conf.values():
        S3CheckpointStorage("s3a://bucket/x", **options)


def provider(*classes: str) -> dict[str, str]:
    return {"fs.s3a.aws.credentials.provider": ",".join(classes)}


@pytest.mark.parametrize(
    ("conf", "options"),
    [
        ({**KEYS, **provider(f"{HADOOP}.SimpleAWSCredentialsProvider")}, GIVEN),
        (
            {
                **KEYS,
                "fs.s3a.session.token": "t",
                **provider(f"{HADOOP}.TemporaryAWSCredentialsProvider"),
            },
            {**GIVEN, "session_token": "t"},
        ),
        # The token belongs to temporary ones alone.
        (
            {
                **KEYS,
                "fs.s3a.session.token": "t",
                **provider(f"{HADOOP}.SimpleAWSCredentialsProvider"),
            },
            GIVEN,
        ),
        (provider(f"{HADOOP}.AnonymousAWSCredentialsProvider"), {"anon": True}),
        (provider(f"{AMAZON}.AnonymousCredentialsProvider"), {"anon": True}),
        (
            provider("com.amazonaws.auth.EnvironmentVariableCredentialsProvider"),
            {"provider": "environment"},
        ),
        (
            provider(f"{HADOOP}.auth.IAMInstanceCredentialsProvider"),
            {"provider": "instance"},
        ),
        (provider(f"{AMAZON}.ProfileCredentialsProvider"), {"provider": "profile"}),
        (provider(f"{AMAZON}.DefaultCredentialsProvider"), {"provider": "chain"}),
        (
            provider(f"{AMAZON}.WebIdentityTokenFileCredentialsProvider"),
            {"provider": "web-identity"},
        ),
        # Hadoop's own default, with and without keys.
        (
            provider(
                f"{HADOOP}.TemporaryAWSCredentialsProvider",
                f"\n {HADOOP}.SimpleAWSCredentialsProvider",
                f"\n {AMAZON}.EnvironmentVariableCredentialsProvider",
                f"\n {HADOOP}.auth.IAMInstanceCredentialsProvider",
            ),
            {"provider": "environment,instance"},
        ),
        (
            {
                **KEYS,
                **provider(
                    f"{AMAZON}.EnvironmentVariableCredentialsProvider",
                    f"{HADOOP}.SimpleAWSCredentialsProvider",
                ),
            },
            GIVEN,
        ),
        # Files of keys, and roles, do not matter to the chosen providers.
        (
            {
                "hadoop.security.credential.provider.path": "jceks://hdfs/keys.jceks",
                "fs.s3a.assumed.role.arn": "arn:aws:iam::1:role/r",
                **provider(f"{AMAZON}.EnvironmentVariableCredentialsProvider"),
            },
            {"provider": "environment"},
        ),
        # With the instance alone chosen, keys that are set for other uses are ignored.
        (
            {**KEYS, **provider(f"{HADOOP}.auth.IAMInstanceCredentialsProvider")},
            {"provider": "instance"},
        ),
    ],
)
def test_providers_are_known_by_their_class(conf: dict[str, str], options: dict[str, Any]) -> None:
    found = s3a_options(conf)
    assert found == options
    S3CheckpointStorage("s3a://bucket/x", **found)


def test_settings_of_the_bucket_take_precedence() -> None:
    conf = {
        "fs.s3a.bucket.mine.endpoint": "http://mine:1",
        "spark.hadoop.fs.s3a.endpoint": "http://all:1",
        "spark.hadoop.fs.s3a.bucket.mine.access.key": "AKID",
        "fs.s3a.secret.key": "topsecret",
        "fs.s3a.access.key": "another",
        "fs.s3a.bucket.others.endpoint": "http://others:1",
    }
    assert s3a_options(conf, "mine") == {"endpoint": "http://mine:1", **GIVEN}
    assert s3a_options(conf, "other")["endpoint"] == "http://all:1"
    assert s3a_options(conf)["key"] == "another"


@pytest.mark.parametrize(
    ("conf", "message"),
    [
        ({"spark.hadoop.fs.s3a.access.key": "AKID"}, r"fs\.s3a\.secret\.key is missing"),
        ({"fs.s3a.secret.key": "topsecret"}, r"fs\.s3a\.access\.key is missing"),
        (
            {"spark.hadoop.fs.s3a.path.style.access": "yes"},
            r"setting spark\.hadoop\.fs\.s3a\.path\.style\.access cannot be read.*'yes'",
        ),
        ({"fs.s3a.connection.timeout": "0"}, r"fs\.s3a\.connection\.timeout cannot be read"),
        ({"fs.s3a.connection.timeout": "soon"}, r"fs\.s3a\.connection\.timeout cannot be read"),
        ({"fs.s3a.create.storage.class": "glacier"}, r"create\.storage\.class cannot be read"),
        ({"fs.s3a.requester.pays.enabled": "me"}, r"requester\.pays\.enabled cannot be read"),
        ({"fs.s3a.proxy.host": "proxy"}, r"setting fs\.s3a\.proxy\.host asks.*Set HTTPS_PROXY"),
        (
            {"spark.hadoop.fs.s3a.bucket.bucket.accesspoint.arn": "arn:aws:s3:eu:1:accesspoint/a"},
            r"setting spark\.hadoop\.fs\.s3a\.bucket\.bucket\.accesspoint\.arn asks.*its alias",
        ),
        ({"fs.s3a.delegation.token.binding": "x.Y"}, r"delegation\.token\.binding asks"),
        ({"fs.s3a.custom.signers": "x:Y"}, r"fs\.s3a\.custom\.signers asks"),
        ({"fs.s3a.endpoint.fips": "true"}, r"fs\.s3a\.endpoint\.fips asks"),
        (
            {"fs.s3a.assumed.role.arn": "arn:aws:iam::1:role/r", **KEYS},
            r"fs\.s3a\.assumed\.role\.arn asks.*a profile that has role_arn",
        ),
        (
            {"spark.hadoop.hadoop.security.credential.provider.path": "jceks://hdfs/keys"},
            r"setting spark\.hadoop\.hadoop\.security\.credential\.provider\.path asks",
        ),
        (
            {
                "fs.s3a.security.credential.provider.path": "jceks://hdfs/keys",
                **KEYS,
                **provider(f"{HADOOP}.SimpleAWSCredentialsProvider"),
            },
            r"setting fs\.s3a\.security\.credential\.provider\.path asks",
        ),
        ({"fs.s3a.multipart.size": "many"}, r"fs\.s3a\.multipart\.size cannot be read"),
        ({"fs.s3a.attempts.maximum": "-1"}, r"fs\.s3a\.attempts\.maximum cannot be read"),
        ({"fs.s3a.connection.maximum": "1.5"}, r"fs\.s3a\.connection\.maximum cannot be read"),
        ({"fs.s3a.acl.default": "Everybody"}, r"fs\.s3a\.acl\.default cannot be read"),
        ({"fs.s3a.connection.ssl.enabled": "false"}, "is off for AWS"),
        (
            {"fs.s3a.encryption.algorithm": "SSE-C", "fs.s3a.encryption.key": "topsecret"},
            "asks for something that is not supported.*SSE-C",
        ),
        (
            provider("org.example.OurOwnProvider"),
            r"names an unknown class.*found org\.example\.OurOwnProvider",
        ),
        (
            provider(f"{HADOOP}.auth.AssumedRoleCredentialProvider"),
            "AssumedRoleCredentialProvider",
        ),
        (provider(f"{HADOOP}.SimpleAWSCredentialsProvider"), "asks for keys not set"),
        ({**KEYS, **provider(f"{HADOOP}.TemporaryAWSCredentialsProvider")}, "session.token"),
    ],
)
def test_an_unknown_setting_is_refused_by_name(conf: dict[str, str], message: str) -> None:
    with pytest.raises(Invalid, match=message) as caught:
        s3a_options(conf, "bucket")
    assert "topsecret" not in str(caught.value)
