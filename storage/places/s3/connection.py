"""Clients of botocore, one for each process and equal options: connections are never inherited."""

from __future__ import annotations

import os
import threading
from base64 import b64encode
from contextlib import suppress
from datetime import datetime
from hashlib import md5
from typing import Any
from urllib.parse import urlsplit

import botocore.session
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import BotoCoreError, CredentialRetrievalError, NoCredentialsError
from botocore.parsers import ResponseParserError
from botocore.utils import parse_timestamp

from holdfast.storage.places.s3.options import PROVIDERS, S3Options, S3Place, url_to_show
from holdfast.storage.places.s3.secrets import keep_out_of_logs

__all__ = ["S3Connection", "connection", "drop", "not_found"]

_AWS = (".amazonaws.com", ".amazonaws.com.cn", ".amazonaws.eu", ".api.aws")
_REGION = "us-east-1"
"""The region in signatures for stores that have no regions."""
_SLOWEST_BYTES_PER_S = 256 * 1024
_BODILESS = (204, 304)
_TAGGED = ("GetObject", "PutObject", "UploadPart")


class S3Connection:
    """A client of botocore, its limit of parallel requests, and what was learned through it."""

    def __init__(self, options: S3Options) -> None:
        keep_out_of_logs((options.key, options.secret, options.session_token))
        self.client = _client(options)
        self.endpoint = url_to_show(str(self.client.meta.endpoint_url))
        self.lists_in_order = _is_aws(str(self.client.meta.endpoint_url))
        """Whether listings are known to be in order of names. Some stores list by folders."""
        self.gate = threading.BoundedSemaphore(options.max_connections)
        self.proving = threading.Lock()
        self.proven: set[tuple[S3Place, bool]] = set()
        """Places that this process has tried, and that keep what a storage guarantees."""


_connections: dict[S3Options, S3Connection] = {}
_lock = threading.Lock()


def connection(options: S3Options) -> S3Connection:
    """The connection of this process for such options; made on first use.

    Raises:
        BotoCoreError: the options, or what the environment adds to them, make no client.
    """
    with _lock:
        found = _connections.get(options)
        if found is None:
            found = _connections[options] = S3Connection(options)
        return found


def drop(options: S3Options, gone: S3Connection) -> None:
    """Make the next request open a new connection; requests on the old one may finish."""
    with _lock:
        if _connections.get(options) is gone:
            del _connections[options]


def not_found(options: S3Options, error: NoCredentialsError) -> BotoCoreError:
    """The error when no provider has found credentials.

    The metadata service of an instance may be silent for a moment, which the library does not
    report: that error can be retried. All other providers report failures, so their silence means
    that there are no credentials.
    """
    is_off = os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true"
    if "instance" not in options.providers or is_off:
        return error
    return CredentialRetrievalError(provider=options.provider, error_msg=str(error))


def _forget() -> None:
    """In a forked child: sockets and locks are the parent's, and a lock may be held there."""
    global _lock  # noqa: PLW0603 (a lock can only be replaced)
    _lock = threading.Lock()
    _connections.clear()


os.register_at_fork(after_in_child=_forget)


def _client(options: S3Options) -> Any:
    session = botocore.session.Session(profile=options.profile)
    session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=_moment)
    _keep_providers(session, options)
    client = _made(session, options, _config(options, options.endpoint_url))
    url = str(client.meta.endpoint_url)
    if options.endpoint_url is None and not (_is_aws(url) and url.startswith("https:")):
        # The environment sets another endpoint, which needs other settings.
        client = _made(session, options, _config(options, url))
    return client


def _made(session: Any, options: S3Options, config: Config) -> Any:
    region = options.region or session.get_config_variable("region")
    if region is None and options.endpoint_url is not None and not _is_aws(options.endpoint_url):
        region = _REGION
    client = session.create_client(
        "s3",
        region_name=region,
        endpoint_url=options.endpoint_url,
        verify=None if options.verify is True else options.verify,
        aws_access_key_id=options.key and options.key.reveal(),
        aws_secret_access_key=options.secret and options.secret.reveal(),
        aws_session_token=options.session_token and options.session_token.reveal(),
        config=config,
    )
    # Older stores ask for it where newer ones have other checksums.
    client.meta.events.register("before-call.s3.DeleteObjects", _add_md5)
    client.meta.events.register("before-parse.s3", _refuse_cut_answer)
    return client


def _moment(text: Any) -> Any:
    """A time in an answer. The library's own parser takes four fifths of the time of a listing."""
    if isinstance(text, str) and text.endswith("Z"):
        with suppress(ValueError):
            return datetime.fromisoformat(text)
    return parse_timestamp(text)


def _add_md5(params: dict[str, Any], **_: Any) -> None:
    digest = md5(params["body"], usedforsecurity=False).digest()
    params["headers"].setdefault("Content-MD5", b64encode(digest).decode())


def _refuse_cut_answer(operation_model: Any, response_dict: dict[str, Any], **_: Any) -> None:
    """Refuse an answer whose end is missing because the connection was cut.

    The library takes headers that end too early for those of an answer without a body, so a listing
    would be empty; and of an error without its text only the status would count.
    """
    head, body = response_dict["headers"], response_dict["body"]
    name, status = operation_model.name, response_dict["status_code"]
    if status in _BODILESS or operation_model.http["method"] == "HEAD":
        return
    length = head.get("content-length")
    is_chunked = "chunked" in head.get("transfer-encoding", "").lower()
    is_whole = is_chunked or (length or "").isdecimal()
    if isinstance(body, bytes) and is_whole and not is_chunked:
        is_whole = len(body) == int(length)
    if status < 300 and name in _TAGGED:  # also where no body follows that could be missing
        etag = head.get("etag", "")
        is_whole = is_whole and bool(etag) and etag.startswith('"') == etag.endswith('"')
        is_whole = is_whole and head.get("last-modified", "GMT").endswith("GMT")
    if not is_whole:
        if not isinstance(body, bytes):
            body.close()
        raise ResponseParserError(f"the end of an answer to {name} is missing")


def _config(options: S3Options, endpoint_url: str | None) -> Config:
    """The client's settings for an endpoint; None: AWS's own."""
    path_style = options.path_style
    if path_style is None and endpoint_url is not None and not _is_aws(endpoint_url):
        path_style = True  # few other stores have a host name for each bucket
    sign_payload = options.sign_payload
    if sign_payload is None:
        # TLS already protects bodies, and hashing them would halve the throughput.
        sign_payload = endpoint_url is not None and endpoint_url.startswith("http:")
    return Config(
        signature_version=UNSIGNED if options.anon else None,
        # In urllib3 this also limits the time to send a whole body.
        connect_timeout=max(
            options.connect_timeout_s, options.part_size_bytes / _SLOWEST_BYTES_PER_S
        ),
        read_timeout=options.read_timeout_s,
        max_pool_connections=options.max_connections,
        tcp_keepalive=True,
        retries={"total_max_attempts": 1, "mode": "standard"},  # `Retries` does it, bounded
        s3={
            "addressing_style": {None: "auto", True: "path", False: "virtual"}[path_style],
            "payload_signing_enabled": sign_payload,
        },
        # Each byte that is read is checked against our own checksum, kept in the handle.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        user_agent_extra="holdfast",
    )


def _keep_providers(session: Any, options: S3Options) -> None:
    """Leave only the chosen providers of credentials, in the order of the option."""
    if "chain" in options.providers:
        return
    resolver = session.get_component("credential_provider")
    resolver.providers = [
        provider
        for name in options.providers
        for provider in resolver.providers
        if provider.METHOD in PROVIDERS[name]
    ]


def _is_aws(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    return host.endswith(_AWS)
