"""The suite that every checkpoint storage must pass, ours and a plug-in's.

    class TestMine(CheckpointStorageConformance):
        @pytest.fixture
        def place(self, tmp_path):
            return Place(open=lambda: MyStorage(tmp_path))

Each test is one clause of the contract in `holdfast.storage.interface`; its docstring says what is
owed and why. What a storage does not declare in its `capabilities` is skipped, with the reason.
Needs pytest. A storage that processes share is pickled and used in others, so these must be able to
import its class. The clauses about jobs try the commit protocol of the house on the storage.
"""

from holdfast.storage.testing.conformance import CheckpointStorageConformance
from holdfast.storage.testing.place import Place

__all__ = ["CheckpointStorageConformance", "Place"]
