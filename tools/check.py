"""What `make check` runs: every check, one after the other, also when one before it fails."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SIDES = [name for name in ("benchmarks", "examples", "tests", "tools") if (ROOT / name).is_dir()]

CHECKS: dict[str, list[str]] = {
    "format": ["ruff", "format", "--check", "--quiet", "."],
    "lint": ["ruff", "check", "--quiet", "."],
    "types of the rooms": ["mypy"],
    "types around them": ["mypy", *SIDES],
    "imports": ["lint-imports", "--no-cache"],
    "quick tests": [
        *(
            "pytest",
            "--quiet",
            "--hypothesis-profile=check",
            "--numprocesses",
            "3",
            "--dist",
            "loadfile",
            "--no-loadscope-reorder",
        ),
        *("-m", "not slow and not soak"),
    ],
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
    results = [passes(name, command) for name, command in CHECKS.items()]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
