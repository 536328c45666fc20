"""Commands reach the drivers of running jobs of the same user, on this machine.

Imports `driver` and below.
"""

from holdfast.runtime.control.client import JobClient
from holdfast.runtime.control.folder import FOLDER_VARIABLE, run_folders
from holdfast.runtime.control.lookup import chosen_run, runs_named
from holdfast.runtime.control.messages import CheckpointReport, Ended, JobReport, SavepointTaken
from holdfast.runtime.control.registry import FoundRun, Registration, Runs, find_runs

__all__ = [
    "FOLDER_VARIABLE",
    "CheckpointReport",
    "Ended",
    "FoundRun",
    "JobClient",
    "JobReport",
    "Registration",
    "Runs",
    "SavepointTaken",
    "chosen_run",
    "find_runs",
    "run_folders",
    "runs_named",
]
