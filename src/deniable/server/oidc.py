"""OpenID Connect (extra `oidc`): an organization's own sign-on instead of tokens of ours.

A steward's file names the issuer, the audience, and where its public keys are. A JWT counts if its signature is of one
of these keys by an allowed algorithm, and issuer, audience and term are right. Who it speaks for is a claim; what that
person may do is the policy's to say: an analyst has the purposes that the policy grants, and no claim adds to them.
Symmetric algorithms and `none` cannot be allowed, so that nobody can sign with a public key.
"""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from deniable.errors import AccessRefused, DataError, MissingExtra, ParameterError, nearest
from deniable.governance.grants import SIGNED_ON, Grant, Role
from deniable.policy.access import find_name_fault
from deniable.server.monitoring import log_to_stderr

if TYPE_CHECKING:
    from deniable.policy.document import Policy

ASYMMETRIC = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
LONGEST_TOKEN = 16_384
MOST_KEYS = 1 << 18
"""Bytes of a key set that are read."""
LEEWAY = 10
"""Seconds by which clocks may differ."""
REFRESH_SECONDS = 30.0
"""Seconds between looks at the key set, however many unknown keys are named."""
STALE_SECONDS = 300.0
"""Keys are looked up anew after so many seconds: one that the issuer took back stops counting by then."""
LOST_SECONDS = 3600.0
"""After so many seconds without a look at the key set, no key of it counts."""
LEAST_BITS = 2048
"""Bits of an RSA key at least."""
LONGEST_TERM = timedelta(days=31)
"""A token that counts for longer than this is not taken: there is no revoking it here."""
KINDS = ("", "jwt", "at+jwt")
"""What the header `typ` of a token may say: others are for logging out, or for other tasks."""
LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Issuer:
    """Who signs, for whom, where the keys are, and which claims tell who somebody is."""

    issuer: str
    audience: str
    jwks: str
    """An https address, or the path of a file."""
    algorithms: tuple[str, ...] = ("RS256", "ES256")
    name: str = "sub"
    """The claim that holds the name by which the policy knows somebody."""
    purposes: str = ""
    """A claim that lists purposes: it narrows what the policy grants."""
    roles: str = ""
    """A claim that lists groups; without it everybody is an analyst."""
    stewards: tuple[str, ...] = ()
    auditors: tuple[str, ...] = ()
    """The groups whose members are stewards and auditors."""
    folder: Path = field(default=Path(), compare=False)

    def __post_init__(self) -> None:
        unsafe = [each for each in self.algorithms if each not in ASYMMETRIC]
        if unsafe or not self.algorithms:
            raise ParameterError(
                f"'{(unsafe or [''])[0]}' cannot be allowed to sign tokens", expected=f"Among {', '.join(ASYMMETRIC)}"
            )
        if not self.issuer or not self.audience or not self.jwks:
            raise ParameterError("an issuer needs a name, an audience and a key set")
        place = urlsplit(self.jwks)
        if place.scheme == "http" and place.hostname not in LOOPBACK:
            raise ParameterError("a key set may not travel unencrypted", expected="An https address, or a file")


def read_issuer(path: Path) -> Issuer:
    """The issuer of a YAML or JSON file."""
    from ruamel.yaml import YAML, YAMLError

    try:
        form = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, YAMLError):
        raise DataError(f"'{path.name}' cannot be read as a description of an issuer") from None
    known = [each.name for each in fields(Issuer) if each.name != "folder"]
    if not isinstance(form, dict):
        raise ParameterError(f"'{path.name}' describes no issuer", expected=f"Fields: {', '.join(known)}")
    for name in form:
        if name not in known:
            raise ParameterError(f"an issuer has no field '{name}'", remedy=nearest(str(name), known))
    try:
        listed: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in form.items()}
        return Issuer(**listed, folder=path.parent)
    except TypeError:
        raise ParameterError(f"'{path.name}' lacks something", expected="issuer, audience and jwks") from None


class Verifier:
    """Turns tokens of one issuer into grants under one policy. Keys are fetched beside, never while somebody waits."""

    def __init__(self, issuer: Issuer, policy: Policy) -> None:
        self._issuer = issuer
        self._policy = policy
        self._jwt = _import_jwt()
        self._keys: Mapping[str, Any] = self._fetch()
        self._looked = self._fetched = time.monotonic()
        self._lock = threading.Lock()

    def grant(self, token: str) -> Grant:
        """The grant of a token; one sentence refuses whatever is wrong with it.

        Anybody can send a token: whatever fails while it is read, its nesting too, is a fault of the token.
        """
        try:
            claims = self._decode_claims(token)
            return self._build_grant(claims)
        except Exception:
            raise AccessRefused("the token is not valid", remedy="Sign on again") from None

    def _decode_claims(self, token: str) -> dict[str, Any]:
        if len(token) > LONGEST_TOKEN:
            raise ValueError
        head, age = self._jwt.get_unverified_header(token), time.monotonic() - self._fetched
        if str(head.get("typ", "")).lower().removeprefix("application/") not in KINDS:
            raise ValueError
        for part in token.split(".")[:2]:  # a name that stands twice could mean one thing here and another elsewhere
            json.loads(urlsafe_b64decode(part + "==="), object_pairs_hook=_refuse_twice)
        key = self._keys.get(str(head.get("kid", "")))
        if key is None or age > STALE_SECONDS:
            self._refresh_in_background()
        if key is None or age > LOST_SECONDS:
            raise KeyError
        # The algorithm must be allowed, and be the one that this key is for: a key never serves two.
        if head["alg"] not in self._issuer.algorithms or head["alg"] != key.algorithm_name:
            raise ValueError
        claims: dict[str, Any] = self._jwt.decode(
            token, key.key, algorithms=[key.algorithm_name], audience=self._issuer.audience,
            issuer=self._issuer.issuer, leeway=LEEWAY, options={"require": ["exp", "iss", "aud", self._issuer.name]},
        )  # fmt: skip
        return claims

    def _build_grant(self, claims: dict[str, Any]) -> Grant:
        name, role = claims[self._issuer.name], self._choose_role(claims)
        if not isinstance(name, str) or len(name) > 200 or find_name_fault(name):
            raise ValueError
        if self._issuer.name == "email" and claims.get("email_verified") is not True:
            raise ValueError  # anybody may write somebody else's address into an account
        expires = datetime.fromtimestamp(int(claims["exp"]) + LEEWAY, UTC)
        if expires > datetime.now(UTC) + LONGEST_TERM + timedelta(seconds=LEEWAY):
            raise ValueError
        purposes = self._list_purposes(name, claims) if role is Role.ANALYST else None
        return Grant(name, role, self._policy.dataset, purposes, expires, f"{SIGNED_ON}{name}")

    def _choose_role(self, claims: dict[str, Any]) -> Role:
        groups = _list_groups(claims.get(self._issuer.roles)) if self._issuer.roles else ()
        if set(groups) & set(self._issuer.stewards):
            return Role.STEWARD
        return Role.AUDITOR if set(groups) & set(self._issuer.auditors) else Role.ANALYST

    def _list_purposes(self, name: str, claims: dict[str, Any]) -> tuple[str, ...]:
        """What the policy grants this analyst, narrowed by the claim if there is one."""
        budgets = self._policy.budgets
        listed = budgets.find_analyst(name) if budgets else None
        every = tuple(each.name for each in budgets.purposes) if budgets and not budgets.analysts else ()
        granted = listed.purposes if listed is not None else every
        if not self._issuer.purposes:
            return tuple(granted)
        return tuple(each for each in granted if each in _split_claim(claims.get(self._issuer.purposes)))

    def _refresh_in_background(self) -> None:
        """Fetch the keys in the background: the issuer may have new ones. Whoever came first tries again."""
        with self._lock:
            if time.monotonic() - self._looked < REFRESH_SECONDS:
                return
            self._looked = time.monotonic()
        threading.Thread(target=self._refresh, daemon=True).start()

    def _refresh(self) -> None:
        try:
            self._keys, self._fetched = self._fetch(), time.monotonic()
        except DataError as failure:
            log_to_stderr(f"single sign-on: {failure.happened}; the keys that are known stay")

    def _fetch(self) -> dict[str, Any]:
        """The keys by their names; those for encryption, without a name, of other algorithms or odd are left out."""
        try:
            listed = list(json.loads(self._text())["keys"])
        except Exception:  # of the network, of HTTP, or of the document, however it is nested
            raise DataError("the issuer's key set cannot be read", expected="A JSON Web Key Set") from None
        found = {}
        for form in listed:
            with suppress(Exception):  # an odd key leaves out itself alone
                key = self._read_key(form)
                if key is not None:
                    found[form["kid"]] = key
        return found

    def _read_key(self, form: Any) -> Any:
        """A key of the set that may sign tokens; None for others."""
        named, signs = isinstance(form["kid"], str) and form["kid"], form.get("use", "sig") == "sig"
        if not named or not signs or "verify" not in form.get("key_ops", ["verify"]):
            return None
        key = self._jwt.PyJWK.from_dict(form)
        allowed = key.algorithm_name in self._issuer.algorithms
        return key if allowed and getattr(key.key, "key_size", 1 << 20) >= _least(key) else None

    def _text(self) -> bytes:
        if "://" not in self._issuer.jwks:
            return (self._issuer.folder / self._issuer.jwks).read_bytes()[:MOST_KEYS]
        with urllib.request.urlopen(self._issuer.jwks, timeout=10) as response:  # noqa: S310  https, or loopback
            return bytes(response.read(MOST_KEYS))


def _refuse_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError
    return dict(pairs)


def _least(key: Any) -> int:
    """The fewest bits that a key of this kind may have: those of curves are chosen by the algorithm."""
    return LEAST_BITS if key.algorithm_name[:2] in ("RS", "PS") else 0


def _list_groups(value: object) -> tuple[str, ...]:
    """A claim of groups: a list of names, or one name, which may have spaces in it."""
    if isinstance(value, str):
        return (value,)
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else ()


def _split_claim(value: object) -> tuple[str, ...]:
    """A claim that lists words: a list of texts, or one text with spaces between."""
    if isinstance(value, str):
        return tuple(value.split())
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else ()


def _import_jwt() -> Any:
    try:
        import jwt
        from jwt.algorithms import has_crypto
    except ImportError:
        has_crypto = False
    if not has_crypto:
        raise MissingExtra("OpenID Connect needs PyJWT", remedy="Install it: pip install 'deniable[oidc]'") from None
    return jwt
