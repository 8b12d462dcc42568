"""Record-level releases: masked, k-anonymous and synthetic rows, each with what it keeps and what it does not."""

from __future__ import annotations

from typing import Any

from deniable.curator.demo.exposure import KNOWN
from deniable.curator.demo.story import Chapter, Stage
from deniable.policy.budget import ApproxDP, exact

BUDGET = ApproxDP(exact(1), exact("1e-7"))


def masked(stage: Stage) -> Chapter:
    """Identifiers are masked; what is left still singles people out."""
    from deniable.assess.uniqueness import uniqueness
    from deniable.curator import keyring, masking
    from deniable.engines.duckdb import DuckDBEngine

    out, key = stage.folder / "masked.parquet", stage.folder / "people.key"
    if not key.exists():
        keyring.new("people", key)
    places = (f"people=file:{key}",)
    masking.mask(
        masking.Request(stage.folder / "policy.yaml", {"visits": out}, keys=places, fresh=True, ledger=stage.ledger)
    )
    with DuckDBEngine() as engine:
        engine.attach("masked", str(out))
        kept, rows = ", ".join(field.name for field in engine.describe("masked")), engine.count("masked")
        left = uniqueness(engine, "masked", KNOWN)
    return Chapter(
        "Masked rows",
        (
            f"Identifiers are removed or become keyed tokens, and the policy asks for no more than is needed: {rows:,} "
            f"rows of a sample of patients, with {kept}.",
            f"ZIP code, birth date and sex are among them, and still single out {left.per_thousand} of 1,000 rows: "
            "masking has no formal guarantee, and its statement says so.",
        ),
        commands=("deniable key new people", "deniable mask -p town/policy.yaml --table visits -o masked.parquet"),
    )


def anonymized(stage: Stage) -> Chapter:
    """Quasi-identifiers are generalized until every row has four lookalikes."""
    from deniable.curator import anonymizing
    from deniable.curator.anonymize_order import Order

    out = stage.folder / "anonymous.parquet"
    order = Order(None, out, stage.folder / "policy.yaml", "visits", ledger=stage.ledger)
    told = anonymizing.anonymize(order)
    return Chapter(
        "k-anonymous rows",
        (
            "Columns that the voter roll shares are made coarser until every row looks like four others, with three "
            "different diagnoses among them, at the least loss of information.",
            _proof(told),
        ),
        commands=("deniable anonymize -p town/policy.yaml --table visits --k 5 -o anonymous.parquet",),
    )


def _proof(told: dict[str, Any]) -> str:
    proof, risk = told["proof"], told["risk"]
    return (
        f"{told['released']:,} rows are released, {told['suppressed']:,} left out: the best of {proof['nodes']:,} "
        f"ways, proven with {proof['checks']} checks. At risk were {risk['before']['prosecutor']['at_risk']:.0%} of "
        f"the rows, and are {risk['after']['prosecutor']['at_risk']:.0%}. It holds against the voter roll, not against "
        "all that may be known."
    )


def synthetic(stage: Stage) -> Chapter:
    """Rows of nobody, drawn from noisy marginals."""
    from deniable.curator import synthesizing

    out = stage.folder / "synthetic.parquet"
    details = synthesizing.synthesize(stage.curator, synthesizing.Order("visits", BUDGET), out).details
    pairs, rows = details["measured"], details["rows"]
    assert isinstance(pairs, list)
    assert isinstance(rows, int)
    return Chapter(
        "Synthetic rows",
        (
            f"{rows:,} rows of nobody are drawn from noisy counts, for epsilon 1 of the budget. {len(pairs)} tables "
            f"were worth their noise, such as {', '.join(str(pair) for pair in pairs[:4])}.",
        ),
        commands=("deniable synthesize visits -p town/policy.yaml --epsilon 1 --delta 1e-7 -o synthetic.parquet",),
    )
