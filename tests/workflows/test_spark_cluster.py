"""Spark on a standalone cluster, started here: a master, a worker and its executors are processes of their own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import clinic
from deniable.engines.sources import require_driver
from deniable.engines.spark.session import require_java
from deniable.errors import DeniableError
from engines_elsewhere import write_parquet

POLICY = """
version: 1
dataset: clinic
tables:
  visits:
    source: "{source}"
    unit: {{column: pid, max_groups: 2, max_rows_per_group: 3}}
    columns:
      pid: {{type: integer, role: identifier, mask: redact}}
      sex: {{categories: [F, M], role: quasi-identifier}}
      age: {{type: integer, between: [0, 100], role: quasi-identifier, hierarchy: {{intervals: {{widths: [10, 50]}}}}}}
      city: {{role: insensitive}}
      charge: {{type: decimal, between: [0, 250], step: 0.5, role: sensitive}}
release: {{anonymize: {{k: 3, suppress: 1}}}}
budgets: {{dataset: {{epsilon: 1000, delta: 1e-5, accounting: zcdp}}}}
"""
SCRIPT = r"""
import json, re, sys
from deniable.curator import Curator
from deniable.engines.spark.engine import SparkEngine
from deniable.errors import ExecutionFailed
from deniable.ledger.ledger import verify

def tell(**told):
    print(json.dumps(told), flush=True)

folder = sys.argv[1]
with Curator.open(folder + "/clinic.yaml") as curator:
    asked = "SELECT sex, COUNT(*) AS n FROM visits GROUP BY sex ORDER BY sex"
    tell(counts=[row["n"] for row in curator.query(asked, epsilon=100).to_pylist()])
    curator.anonymize("visits", folder + "/out.csv")
    model = curator.describe("visits", epsilon=20, delta="1e-7", columns=("sex", "age"))
    tell(masked=curator.mask("visits").rows.num_rows, drawn=curator.generate(model).num_rows)
    complete = SparkEngine._complete
    slow = r"FROM (SELECT * FROM \1 WHERE reflect('java.lang.Thread', 'sleep', 20L) <> 'x')"
    SparkEngine._complete = lambda *a: re.sub(r"FROM (`deniable_\w+`)", slow, complete(*a))
    tell(slow=True)
    tell(again=curator.query("SELECT COUNT(*) AS n FROM visits WHERE age >= 0", epsilon=100).to_pylist()[0]["n"])
    left = curator.remaining()
    tell(slow=True)
    try:
        curator.query("SELECT COUNT(*) AS n FROM visits WHERE age >= 1", epsilon=100, seconds=30)
    except ExecutionFailed as failure:
        tell(failed=str(failure), charged=curator.remaining() != left)
    verify(curator.ledger)
    tell(causes=[entry.details["cause"] for entry in curator.ledger.entries() if entry.act == "fail"])
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, int]]:
    """The address of a master, and the process of its one worker."""
    try:
        require_driver("pyspark")
        require_java()
    except DeniableError as missing:
        pytest.skip(str(missing))
    import pyspark

    home = Path(pyspark.__file__).parent
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address, started = f"spark://127.0.0.1:{port}", []
    small = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    roles = (
        ("master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"),
        ("worker.Worker", address, "--host", "127.0.0.1", "--cores", "2", "--memory", "1g", "--webui-port", "0",
         "--work-dir", str(tmp_path / "work")),
    )  # fmt: skip
    try:
        with (tmp_path / "cluster.txt").open("wb") as log:
            for role, *words in roles:
                command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}", *words]
                env = os.environ | small | {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
                started.append(subprocess.Popen(command, env=env, stdout=log, stderr=log))
        deadline = time.monotonic() + 120
        while b"Successfully registered with master" not in (tmp_path / "cluster.txt").read_bytes():
            assert time.monotonic() < deadline, (tmp_path / "cluster.txt").read_text()[-2000:]
            time.sleep(0.2)
        yield address, started[1].pid
    finally:
        for process in reversed(started):
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()


def find_executors(worker: int) -> list[int]:
    """The processes in which a worker computes."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError, ValueError):
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == worker and b"CoarseGrainedExecutorBackend" in (place / "cmdline").read_bytes():
                found.append(int(place.name))
    return found


@pytest.mark.slow
def test_a_cluster_answers_as_one_machine_does_also_when_an_executor_is_killed(
    cluster: tuple[str, int], tmp_path: Path
) -> None:
    """A killed executor is started again, and the answer comes; without a worker time ends, and the charge stays."""
    address, worker = cluster
    rows = clinic.people(count=150, rows=600).drop_columns(["seen", "note"])
    (tmp_path / "clinic.yaml").write_text(POLICY.format(source=write_parquet(rows, tmp_path)))
    quick = "--conf spark.executor.memory=512m --conf spark.sql.shuffle.partitions=2 pyspark-shell"
    env = os.environ | {"SPARK_MASTER": address, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_SUBMIT_ARGS": quick}
    told: dict[str, Any] = {}
    with subprocess.Popen([sys.executable, "-c", SCRIPT, str(tmp_path)], env=env, stdout=subprocess.PIPE,
                          text=True) as asking:  # fmt: skip
        assert asking.stdout is not None
        for line in asking.stdout:
            said = json.loads(line)
            if "slow" in said:
                time.sleep(5)  # the question runs
                executors = find_executors(worker)
                assert executors
                if "again" in told:
                    os.kill(worker, signal.SIGKILL)
                for each in executors:
                    os.kill(each, signal.SIGKILL)
            told |= said
    assert asking.returncode == 0
    shown = rows.filter([each is not None for each in rows["pid"].to_pylist()])
    counted = [sum(1 for each in shown["sex"].to_pylist() if each == sex) for sex in "FM"]
    assert all(0 < n <= exact for n, exact in zip(told["counts"], counted, strict=True))  # of each person six at most
    assert told["masked"] == 600
    assert (tmp_path / "out.csv").exists()
    assert told["drawn"] > 100
    assert told["again"] > 100
    assert told["charged"]
    assert told["causes"] == ["the work was stopped before it ended"]
