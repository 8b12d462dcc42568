"""The kinds of identifying columns, what each is in the eyes of an intruder, and its place among the 18 of HIPAA.

The letters are those of 45 CFR 164.514(b)(2)(i), (A) to (R). `safe` is the mask that the Safe Harbor rule allows for
the kind, `usual` the one proposed for a pseudonymized release in which tables must still join.
"""

from __future__ import annotations

from dataclasses import dataclass

from deniable.policy.roles import Role
from deniable.policy.schema import Spec

KEY = "people"  # the key that drafted policies name


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of identifying content."""

    name: str
    letter: str
    role: Role
    usual: Spec | None
    safe: Spec | None


def _token() -> Spec:
    return Spec("token", {"key": KEY})


def _same_form() -> Spec:
    return Spec("format_preserving", {"key": KEY})


def _fake(kind: str) -> Spec:
    return Spec("fake", {"kind": kind, "key": KEY})


REDACT = Spec("redact")
NULLIFY = Spec("nullify")
YEAR = Spec("generalize", {"to": "year"})
ZIP3 = Spec("generalize", {"to": "zip3"})
OLD = Spec("generalize", {"to": "age_over_89"})
ID, QUASI, PLAIN = Role.IDENTIFIER, Role.QUASI_IDENTIFIER, Role.INSENSITIVE

KINDS = (
    Kind("name", "A", ID, _fake("name"), REDACT),
    Kind("given name", "A", ID, _fake("first_name"), REDACT),
    Kind("surname", "A", ID, _fake("last_name"), REDACT),
    Kind("street address", "B", ID, _fake("street"), REDACT),
    Kind("city", "B", QUASI, None, REDACT),
    Kind("postal code", "B", QUASI, ZIP3, ZIP3),
    Kind("coordinate", "B", QUASI, Spec("round", {"to": 1}), NULLIFY),
    Kind("county or district", "B", QUASI, None, REDACT),
    Kind("birth date", "C", QUASI, YEAR, YEAR),
    Kind("date", "C", QUASI, None, YEAR),
    Kind("age", "C", QUASI, OLD, OLD),
    Kind("telephone", "D", ID, _same_form(), REDACT),
    Kind("fax", "E", ID, _same_form(), REDACT),
    Kind("e-mail", "F", ID, _fake("email"), REDACT),
    Kind("social security number", "G", ID, _same_form(), REDACT),
    Kind("national id", "R", ID, _token(), REDACT),
    Kind("medical record number", "H", ID, _token(), REDACT),
    Kind("health plan number", "I", ID, _token(), REDACT),
    Kind("account number", "J", ID, _token(), REDACT),
    Kind("card number", "J", ID, _same_form(), REDACT),
    Kind("bank account", "J", ID, _token(), REDACT),
    Kind("license number", "K", ID, _token(), REDACT),
    Kind("vehicle identifier", "L", ID, _token(), REDACT),
    Kind("device identifier", "M", ID, _token(), REDACT),
    Kind("url", "N", ID, REDACT, REDACT),
    Kind("ip address", "O", ID, _token(), REDACT),
    Kind("biometric", "P", ID, NULLIFY, NULLIFY),
    Kind("photograph", "Q", ID, NULLIFY, NULLIFY),
    Kind("record id", "R", ID, _token(), REDACT),
    Kind("free text", "R", PLAIN, Spec("scrub"), REDACT),
    Kind("demographic", "", QUASI, None, None),  # no identifier of the rule, but what people are linked by
)
BY_NAME = {kind.name: kind for kind in KINDS}
