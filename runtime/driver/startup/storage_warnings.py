"""What a job's storage of checkpoints cannot promise, for people."""

from __future__ import annotations

from holdfast.storage import Capabilities

__all__ = ["what_is_missing"]


def what_is_missing(url: str, capabilities: Capabilities) -> tuple[str, ...]:
    """A sentence for each guarantee of a storage that is not proven; none where all are."""
    missing = []
    if not capabilities.shared_between_processes:
        missing.append(
            f"checkpoints are in the driver's memory ({url}), and end with it: the job cannot go "
            'on after that. Pass storage="/a/folder", or another place'
        )
    elif not capabilities.durable:
        missing.append(f"checkpoints at {url} may not survive the loss of power")
    if not capabilities.atomic_create:
        missing.append(
            f"of two drivers of this job both could commit at {url}, which cannot decide between "
            "them: let there never be two"
        )
    return tuple(missing)
