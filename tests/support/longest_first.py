"""Which files of tests begin first, so that none of the long ones begins when others have ended.

A worker takes whole files: these, the longest first, and then all others, by their names. Where the
list has grown old, parts of `make test` take longer and nothing fails. `pytest --junitxml` tells
how long tests take.

Files that need the same servers go to one worker together: an HDFS takes ten seconds to start, most
of them of both cores, and each worker has its own.
"""

from __future__ import annotations

import pytest
from xdist.scheduler import LoadFileScheduling

# Seconds that a worker takes for each, where five share two cores; or two, of those on Spark.
LONGEST = {
    "tests/storage/places/test_jobs_on_servers.py": 80,
    "tests/savepoints/conversion/test_conversion.py": 60,
    "tests/backends/keyed/test_kill.py": 40,
    "tests/storage/places/hdfs/test_faults.py": 54,
    "tests/storage/places/test_remote_faults.py": 49,
    "tests/savepoints/conversion/test_matrix.py": 45,
    "tests/backends/testing/test_conformance.py": 43,
    "tests/storage/places/s3/test_conformance.py": 40,
    "tests/storage/places/hdfs/test_storage.py": 40,
    "tests/runtime/test_simulation.py": 40,
    "tests/runtime/cli/test_run.py": 35,
    "tests/runtime/cli/test_stored_on_servers.py": 33,
    "tests/changelog/test_soak.py": 32,
    "tests/storage/jobs/test_holding.py": 45,
    "tests/savepoints/test_golden_savepoints.py": 30,
    "tests/backends/byte_tables/test_sqlite_plugin.py": 29,
    "tests/backends/testing/test_model.py": 29,
    "tests/changelog/test_conformance.py": 28,
    "tests/storage/jobs/test_savepoint.py": 26,
    "tests/servers/test_servers.py": 25,
    "tests/storage/jobs/test_cleaning.py": 24,
    "tests/storage/places/test_remote_campaign.py": 24,
    "tests/storage/testing/test_conformance.py": 24,
    "tests/backends/rocksdb/test_damage.py": 22,
    "tests/savepoints/conversion/test_trouble.py": 19,
    "tests/backends/snapshots/test_shared_files.py": 15,
    "tests/backends/state/test_timer_queues.py": 14,
    "tests/savepoints/conversion/test_resuming.py": 13,
    "tests/runtime/cli/test_stored.py": 13,
    "tests/savepoints/reading/test_readers.py": 13,
    "tests/changelog/test_switching.py": 13,
    "tests/test_tidy.py": 10,
    "tests/storage/places/s3/test_answers.py": 10,
    "tests/storage/places/s3/test_options.py": 10,
    "tests/runtime/sinks/test_sinks_conform.py": 10,
    "tests/test_examples.py": 70,
    "tests/runtime/spark/test_savepoints.py": 65,
    "tests/runtime/spark/test_campaign.py": 60,
    "tests/runtime/spark/test_commands.py": 55,
    "tests/runtime/spark/test_standalone.py": 50,
    "tests/runtime/spark/test_two_machines.py": 45,
    "tests/test_benchmarks.py": 45,
    "tests/runtime/spark/test_jobs.py": 45,
    "tests/runtime/spark/test_lives.py": 40,
    "tests/runtime/spark/test_stopped_programs.py": 35,
    "tests/runtime/spark/state_frames/test_convert_page.py": 30,
    "tests/runtime/spark/state_frames/test_state_source.py": 25,
    "tests/runtime/spark/test_claim_modes.py": 25,
    "tests/runtime/spark/test_killed_drivers.py": 25,
    "tests/runtime/spark/sessions/test_session_choice.py": 25,
}


TOGETHER = (
    (
        "tests/storage/places/test_jobs_on_servers.py",
        "tests/storage/places/s3/test_conformance.py",
    ),
    (
        "tests/storage/places/hdfs/test_faults.py",
        "tests/storage/places/test_remote_faults.py",
        "tests/runtime/cli/test_stored_on_servers.py",
    ),
    (
        "tests/storage/places/hdfs/test_storage.py",
        "tests/storage/jobs/test_savepoint.py",
        "tests/servers/test_servers.py",
        "tests/storage/places/test_remote_campaign.py",
        "tests/runtime/sinks/files/test_urls.py",
    ),
)
_FIRST = {file: files[0] for files in TOGETHER for file in files}


class WholeFiles(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives each worker whole files, and those of one line of `TOGETHER` to one worker."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return _FIRST.get(file, file)


def order(items: list[pytest.Item]) -> None:
    """Put the tests of the longest files first."""
    longest = sorted(LONGEST, key=lambda file: -LONGEST[file])
    places = {file: place for place, file in enumerate(longest)}
    items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(places)))
