"""SCRAM on the PostgreSQL wire: libpq and asyncpg prove their tokens, which never travel; broken proofs are refused."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import os
import shutil
import socket
import ssl
import subprocess
import threading

import pytest

from deniable.curator.governance import requests
from deniable.errors import AccessRefused
from deniable.governance.grants import Role
from deniable.governance.scram import (
    BOUND_MECHANISM,
    MECHANISM,
    ROUNDS,
    Exchange,
    ScramKeys,
    bind_to_certificate,
    salt_of,
)

psycopg = pytest.importorskip("psycopg")
SCRAM_ONLY = {"require_auth": "scram-sha-256"}
pytestmark = pytest.mark.skipif(psycopg.pq.version() < 160000, reason="this libpq cannot insist on SCRAM")


def eavesdropped(port: int) -> tuple[socket.socket, list[bytes]]:
    """A proxy that passes everything on to a port, and what clients sent through it."""
    proxy, heard = socket.create_server(("127.0.0.1", 0)), []

    def pass_on(source: socket.socket, target: socket.socket, ear: list[bytes]) -> None:
        while data := source.recv(65536):
            ear.append(data)
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)

    def serve() -> None:
        inner, _ = proxy.accept()
        outer = socket.create_connection(("127.0.0.1", port))
        back = threading.Thread(target=pass_on, args=(outer, inner, []))
        back.start()
        pass_on(inner, outer, heard)
        back.join()
        inner.close()
        outer.close()

    threading.Thread(target=serve, daemon=True).start()
    return proxy, heard


def test_the_token_is_proved_and_never_travels(served):
    proxy, heard = eavesdropped(served.postgres)
    where = served.dsn(port=str(proxy.getsockname()[1]), sslmode="disable", **SCRAM_ONLY)
    with proxy, psycopg.connect(where) as asking:
        asking.execute("SET deniable.epsilon = 5")
        assert abs(asking.execute("SELECT COUNT(*) FROM people").fetchone()[0] - 300) < 100
    assert b"SCRAM-SHA-256" in b"".join(heard)
    assert served.tokens["ana"].encode() not in b"".join(heard)


def test_psql_and_asyncpg_prove_tokens_too(served):
    asyncpg = pytest.importorskip("asyncpg")
    if shutil.which("psql"):
        done = subprocess.run(["psql", served.dsn(), "-Atc", "SHOW deniable.purpose"], env=os.environ,
                              capture_output=True, text=True, timeout=120)  # fmt: skip
        assert done.stdout.strip() == "research", done.stderr

    async def ask() -> str:
        place = {"host": "127.0.0.1", "port": served.postgres, "user": "ana", "database": "clinic", "ssl": False}
        connection = await asyncpg.connect(**place, password=served.tokens["ana"])
        try:
            return await connection.fetchval("SHOW deniable.purpose")
        finally:
            await connection.close()

    assert asyncio.run(ask()) == "research"


def test_any_valid_token_of_a_name_counts_and_no_other(served):
    second, grant = requests.issue(served.curator.context, "ana", Role.ANALYST, ["research"])
    place = f"host=127.0.0.1 port={served.postgres} user=ana dbname=clinic require_auth=scram-sha-256"
    psycopg.connect(f"{place} password={second}").close()
    requests.revoke(served.curator.context, grant.id)
    for wrong in (second, served.tokens["ben"], second[:-1] + "x", "x"):
        with pytest.raises(psycopg.OperationalError, match="not valid"):
            psycopg.connect(f"{place} password={wrong}")


@pytest.mark.parametrize("binding", ["require", "prefer", "disable"])
def test_under_tls_the_proof_is_bound_to_the_servers_certificate(serve, certificate, binding):
    crt, key = certificate
    with (
        serve(certificate=crt, key=key) as served,
        psycopg.connect(served.dsn(sslmode="require", channel_binding=binding, **SCRAM_ONLY)) as connection,
    ):
        assert connection.pgconn.ssl_in_use
        assert connection.execute("SHOW deniable.purpose").fetchone() == ("research",)


def test_a_client_that_insists_on_binding_is_not_served_without_tls(served):
    with pytest.raises(psycopg.OperationalError, match="channel binding"):
        psycopg.connect(served.dsn(sslmode="disable", channel_binding="require"))


def test_a_proof_for_another_certificate_and_an_offer_taken_out_are_refused():
    known = [(ScramKeys.of("ana", "new"), 2)]

    def ended(start: str, mechanism: str, bound: bytes) -> int:
        exchange: Exchange[int] = Exchange("ana", known, b"the certificate")
        first = exchange.first(f"{start}n=,r=abc".encode(), mechanism).decode()
        without = f"c={base64.b64encode(bound).decode()},r={first.split(',')[0][2:]}"
        return exchange.final(f"{without},p={proof('new', 'n=,r=abc', first, without)}".encode())[0]

    plus, header = BOUND_MECHANISM, "p=tls-server-end-point,,"
    assert ended(header, plus, header.encode() + b"the certificate") == 2
    assert ended("n,,", MECHANISM, b"n,,") == 2
    for start, mechanism, bound in (
        (header, plus, header.encode() + b"another one"),
        (header, plus, header.encode()),
        ("y,,", MECHANISM, b"y,,"),
        ("n,,", plus, b"n,,"),
        (header, MECHANISM, header.encode() + b"the certificate"),
        ("p=tls-unique,,", plus, b"p=tls-unique,,the certificate"),
    ):
        with pytest.raises(AccessRefused):
            ended(start, mechanism, bound)


def test_what_a_proof_is_bound_to_is_that_of_rfc_5929(certificate):
    x509 = pytest.importorskip("cryptography.x509")
    pem = certificate[0].read_bytes()
    read = x509.load_pem_x509_certificate(pem)
    assert read.signature_hash_algorithm.name == "sha256"
    der = ssl.PEM_cert_to_DER_cert(pem.decode())
    assert bind_to_certificate(der) == hashlib.sha256(der).digest()
    for cut in (0, 1, 2, 30):
        assert bind_to_certificate(der[:cut]) == b""


def test_a_name_without_such_a_token_gives_its_token_as_password_on_loopback(served):
    place = f"host=127.0.0.1 port={served.postgres} user=somebody dbname=clinic"
    with psycopg.connect(f"{place} password={served.tokens['ana']}") as connection:
        assert connection.execute("SHOW deniable.purpose").fetchone() == ("research",)


def mac(key: bytes, content: str) -> bytes:
    return hmac.new(key, content.encode(), hashlib.sha256).digest()


def proof(token: str, bare: str, first: str, without: str) -> str:
    """What a client of RFC 5802 sends, written out once more."""
    salted = hashlib.pbkdf2_hmac("sha256", token.encode(), salt_of("ana"), ROUNDS)
    key = mac(salted, "Client Key")
    signature = mac(hashlib.sha256(key).digest(), f"{bare},{first},{without}")
    return base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()


def test_an_exchange_takes_a_right_proof_and_refuses_every_other():
    known = [(ScramKeys.of("ana", "old"), 1), (ScramKeys.read(ScramKeys.of("ana", "new").to_text()), 2)]

    def ended(start="n,,n=,r=abc", change=lambda text: text, token="new", bare="n=,r=abc", bound="biws"):
        exchange: Exchange[int] = Exchange("ana", known)
        first = exchange.first(start.encode()).decode()
        without = f"c={bound},r={first.split(',')[0][2:]}"
        return exchange.final(change(f"{without},p={proof(token, bare, first, without)}").encode())[0]

    assert ended() == 2
    assert ended(token="old") == 1
    assert ended("y,,n=,r=abc", bound="eSws") == 2
    for start in ("p=tls-unique,,n=,r=abc", "n,,n=", "n=,r=abc", "", "n,,m=x,n=,r=abc", "x,,n=,r=abc"):
        with pytest.raises(AccessRefused):
            ended(start)
    for change in (str.upper, lambda text: text[:-6], lambda text: text.replace("biws", "eSws"), lambda _text: "",
                   lambda text: text.replace("r=abc", "r=abd"), lambda text: text + ",p=AAAA"):  # fmt: skip
        with pytest.raises(AccessRefused):
            ended(change=change)
    with pytest.raises(AccessRefused):
        ended(token="other")
    with pytest.raises(AccessRefused):
        Exchange("ana", known).final(b"c=biws,r=,p=AAAA")
    with pytest.raises(AccessRefused):
        Exchange("ana", known).first(b"\xff\xfe")
