"""HISTOGRAM(x, bins): a group key (the bin, public by its bounds) and a count; the bin's ends are public arithmetic."""

from __future__ import annotations

from fractions import Fraction

from sqlglot import expressions as exp

from deniable.query.expression import ColumnRef, Expression, Literal, literal
from deniable.query.functions import call
from deniable.query.sql.expressions import Scope, bind
from deniable.query.sql.grouping import Grouped

MOST_BINS = 10_000


def expanded(node: exp.Select, block: Grouped, scope: Scope) -> tuple[Grouped, exp.Select]:
    """The block with the bin as a further key, and the SELECT with the bin's ends and its count as items.

    What is not SQL (the bin, exact numbers) is put in as placeholders, for `placeholder` to read when items are bound.
    """
    spots = [i for i, item in enumerate(node.expressions) if _is_histogram(item.unalias())]
    if not spots:
        return block, node
    item = node.expressions[spots[0]]
    inner = item.unalias()
    if len(spots) > 1 or len(block.sets) > 1:
        raise scope.refusal(inner, "one HISTOGRAM at a time, without grouping sets")
    name = item.alias or "histogram"
    argument, bins = _bins(inner, scope)
    low, high = argument.facts.lower, argument.facts.upper
    assert low is not None
    assert high is not None
    width = (high - low) / bins or Fraction(1)
    raw = call("floor", call("divide", call("subtract", argument, literal(low)), literal(width)))
    key = call("clamp", raw, literal(0), literal(bins - 1))
    keys = (*block.keys, (f"k{len(block.keys)}", key))
    marker = exp.Placeholder(this=f"bin:{keys[-1][0]}")
    start = exp.Mul(this=marker, expression=_literal(width))
    ends = [
        exp.alias_(exp.Add(this=start.copy(), expression=_literal(low)), f"{name}_from"),
        exp.alias_(exp.Add(this=start.copy(), expression=_literal(low + width)), f"{name}_to"),
        exp.alias_(exp.Count(this=exp.Star()), name),
    ]
    changed = node.copy()
    changed.set("expressions", [*changed.expressions[: spots[0]], *ends, *changed.expressions[spots[0] + 1 :]])
    if changed.args.get("order") is None:
        changed.set("order", exp.Order(expressions=[exp.Ordered(this=marker.copy())]))
    return Grouped(block.source, keys, (tuple(range(len(keys))),)), changed


def _literal(number: Fraction) -> exp.Expression:
    return exp.Placeholder(this=f"number:{number}")


def _is_histogram(node: exp.Expression) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.upper() == "HISTOGRAM"


def _bins(node: exp.Expression, scope: Scope) -> tuple[Expression, int]:
    if not 1 <= len(node.expressions) <= 2:
        raise scope.refusal(node, "HISTOGRAM takes a column and a number of bins", expected="HISTOGRAM(age, 10)")
    argument = bind(node.expressions[0], scope)
    bins = bind(node.expressions[1], scope) if len(node.expressions) == 2 else literal(10)
    count = bins.value if isinstance(bins, Literal) else None
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MOST_BINS:
        raise scope.refusal(node, "HISTOGRAM takes a literal number of bins between 1 and 10,000")
    if not argument.facts.bounded or not argument.facts.kind.numeric:
        raise scope.refusal(
            node,
            "HISTOGRAM takes a number with public bounds",
            remedy="Declare bounds in the policy, or write HISTOGRAM(CLAMP(x, 0, 100), 10)",
        )
    return argument, count


def placeholder(mark: str, keys: dict[Expression, str]) -> Expression:
    """What a placeholder stands for: an exact number, or the field of a key."""
    kind, text = mark.split(":", 1)
    if kind == "number":
        return literal(Fraction(text))
    expression = next(e for e, name in keys.items() if name == text)
    return ColumnRef(text, expression.facts)
