"""What follows from a steward's decisions: the policy, how the budget is divided, and every step as a command.

The text holds names, types and what the steward declared; values of the data are in it only where they were learned
with noise, at a price that the ledger holds."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path
from typing import Any, cast

from deniable.curator.policy.decisions import (
    K_ANONYMITY,
    LEARN,
    MASKED,
    MOST_EXPOSED,
    QUERIES,
    ROW,
    SYNTHETIC,
    TECHNIQUES,
    TRUE_ROWS,
    Decisions,
    Question,
    bound_distance,
    list_diverse,
    list_released,
    list_role,
    list_skewed,
    list_valued,
    role_of,
)
from deniable.curator.policy.draft import Draft, Drafted, write_document, write_spec, yaml_word
from deniable.errors import NOTHING_CHARGED, Infeasible, ParameterError
from deniable.kanonymity.recoding import name_level
from deniable.policy.schema import ColumnType, Role, Spec
from deniable.policy.yaml_tree import Entries, Items, Leaf, Mistakes, parse_tree

DELTA = "1e-6"
DELTA_OF_RELEASE = "1e-7"
LEARNED = 0.22
"""The part of the budget for learning values; with the release it is less than half, so that both can be repeated."""
DELTA_OF_LEARNING = "1e-9"
"""Of each column: even a hundred of them take little of the whole."""


def state_costs(decided: Decisions) -> dict[str, str]:
    """How epsilon is divided: for the release itself, and for each column whose values are learned.

    The ledger adds up squares (zero-concentrated privacy): all that is learned takes about a fifth of the whole.
    """
    total = float(decided.epsilon or 0)
    learned = sum(1 for value in decided.values.values() if value == LEARN)
    # rho of the whole is at least total^2 / (4 (ln(1/delta) + total)); a part of epsilon e without delta costs e^2 / 2.
    rho = total**2 / (4 * (13.8156 + total))
    each = sqrt(2 * LEARNED * rho / learned) if learned else 0.0
    release = total / 2 if decided.technique == SYNTHETIC else total / 10
    return {"release": f"{release:.3g}", "each": f"{each:.2g}"}


def write_policy(made: Draft, decided: Decisions, learned: Mapping[str, Any] | None = None) -> str:
    """The policy that the decisions make; `learned` are values that were learned with noise."""
    public = {**decided.values, **(learned or {})}
    each = state_costs(decided)["each"]
    columns = tuple(_decide_column(column, decided, public.get(column.name), each) for column in made.columns)
    rest = _write_rest(made, decided, list_attacks(made, decided, learned or {}))
    head = (
        f"# For {decided.recipient}: {TECHNIQUES[str(decided.technique)]}.",
        "# Written by deniable start from decisions.yaml. An undecided column is withheld from releases of rows.",
    )
    return write_document(replace(made, columns=columns), [_write_unit(decided)], head, rest)


TOO_MANY = "left out: with it all released columns together would single out too many people"


def _decide_column(column: Drafted, decided: Decisions, public: Any, each: str) -> Drafted:
    role = role_of(column, decided)
    own = role is not column.role and role is not Role.UNDECIDED
    reason = "decided by the steward" if own else column.reason.split("; with ")[0]
    reason = "it tells people apart" if column.name == decided.unit and own else reason
    reason = TOO_MANY if column.name in decided.left_out else reason
    masked = decided.technique == MASKED
    hierarchy = _choose_hierarchy(column) if role is Role.QUASI_IDENTIFIER and not masked else ""
    mask = _choose_mask(column, role) if masked else None
    lines = _write_values(column, public, decided.values.get(column.name) == LEARN, each)
    return replace(column, role=role, reason=reason, mask=mask, hierarchy=hierarchy, marked=(), lines=lines)


def _choose_mask(column: Drafted, role: Role) -> Spec | None:
    """What an identifier is replaced by, and how numbers and dates that others may know are made coarser."""
    if role is Role.IDENTIFIER:
        return (column.mask if column.role is role else None) or Spec("redact")
    if role is not Role.QUASI_IDENTIFIER:
        return None
    coarser = {
        ColumnType.INTEGER: Spec("round", {"to": 10}),
        ColumnType.DECIMAL: Spec("round", {"to": 100}),
        ColumnType.DATE: Spec("generalize", {"to": "year"}),
        ColumnType.DATETIME: Spec("generalize", {"to": "year"}),
    }
    return coarser.get(column.type) or (column.mask if column.mask and column.mask.kind == "generalize" else None)


WITHHOLD = "withhold"
"""Said in the policy too: a release by hand would draft another hierarchy."""


def _choose_hierarchy(column: Drafted) -> str:
    """The hierarchy that was found to suit, else one of the column's type; a text without one is kept or withheld."""
    if column.hierarchy or column.code:
        return column.hierarchy or WITHHOLD
    usual = {
        ColumnType.INTEGER: "{rounding: [5, 10, 100, 1000]}",
        ColumnType.DECIMAL: "{rounding: [1, 10, 100, 1000]}",
        ColumnType.DATE: "{dates: [month, year, decade]}",
        ColumnType.DATETIME: "{dates: [day, month, year, decade]}",
    }
    return usual.get(column.type, WITHHOLD)


def _write_values(column: Drafted, public: Any, learned: bool, each: str) -> tuple[str, ...]:
    if not isinstance(public, Mapping) or not public:
        return ()
    ((word, listed),) = public.items()
    told = f"learned with noise, epsilon {each}" if learned else "public knowledge, not read from the data"
    written = ", ".join(yaml_word(one) if column.type is ColumnType.TEXT else str(one) for one in listed)
    lines = (f"{word}: [{written}]  # {told}",)
    return (*lines, "step: 0.01") if word == "between" and column.type is ColumnType.DECIMAL else lines


def _write_unit(decided: Decisions) -> str:
    if decided.unit == ROW:
        return "    unit: row"
    most = decided.rows_per_person
    bounds = f", max_groups: {most}, max_rows_per_group: {most}" if most else ""
    return f"    unit: {{column: {yaml_word(decided.unit)}{bounds}}}"


def _write_rest(made: Draft, decided: Decisions, limited: Sequence[str]) -> list[str]:
    if decided.technique == MASKED:
        used = any(c.mask and "key" in c.mask.options for c in made.columns if role_of(c, decided) is Role.IDENTIFIER)
        return [*([f"keys: {{{KEY}: {{file: {KEY_FILE}}}}}"] if used else []), "release:", *_write_limits(decided)]
    if decided.technique == K_ANONYMITY:
        return ["release:", *_write_models(made, decided)]
    lines = ["budgets:", f"  dataset: {{epsilon: {decided.epsilon:g}, delta: {DELTA}, accounting: zcdp}}"]
    if decided.technique == QUERIES:
        quarter = f"{float(decided.epsilon or 0) / 4:g}"
        lines.append(f"  purposes: {{analysis: {{epsilon: {decided.epsilon:g}}}}}")
        lines.append(f"  analysts: {{first-analyst: {{purposes: [analysis], epsilon: {quarter}}}}}")
    limits = ", ".join(f"{name}: {decided.risk:g}" for name in limited)
    attacked = [f"  attack: {{most: {{{limits}}}}}"] if limits else []
    return [
        *lines,
        "release:",
        *attacked,
        f"  joint: {{most: {MOST_EXPOSED}}}  # if rows themselves were ever released",
    ]


def _write_models(made: Draft, decided: Decisions) -> Iterator[str]:
    several: dict[str, float] = {column.name: decided.l or 2 for column in list_diverse(made, decided)}
    near = {column.name: bound_distance(column) for column in list_skewed(made, decided)}
    # Where no l can be asked, nobody was asked for one, and nobody said that nothing is to be asked of secrets.
    asked = {"l": several, "t": near} if decided.l is None or decided.l > 1 else {}
    secrets = ""
    for word, numbers in asked.items():
        named = ", ".join(f"{yaml_word(name)}: {number}" for name, number in numbers.items())
        secrets += f", {word}: {{{named}}}" if named else ""
    yield f"  anonymize: {{k: {decided.k}{secrets}, suppress: {decided.suppress:g}}}"
    yield from _write_limits(decided)


def _write_limits(decided: Decisions) -> Iterator[str]:
    most = min(float(decided.risk or 0), MOST_EXPOSED)
    yield f"  attack: {{most: {{uniqueness: {most:g}, linkability: {most:g}}}}}"
    yield f"  joint: {{most: {decided.risk:g}}}  # what all released columns together may single out"


KEY, KEY_FILE = "people", "people.key"
"""The key by which identifiers are replaced: the one that drafts name, in a file of the release's folder."""
FEWEST_TO_HOLD_OUT = 400
"""With fewer rows too few people can be held out to tell luck from leak."""


def list_attacks(made: Draft, decided: Decisions, learned: Mapping[str, Any]) -> list[str]:
    """The attacks that synthetic rows must withstand, by what there is to know and to learn in columns with values.

    Singling out is tried and told, and not limited: it rests on the few predicates that single out a released row.
    """
    public = {**decided.values, **learned}
    valued = [c.name for c in made.columns if isinstance(public.get(c.name), Mapping) and public[c.name]]
    coded = [c.name for c in made.columns if c.type is ColumnType.BOOLEAN] + valued
    known = [name for name in list_role(made, decided, Role.QUASI_IDENTIFIER) if name in coded]
    beside = [name for name in list_released(made, decided) if name in coded and name not in known]
    if decided.technique != SYNTHETIC or made.rows < FEWEST_TO_HOLD_OUT or not (known or beside):
        return []
    return ["membership", *(["linkability"] if known and beside else [])]


@dataclass(frozen=True, slots=True)
class Step:
    """One step as a command that can be pasted."""

    title: str
    words: tuple[str, ...]

    @property
    def command(self) -> str:
        """The command as a shell reads it."""
        return shlex.join(("deniable", *self.words))


def name_step(title: str, *words: object) -> Step:
    """A step, from words that may be paths; None is no word."""
    return Step(title, tuple(str(word) for word in words if word is not None))


def name_learning(made: Draft, column: Drafted, each: str, policy: Path) -> Step:
    """The command that learns the values of a column: its groups with noise, or the bounds of its numbers."""
    listed = is_listed(column)
    asked = ("query", write_learning(made, column)) if listed else ("bounds", made.table, column.name)
    delta = ("--delta", DELTA_OF_LEARNING) if listed else ()
    return name_step(f"Learn the values of {column.name} with noise", *asked, "-p", policy, "--epsilon", each, *delta)


def is_listed(column: Drafted) -> bool:
    """Whether the public values of a column are a list, and not bounds."""
    return column.type is ColumnType.TEXT or (column.code and column.type is not ColumnType.DECIMAL)


def write_learning(made: Draft, column: Drafted) -> str:
    """The question that learns which values of a column many people have."""
    name, table = (f'"{word.replace(chr(34), chr(34) * 2)}"' for word in (column.name, made.table))
    return f"SELECT {name}, COUNT(*) AS n FROM {table} GROUP BY {name}"  # noqa: S608  quoted names


def write_first_question(made: Draft, decided: Decisions) -> str:
    """A first question for analysts: how many are in each group of the column that has fewest."""
    released = list_released(made, decided)
    grouped = [c for c in made.columns if c.name in released and is_listed(c) and 1 < c.distinct <= 50]
    if grouped:
        return write_learning(made, min(grouped, key=lambda column: column.distinct))
    table = made.table.replace('"', '""')
    return f'SELECT COUNT(*) AS n FROM "{table}"'  # noqa: S608  a quoted name


LOST = "lost whole: every value is withheld"


def describe_change(
    column: Drafted,
    decided: Decisions,
    learned: Mapping[str, Any] | None = None,
    became: Mapping[str, Any] | None = None,
) -> tuple[str, str]:
    """What a column holds before, and what leaves of it, in words: what may, or what did.

    `became` is what became of it in a release that was made: its level of generalization, and their names.
    """
    role = role_of(column, decided)
    before = f"{column.type}: {column.shape}"
    if column.name in decided.left_out:
        return before, f"left out: {decided.left_out[column.name]}"
    if became:
        lost = became["level"] == became["levels"] - 1
        return before, LOST if lost else _say_level(became)
    masked = _choose_mask(column, role) if decided.technique == MASKED else None
    if masked is not None:
        return before, f"masked: {write_spec(masked)}"
    if column.name == decided.unit or role is Role.IDENTIFIER:
        return before, "removed"
    if role is Role.UNDECIDED or (decided.technique not in TRUE_ROWS and "," in column.name):
        return before, "withheld"
    if decided.technique == MASKED:
        return before, "as it is"
    if decided.technique == K_ANONYMITY:
        return before, _say_levels(_choose_hierarchy(column)) if role is Role.QUASI_IDENTIFIER else "as it is"
    if decided.technique == QUERIES:
        return before, "may be asked about, with noise"
    public = {**decided.values, **(learned or {})}.get(column.name)
    return before, f"drawn anew {_say_values(column, public)}"


def _say_level(became: Mapping[str, Any]) -> str:
    named = name_level(became["level"], became)
    return named if became["level"] == 0 else f"generalized {named}"


def _say_levels(hierarchy: str) -> str:
    """What may become of a column that others know: which level is needed is known when the release is made."""
    tree = parse_tree(hierarchy, Mistakes("hierarchy"))
    steps: list[str] = []
    for kind, listed in tree.entries if isinstance(tree, Entries) else ():
        named = [str(each.text) for each in listed.items if isinstance(each, Leaf)] if isinstance(listed, Items) else []
        column = {"levels": len(named) + 2, "hierarchy": {kind.text: {"levels": named}}}
        steps += [name_level(place, column) for place in range(1, len(named) + 1)] or ["coarser, step by step"]
    return f"as it is, or {', '.join([*steps, 'withheld whole'])}: as little as k asks"


def _say_values(column: Drafted, public: Any) -> str:
    if isinstance(public, Mapping) and public:
        ((word, listed),) = public.items()
        return f"among {len(listed)} values" if word == "categories" else f"between {listed[0]} and {listed[1]}"
    if public == LEARN:
        return "from values learned with noise"
    return "in shapes of texts learned with noise" if column.type is ColumnType.TEXT else "from yes and no"


def list_drawn(made: Draft, decided: Decisions, learned: Mapping[str, Any]) -> tuple[str, ...]:
    """The columns of which synthetic rows are drawn; numbers of which nothing was learned are not."""
    released = list_released(made, decided)
    public = {**decided.values, **learned}
    lost = [c.name for c in list_valued(made, decided)
            if str(c.type) != "text" and not isinstance(public.get(c.name) or None, Mapping)]  # fmt: skip
    chosen = tuple(name for name in released if name not in lost)
    if not chosen:
        raise Infeasible(
            "no column is left to draw: of none are values public, and none rose above the noise",
            remedy="Declare values from what you know of the subject, decide on more columns, or take k-anonymity",
            charge="Learning the values was charged; the release was not made." if learned else NOTHING_CHARGED,
        )
    return chosen


def list_kept(made: Draft, decided: Decisions) -> dict[str, str]:
    """The columns that leave as they are; of masked rows all that others may know."""
    known = (Role.QUASI_IDENTIFIER,) if decided.technique == MASKED else ()
    return dict.fromkeys(list_role(made, decided, Role.SENSITIVE, Role.INSENSITIVE, *known), "would leave as it is")


def leave_out(decided: Decisions, question: Question, column: str) -> Decisions:
    """The decisions with one column withheld, and why; what was decided on it stands beside that."""
    if column not in question.choices:
        raise ParameterError(f"'{column}' is none of them", expected=f"One of {', '.join(question.choices)}")
    return replace(decided, left_out={**decided.left_out, column: question.about[0]})


def write_decisions(decided: Decisions, head: Sequence[str] = ()) -> str:
    """The decisions as the YAML text that can be given as answers again."""
    lines = [f"# {line}" for line in head]
    for name, value in decided.to_dict().items():
        if isinstance(value, Mapping):
            lines.append(f"{name}:")
            lines += [f"  {json.dumps(key, ensure_ascii=False)}: {_write_value(one)}" for key, one in value.items()]
        else:
            lines.append(f"{name}: {_write_value(value)}")
    return "\n".join(lines) + "\n"


def _write_value(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, Mapping | str) else f"{cast('float', value):g}"
