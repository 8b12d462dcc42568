"""Attack before release: synthetic rows are attacked while they are still in the house, and leave only if they hold.

A share of the people is held out of the description and serves as the control group (or the steward gives rows of
other people). The rates compare with real rows and carry no noise, and so does the verdict: they are the steward's
to see, and no part of them is written to the release.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.errors import ParameterError
from deniable.storage import refuse_missing_folder

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.curator.hall import Curator
    from deniable.curator.synthesizing import Charged, Order, Progress
    from deniable.governance.grants import Asker
    from deniable.policy.document import Policy
    from deniable.policy.schema import TableSchema
    from deniable.release import Release
    from deniable.synth.model import SynthModel

FEWEST = 20
"""With fewer people on either side of the comparison nothing can be concluded, and nothing is tried."""
NOT_PRIVATE = (
    "These rates and the verdict compare with real rows, without noise: they are not differentially private. They are "
    "for the steward alone, and no part of them is in the released files."
)


@dataclass(frozen=True, slots=True)
class Proof:
    """How a synthetic table is attacked: the share of people held out or a file of other people, targets, limits."""

    held_out: float = 0.1
    control: str | None = None
    attacks: int = 1000
    limits: Mapping[str, Fraction] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.control is None and not 0 < self.held_out <= 0.5:
            raise ParameterError(
                "the share of people held out is not above 0 and at most a half", expected="Such as 0.1"
            )

    @property
    def described(self) -> float:
        """The share of people that the description sees."""
        return 1.0 if self.control is not None else 1.0 - self.held_out


def synthesize(
    curator: Curator, order: Order, out: Path, proof: Proof | None = None, *, rows: int | None = None, seed: int = 0,
    progress: Progress | None = None, who: Asker | None = None,
) -> tuple[Release | None, dict[str, Any] | None]:  # fmt: skip
    """Describe, draw, attack; write the release if every limit is met. The charge stands either way.

    Without a proof nothing is attacked. The findings hold no row; without a release they say why there is none.
    """
    from deniable.curator.synthesizing import charge, learned, written
    from deniable.curator.synthesizing import synthesize as synthesize_unchecked
    from deniable.curator.attacking import judged, table_at
    from deniable.curator.recording import after_the_charge
    from deniable.synth.attributes import Bins, Labels

    if proof is None:
        drawing = {"rows": rows, "seed": seed, "progress": progress, "who": who}
        return synthesize_unchecked(curator, order, out, **drawing), None  # type: ignore[arg-type]
    refuse_missing_folder(out)
    if order.linked:
        from deniable.curator.proving_linked import synthesize as synthesize_linked

        drawing = {"rows": rows, "seed": seed, "progress": progress, "who": who}
        return synthesize_linked(curator, order, out, proof, **drawing)  # type: ignore[arg-type]
    judged({"exposed": {}}, curator.policy, proof.limits)
    others = table_at(proof.control) if proof.control is not None else None
    charged = charge(curator, order, who)
    with after_the_charge():
        seen, control = _sides(charged, order, proof, others)
        model = learned(curator, order, charged, seen)
        drawn = _drawn(model, proof, rows, seed)
        shown = drawn.select([a.name for a in model.attributes if isinstance(a, Bins | Labels)])
        found = attacked(curator.policy, (charged.table,), shown, seen, control, proof, progress)
    verdict = told(judged(found, curator.policy, proof.limits), out, order, proof)
    if verdict["failed"]:
        return None, verdict
    share = round(1.0 - proof.described, 6)
    return written(curator, order, model, out, seed=seed, drawn=drawn, held_out=share), verdict


def _sides(charged: Charged, order: Order, proof: Proof, others: pa.Table | None) -> tuple[pa.Table, pa.Table]:
    """The rows that are described, and those of other people."""
    from deniable.curator.synthesizing import bounded
    from deniable.synth.held_out import parted

    unit = charged.unit.column
    columns = order.columns if order.columns is None or unit is None else (*order.columns, unit)
    rows = bounded(charged, columns)
    return (rows, others) if others is not None else parted(rows, unit, proof.held_out)


def _drawn(model: SynthModel, proof: Proof, rows: int | None, seed: int) -> pa.Table:
    """As many rows as asked for, or as the whole table is estimated to have: the model saw a share of it."""
    from deniable.synth.generate import generate

    return generate(model, round(model.description.estimates.total / proof.described) if rows is None else rows, seed)


def attacked(
    policy: Policy, tables: tuple[TableSchema, ...], release: pa.Table, seen: pa.Table, control: pa.Table,
    proof: Proof, progress: Progress | None,
) -> dict[str, Any]:  # fmt: skip
    """All attacks, on columns that say something about people; what is made anew would only blunt them."""
    from deniable.assess.risk import CONTROLLED, Evidence, Settings, attempt
    from deniable.assess.sides import evened
    from deniable.curator.attacking import declared, known, plain

    knows = tuple(dict.fromkeys(name for table in tables for name in known(policy, table, release)))
    secrets = tuple(dict.fromkeys(name for table in tables for name in declared(table, release, "sensitive")))
    original, others = evened(seen, control, release.column_names)
    enough = original.num_rows >= FEWEST
    sides = {"original": original, "control": others} if enough else {}
    evidence = Evidence(release, knows, secrets, **sides)
    made = attempt(evidence, Settings(proof.attacks), trials=CONTROLLED, progress=progress)
    attempts = [plain(one) for one in made]
    exposed = {one["attack"]: one["exposed"] for one in attempts if one["outcomes"]}
    sizes = {"rows": release.num_rows, "people_seen": original.num_rows, "people_held_out": others.num_rows}
    return {"knows": list(knows), "attacks": attempts, "exposed": exposed} | sizes


def told(found: dict[str, Any], out: Path, order: Order, proof: Proof) -> dict[str, Any]:
    """The findings with what was not tried, where the control came from, and what was charged."""
    from deniable.query.explain import described

    tried = {one["attack"] for one in found["attacks"] if not one["skipped"]}
    untried = dict.fromkeys(one["attack"] for one in found["attacks"] if one["attack"] not in tried)
    source = (
        "rows of other people that the steward gave"
        if proof.control is not None
        else f"{proof.held_out:.0%} of the people, drawn at random and held out of the description"
    )
    charged = " and ".join(f"{name} {amount}" for name, amount in described(order.budget).items())
    about = {"subject": out.name, "control": source, "charged": charged, "remark": NOT_PRIVATE}
    unmet = [name for name in untried if name in found["limits"]]
    return found | about | {"untried": unmet, "failed": found["failed"] or bool(unmet)}
