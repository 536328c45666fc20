"""What `make test` runs: every test but those of `make soak`, in parts, each with workers.

The quick part is run by `make check` too. One that has passed leaves a stamp in `.venv`, and is not
run again on the same files: `.ci/run`, which is the one and then the other, runs nothing twice.
Without git, which tells what the files are, each run runs all.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STAMP = ROOT / ".venv" / "holdfast-quick-tests.stamp"
CORES = os.cpu_count() or 1

# What runs whole jobs on Spark comes last, where nothing else takes the cores, with a session for
# each worker: no more of them than cores. Other slow tests mostly wait: for servers, and processes
# that they kill.
ON_SPARK = ("tests/runtime/spark", "tests/test_examples.py", "tests/test_benchmarks.py")
WORKERS = {"quick": CORES + 1, "slow": 2 * CORES + 1, "spark": max(CORES, 2)}
CHOICES = {
    "quick": ["-m", "not slow and not soak"],
    "slow": ["-m", "slow and not soak", *(f"--ignore={each}" for each in ON_SPARK)],
    "spark": ["-m", "slow and not soak", *ON_SPARK],
}


def command(part: str) -> list[str]:
    """The pytest of one part.

    Workers take whole files, since what the tests of a file share is made once; in the order in
    which they are collected, which is that of `tests/support/longest_first.py`.
    """
    dealt = ["--dist", "loadfile", "--no-loadscope-reorder", "--numprocesses", str(WORKERS[part])]
    return ["pytest", "--quiet", "--hypothesis-profile=check", *dealt, *CHOICES[part]]


def state_of_files() -> str | None:
    """One key for what is tested and with which packages; None if it cannot be told."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        listed = subprocess.run(listing, cwd=ROOT, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    whole = hashlib.sha256(sys.version.encode())
    stamps = sorted(ROOT.glob(".venv/holdfast-pack*.stamp"))
    for path in [*stamps, *(ROOT / os.fsdecode(name) for name in sorted(listed.split(b"\0")))]:
        if path.is_file():
            content = path.read_bytes()
            whole.update(f"{path.relative_to(ROOT)}\0{len(content)}\0".encode() + content)
    return whole.hexdigest()


def have_passed(state: str | None) -> bool:
    """Whether the quick tests have passed on just these files."""
    return state is not None and STAMP.is_file() and STAMP.read_text() == state


def note_passed(state: str | None) -> None:
    """Leave the stamp, unless the files have changed while the tests ran."""
    if state is not None and state == state_of_files():
        STAMP.write_text(state)


def main() -> int:
    """Run every part, also when one before it fails; 0 if all pass."""
    state = state_of_files()
    codes = []
    for part in CHOICES:
        if part == "quick" and have_passed(state):
            print("quick tests: they have passed on these files, and are not run again", flush=True)
            continue
        ended = subprocess.run([*command(part), f"--budget={part}"], cwd=ROOT, check=False)
        codes.append(ended.returncode)
        if part == "quick" and ended.returncode == 0:
            note_passed(state)
    return max(codes, default=0)


if __name__ == "__main__":
    sys.exit(main())
