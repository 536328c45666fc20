"""A trial, before any commit, that a place in S3 keeps what a storage guarantees.

Not every store that speaks S3 honours a condition. On one that ignores it two drivers could both
believe that they have committed, so it is detected here, and refused.
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
            # If the store does not answer, a delete would be retried for as long again, in vain. A
            # probe that exists after all is removed by a later trial, in an hour.
            if is_answered or not isinstance(error, Unavailable):
                requests.delete([probe])
            raise
        problem = requests.delete([probe, *abandoned])
        if problem is not None:
            raise problem
        here.proven.add((place, is_unsafe))


def _prove_condition(requests: S3Requests, probe: str, token: str) -> None:
    """Check that another create does not replace the probe, which was just created."""
    was_refused = not requests.put(probe, b"another", "", if_absent=True)
    try:
        found = requests.get(probe, 0, None)
    except NotFound:
        raise Unavailable(
            "an object cannot be read although it was written",
            where=requests.where(probe),
            expected="an object that can be read as soon as it was written",
            fix="Checkpoints need that: use another store",
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
    """Check that listings show the probe, and that uploads can be listed; answers old probes."""
    found = [*requests.list(f"{place.prefix}{_PROBE}")]
    if probe not in [line.key for line in found]:
        raise Unavailable(
            "a listing does not show an object that was written before it",
            where=requests.where(""),
            expected="a store that is consistent, as S3 is",
            fix="Checkpoints are found by listings: use another store",
        )
    next(requests.uploads(f"{place.prefix}{_PROBE}"), None)  # cleaning needs this listing
    others = [line.key for line in found if line.age_s > _ABANDONED_S and line.key != probe]
    return others[: DELETED_AT_ONCE - 1]
