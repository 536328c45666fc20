"""What `make check` runs: every check, one after the other, also when one before it fails."""

from __future__ import annotations

import subprocess
import sys
import time

from run_tests import ROOT, command, note_passed, state_of_files

QUICK = "quick tests"
SIDES = [name for name in ("benchmarks", "examples", "tests", "tools") if (ROOT / name).is_dir()]

CHECKS: dict[str, list[str]] = {
    "format": ["ruff", "format", "--check", "--quiet", "."],
    "lint": ["ruff", "check", "--quiet", "."],
    "types of the rooms": ["mypy"],
    "types around them": ["mypy", *SIDES],
    "imports": ["lint-imports", "--no-cache"],
    QUICK: command("quick"),
}


def shown(output: str) -> str:
    """A tool's output with the paths of the checkout in place of those of the editable install."""
    links = [f"{path.relative_to(ROOT)}/holdfast/" for path in ROOT.glob("build/__editable__.*")]
    for link in links:
        output = output.replace(link, "")
    return output.rstrip()


def passes(name: str, command: list[str]) -> bool:
    """Run one check; say how it ended, and if badly what it printed."""
    start = time.perf_counter()
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    took_s = time.perf_counter() - start
    print(f"{'ok  ' if ended.returncode == 0 else 'FAIL'} {name} ({took_s:.1f} s)", flush=True)
    if ended.returncode != 0:
        print(shown(ended.stdout + ended.stderr), flush=True)
    return ended.returncode == 0


def main() -> int:
    """Run all checks; 0 if all pass."""
    state = state_of_files()
    results = {name: passes(name, words) for name, words in CHECKS.items()}
    if results[QUICK]:
        note_passed(state)
    return 0 if all(results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
