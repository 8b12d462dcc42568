"""OpenID Connect: tokens of a real issuer with real keys are let in, and every kind of broken token is refused."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from deniable.errors import AccessRefused, DataError, ParameterError
from deniable.server.oidc import LEEWAY

jwt = pytest.importorskip("jwt", reason="the oidc extra is not installed")
ec = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ec")
rsa = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.rsa")
from cryptography.hazmat.primitives import serialization  # noqa: E402

RSA, OTHER, EC = (
    rsa.generate_private_key(65537, 2048),
    rsa.generate_private_key(65537, 2048),
    ec.generate_private_key(ec.SECP256R1()),
)
ISSUER, AUDIENCE = "https://login.example", "deniable"


def public(key: Any, kid: str, algorithm: str) -> dict[str, Any]:
    kind = jwt.algorithms.RSAAlgorithm if algorithm.startswith("RS") else jwt.algorithms.ECAlgorithm
    return json.loads(kind.to_jwk(key.public_key())) | {"kid": kid, "alg": algorithm, "use": "sig"}


SEALING = {name: part for name, part in public(OTHER, "o1", "RS256").items() if name != "use"} | {
    "key_ops": ["encrypt"]
}
SYMMETRIC = {"kty": "oct", "kid": "h1", "k": "c2VjcmV0"}
KEYS = {"keys": [public(RSA, "r1", "RS256"), public(EC, "e1", "ES256"), SYMMETRIC, SEALING]}


def claims(**changes: Any) -> dict[str, Any]:
    said = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ana", "exp": int(time.time()) + 600, **changes}
    return {name: value for name, value in said.items() if value is not None}


def signed(key: Any = RSA, algorithm: str = "RS256", kid: str | None = "r1", **changes: Any) -> str:
    return jwt.encode(claims(**changes), key, algorithm, {"kid": kid} if kid else None)


def hand_signed(said: str) -> str:
    """A token whose claims are written as they are."""
    return str(jwt.PyJWS().encode(said.encode(), RSA, "RS256", {"kid": "r1"}))


def pem() -> bytes:
    return RSA.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def hand_signed_with_the_public_key() -> str:
    """HS256 with the RSA public key as the secret; the library itself refuses to make this one."""
    import base64
    import hashlib
    import hmac

    def part(value: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    text = f"{part({'alg': 'HS256', 'typ': 'JWT', 'kid': 'r1'})}.{part(claims())}"
    mark = hmac.new(pem(), text.encode(), hashlib.sha256).digest()
    return f"{text}.{base64.urlsafe_b64encode(mark).rstrip(b'=').decode()}"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Where a local issuer shows its keys."""

    class Keys(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(KEYS).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_words: Any) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Keys)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/keys"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def issuer(tmp_path: Path, address: str) -> Path:
    file = tmp_path / "issuer.yaml"
    file.write_text(
        f"issuer: {ISSUER}\naudience: {AUDIENCE}\njwks: {address}\nroles: groups\nstewards: [privacy-office]\n"
        "purposes: scope\n"
    )
    return file


def test_tokens_of_the_issuer_are_let_in_and_broken_ones_are_not(serve, issuer: Path):
    with serve(issuer=issuer) as served:

        def status(token: str, where: str = served.http, path: str = "/v1/remaining?purpose=research") -> int:
            return httpx.get(where + path, headers={"authorization": f"Bearer {token}"}, timeout=120).status_code

        scope = {"scope": "research care"}
        assert status(signed(**scope)) == 200
        assert status(signed(EC, "ES256", "e1", **scope)) == 200
        assert status(served.tokens["ana"]) == 200, "tokens of ours still count"
        asked = {"sql": "SELECT COUNT(*) AS n FROM people", "epsilon": "1"}
        header = {"authorization": f"Bearer {signed(**scope)}"}
        assert httpx.post(f"{served.http}/v1/query", json=asked, headers=header, timeout=120).status_code == 200
        assert [each.analyst for each in served.curator.ledger.entries(acts=("charge",))] == ["ana"]
        narrowed = {"authorization": f"Bearer {signed(scope='care')}"}
        assert httpx.post(f"{served.http}/v1/query", json=asked | {"epsilon": "2"}, headers=narrowed,
                          timeout=120).status_code == 403, "the claim narrows what the policy grants"  # fmt: skip
        assert status(signed(groups=["privacy-office"]), served.steward, "/v1/verify") == 200
        assert status(signed(groups="privacy-office"), served.steward, "/v1/verify") == 200
        for groups in (["others"], "friends of privacy-office", "others privacy-office", {"privacy-office": 1}):
            assert status(signed(groups=groups), served.steward, "/v1/verify") == 403, groups
        unsigned = jwt.encode(claims(**scope), None, "none", {"kid": "r1"})
        head, body, mark = signed(**scope).split(".")
        broken = {
            "no algorithm": unsigned,
            "the public key as a secret": hand_signed_with_the_public_key(),
            "expired": signed(exp=int(time.time()) - 60),
            "no end": signed(exp=None),
            "an end beyond all calendars": signed(exp=10**20),
            "a term of forty days": signed(exp=int(time.time()) + 40 * 86400),
            "a token for logging out": jwt.encode(claims(), RSA, "RS256", {"kid": "r1", "typ": "logout+jwt"}),
            "a claim that stands twice": hand_signed(json.dumps(claims())[:-1] + ', "sub": "ben"}'),
            "a key for encryption": signed(OTHER, kid="o1"),
            "another audience": signed(aud="another"),
            "no audience": signed(aud=None),
            "another issuer": signed(iss="https://evil.example"),
            "unknown key": signed(kid="r2"),
            "no key named": signed(kid=None),
            "another key under a known name": signed(OTHER),
            "a symmetric key of the set": jwt.encode(claims(), "secret" * 8, "HS256", {"kid": "h1"}),
            "the name of a key of another kind": signed(EC, "ES256", "r1"),
            "an algorithm that is not allowed": signed(RSA, "RS512"),
            "nobody": signed(sub=None),
            "somebody who is no text": signed(sub=7) if jwt.__version__ < "2.10" else signed(sub=""),
            "changed": f"{head}.{body[:-2]}AA.{mark}",
            "cut off": f"{head}.{body}.",
            "not yet valid": signed(nbf=int(time.time()) + 3600),
            "nonsense": "a.b.c",
            "brackets within brackets": f"{head}.{'Wltb' * 3000}.{mark}",
            "a head of brackets": f"{'Wltb' * 3000}.{body}.{mark}",
        }
        assert {why: status(token) for why, token in broken.items()} == dict.fromkeys(broken, 401)
        assert status(signed(sub="ana", scope="care")) == 403, "the balance of a purpose that the claim leaves out"
        late = signed(**scope, exp=int(time.time()) + 2 - LEEWAY)  # clocks may differ by so much
        seen = [status(late)]
        while seen[-1] == 200:
            seen.append(status(late))
        assert seen[0] == 200
        assert seen[-1] == 401, "whoever has a token that has ended signs on again"
        assert status(signed(sub="eve", scope="research")) in (200, 403)
        eve = {"authorization": f"Bearer {signed(sub='eve', scope='research')}"}
        refused = httpx.post(f"{served.http}/v1/query", json=asked | {"epsilon": "3"}, headers=eve, timeout=120)
        assert refused.status_code == 403, "the policy does not know her"


def test_an_issuer_is_described_safely_or_refused(tmp_path: Path):
    from deniable.server.oidc import Issuer, Verifier, read_issuer

    good = {"issuer": ISSUER, "audience": AUDIENCE, "jwks": "keys.json"}
    for algorithms in (("HS256",), ("none",), ("RS256", "HS512"), ()):
        with pytest.raises(ParameterError):
            Issuer(**good, algorithms=algorithms)
    with pytest.raises(ParameterError, match="unencrypted"):
        Issuer(**good | {"jwks": "http://login.example/keys"})
    file = tmp_path / "issuer.yaml"
    for text in ("issuer: x", "[]", "issuer: x\naudiense: y", "{"):
        file.write_text(text)
        with pytest.raises((ParameterError, DataError)):
            read_issuer(file)
    file.write_text(json.dumps(good))
    policy = type("Policy", (), {"dataset": "clinic", "budgets": None, "expires": None})()
    with pytest.raises(DataError, match="key set"):
        Verifier(read_issuer(file), policy)
    (tmp_path / "keys.json").write_text(json.dumps(KEYS))
    found = Verifier(read_issuer(file), policy)
    assert found.grant(signed()).name == "ana"
    with pytest.raises(AccessRefused, match="not valid"):
        found.grant(signed(kid="r9"))
    for odd in (float("inf"), float("-inf"), float("nan"), "soon", [], {}, None, True, -1):
        with pytest.raises(AccessRefused, match="not valid"):
            found.grant(signed(exp=odd))
    for far in (1e300, 10**20, time.time() + 40 * 86400):
        with pytest.raises(AccessRefused, match="not valid"):
            found.grant(signed(exp=far))
    assert found.grant(jwt.encode(claims(), RSA, "RS256", {"kid": "r1", "typ": "at+jwt"})).name == "ana"


ODD_KEYS = [
    *({"key_ops": given} for given in (None, 5, {}, [])),
    *({"alg": given} for given in ("none", ["RS256"], {"RS256": 1}, 7, "HS256")),
    *({"kid": given} for given in (None, "", ["x"], {"a": 1}, 3)),
    *({name: given} for name in ("n", "e", "kty") for given in (None, 5, [], {}, "", "*")),
]


def test_an_odd_key_leaves_out_itself_and_an_odd_set_leaves_the_keys_that_are_known(tmp_path: Path, capfd) -> None:
    from deniable.server.oidc import Issuer, Verifier

    policy = type("Policy", (), {"dataset": "clinic", "budgets": None, "expires": None})()
    good, file = public(RSA, "r1", "RS256"), tmp_path / "keys.json"
    described = Issuer(ISSUER, AUDIENCE, "keys.json", folder=tmp_path)
    odd = [good | {"kid": "odd"} | each for each in ODD_KEYS]
    file.write_text(json.dumps({"keys": [*odd, 5, None, "x", [], [[]], good]}))
    verifier = Verifier(described, policy)
    assert verifier.grant(signed()).name == "ana"
    assert set(verifier._keys) == {"r1"}
    for text in ("", "[" * 100_000, '{"keys": null}', '{"keys": 5}', "[]", "5", "null", '{"keys": ' + "[" * 100_000):
        file.write_text(text)
        with pytest.raises(DataError, match="key set"):
            Verifier(described, policy)
        verifier._refresh()  # as in its thread
        assert verifier.grant(signed()).name == "ana"
    told = capfd.readouterr().err
    assert "the keys that are known stay" in told
    assert "Traceback" not in told


def _counts(verifier: Any, token: str) -> bool:
    try:
        return bool(verifier.grant(token))
    except AccessRefused:
        return False


@pytest.mark.filterwarnings("ignore:The RSA key is 1024 bits")
def test_keys_that_are_weak_or_were_taken_back_and_addresses_that_nobody_verified_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deniable.server import oidc
    from deniable.server.oidc import Issuer, Verifier

    weak = rsa.generate_private_key(65537, 1024)
    policy = type("Policy", (), {"dataset": "clinic", "budgets": None, "expires": None})()
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": [*KEYS["keys"], public(weak, "w1", "RS256")]}))
    by_mail = Issuer(ISSUER, AUDIENCE, "keys.json", name="email", folder=tmp_path)
    verifier = Verifier(by_mail, policy)
    mail = {"email": "ana@clinic.example"}
    assert verifier.grant(signed(**mail, email_verified=True)).name == "ana@clinic.example"
    for said in ({}, {"email_verified": False}, {"email_verified": "true"}):
        with pytest.raises(AccessRefused):
            verifier.grant(signed(**mail, **said))
    with pytest.raises(AccessRefused):
        verifier.grant(signed(weak, kid="w1", **mail, email_verified=True))
    file.write_text(json.dumps({"keys": KEYS["keys"][1:]}))  # the issuer takes its first key back
    monkeypatch.setattr(oidc, "STALE_SECONDS", -1.0)
    monkeypatch.setattr(oidc, "REFRESH_SECONDS", -1.0)
    old, deadline = signed(**mail, email_verified=True), time.monotonic() + 30
    while _counts(verifier, old) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not _counts(verifier, old)
    monkeypatch.setattr(oidc, "LOST_SECONDS", -1.0)
    with pytest.raises(AccessRefused):
        verifier.grant(signed(EC, "ES256", "e1", **mail, email_verified=True))
