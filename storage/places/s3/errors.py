"""Errors of S3 and of botocore, as kinds of trouble and as errors of Holdfast.

Only a code and a message are shown: to a wrong signature, for one, stores answer with the access
key and with the text that was signed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConfigNotFound,
    ConfigParseError,
    ConnectionError,  # noqa: A004 (botocore's own root of connection errors)
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    HTTPClientError,
    IncompleteReadError,
    MetadataRetrievalError,
    NoAuthTokenError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
    ProxyConnectionError,
    SSLError,
    SSOError,
    TokenRetrievalError,
)
from botocore.parsers import ResponseParserError

from holdfast.storage.errors import HoldfastError, Invalid, NotFound, TooLarge, Unavailable
from holdfast.storage.places.s3.secrets import scrubbed
from holdfast.storage.retries import Tried, Trouble

__all__ = ["Attempted", "code_of", "failed", "trouble_of"]

_SHOWN = 400
_THROTTLED = frozenset(
    {
        *("SlowDown", "SlowDownRead", "SlowDownWrite", "ServiceUnavailable", "ReduceRequestRate"),
        *("Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled"),
        *(
            "RequestLimitExceeded",
            "TooManyRequests",
            "TooManyRequestsException",
            "BandwidthLimitExceeded",
        ),
    }
)
_CONTENDED = frozenset({"ConditionalRequestConflict", "OperationAborted"})
_CLOCK = frozenset({"RequestTimeTooSkewed", "RequestExpired", "RequestInTheFuture"})
_CREDENTIALS = frozenset(
    {
        *("InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "ExpiredToken"),
        *("ExpiredTokenException", "TokenRefreshRequired", "InvalidClientTokenId"),
        *("UnrecognizedClientException", "InvalidSecurity", "MissingSecurityHeader"),
        *("AuthorizationHeaderMalformed", "NotSignedUp", "InvalidTokenId", "AuthFailure"),
    }
)
_DENIED = frozenset(
    {"AccessDenied", "AccessDeniedException", "AllAccessDisabled", "AccountProblem", "Forbidden"}
)
_OTHER_REGION = frozenset(
    {"PermanentRedirect", "IllegalLocationConstraintException", "TemporaryRedirect", "Redirect"}
)
_FULL = frozenset({"QuotaExceeded", "InsufficientCapacity", "XMinioStorageFull", "StorageFull"})
_SETTINGS = (
    *(ConfigNotFound, ConfigParseError, NoAuthTokenError, NoCredentialsError),
    *(PartialCredentialsError, ProfileNotFound, SSOError, TokenRetrievalError),
)
_SILENT = (ConnectionError, HTTPClientError, IncompleteReadError, ResponseParserError, OSError)
_FIND_CREDENTIALS = "Give the storage key and secret, a profile, or what its provider needs"


@dataclass(frozen=True, slots=True)
class Attempted:
    """The attempted action, for the error that says that it failed."""

    action: str
    where: str
    """The URL of the object or the storage, as users write it."""
    bucket: str
    endpoint: str


def code_of(error: Exception) -> str:
    """The store's code for a refusal, or the status if it has none; empty for other errors."""
    if not isinstance(error, ClientError):
        return ""
    return str(_said(error).get("Code") or _status_of(error))


def trouble_of(error: Exception) -> Trouble | None:
    """Why the same request may work when it is repeated; None if it cannot."""
    if isinstance(error, ClientError):
        return _trouble_of_answer(code_of(error), _status_of(error))
    if isinstance(error, SSLError):
        return None if _wrong_encryption(error) else Trouble.CONNECTION
    if isinstance(error, CredentialRetrievalError | MetadataRetrievalError):
        return Trouble.SERVER
    return Trouble.CONNECTION if isinstance(error, _SILENT) else None


def failed(error: Exception, tried: Tried, attempted: Attempted) -> Exception:
    """The error to raise when a request has failed for good."""
    if isinstance(error, HoldfastError):
        return error
    answer = _of_answer if isinstance(error, ClientError) else _of_library
    made = answer(error, attempted, _shown(error, tried))
    if not isinstance(error, ClientError):
        made.__cause__ = error  # not for answers of the store, which may contain secrets
    return made


def _trouble_of_answer(code: str, status: int) -> Trouble | None:
    if code in _THROTTLED or status in (429, 503):
        return Trouble.THROTTLED
    if code in _CONTENDED:
        return Trouble.CONTENDED
    if code in _CLOCK:
        return Trouble.CLOCK
    if code in _FULL or status in (501, 505, 507):
        return None
    if status >= 500 or code == "InternalError":
        return Trouble.SERVER
    # A body that did not arrive in time, or not whole.
    is_cut = code in ("RequestTimeout", "IncompleteBody", "XAmzContentSHA256Mismatch", "BadDigest")
    return Trouble.CONNECTION if is_cut else None


def _of_answer(error: Exception, attempted: Attempted, found: str) -> HoldfastError:
    code, status = code_of(error), _status_of(error)
    what, where = f"cannot {attempted.action}", attempted.where
    trouble = _trouble_of_answer(code, status)
    if code == "NoSuchKey":
        return NotFound("no such object", where=where)
    expected, fix = "", ""
    if code == "NoSuchUpload":
        expected, found = "the parts that were uploaded before", f"they were removed: {found}"
        fix = "Write the object again. If a rule of the bucket removes uploads, give it days"
    elif trouble is Trouble.CLOCK:
        expected = "the store's time"
        fix = "Set the clock of this machine: stores refuse requests that are 15 minutes off"
    elif trouble is None and (code in _FULL or status == 507):
        expected, fix = "room to write", "Free space, then retry"
    elif trouble is None:
        expected, fix = _why_not(code, status, attempted)
        kind = TooLarge if code == "EntityTooLarge" else Invalid
        return kind(what, where=where, expected=expected, found=found, fix=fix)
    return Unavailable(what, where=where, expected=expected, found=found, fix=fix)


def _why_not(code: str, status: int, attempted: Attempted) -> tuple[str, str]:
    """The expectation of a request that is refused for good, and the advice."""
    bucket, endpoint = attempted.bucket, attempted.endpoint
    answers = (
        (
            code == "NoSuchBucket",
            f"bucket {bucket}",
            f"Create bucket {bucket} at {endpoint}, or name another",
        ),
        (
            code in _CREDENTIALS,
            "credentials that are valid here",
            f"Check the credentials that were given, or found, for {endpoint}",
        ),
        (
            code in _OTHER_REGION or status in (301, 307),
            "the bucket's region",
            f"Pass the region of bucket {bucket}, or its endpoint",
        ),
        (
            code in _DENIED or status in (401, 403),
            "permission",
            f"Allow these credentials to read, write, list and delete in bucket {bucket}",
        ),
        (
            code == "NotImplemented" and attempted.action == "create",
            "a store that honours conditional requests",
            "Use one that does. If no second driver can ever run, pass allow_unsafe_commit=True",
        ),
        (
            code in ("NotImplemented", "MethodNotAllowed", "404", "405") or status in (501, 505),
            "a store that speaks S3",
            f"Check the endpoint, {endpoint}",
        ),
        (
            code == "InvalidObjectState",
            "an object that can be read at once",
            "Bring it back from the archive first",
        ),
    )
    return next(((expected, fix) for is_so, expected, fix in answers if is_so), ("", ""))


def _of_library(error: Exception, attempted: Attempted, found: str) -> HoldfastError:
    what, where, endpoint = f"cannot {attempted.action}", attempted.where, attempted.endpoint
    if isinstance(error, _SETTINGS):
        expected = "credentials"
        return Invalid(what, where=where, expected=expected, found=found, fix=_FIND_CREDENTIALS)
    if isinstance(error, SSLError) and _wrong_encryption(error):
        return Invalid(
            what,
            where=where,
            expected=f"a certificate that can be trusted, at {endpoint}",
            found=found,
            fix="Pass verify=PATH with its issuer; or http:// if the endpoint does not encrypt",
        )
    expected, fix = "", ""
    if isinstance(error, CredentialRetrievalError | MetadataRetrievalError):
        expected = "credentials"
        fix = "Check that the provider answers on this machine, and has credentials for it"
    elif isinstance(error, EndpointConnectionError | ConnectTimeoutError | ProxyConnectionError):
        fix = f"Check that {endpoint} is right, runs, and can be reached from this machine"
    elif isinstance(error, ResponseParserError):
        found = "an answer that is not S3's"
        fix = f"Check that what answers at {endpoint} is S3, and no proxy stands between"
    elif isinstance(error, BotoCoreError) and trouble_of(error) is None:
        return Invalid(what, where=where, found=found)
    return Unavailable(what, where=where, expected=expected, found=found, fix=fix)


def _shown(error: Exception, tried: Tried) -> str:
    if isinstance(error, ClientError):
        text = f"{code_of(error)}: {_said(error).get('Message', '')}".rstrip(": ")
    else:
        text = f"{type(error).__name__}: {error}"
    line = scrubbed(text.strip().partition("\n")[0])
    shown = line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"
    return f"{shown} ({tried})"


def _said(error: ClientError) -> dict[str, Any]:
    said: dict[str, Any] = error.response.get("Error", {})
    return said


def _status_of(error: Exception) -> int:
    if not isinstance(error, ClientError):
        return 0
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _wrong_encryption(error: SSLError) -> bool:
    """Whether encryption is refused for good, rather than the connection cut."""
    text = str(error)
    return any(sign in text for sign in ("CERTIFICATE_VERIFY_FAILED", "WRONG_VERSION_NUMBER"))
