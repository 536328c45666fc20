"""Every state backend of the house passes the suite that it ships."""

from __future__ import annotations

import pytest

from holdfast.backends import HashMapStateBackend
from holdfast.backends.testing import Place, StateBackendConformance


class TestHashMap(StateBackendConformance):
    @pytest.fixture
    def place(self) -> Place:
        return Place(open=HashMapStateBackend)
