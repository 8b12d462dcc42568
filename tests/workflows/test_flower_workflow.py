"""The app of examples/flower, run by Flower's own simulation: nodes with policies, ledgers and rows of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from deniable import Curator
from deniable.curator import federate
from deniable.learn.federated import round_to_plain
from workflows.test_federate_workflow import _clinic, _entries

pytest.importorskip("flwr", reason="Flower is not installed: make test-flower")
pytest.importorskip("ray", reason="Flower's simulation needs ray: make test-flower")

APP = Path(__file__).parents[2] / "examples" / "flower"
NODES = 3
SIMULATION = """
import copy, json, sys

from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.simulation import run_simulation

config, nodes = json.loads(sys.argv[1]), int(sys.argv[2])
server, client = ServerApp(), ClientApp()

@server.main()
def serve(grid, context):  # a simulation has no configuration of a run: it is given here
    import secure_sums
    context.run_config.update(config)
    secure_sums.serve(grid, context)

@client.query()
def answer(message, context):
    import secure_sums
    context = copy.copy(context)  # with the same state; Flower refuses another configuration in its own
    context.run_config = config
    return secure_sums.answer_step(message, context)

run_simulation(server, client, nodes, backend_config={"client_resources": {"num_cpus": 1.0}})
"""


@pytest.mark.slow
def test_nodes_of_flower_sum_and_each_is_charged_in_its_own_ledger(tmp_path: Path) -> None:
    policies = [_clinic(tmp_path / f"clinic{seed}", seed) for seed in range(NODES)]
    with Curator.open(policies[0]) as curator:
        what = federate.plan_round(
            curator.context, "visits", "means", clients=NODES, least=NODES, features=["age", "town"], epsilon=1
        )
    (tmp_path / "round.json").write_text(json.dumps(round_to_plain(what)))
    config = {"round": str(tmp_path / "round.json"), "out": str(tmp_path / "result.json"), "table": "visits",
              "policy": str(tmp_path / "clinic{}" / "policy.yaml"), "patience": 300.0}  # fmt: skip
    (tmp_path / "simulation.py").write_text(SIMULATION)
    ran = subprocess.run(
        [sys.executable, "simulation.py", json.dumps(config), str(NODES)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(APP), "RAY_raylet_start_wait_time_s": "300"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    told = json.loads((tmp_path / "result.json").read_text())
    assert told["clients"] == NODES
    assert abs(told["estimated_rows"] - 800 * NODES) < 200
    assert [len(_entries(policy)) for policy in policies] == [1] * NODES
