"""Credentials between driver, slots and tasks: the job's certificate for TLS, and its token.

Every party of a job has the same certificate and key, and trusts nothing else. So there is no
authority to set up and nothing to renew, and the handshake refuses processes that are not part of
the job. `SECURITY.md` says where the key is kept, and how it gets there.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from typing import Any

import msgspec

from holdfast.runtime.api.addresses import bare_host, is_loopback
from holdfast.storage import Invalid

__all__ = ["LOOPBACK_ONLY", "Credentials", "Identity", "Protection", "make_certificate"]

_NAME = "holdfast.invalid"
"""The one name that certificates are for: addresses may be of any kind, and change."""

_BEGIN = dt.datetime(2000, 1, 1)  # noqa: DTZ001 - in UTC, as certificates are
_END = dt.datetime(9999, 12, 31, 23, 59, 59)  # noqa: DTZ001 - RFC 5280: it has no end
"""As long as the job has its key, however long it runs, and whatever a machine's clock says."""


class Identity(msgspec.Struct, frozen=True):
    """The certificate of a job and its private key, in PEM."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        """Without the key: this ends up in logs."""
        return "Identity(***)"


def make_certificate() -> Identity:
    """Make an identity for one run of a job: a certificate that is its own authority.

    Raises:
        Invalid: the library that makes certificates is not installed.
    """
    # Here, since only drivers make them: executors need no library for that.
    try:
        from cryptography import x509  # noqa: PLC0415
        from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
        from cryptography.x509.oid import NameOID  # noqa: PLC0415
    except ImportError as error:
        raise Invalid(
            "a job that is encrypted needs a certificate, and nothing is here to make one",
            expected="the package cryptography, where the driver runs",
            found=str(error),
            fix="pip install cryptography",
        ) from error

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _NAME)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_BEGIN)
        .not_valid_after(_END)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(_NAME)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Identity(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )


class Protection(msgspec.Struct, frozen=True):
    """What servers ask of callers, and callers of servers.

    With an `identity` all is encrypted, and both sides have to show it. Without one nothing is, so
    none but loopback addresses are served or called, unless a user has said that others may be.
    """

    identity: Identity | None = None
    is_clear_allowed: bool = False

    @property
    def scheme(self) -> str:
        """Of addresses that are spoken to in this way."""
        return "grpc" if self.identity is None else "grpc+tls"

    def server_arguments(self) -> dict[str, Any]:
        """For a server of Flight."""
        if self.identity is None:
            return {}
        return {
            "tls_certificates": [(self.identity.certificate, self.identity.key)],
            "verify_client": True,
            "root_certificates": self.identity.certificate,
        }

    def client_arguments(self) -> dict[str, Any]:
        """For a client of Flight."""
        if self.identity is None:
            return {}
        return {
            "tls_root_certs": self.identity.certificate,
            "cert_chain": self.identity.certificate,
            "private_key": self.identity.key,
            "override_hostname": _NAME,
        }

    def check_host(self, host: str, *, where: str) -> None:
        """Refuse what would travel in the clear beyond this machine.

        Raises:
            Invalid: it would, and the settings do not allow it.
        """
        if self.identity is None and not self.is_clear_allowed and not is_loopback(host):
            raise Invalid(
                "rows would travel unencrypted between machines",
                where=where,
                expected="TLS, or an address of loopback",
                found=f"no TLS, and host {host!r}",
                fix="Leave security.ssl.internal.enabled at auto, or set it to true",
            )

    def check_address(self, address: str) -> None:
        """Refuse to call a server in another way than this.

        Raises:
            Invalid: the address is of one that is not protected like this.
        """
        scheme, _, place = address.partition("://")
        if scheme != self.scheme:  # Flight would go by the address, and send all in the clear
            raise Invalid(
                "an address is not protected as the job is",
                where=address,
                expected=f"{self.scheme}://…",
                found=f"{scheme}://…",
            )
        self.check_host(bare_host(place.rpartition(":")[0]), where=address)


LOOPBACK_ONLY = Protection()
"""No encryption, and so no address beyond this machine."""


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """The credentials of a caller: the token of the job, its attempt, and the protection.

    The token is the job's secret, in ASCII; it is never sent, see `authentication`. The attempt is
    the number of the job's attempt: calls of an earlier or a later one are refused.
    """

    token: str
    attempt: int
    protection: Protection = LOOPBACK_ONLY

    @property
    def label(self) -> str:
        """A public name for the run of the job."""
        return hashlib.sha256(f"holdfast label {self.token}".encode()).hexdigest()[:12]

    def __repr__(self) -> str:
        """Without the secret: this ends up in logs."""
        return f"Credentials(attempt={self.attempt})"
