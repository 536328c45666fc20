"""The suite that every state backend must pass, ours and a plug-in's.

    class TestMine(StateBackendConformance):
        @pytest.fixture
        def place(self, tmp_path):
            return Place(open=lambda: MyStateBackend(tmp_path))

Each test is one clause: first of the contract of tables, in `holdfast.backends.tables`, then of the
state that is built on them. Its docstring says what is owed and why. What a backend does not
declare in its `capabilities` is skipped, with the reason. Needs pytest. A backend that keeps files
is pickled and used in another process, so that one must be able to import its class.
"""

from holdfast.backends.testing.conformance import StateBackendConformance
from holdfast.backends.testing.place import Place

__all__ = ["Place", "StateBackendConformance"]
