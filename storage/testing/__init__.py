"""The suite that every checkpoint storage must pass, ours and a plug-in's.

    class TestMine(CheckpointStorageConformance):
        @pytest.fixture
        def place(self, tmp_path):
            return Place(open=lambda: MyStorage(tmp_path))

Each test is one clause of the contract in `holdfast.storage.interface`; its docstring says what the
storage owes and why. Clauses about undeclared `capabilities` are skipped, with the reason. Needs
pytest. A storage that processes share is pickled and used in other processes, which must be able to
import its class. The clauses about jobs run Holdfast's commit protocol on the storage.
"""

from holdfast.storage.testing.conformance import CheckpointStorageConformance
from holdfast.storage.testing.place import Place

__all__ = ["CheckpointStorageConformance", "Place"]
