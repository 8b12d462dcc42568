"""What is given away beside the code: wheel and source archive, container, service, action, hooks and examples."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

import deniable
from deniable.assess.evidence import EVERY, spread_limit

ROOT = Path(__file__).parents[2]
PROGRAM = Path(sys.executable).with_name("deniable")


def _read(name: str) -> Any:
    return YAML(typ="safe").load(ROOT / name)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheel and source archive, built from a copy of what belongs into them."""
    folder = tmp_path_factory.mktemp("built")
    for name in ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "SECURITY.md", "CITATION.cff"):
        shutil.copy(ROOT / name, folder)
    unwanted = shutil.ignore_patterns("__pycache__", ".venv*")
    shutil.copytree(ROOT / "src", folder / "src", ignore=unwanted)
    command = [sys.executable, "-m", "hatchling", "build"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "dist"


def test_wheel_and_source_archive_hold_every_file_of_the_package(built: Path) -> None:
    ours = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src" / "deniable").rglob("*") if path.is_file()}
    ours = {name for name in ours if "__pycache__" not in name}
    [wheel], [archive] = built.glob("*.whl"), built.glob("*.tar.gz")
    packed = set(zipfile.ZipFile(wheel).namelist())
    assert ours <= packed
    assert {name.partition("/")[0] for name in packed} == {"deniable", f"deniable-{deniable.__version__}.dist-info"}
    with tarfile.open(archive) as sources:
        inside = {name.partition("/")[2] for name in sources.getnames()}
    assert {f"src/{name}" for name in ours} | {"README.md", "LICENSE", "pyproject.toml"} <= inside


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["*.whl", "*.tar.gz"])
def test_it_works_in_a_bare_environment(built: Path, tmp_path: Path, kind: str) -> None:
    [packed] = built.glob(kind)
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "bare"], check=True)
    python = tmp_path / "bare" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", str(packed)], check=True)
    program, environment = python.with_name("deniable"), {**os.environ, "DENIABLE_STATE": str(tmp_path / "state")}
    question = ["query", "SELECT COUNT(*) FROM visits", "-p", "town/policy.yaml", "--epsilon", "0.5"]
    for words in (["--version"], ["world", "make", "hospital", "--people", "200", "-o", "town"], question):
        subprocess.run([program, *words], cwd=tmp_path, env=environment, check=True)


def test_version_and_citation_agree() -> None:
    assert str(_read("CITATION.cff")["version"]) == deniable.__version__


def test_every_server_option_in_container_and_service_exists() -> None:
    told = subprocess.run([PROGRAM, "serve", "--help"], capture_output=True, text=True, check=True).stdout
    compose = _read("compose.yaml")["services"]["server"]["command"][0]
    texts = [compose, (ROOT / "Dockerfile").read_text(), (ROOT / "deploy" / "deniable.service").read_text()]
    served = [line for text in texts for line in re.findall(r'(?:deniable|CMD \[")\s*serve.*', text.replace("\n", " "))]
    assert len(served) == 3
    options = {each for line in served for each in re.findall(r"--[a-z-]+", line)} - {"--no-index", "--find-links"}
    assert {"--host", "--certificate", "--key", "--ledger", "--steward"} <= options
    assert [each for each in options if each not in told] == []


def test_extras_of_the_container_exist() -> None:
    import tomllib

    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    [named, again] = re.findall(r"\[([a-z,]+)\]\"", (ROOT / "Dockerfile").read_text())
    assert named == again
    assert set(named.split(",")) <= set(known)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("release")
    rows = [f"{10000 + i // 20},{'FM'[i % 2]}\n" for i in range(200)]
    (folder / "crowd.csv").write_text("zip,sex\n" + "".join(rows))
    (folder / "alone.csv").write_text("zip,sex\n" + "".join(f"{10000 + i},F\n" for i in range(200)))
    (folder / "policy.yaml").write_text(
        "version: 1\ndataset: d\ntables:\n  t:\n    source: crowd.csv\n    unit: row\n"
        "    columns: {zip: {role: quasi-identifier}, sex: {role: quasi-identifier}}\n"
    )
    return folder


@pytest.mark.parametrize(("release", "code"), [("crowd.csv", 0), ("alone.csv", 2)])
def test_the_commands_of_the_action_stop_at_a_release_that_exposes_people(files: Path, release: str, code: int) -> None:
    script = _read("action.yml")["runs"]["steps"][-1]
    given = {"POLICY": "policy.yaml", "RELEASE": release, "ORIGINAL": "", "KNOWS": "zip,sex", "FAIL_ABOVE": "0.05"}
    assert set(script["env"]) == set(given)
    environment = {**os.environ, **given, "PATH": f"{PROGRAM.parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-e", "-c", script["run"]], cwd=files, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr


def test_the_hooks_name_commands_that_run(files: Path) -> None:
    hooks = {hook["id"]: hook["entry"].split() for hook in _read(".pre-commit-hooks.yaml")}
    given = {"deniable-policy-check": ["policy.yaml"], "deniable-attack": ["--knows", "zip,sex", "crowd.csv"]}
    assert set(hooks) == set(given)
    for name, words in hooks.items():
        done = subprocess.run([PROGRAM, *words[1:], *given[name]], cwd=files, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr


def test_the_examples_of_pipelines_use_commands_that_exist() -> None:
    from typer.main import get_command

    from deniable.cli.main import app

    commands = get_command(app).commands  # type: ignore[attr-defined]
    for path in [*(ROOT / "examples").glob("airflow/*.py"), *(ROOT / "examples").glob("prefect/*.py")]:
        ast.parse(path.read_text(encoding="utf-8"))
        options = set(re.findall(r"--[a-z-]+", path.read_text(encoding="utf-8")))
        known = {opt for name in ("synthesize", "attack") for each in commands[name].params for opt in each.opts}
        assert options
        assert options <= known


def test_one_limit_for_every_attack_is_the_least_of_both_and_is_not_met_by_trying_nothing() -> None:
    half, tenth = Fraction(1, 2), Fraction(1, 10)
    assert spread_limit({"linkage": half, EVERY: tenth}, ["linkage", "uniqueness"]) == {
        "linkage": tenth,
        "uniqueness": tenth,
    }
    assert spread_limit({"linkage": tenth, EVERY: half}, ["linkage"]) == {"linkage": tenth}
    assert spread_limit({EVERY: half}, []) == {EVERY: half}
    assert spread_limit({"linkage": half}, ["linkage", "uniqueness"]) == {"linkage": half}
