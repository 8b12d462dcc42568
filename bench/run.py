"""Run every benchmark, or those named: `python bench/run.py [NAME ...]`. Each prints ratios measured in one run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main(names: list[str]) -> int:
    """Run the scripts one after the other; the exit code counts those that failed."""
    scripts = sorted(path for path in HERE.glob("*.py") if path.name != "run.py" and not path.name.startswith("_"))
    chosen = [path for path in scripts if not names or path.stem in names]
    failed = 0
    for path in chosen:
        print(f"\n== {path.stem} ==", flush=True)
        failed += subprocess.run([sys.executable, str(path)], check=False).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
