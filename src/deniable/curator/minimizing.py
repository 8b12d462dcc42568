"""Minimization: a record-level release is cut down to the policy's sample and columns before anything else.

It is the default and a request may only tighten it. The sample is of units, the same in every table, and the same in
every release made beside one ledger: releasing again does not show further people.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from deniable.errors import AccessRefused

if TYPE_CHECKING:
    from deniable.engines.base import Engine
    from deniable.engines.restriction import Restriction
    from deniable.ledger.cabinet import Cabinet
    from deniable.policy.document import Policy
    from deniable.policy.schema import TableSchema

DRAWER = "keys"


def columns(policy: Policy, schema: TableSchema, asked: Sequence[str] | None) -> tuple[str, ...] | None:
    """The columns of a table that may leave: those asked for, within those of the policy; None is all."""
    allowed = allowed_columns(policy, schema)
    if allowed is None or asked is None:
        return allowed if asked is None else tuple(asked)
    beyond = [name for name in asked if name in schema.names and name not in allowed]
    if beyond:
        raise AccessRefused(
            f"column '{beyond[0]}' is not among those that the policy releases of '{schema.name}'",
            expected=f"Columns: {', '.join(allowed) or 'none'}",
            remedy="Ask the steward to change release: minimize: columns",
        )
    return tuple(asked)


def allowed_columns(policy: Policy, schema: TableSchema) -> tuple[str, ...] | None:
    """The columns of a table within the policy's minimization; None where it names none."""
    named = policy.release.minimize.columns if policy.release.minimize else None
    return None if named is None else tuple(name for name in schema.names if name in named)


def restrictions(policy: Policy, cabinet: Cabinet, table: str) -> tuple[Restriction, ...]:
    """What a record-level release of a table does not show: who withdrew, and who is not in the sample."""
    from deniable.curator.withdrawing import left_out
    from deniable.engines.restriction import Sampled

    minimize, unit = policy.release.minimize, policy.table(table).unit
    gone = left_out(policy, cabinet, table)
    if minimize is None or minimize.sample >= 1:
        return gone
    return (*gone, Sampled(minimize.sample, unit.column if unit else None, _salt(cabinet)))


def cut_down(engine: Engine, policy: Policy, cabinet: Cabinet, names: Iterable[str]) -> None:
    """Restrict tables of an engine that serves one record-level release."""
    for name in names:
        engine.restrict(name, *restrictions(policy, cabinet, name))


def _salt(cabinet: Cabinet) -> int:
    kept = cabinet.keep(DRAWER, "sample", "sample", secrets.token_bytes(8))
    return int.from_bytes(kept, "big") >> 1
