"""What is mutated, and the tests that should notice, by package."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "deniable"
TESTS = ROOT / "tests"


@dataclass(frozen=True, slots=True)
class Package:
    """Modules under `src/deniable`, and test files under `tests`, as patterns."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]
    without: tuple[str, ...] = ()
    """Names of modules that decide nothing about privacy."""

    def sources(self) -> list[Path]:
        """The modules, without those that only list names."""
        found = {path for pattern in self.modules for path in SOURCE.glob(pattern)}
        return sorted(path for path in found if path.stem not in ("__init__", *self.without))

    def test_files(self) -> list[Path]:
        """The test files, then the modules themselves for their examples."""
        found = {path for pattern in self.tests for path in TESTS.glob(pattern)}
        return sorted(found) + self.sources()


PACKAGES = {
    "dp": Package(
        ("dp/**/*.py",),
        (
            *("unit/test_samplers_*.py", "unit/test_accounting_*.py", "unit/test_mechanisms_*.py"),
            *("contracts/test_accountants_*.py", "contracts/test_mechanisms_*.py", "contracts/test_noise_*.py"),
            *("golden/test_golden_dp.py", "golden/test_laplace_variance.py"),
            *("statistical/test_samplers_power.py", "statistical/test_mechanisms_statistical.py"),
            "audits/test_mechanisms_audits.py",
        ),
        without=("seeded",),
    ),
    "query": Package(
        ("query/*.py", "query/sql/private_sql.py", "query/algebra/*.py", "query/techniques/*.py"),
        (
            *("unit/test_query_*.py", "unit/test_curator_query.py", "golden/test_query_*.py"),
            *("statistical/test_query_noise.py", "statistical/test_hierarchy_errors.py"),
            *("audits/test_query_*.py", "usability/test_query_newcomers.py", "contracts/test_noise_drawn_contract.py"),
        ),
        without=("answers", "bias", "builder", "explain", "explanations", "expression", "functions"),
    ),
    "ledger": Package(
        ("ledger/*.py",),
        (
            *("unit/test_ledger_*.py", "contracts/test_ledger_*.py", "contracts/test_answer_store_*.py"),
            "workflows/test_ledger_faults.py",
        ),
        without=("postgres",),  # its tests need a server
    ),
    "curator": Package(
        ("curator/charge.py", "curator/scope.py", "curator/context.py"),
        (
            *("unit/test_curator_*.py", "unit/test_ledger_witness.py"),
            *("workflows/test_governance_workflow.py", "workflows/test_query_commands.py"),
            *("workflows/test_ledger_faults.py", "workflows/test_http_api.py", "workflows/test_train_workflow.py"),
            "contracts/test_charging_contract.py",
        ),
    ),
    "synth": Package(
        ("synth/*.py", "synth/methods/*.py"),
        (
            *("unit/test_synth_*.py", "contracts/test_synth_*.py", "audits/test_synth_*.py"),
            *("contracts/test_noise_drawn_in_synthesis.py", "audits/test_selection_audits.py"),
        ),
        without=("condition", "constraints", "generate", "inspect", "kernels", "model"),
    ),
    "localdp": Package(
        ("localdp/*.py", "localdp/frequency/*.py", "localdp/numeric/*.py"),
        (
            *("unit/test_localdp_*.py", "unit/test_survey_*.py", "contracts/test_localdp_*.py"),
            *("golden/test_localdp_vectors.py", "golden/test_survey_client_laws.py"),
            *("golden/test_randomized_response_examples.py", "statistical/test_localdp_*.py"),
            "audits/test_averaging_attack.py",
        ),
        without=("epsilon_sweep", "protocol_choice", "postprocessing", "records", "heavy_hitters", "distribution"),
    ),
}


def all_sources() -> list[Path]:
    """Every module that is mutated."""
    return sorted({path for package in PACKAGES.values() for path in package.sources()})


def test_files_for(files: set[str], named: set[str]) -> list[Path]:
    """The test files of the packages that these modules are of, and those that tests are named in."""
    paths = {ROOT / file for file in files}
    chosen = [package for package in PACKAGES.values() if paths & set(package.sources())]
    known = {path for package in chosen or PACKAGES.values() for path in package.test_files()}
    return sorted(known | {ROOT / node.split("::")[0] for node in named})


def package_of(file: str) -> str:
    """The package of a module, given by its path in the repository."""
    return next(name for name, package in PACKAGES.items() if ROOT / file in package.sources())
