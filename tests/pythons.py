"""Install the built wheel into a bare environment of each Python, take the first steps, and run a part of the tests.

    python tests/pythons.py [--steps] [--lowest] [3.11 3.12 3.13 3.14]

The core alone is installed, and pytest with hypothesis for the tests. A Python is looked for as `python3.12` and under
`~/.pyenv/versions`; one that is not there is named and left out. `--steps` leaves the tests out. `--lowest` installs
the oldest version of each dependency that the core says it works with, and then sees that the compiled build of the SQL
parser is refused in plain words. The exit code counts the Pythons that failed; if none was found at all it is 1.
`make test-pythons` runs it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
FRAME = """
import pyarrow as pa
from deniable import Curator
rows = pa.table({"patient": list(range(400)), "sex": ["F", "M"] * 200})
print(Curator.from_frame(rows, unit="patient", budget=1).query("SELECT COUNT(*) AS n FROM data", epsilon=0.5))
"""
STEPS = (
    ("deniable", "--version"),
    ("deniable", "world", "make", "hospital", "--people", "500", "-o", "town"),
    ("deniable", "policy", "check", "town/policy.yaml"),
    ("deniable", "query", "SELECT COUNT(*) AS n FROM visits", "-p", "town/policy.yaml", "--epsilon", "0.5"),
    ("deniable", "scan", "town/voters.parquet"),
    ("deniable", "anonymize", "-p", "town/policy.yaml", "--table", "visits", "--k", "5", "-o", "anonymous.csv"),
    ("deniable", "synthesize", "visits", "-p", "town/policy.yaml", "--epsilon", "1", "--delta", "1e-7", "-o", "s.csv"),
    ("python", "-c", FRAME),
)  # fmt: skip
TESTS = (
    "test_accounting_exact.py", "test_policy_document.py", "test_policy_unit.py", "test_kanonymity_search.py",
    "test_kanonymity_hierarchy.py", "test_ledger_balances.py", "test_samplers_exact.py", "test_query_derived.py",
    "test_query_private_sql.py", "test_query_ordinary_sql.py", "test_masking_perturbation.py",
    "test_synth_columns_exact.py",
)  # fmt: skip


def find_python(version: str) -> Path | None:
    """The interpreter of one version."""
    found = shutil.which(f"python{version}")
    kept = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    works = [Path(each) for each in [*([found] if found else []), *kept] if _says(each) == version]
    return works[-1] if works else None


def _says(python: str | Path) -> str:
    """The version that an interpreter tells; a shim of a version that is not installed tells none."""
    words = "import sys; print('%d.%d' % sys.version_info[:2])"
    return subprocess.run([python, "-c", words], capture_output=True, text=True, check=False).stdout.strip()


def build_wheel(folder: Path) -> Path:
    """The wheel of this tree."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT]
    subprocess.run(command, capture_output=True, check=True)
    return next(folder.glob("deniable-*.whl"))


def lowest() -> list[str]:
    """Each dependency of the core at its lower bound."""
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    return [each.replace(">=", "==") for each in asked]


def try_compiled_parser(programs: Path, folder: Path, environment: dict[str, str]) -> str | None:
    """What is wrong with the refusal of the parser's compiled build, where there is one to install."""
    pip = [programs / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    held = subprocess.run(
        [programs / "python", "-c", "from importlib.metadata import version; print(version('sqlglot'))"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    found = subprocess.run([*pip, "--only-binary", ":all:", f"sqlglotc=={held}"], capture_output=True, check=False)
    if found.returncode:
        print(f"  sqlglotc {held} cannot be had here: its refusal was not tried")
        return None
    query = next(step for step in STEPS if step[1] == "query")
    done = subprocess.run(
        [programs / query[0], *query[1:]], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    plain = done.returncode and "pip uninstall sqlglotc" in done.stderr and "Traceback" not in done.stderr
    return None if plain else f"with sqlglotc {held}: {done.stderr.strip()[-500:]}"


def try_python(python: Path, wheel: Path, folder: Path, tests: bool, oldest: bool = False) -> str | None:
    """Install, take every step, run the tests; what failed, or nothing."""
    home = folder / "bare"
    subprocess.run([python, "-m", "venv", home], check=True)
    programs = home / ("Scripts" if os.name == "nt" else "bin")
    pip = [programs / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    installed = subprocess.run(
        [*pip, wheel, *(lowest() if oldest else [])], capture_output=True, text=True, check=False
    )
    if installed.returncode:
        return f"the wheel could not be installed: {installed.stderr.strip().splitlines()[-1]}"
    environment = {**os.environ, "DENIABLE_STATE": str(folder / "state")}
    for program, *words in STEPS:
        done = subprocess.run(
            [programs / program, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            return f"{program} {' '.join(words)[:80]}: {(done.stderr.strip().splitlines() or ['no message'])[-1]}"
    wrong = run_tests(programs) if tests else None
    return wrong or (try_compiled_parser(programs, folder, environment) if oldest else None)


def run_tests(programs: Path) -> str | None:
    """Run the chosen unit tests; what failed, or nothing."""
    pip = [programs / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "pytest", "hypothesis"], capture_output=True, check=True)
    chosen = [ROOT / "tests" / "unit" / name for name in TESTS]
    command = [programs / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow", *chosen]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    print(f"  {(done.stdout.strip().splitlines() or [done.stderr])[-1]}")
    return None if done.returncode == 0 else f"tests: {done.stdout[-2000:]}"


def main() -> int:
    """Try each version; print one line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", nargs="*", default=VERSIONS)
    parser.add_argument("--steps", action="store_true", help="leave the tests out")
    parser.add_argument("--lowest", action="store_true", help="each dependency at its lower bound")
    asked = parser.parse_args()
    tried = failed = 0
    with tempfile.TemporaryDirectory() as name:
        wheel = build_wheel(Path(name))
        for version in asked.versions:
            python = find_python(version)
            if python is None:
                print(f"Python {version}: not installed here, left out")
                continue
            folder = Path(name) / version
            folder.mkdir()
            wrong = try_python(python, wheel, folder, not asked.steps, asked.lowest)
            tried, failed = tried + 1, failed + (wrong is not None)
            print(f"Python {version}: {wrong or 'all steps work'}", flush=True)
    return failed or int(tried == 0)


if __name__ == "__main__":
    sys.exit(main())
