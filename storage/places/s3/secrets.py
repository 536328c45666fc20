"""Secrets of S3: kept where no repr, error or log shows them.

A secret given as text travels with the pickled storage, because no other machine has it. Secrets
that a provider finds (environment, profile, instance, …) never travel: only the provider's name
does.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from threading import Lock

__all__ = ["Secret", "keep_out_of_logs", "scrubbed", "warn_of_secrets"]

_MASK = "***"
_SHORTEST_MASKED = 8
_LONGEST_LOGGED = 4096
_LOGGERS = (
    "botocore.auth",
    "botocore.client",
    "botocore.credentials",
    "botocore.endpoint",
    "botocore.hooks",
    "botocore.httpchecksum",
    "botocore.parsers",
    "botocore.regions",
    "botocore.retryhandler",
    "botocore.tokens",
    "botocore.utils",
    "urllib3.connectionpool",
)
_NAMES = (
    r"AWSAccessKeyId|AccessKeyId|SecretAccessKey|SessionToken|StringToSign|StringToSignBytes"
    r"|CanonicalRequest|CanonicalRequestBytes|SignatureProvided"
)
_PATTERNS = (
    # XML and JSON in answers: to a wrong signature, or to a provider that asks for keys.
    (re.compile(rf"<({_NAMES})>[^<]*"), rf"<\1>{_MASK}"),
    (re.compile(rf"""(["'](?:{_NAMES}|Token)["']\s*:\s*["'])[^"']*"""), rf"\1{_MASK}"),
    # Headers of a request, as botocore shows them and as they are signed.
    (re.compile(r"(Credential=)[^/,\s]+"), rf"\1{_MASK}"),
    (re.compile(r"(Signature=)[0-9a-fA-F]+"), rf"\1{_MASK}"),
    (re.compile(r"(?i)(x-amz-security-token['\"]?\s*[:=]\s*b?['\"]?)[^'\"\s&,]+"), rf"\1{_MASK}"),
    (re.compile(r"(?i)(X-Amz-(?:Credential|Signature)=)[^&\s'\"]+"), rf"\1{_MASK}"),
    (re.compile(r"(\w://)[^/@\s]+@"), rf"\1{_MASK}@"),
)
_SIGNED = re.compile(r"^Signature:\n", re.MULTILINE)

_logger = logging.getLogger(__name__)
_known: set[str] = set()
_warned: set[str] = set()
_known_lock = Lock()


class Secret:
    """Text that is never shown, and travels in pickles unchanged."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text, for the client of the library only."""
        return self._text

    def __repr__(self) -> str:
        return f"Secret({_MASK})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> tuple[type[Secret], tuple[str]]:
        return Secret, (self._text,)


def scrubbed(text: str) -> str:
    """The text with known secrets, and texts that look like secrets, masked."""
    with _known_lock:
        known = sorted(_known, key=len, reverse=True)
    for secret in known:
        text = text.replace(secret, _MASK)
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return _MASK if _SIGNED.search(text) else text


class _Scrubbing(logging.Filter):
    """Masks secrets in the log lines of a library, and cuts long ones."""

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        shown = scrubbed(message[:_LONGEST_LOGGED])  # botocore logs whole bodies, which are state
        if shown != message:
            record.msg, record.args = shown, None
        return True


_scrubbing = _Scrubbing()


def keep_out_of_logs(secrets: Iterable[Secret | None]) -> None:
    """From now on mask these, and texts that look like secrets, in log lines of libraries.

    A secret of less than eight characters is masked only where it looks like one: masking it
    everywhere would make all texts unreadable.
    """
    texts = {secret.reveal() for secret in secrets if secret is not None}
    with _known_lock:
        _known.update(text for text in texts if len(text) >= _SHORTEST_MASKED)
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_scrubbing)


def warn_of_secrets(url: str) -> None:
    """Warn, once in a process for each place, that keys given as text travel with it."""
    with _known_lock:
        is_new = url not in _warned
        _warned.add(url)
    if is_new:
        _logger.warning(
            "%s has its credentials as text: Spark sends them to its executors. "
            "A provider (the environment, a profile, an instance's role) avoids that",
            url,
        )
