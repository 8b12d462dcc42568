"""What a masked release claims, which is nothing formal, and what it must say instead: the attacks that remain.

Each kind of mask has its own weaknesses, stated here once in plain words; a release names those of the masks it uses,
the linking by columns that stayed, and how many people the columns that stayed single out, measured on the release.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from deniable.masking.plan import TablePlan
from deniable.masking.singling import Singling
from deniable.masking.tokens import LENGTH, collision_probability
from deniable.release import Guarantee, Technique

_MATCHED = "equal values have equal tokens, so known frequencies match the most common ones; "
FALLS_TO = {
    "codebook": _MATCHED + "vault and key together reveal all",
    "token": _MATCHED + "whoever has the key can test guesses",
    "format_preserving": _MATCHED + "whoever has the key can turn every token back",
    "fake": _MATCHED + "whoever has the key can test guesses",
    "shift_dates": "one true date of a person gives that person's offset, and with it all other dates",
    "regex": "what the expression leaves standing can be guessed from and linked",
    "redact": "",
    "nullify": "",
    "constant": "",
    "scrub": "names, and identifiers written in unexpected ways, stay in the text",
    "generalize": "coarse values still narrow down who it is",
    "round": "coarse values still narrow down who it is",
    "noise": "outliers stay outliers, and several noisy copies of one value average out",
    "shuffle": "values that are one person's alone are still theirs, wherever they stand",
    "projection": "somebody who knows the true values of as many people as there are columns can solve for the rest",
}


def remaining_attacks(plan: TablePlan) -> tuple[str, ...]:
    """What an intruder can still try against one table, mask by mask, the link by kept columns first."""
    kept = [column.name for column in plan.columns if column.spec is None]
    attacks = []
    if kept:
        attacks.append(f"linking with other files by the columns that stayed ({', '.join(kept)})")
    for kind in dict.fromkeys(column.spec.kind for column in plan.columns if column.spec):
        if FALLS_TO[kind]:
            names = [column.name for column in plan.columns if column.spec and column.spec.kind == kind]
            attacks.append(f"{kind} on {', '.join(names)}: {FALLS_TO[kind]}")
    if plan.projection:
        attacks.append(f"projection: {FALLS_TO['projection']}")
    return tuple(attacks)


def guarantee(mode: str, measured: Sequence[Singling], unit: str) -> Guarantee:
    """No formal guarantee, and why, with what was measured."""
    made = (
        "the identifiers that the Safe Harbor rule lists were removed"
        if mode == "safe-harbor"
        else "identifiers were masked"
    )
    reason = f"{made}, which bounds nothing that other knowledge can add"
    if measured:
        most = measured[0]
        reason += f"; the columns left single out {most.share:.1%} of the people ({', '.join(most.columns)})"
    return Guarantee.none(Technique.MASKING, reason, unit)


def collisions(plan: TablePlan, rows: int) -> Mapping[str, float]:
    """For each column of keyed tokens, the probability that two values share one, if every row had its own value."""
    return {
        column.name: collision_probability(rows, _length(column.spec.options.get("length", LENGTH)))
        for column in plan.columns
        if column.spec is not None and column.spec.kind == "token"
    }


def _length(value: object) -> int:
    return int(value) if isinstance(value, int) else LENGTH
