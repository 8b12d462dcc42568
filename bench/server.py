"""The server under load: charged questions a second with full sync, repeated ones, their p99, and memory over a soak.

Beside them, in the same run, the floors: a bare charge of the ledger (SQLite, full sync) and a bare HTTP echo on the
same stack with the same client. The client is a process of its own and shares the machine with the server.

    BENCH_SECONDS  how long each part runs (5)        BENCH_SOAK  seconds of the soak (30)
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

SECONDS = float(os.environ.get("BENCH_SECONDS", 5))
SOAK = float(os.environ.get("BENCH_SOAK", 30))
CLIENTS = 16
POLICY = """\
version: 1
dataset: bench
tables:
  people:
    source: people.parquet
    unit: {column: id, max_groups: 1, max_rows_per_group: 1}
    columns: {id: {role: identifier}, age: {type: integer, between: [0, 100]}}
budgets: {dataset: {epsilon: 1000000000}, purposes: {research: {epsilon: 1000000000}},
          analysts: {ana: {purposes: [research], epsilon: 1000000000}}}
"""
SERVER = """
import asyncio, contextlib, sys, time
from deniable.curator import Curator, governing
from deniable.server.limits import Limits
from deniable.server.serve import Places, start
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

async def echo(request):
    return Response(await request.body(), media_type="application/json")

async def main(folder):
    curator = Curator.open(folder + "/policy.yaml", ledger=folder + "/ledger.sqlite")
    token, _ = governing.issue(curator, "ana", purposes=["research"])
    limits = Limits(rate=1e9, burst=1e9, at_once=64, quantum=0.005)
    async with contextlib.AsyncExitStack() as stack:
        running = await start(stack, curator, Places(port=0, steward="127.0.0.1:0", postgres=0), limits)
        import uvicorn
        config = uvicorn.Config(Starlette(routes=[Route("/echo", echo, methods=["POST"])]), port=0, log_config=None,
                                access_log=False, lifespan="off")
        config.load()
        bare = uvicorn.Server(config)
        bare.lifespan = config.lifespan_class(config)
        await bare.startup()
        port = bare.servers[0].sockets[0].getsockname()[1]
        print(running.http, running.postgres, port, token, flush=True)
        await bare.main_loop()

asyncio.run(main(sys.argv[1]))
"""


async def http_load(port: int, path: str, token: str, body: object, seconds: float) -> tuple[float, list[float]]:
    """Requests a second over kept-alive connections, and the seconds that each took."""
    taken: list[float] = []
    end = time.perf_counter() + seconds
    numbers = iter(range(10**9))

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.perf_counter() < end:
            content = json.dumps(body(next(numbers)) if callable(body) else body).encode()
            head = (f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
                    f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n")  # fmt: skip
            began = time.perf_counter()
            writer.write(head.encode() + content)
            answer = await reader.readuntil(b"\r\n\r\n")
            length = int(answer.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            text = await reader.readexactly(length)
            if b" 200 " not in answer[:20]:
                raise SystemExit(f"refused: {text[:300]!r}")
            taken.append(time.perf_counter() - began)
        writer.close()

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return len(taken) / (time.perf_counter() - began), taken


def report(title: str, rate: float, taken: list[float], bar: float | None = None) -> None:
    """One line: requests a second, median and p99 in milliseconds, and the bar where there is one."""
    cuts = statistics.quantiles(taken, n=100)
    line = f"{title:34} {rate:8,.0f}/s   median {cuts[49] * 1e3:6.1f} ms   p99 {cuts[98] * 1e3:6.1f} ms"
    print(line + (f"   bar {bar:,.0f}/s: {'met' if rate >= bar else 'MISSED'}" if bar else ""), flush=True)


def bare_charges(folder: Path) -> tuple[float, list[float]]:
    """Charges a second of the ledger alone."""
    from deniable.dp.accounting import PureEvent
    from deniable.ledger import Act, Posting, open_ledger
    from deniable.policy.document import read

    ledger = open_ledger(folder / "bare.sqlite", read(folder / "policy.yaml"))
    taken, end = [], time.perf_counter() + SECONDS
    began = time.perf_counter()
    while time.perf_counter() < end:
        start = time.perf_counter()
        ledger.charge(Posting(Act.CHARGE, PureEvent("0.001"), analyst="ana", purpose="research"))
        taken.append(time.perf_counter() - start)
    rate = len(taken) / (time.perf_counter() - began)
    ledger.close()
    return rate, taken


def memory(process: int) -> float:
    """Resident megabytes of a process."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return float("nan")


def processor(process: int) -> float:
    """CPU seconds of a process."""
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def fresh(number: int) -> dict[str, str]:
    """A question that nobody asked before."""
    return {"sql": f"SELECT COUNT(*) AS n FROM people WHERE age + {number} > 50", "epsilon": "0.01"}


def main() -> None:
    """Run all parts against one server process."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = {"id": [f"p{i}" for i in range(1000)], "age": [i % 90 for i in range(1000)]}
        pq.write_table(pa.table(rows), folder / "people.parquet")
        (folder / "policy.yaml").write_text(POLICY)
        server = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(SERVER), name], stdout=subprocess.PIPE, text=True
        )
        try:
            http, _, echo, token = server.stdout.readline().split()
            measure(server.pid, int(http), int(echo), token, folder)
        finally:
            server.kill()
            server.wait()
    print(f"client: {resource.getrusage(resource.RUSAGE_SELF).ru_utime:.1f} CPU s")


def measure(process: int, http: int, echo: int, token: str, folder: Path) -> None:
    """The parts, in order."""
    repeated = {"sql": "SELECT COUNT(*) AS n FROM people", "epsilon": "0.5"}
    asyncio.run(http_load(http, "/v1/query", token, repeated, 0.5))
    bare_rate, bare = max((bare_charges(folder) for _ in range(2)), key=lambda each: each[0])
    report("floor: bare charge, full sync", bare_rate, bare)
    echo_rate, echoed = max((asyncio.run(http_load(echo, "/echo", token, repeated, SECONDS)) for _ in range(2)),
                            key=lambda each: each[0])  # fmt: skip
    report("floor: bare HTTP echo", echo_rate, echoed)
    before = processor(process)
    rate, taken = asyncio.run(http_load(http, "/v1/query", token, fresh, SECONDS))
    cpu = processor(process) - before
    report("charged questions", rate, taken, 200)
    print(f"{'':34} x{bare_rate / rate:.1f} of the bare charge; {1e3 * cpu / len(taken):.2f} CPU ms a question")
    before = processor(process)
    rate, taken = asyncio.run(http_load(http, "/v1/query", token, repeated, SECONDS))
    cpu = processor(process) - before
    report("repeated questions", rate, taken, 5000)
    print(f"{'':34} x{echo_rate / rate:.1f} of the bare echo; {1e3 * cpu / len(taken):.2f} CPU ms a question")
    levels = [memory(process)]
    for _ in range(5):
        asyncio.run(http_load(http, "/v1/query", token, repeated, SOAK / 5))
        levels.append(memory(process))
    print("memory over the soak: " + " -> ".join(f"{level:.0f}" for level in levels) + " MB")


if __name__ == "__main__":
    main()
