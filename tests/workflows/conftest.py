"""A server in this process, on free ports, over a small table in which every row holds a canary."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

with contextlib.suppress(ImportError):  # an extra
    from httpx._config import DEFAULT_TIMEOUT_CONFIG

    # Five seconds of waiting are over soon on a machine where three tests run at once.
    for part in ("connect", "read", "write", "pool"):
        setattr(DEFAULT_TIMEOUT_CONFIG, part, 120.0)

CANARY = "CANARY"
PEOPLE = 300
POLICY = """\
version: 1
dataset: clinic
tables:
  people:
    source: people.parquet
    unit: {column: id, max_groups: 1, max_rows_per_group: 1}
    columns:
      id: {role: identifier}
      sex: {role: quasi-identifier, categories: [F, M]}
      age: {role: quasi-identifier, type: integer, between: [0, 100]}
      seen: {role: insensitive, type: date, between: [2025-01-01, 2025-12-31]}
      note: {role: sensitive}
  towns: {source: towns.csv, public: true}
budgets:
  dataset: {epsilon: 100000, accounting: pure}
  purposes:
    research: {epsilon: 50000}
    care: {epsilon: 10}
  analysts:
    ana: {purposes: [research], epsilon: 20000}
    ben: {purposes: [care], epsilon: 10}
expires: 2099-12-31
"""


def write_clinic(folder: Path, policy: str = POLICY) -> Path:
    """The table and its policy in a folder; files that are there are left alone: another server may be reading them."""
    path = folder / "policy.yaml"
    if not path.exists() or path.read_text() != policy:
        path.write_text(policy)
    if (folder / "secret.csv").exists():
        return path
    ids = range(PEOPLE)
    people = {
        "id": [f"p{i}" for i in ids],
        "sex": ["F" if i % 3 else "M" for i in ids],
        "age": [i % 100 for i in ids],
        "seen": pa.array([20089 + i % 365 for i in ids], pa.int32()).cast(pa.date32()),
        "note": [f"{CANARY} {i} said '; DROP TABLE people; --" for i in ids],
    }
    pq.write_table(pa.table(people), folder / "people.parquet")
    (folder / "towns.csv").write_text("town,zip\nCambridge,02138\nSomerville,02143\n")
    (folder / "secret.csv").write_text(f"secret\n{CANARY}\n")
    return path


@dataclass
class Served:
    """A server that listens, and tokens for it."""

    curator: Any
    http: str
    steward: str
    postgres: int
    link: str | None
    folder: Path
    ledger: str
    pool: Any = None
    tokens: dict[str, str] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)

    def session(self, who: str, door: str = "") -> dict[str, str]:
        """The cookie of somebody's session at the pages: of stewards and auditors at the steward's port."""
        door = door or ("steward" if who in ("steward", "second", "auditor") else "analyst")
        port = (self.steward if door == "steward" else self.http).rpartition(":")[2]
        return {f"deniable_{door}_{port}": self.tokens[who]}

    def dsn(self, name: str = "ana", **more: str) -> str:
        """What libpq needs."""
        given = {"host": "127.0.0.1", "port": str(self.postgres), "user": name, "dbname": "clinic"} | more
        return " ".join(f"{key}={value}" for key, value in given.items()) + f" password={self.tokens[name]}"


@contextlib.contextmanager
def serving(
    folder: Path,
    policy: str = POLICY,
    limits: Any = None,
    ledger: str | None = None,
    has_steward: bool = True,
    **places: Any,
) -> Iterator[Served]:
    """A server in a thread of its own until the block ends."""
    pytest.importorskip("uvicorn", reason="the server extra is not installed")
    from deniable.curator import Curator
    from deniable.curator.governance import requests
    from deniable.governance.grants import Role
    from deniable.server.limits import Limits
    from deniable.server.serve import ServerOptions, start
    from deniable.server.service import Fulfillment
    from deniable.server.worker_pool import WorkerPool

    written = write_clinic(folder, policy)
    home = Fulfillment(written, ledger or str(folder / "ledger.sqlite"))
    curator = Curator.open(written, ledger=home.ledger)
    chosen = ServerOptions(**{"port": 0, "steward": "127.0.0.1:0", "postgres": 0} | places)
    generous = limits or Limits(rate=5000, burst=20000, guesses=10_000, at_once=64, quantum=0.005, seconds=20)
    pool = WorkerPool(written, home.ledger, generous.processes) if generous.processes else None
    box: dict[str, Any] = {}
    log: list[str] = []
    up, stop = threading.Event(), threading.Event()

    async def run() -> None:
        async with contextlib.AsyncExitStack() as stack:
            box["running"] = await start(stack, curator, chosen, generous, log.append, pool, home)
            up.set()
            while not stop.is_set():
                await asyncio.sleep(0.02)

    def work() -> None:
        try:
            asyncio.run(run())
        except BaseException as failure:
            box["failure"] = failure
            up.set()

    thread = threading.Thread(target=work)
    thread.start()
    up.wait(60)
    try:
        if "failure" in box:
            raise box["failure"]
        running = box["running"]
        scheme = "https" if chosen.certificate else "http"
        http = f"{scheme}://127.0.0.1:{running.http}"
        where = (http, running.steward.rstrip("/"), running.postgres, running.link)
        served = Served(curator, *where, folder, home.ledger, pool)
        served.log = log
        served.tokens["ana"], _ = requests.issue(curator.context, "ana", Role.ANALYST, ["research"])
        served.tokens["ben"], _ = requests.issue(curator.context, "ben", Role.ANALYST, ["care"])
        if has_steward:
            served.tokens["steward"], _ = requests.issue(curator.context, "steward", Role.STEWARD)
        served.tokens["auditor"], _ = requests.issue(curator.context, "auditor", Role.AUDITOR)
        yield served
    finally:
        stop.set()
        thread.join(60)
        curator.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for the tests of a module."""
    with serving(tmp_path_factory.mktemp("clinic")) as up:
        yield up


@pytest.fixture
def serve(tmp_path: Path) -> Callable[..., contextlib.AbstractContextManager[Served]]:
    """A function that starts a server with a policy or limits of the test's own."""
    return lambda policy=POLICY, limits=None, **rest: serving(tmp_path, policy, limits, **rest)


@pytest.fixture(scope="session")
def serving_clinic() -> Callable[..., contextlib.AbstractContextManager[Served]]:
    """The same for a folder of one's own, as long as the test module likes."""
    return serving


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate that signs itself, and its key."""
    import datetime

    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    folder = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now.replace(2090))
    made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    pem = made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "server.crt").write_bytes(pem)
    (folder / "server.key").write_bytes(key.private_bytes(*form))
    return folder / "server.crt", folder / "server.key"


@pytest.fixture
def write_policy() -> Callable[[Path], Path]:
    """A function that writes the table and its policy into a folder."""
    return write_clinic


@pytest.fixture(scope="session")
def clinic_policy() -> str:
    """The text of the clinic's policy, for tests that change a word of it."""
    return POLICY


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A real Chromium, driven by Playwright; without one the tests that need it are skipped, and say why."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("no Chromium is installed (Debian: apt-get install chromium)")
    with playwright.sync_playwright() as driver:
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        opened = driver.chromium.launch(
            executable_path=found, args=[*sandbox, "--disable-gpu", "--disable-background-networking"]
        )
        yield opened
        opened.close()


@pytest.fixture
def visit(chromium: Any, up: Any) -> Iterator[Callable[..., Any]]:
    """A function that opens a page of the module's server `up` as somebody; a complaint of the browser fails."""
    contexts, complaints = [], []

    def open_page(who: str, path: str = "/", *, width: int = 1280, scheme: str = "light", scripts: bool = True) -> Any:
        context = chromium.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, java_script_enabled=scripts
        )
        contexts.append(context)
        port = up.steward if who in ("steward", "second", "auditor") else up.http
        context.add_cookies([{"name": name, "value": value, "url": port} for name, value in up.session(who).items()])
        page = context.new_page()
        page.on("console", lambda told: complaints.append(told.text) if is_complaint(told) else None)
        page.on("pageerror", lambda failure: complaints.append(str(failure)))
        page.on("dialog", lambda dialog: (complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda asked: None if "127.0.0.1" in asked.url else complaints.append(asked.url))
        page.goto(port + path)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


def is_complaint(told: Any) -> bool:
    """Whether a line of the console is one; that a refusal has a status above 400 is none."""
    return told.type in ("error", "warning") and "Failed to load resource" not in told.text


@pytest.fixture(scope="session")
def find_violations() -> Callable[[Any], list[str]]:
    """A function that gives what axe finds on a page, in the states of this moment."""
    axe = (Path(__file__).parents[1] / "data" / "axe" / "axe.min.js").read_text(encoding="utf-8")
    return lambda page: _run_axe(page, axe)


def _run_axe(page: Any, axe: str) -> list[str]:
    page.evaluate(axe + "; undefined") if page.evaluate("typeof window.axe") == "undefined" else None
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [f"{one['id']}: {one['nodes'][0]['target']} {one['nodes'][0]['html'][:150]}" for one in found["violations"]]
