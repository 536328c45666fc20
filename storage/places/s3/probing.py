"""Trying, before anything rests on it, that a place in S3 keeps what a storage promises.

Not every store that speaks S3 honours a condition. One that ignores it would let two drivers
believe that each of them has committed, so it is found out here, and refused.
"""

from __future__ import annotations

from holdfast.storage.entropy import Entropy
from holdfast.storage.errors import HoldfastError, Invalid, NotFound, Unavailable
from holdfast.storage.places.s3.options import S3Place
from holdfast.storage.places.s3.requests import DELETED_AT_ONCE, S3Requests

__all__ = ["prove"]

_PROBE = ".holdfast-probe-"
"""No legal name begins with a dot, so no listing shows it."""
_ABANDONED_S = 3600.0


def prove(requests: S3Requests, place: S3Place, entropy: Entropy, *, is_unsafe: bool) -> None:
    """Write, create, read, list and delete a probe; once for each process and place.

    Leaves nothing, and removes probes of processes that were killed an hour ago or earlier.

    Raises:
        Invalid: the place does not exist, something is not permitted, or the store does not honour
            the condition of a create (unless `is_unsafe`).
        Unavailable: the store does not answer.
    """
    here = requests.connection
    with here.proving:
        if (place, is_unsafe) in here.proven:
            return
        token = entropy.token()
        probe = f"{place.prefix}{_PROBE}{token}"
        is_answered = False
        try:
            requests.put(probe, token.encode(), token, if_absent=not is_unsafe)
            is_answered = True
            if not is_unsafe:
                _prove_condition(requests, probe, token)
            abandoned = _prove_listing(requests, place, probe)
        except HoldfastError as error:
            # Where nobody answers, a delete would be tried for as long again, and in vain: if there
            # is a probe after all, somebody removes it in an hour.
            if is_answered or not isinstance(error, Unavailable):
                requests.delete([probe])
            raise
        problem = requests.delete([probe, *abandoned])
        if problem is not None:
            raise problem
        here.proven.add((place, is_unsafe))


def _prove_condition(requests: S3Requests, probe: str, token: str) -> None:
    """That the probe, which was just created, is not replaced by another create."""
    was_refused = not requests.put(probe, b"another", "", if_absent=True)
    try:
        found = requests.get(probe, 0, None)
    except NotFound:
        raise Unavailable(
            "what was written is not there",
            where=requests.where(probe),
            expected="an object that can be read as soon as it was written",
            fix="Without that no checkpoint is sure: use another store",
        ) from None
    if not was_refused or found.data != token.encode():
        raise Invalid(
            "this store does not honour conditional requests, so two drivers could both commit",
            where=requests.where(""),
            expected="a second PutObject with If-None-Match: * to be refused",
            found="it replaced the object",
            fix="Use a store that honours them, such as AWS, MinIO, Ceph, R2 or SeaweedFS in a "
            "version that does. If no second driver can ever run, pass allow_unsafe_commit=True",
        )


def _prove_listing(requests: S3Requests, place: S3Place, probe: str) -> list[str]:
    """That the listing shows the probe, and there is one of uploads; answers abandoned probes."""
    found = [*requests.list(f"{place.prefix}{_PROBE}")]
    if probe not in [line.key for line in found]:
        raise Unavailable(
            "a listing does not show what was written before it",
            where=requests.where(""),
            expected="a store that is consistent, as S3 is",
            fix="Without that no checkpoint is found again: use another store",
        )
    next(requests.uploads(f"{place.prefix}{_PROBE}"), None)  # else nobody could clean them up
    others = [line.key for line in found if line.age_s > _ABANDONED_S and line.key != probe]
    return others[: DELETED_AT_ONCE - 1]
