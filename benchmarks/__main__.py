"""`python -m benchmarks [--tiny] [NAME…]`: run the benchmarks, one JSON line a result.

NAME is the beginning of a module's name, such as `storage`; without one, all run.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

from benchmarks import (
    changelog_load,
    conversion,
    engine,
    latency,
    network,
    savepoints,
    spine,
    state_changelog,
    state_data,
    state_hashmap,
    state_primitives,
    state_rocksdb,
    storage_files,
    storage_remote,
)
from benchmarks.harness import Result, Scale, result_line

__all__ = ["BENCHMARKS", "main"]

BENCHMARKS: dict[str, Callable[[Scale], Iterator[Result]]] = {
    "spine": spine.run,
    "engine": engine.run,
    "latency": latency.run,
    "network": network.run,
    "state_primitives": state_primitives.run,
    "state_hashmap": state_hashmap.run,
    "state_rocksdb": state_rocksdb.run,
    "state_changelog": state_changelog.run,
    "changelog_load": changelog_load.run,
    "conversion": conversion.run,
    "savepoints": savepoints.run,
    "state_data": state_data.run,
    "storage_files": storage_files.run,
    "storage_remote": storage_remote.run,
}


def main() -> None:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="beginning of a module's name")
    parser.add_argument("--tiny", action="store_true", help="small inputs, one repetition")
    arguments = parser.parse_args()
    unknown = [
        name
        for name in arguments.names
        if not any(module.startswith(name) for module in BENCHMARKS)
    ]
    if unknown:
        parser.error(f"no benchmark begins with {unknown[0]!r}; there are {', '.join(BENCHMARKS)}")
    scale = Scale.TINY if arguments.tiny else Scale.FULL
    for module, run in BENCHMARKS.items():
        if not arguments.names or any(module.startswith(name) for name in arguments.names):
            for result in run(scale):
                print(result_line(result, scale), flush=True)


if __name__ == "__main__":
    main()
