"""What tests of clients of S3 have in common."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from botocore.loaders import create_loader


@pytest.fixture(scope="session", autouse=True)
def _descriptions() -> Iterator[None]:
    """Botocore's long descriptions of services are read once, and not for each client."""
    loader = create_loader()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("botocore.session.create_loader", lambda _folders: loader)
        yield
