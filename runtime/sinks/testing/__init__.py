"""The suite that every two-phase-commit sink must pass, ours and a user's.

    class MyStage(Stage):
        def sink(self):
            return MySink(self.place)

        def seen(self):
            return sorted(row.number for row in readers_of(self.place))

        def hidden(self):
            return unfinished_of(self.place)

    class TestMine(SinkConformance):
        @pytest.fixture
        def stage(self):
            return MyStage()

Each test is one clause of the contract in `holdfast.runtime.sinks`. Rows have a number and a text,
by the schema `SCHEMA`. The operator around the sink is that of a job; slots, checkpoints and
crashes are played. Needs pytest. A sink is pickled, as on its way to a slot.
"""

from holdfast.runtime.sinks.testing.conformance import SinkConformance, Stage
from holdfast.runtime.sinks.testing.sink_jobs import SCHEMA

__all__ = ["SCHEMA", "SinkConformance", "Stage"]
