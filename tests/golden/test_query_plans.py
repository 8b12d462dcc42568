"""Golden pairs: statements and the plans or refusals they compile to, in `tests/golden/query/*.txt`.

A pair is a statement after `>>`, and below it what the compiler says. After a change that is meant, write them anew
with `python tests/golden/test_query_plans.py` and read the difference.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1]))
import clinic
from deniable.errors import QueryRefused
from deniable.policy.budget import ApproxDP, PureDP
from deniable.policy.schema import Bounding, Neighboring, TableSchema
from deniable.query.compile import compile_query
from deniable.query.explain import explain

FOLDER = Path(__file__).parent / "query"
BUDGETS = {"pure": PureDP(Fraction(1)), "delta": ApproxDP(Fraction(1), Fraction(1, 10**6)), "none": None}
TABLES: dict[str, tuple[TableSchema, ...]] = {
    "clinic": clinic.TABLES,
    "scaled": clinic.with_unit(bounding=Bounding.SCALE),
    "rows": clinic.with_unit(bounding=Bounding.ROWS, max_groups=None, max_rows_per_group=None, max_rows=4),
    "replaced": clinic.with_unit(neighboring=Neighboring.REPLACE),
    "unbounded": clinic.with_unit(max_groups=None, max_rows_per_group=None),
}
PAIR = re.compile(r"^>>(?: \[(\w+) (\w+)\])?\n(.*?)\n--\n(.*?)\n(?=^>>|\Z)", re.MULTILINE | re.DOTALL)


def compiled(statement: str, budget: str, tables: str) -> str:
    """What the compiler says to a statement, in lines."""
    try:
        plan = compile_query(statement, TABLES[tables], BUDGETS[budget])
    except QueryRefused as refusal:
        return f"refused {refusal.place or 'as a whole'}\n{refusal.message}"
    told = explain(plan)
    cost = ", ".join(f"{name} {figure}" for name, figure in told["cost"].items() if figure != "0") or "nothing"
    lines = [f"cost {cost}; strategy {plan.strategy}; protects {told['unit']}"]
    lines.append("way " + " > ".join(f"{row['step']} ({row['tag']})" for row in told["relations"]))
    for row in told["aggregates"]:
        lines.append(f"{row['aggregate']}; keys {row['keys']}")
        lines += [
            f"  {part['measures']}: {part['stability']}, sensitivity {part['sensitivity']}, {part['mechanism']}"
            f"{'' if part['scale'] is None else format(part['scale'], ' .6g')}, share {part['share']}"
            for part in row["measurements"]
        ]
    lines.append("columns " + ", ".join(field.name for field in plan.relation.fields))
    return "\n".join(lines)


def pairs(path: Path) -> Iterator[tuple[str, str, str, str]]:
    for budget, tables, statement, expected in PAIR.findall(path.read_text(encoding="utf-8") + "\n"):
        yield statement, budget or "delta", tables or "clinic", expected.rstrip("\n")


ALL = [
    pytest.param(*pair, id=f"{path.stem}: {pair[0][:60]}")
    for path in sorted(FOLDER.glob("*.txt"))
    for pair in pairs(path)
]


@pytest.mark.parametrize(("statement", "budget", "tables", "expected"), ALL)
def test_a_statement_compiles_to_the_plan_or_refusal_beside_it(
    statement: str, budget: str, tables: str, expected: str
) -> None:
    assert compiled(statement, budget, tables) == expected


def test_there_are_golden_pairs_of_plans_and_of_refusals() -> None:
    refusals = sum(pair.values[3].startswith("refused") for pair in ALL)
    assert len(ALL) - refusals >= 60
    assert refusals >= 40


def rewrite() -> None:
    """Write every expectation anew."""
    for path in sorted(FOLDER.glob("*.txt")):
        text = path.read_text(encoding="utf-8") + "\n"
        found = [(b, t, s) for b, t, s, _ in PAIR.findall(text)]
        written = []
        for budget, tables, statement in found:
            mark = f" [{budget} {tables}]" if budget else ""
            written.append(f">>{mark}\n{statement}\n--\n{compiled(statement, budget or 'delta', tables or 'clinic')}\n")
        path.write_text("\n".join(written), encoding="utf-8")


if __name__ == "__main__":
    rewrite()
