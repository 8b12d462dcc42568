"""A federated round of deniable, its messages carried by Flower: the server sees the sum of all clients, with noise.

Each client is a SuperNode with a policy, a ledger and rows of its own; what it sends is masked, and charged in its
ledger before its rows are read. Flower adds what a round alone does not have: it knows its nodes, and reaches them.

    deniable federate plan visits -p policy.yaml --clients 3 --least 3 --epsilon 1 -o round.json
    flwr run . --run-config 'round="/path/round.json" out="/path/result.json" table="visits"'

A SuperNode is told its policy when it starts (`--node-config 'policy="/data/policy.yaml"'`). In a simulation, in which
all nodes are here, the run's `policy` has `{}` in place of a node's number.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from deniable import Curator
from deniable.curator.federate import RoundClient, read_round_file, write_result
from deniable.errors import DataError, DeniableError
from deniable.learn.federated import read_round, round_to_plain
from deniable.server.federated import STEPS, FederatedServer

server, client = ServerApp(), ClientApp()
PAUSE = 0.5


@server.main()
def serve(grid: Grid, context: Context) -> None:
    """Ask all nodes step by step, and write what follows from their sum."""
    config = context.run_config
    what, out, patience = read_round_file(Path(str(config["round"]))), Path(str(config["out"])), config["patience"]
    assert isinstance(patience, int | float)
    state = FederatedServer(what, patience)
    tickets = dict.fromkeys(_wait_for_nodes(grid, what.clients, patience), "")
    public = json.dumps(round_to_plain(what))
    for step in STEPS[:-1]:
        if state.step != step:
            break
        told = {node: state.tell(ticket) if ticket else {"step": step} for node, ticket in tickets.items()}
        messages = [
            Message(_pack(round=public, told=json.dumps(told[node])), dst_node_id=node, message_type=MessageType.QUERY)
            for node in tickets
        ]
        replies = grid.send_and_receive(messages, timeout=patience)
        answers = {reply.metadata.src_node_id: _unpack(reply) for reply in replies if reply.has_content()}
        for node, answer in answers.items():
            if answer.get("refusal"):
                print(f"node {node} left: {answer['refusal']}")
            elif step == "keys":
                tickets[node] = state.join(answer["sent"])["ticket"]
            else:
                state.take(tickets[node], step, answer["sent"])
        # Who has not answered, or has left, is waited for no longer, and not asked again.
        tickets = {node: tickets[node] for node, answer in answers.items() if answer.get("sent")}
        if state.step == step:
            state.watch(over=True)
    if state.result is None:
        raise DataError(f"the round failed: {state.failure}", remedy="Run it again, with a new plan")
    write_result(what, state.result, out, sorted(state.left_out))


def _wait_for_nodes(grid: Grid, count: int, patience: float) -> list[int]:
    """So many nodes, or as many as are there when the time is over."""
    until = time.monotonic() + patience
    while len(found := sorted(grid.get_node_ids())) < count and time.monotonic() < until:
        time.sleep(PAUSE)
    return found[:count]


@client.query()
def answer_step(message: Message, context: Context) -> Message:
    """One step of a node. A refusal is answered as such; it never quotes rows."""
    asked = _unpack(message)
    what, told = read_round(asked["round"]), json.loads(asked["told"])
    place = context.node_config.get("policy") or context.run_config.get("policy") or "policy.yaml"
    policy = str(place).replace("{}", str(context.node_config.get("partition-id", 0)))
    try:
        with Curator.open(policy) as curator:
            mine = RoundClient(curator.context, str(context.run_config["table"]), what)
            if told["step"] == "keys":
                sent = mine.key
            else:
                # A node may end between two steps: its part of the round is kept in its state, which stays with it.
                mine.restore(context.state.config_records.pop(what.name)["saved"])
                sent = mine.answer(told)
            context.state[what.name] = ConfigRecord({"saved": mine.save()})
    except DeniableError as refusal:
        return Message(_pack(refusal=str(refusal)), reply_to=message)
    return Message(_pack(sent=sent), reply_to=message)


def _pack(**values: Any) -> RecordDict:
    return RecordDict({"round": ConfigRecord(values)})


def _unpack(message: Message) -> Any:
    return message.content["round"]
