"""The conformance suite for state backends, built-in ones and plug-ins.

    class TestMine(StateBackendConformance):
        @pytest.fixture
        def place(self, tmp_path):
            return Place(open=lambda: MyStateBackend(tmp_path))

Each test is one clause: first of the contract of tables, in `holdfast.backends.tables`, then of the
state that is built on them (folders `table_clauses` and `state_clauses`; `model` has a model-based
test). The name of a test and its docstring say what a backend must do. Clauses about capabilities
that a backend does not declare are skipped, with the reason. The suite needs pytest. A backend that
keeps files is pickled and used in another process, which must be able to import its class.
"""

from holdfast.backends.testing.conformance import StateBackendConformance
from holdfast.backends.testing.place import Place

__all__ = ["Place", "StateBackendConformance"]
