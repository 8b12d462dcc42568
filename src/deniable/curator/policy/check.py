"""Checking a policy: who is protected and how much, in plain words, and what may have been overlooked.

What protects little, and what protects less than the policy that was accepted last, needs the steward's word. With the
data at hand a policy is also compared with the rows; what is found is for the steward's eyes, and holds no value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from deniable.curator.context import find_ledger, open_context, state_acceptance
from deniable.curator.policy.accepted_rows import note_accepted_rows
from deniable.curator.sources import refuse_private_as_public
from deniable.errors import ParameterError, PolicyError, pluralize
from deniable.policy.access import Budgets, Period
from deniable.policy.advice import list_advice, list_doubts
from deniable.policy.budget import ZCDP, Budget, format_number
from deniable.policy.diff import list_loosened
from deniable.policy.document import Policy, compare_with_accepted, keep_accepted, parse, read_unaccepted
from deniable.policy.json_schema import Schema, build_json_schema
from deniable.policy.layout.policy_file import POLICY
from deniable.policy.schema import Column, Neighboring, Role, TableSchema
from deniable.policy.tables import SCHEMES
from deniable.release.record import Record
from deniable.storage import write_whole

if TYPE_CHECKING:
    from deniable.curator.context import Context
    from deniable.curator.scope import Scope
    from deniable.engines.base import Engine


@dataclass(frozen=True, slots=True, eq=False)
class TableSummary(Record):
    """A table of a policy: whom it protects, and how many columns it has of each role."""

    name: str
    source: str
    protects: str
    columns: int
    roles: dict[str, int]


@dataclass(frozen=True, slots=True, eq=False)
class BudgetSummary(Record):
    """The budgets of a policy in words: of the dataset, and by the names of purposes and analysts."""

    dataset: str
    accounting: str
    purposes: dict[str, str]
    analysts: dict[str, str]


@dataclass(frozen=True, slots=True, eq=False)
class PolicySummary(Record):
    """A policy that holds no mistake: who is protected and how much, and what its steward may have overlooked.

    `doubts` need the steward's word, each under its name; so does what is `loosened` against the policy that was
    accepted last. `data` is what the rows say against the policy, where they were looked at.
    """

    policy: str
    hash: str
    dataset: str
    expires: str | None
    tables: list[TableSummary]
    budgets: BudgetSummary | None
    notes: list[str]
    doubts: dict[str, str]
    loosened: list[str]
    data: list[DataFinding] | None = None

    @property
    def is_open(self) -> bool:
        """Whether it needs the steward's word, or is not what the rows are."""
        return bool(self.doubts or self.loosened or any(one.serious for one in self.data or ()))


@dataclass(frozen=True, slots=True, eq=False)
class DataFinding(Record):
    """Where the rows are not as the policy says: the share of rows, or of units, and no value of them.

    A serious one makes protection or answers wrong; others cost accuracy, as the policy says they may.
    """

    table: str
    column: str | None
    words: str
    share: float
    serious: bool


def check_policy(path: str | Path, *, data: bool = False) -> PolicySummary:
    """Read a policy and describe it; every mistake is raised in one PolicyError. With `data` its rows are looked at."""
    return describe_policy(read_unaccepted(path), path, data=data)


def check_text(path: str | Path, text: str) -> PolicySummary:
    """Describe a policy that is not written to its file yet; every mistake is raised in one PolicyError."""
    return describe_policy(_parse_text(path, text), path)


def _parse_text(path: str | Path, text: str) -> Policy:
    """The policy in a text for a file; it may name what that file names, and files of its folder, and no others.

    Whoever can change a policy from afar shall not be able to have any file of this machine read.
    """
    at = Path(path)
    policy = parse(text, source=at.name, folder=at.parent)
    known = {table.source for table in read_unaccepted(at).tables}
    for table in policy.tables:
        if table.source not in known and not _is_inside(policy, table.source):
            raise PolicyError(
                f"{at.name}: the source of '{table.name}' is outside the policy's folder",
                expected=f"A file in {at.parent.name}/, or a source that the policy has already",
                remedy="Name other sources in the file itself, on the machine that serves it",
            )
    return policy


def _is_inside(policy: Policy, source: str) -> bool:
    """Whether a source is a file or a pattern within the policy's folder."""
    if source.startswith(tuple(f"{scheme}:" for scheme in SCHEMES)) or "://" in source:
        return False
    return policy.path(source).resolve().is_relative_to(policy.folder.resolve())


def describe_policy(policy: Policy, path: str | Path, *, data: bool = False) -> PolicySummary:
    """A policy that holds no mistake in plain words; `path` is where it is, or will be."""
    return PolicySummary(
        policy=str(path),
        hash=policy.hash,
        dataset=policy.dataset,
        expires=policy.expires.isoformat() if policy.expires else None,
        tables=[_table(table) for table in policy.tables],
        budgets=_budgets(policy.budgets) if policy.budgets else None,
        notes=[*_find_missing_sources(policy), *list_advice(policy)],
        doubts={doubt.name: doubt.words for doubt in list_doubts(policy)} | _find_expiry(policy),
        loosened=list(compare_with_accepted(policy, path)),
        data=compare_with_rows(policy, find_ledger(Path(path), None)) if data and not _find_expiry(policy) else None,
    )


@dataclass(frozen=True, slots=True, eq=False)
class RiskChange(Record):
    """How many rows the quasi-identifiers of a table single out now, and how many under the changed policy."""

    table: str
    columns_before: list[str]
    alone_before: int | None
    columns_after: list[str]
    alone_after: int | None
    rows: int | None


@dataclass(frozen=True, slots=True, eq=False)
class ChangeReport(Record):
    """What a changed policy would do: to the risk of its tables, and to whoever may ask. For the steward's eyes."""

    risks: list[RiskChange]
    grants: list[str]
    looser: list[str]
    """What it would protect less than the policy in force."""
    stricter: int
    """In how many points it would protect more."""


def foresee_change(context: Context, path: str | Path, text: str) -> ChangeReport:
    """What a policy that is not in force yet would change against the one that is."""
    policy = _parse_text(path, text)
    looser, stricter = list_loosened(context.policy, policy), list_loosened(policy, context.policy)
    grants = list(_compare_grants(context, policy))
    return ChangeReport(_compare_risks(context, policy), grants, list(looser), len(stricter))


def _compare_risks(context: Context, policy: Policy) -> list[RiskChange]:
    from deniable.curator.governance.requests import TableRisk, measure_risk

    names = tuple(table.name for table in policy.private)
    known = tuple(table.name for table in context.policy.private)
    with closing(open_context(policy)) as changed:
        after = measure_risk(changed, names)
    before = measure_risk(context, known)
    nothing = TableRisk([])
    pairs = [(name, before.get(name, nothing), after.get(name, nothing)) for name in dict.fromkeys(known + names)]
    return [
        RiskChange(name, one.columns, one.alone, two.columns, two.alone, two.rows if two.rows is not None else one.rows)
        for name, one, two in pairs
    ]


def _compare_grants(context: Context, policy: Policy) -> Iterator[str]:
    """Who could do before what they could not do after, and the other way round, in sentences."""
    old, new = context.policy.budgets, policy.budgets
    purposes = {each.name for each in new.purposes} if new else set()
    analysts = {name for each in (new.analysts if new else ()) for name in each.members or (each.name,)}
    listed = {name for each in (old.analysts if old else ()) for name in each.members or (each.name,)}
    for token in context.state.tokens().values():
        grant = token.grant
        if token.revoked is not None:
            continue
        lost = [name for name in grant.purposes or () if name not in purposes]
        if lost:
            yield f"The token of '{grant.name}' is for {', '.join(lost)}, which would be no purpose any more."
        if grant.name in listed - analysts:
            yield f"'{grant.name}' holds a token, and would no longer be listed as an analyst."
    yield from (f"'{name}' would be an analyst, and holds no token for that yet." for name in sorted(analysts - listed))
    yield from _compare_limits(context, policy)


def _compare_limits(context: Context, policy: Policy) -> Iterator[str]:
    """Limits that would be lower or higher than they are."""
    old, new = context.policy.budgets, policy.budgets
    if old is None or new is None:
        if old is not new:
            yield (
                "There would be budgets where there are none." if old is None else "There would be no budget any more."
            )
        return
    before = {"the dataset": old.dataset} | {f"purpose '{each.name}'": each.allowance for each in old.purposes}
    after = {"the dataset": new.dataset} | {f"purpose '{each.name}'": each.allowance for each in new.purposes}
    before |= {f"analyst '{each.name}'": each.allowance for each in old.analysts}
    after |= {f"analyst '{each.name}'": each.allowance for each in new.analysts}
    for name in (each for each in before if each in after and before[each] != after[each]):
        yield f"The limit of {name} would be {allowance(after[name])}, and is {allowance(before[name])}."


@dataclass(frozen=True, slots=True, eq=False)
class ColumnEvidence(Record):
    """A column with the role that the policy gives it, the role that was found, and why; no value is in it."""

    column: str
    role: str
    found: str
    evidence: str


def gather_evidence(policy: Policy, name: str) -> list[ColumnEvidence]:
    """What the values and names of a table's columns say about their roles. For the steward's eyes."""
    from deniable.curator.policy.draft import draft_table

    table = policy.table(name)
    plain = not table.source.startswith(tuple(f"{scheme}:" for scheme in SCHEMES))
    source = str(policy.path(table.source)) if plain else table.source
    made = draft_table(source, policy.folder, policy=table)
    roles = {column.name: str(column.role) for column in table.columns}
    return [
        ColumnEvidence(column.name, roles.get(column.name, "not declared"), str(column.role), column.reason)
        for column in made.columns
    ]


def save_policy(path: Path, text: str, by: str, *, accept: bool = False) -> PolicySummary:
    """Write a changed policy to its file; one that protects less is refused unless it is accepted with it."""
    told = check_text(path, text)
    if told.loosened and not accept:
        raise PolicyError(
            f"it protects less than the policy that was accepted last: {'; '.join(told.loosened)}",
            remedy="Accept what it protects less, or change it back",
        )
    write_whole(path, text.encode())
    if accept:
        accept_policy(path, by)
    return told


def accept_policy(path: str | Path, by: str, ledger: str | None = None) -> tuple[str, ...]:
    """Keep a policy as the one that the steward accepted; what it protects less than the one accepted before.

    Its digest is written into its ledger too, where there is one: what is kept in the user's state can be removed.
    """
    from deniable.governance.grants import Role as Standing
    from deniable.governance.grants import refuse_name
    from deniable.governance.withdrawals import COLLECTION
    from deniable.ledger.witness import open_for_acts

    if not by.strip():
        raise ParameterError("nobody accepts the policy", expected="A name, as in --by 'A. Steward'")
    refuse_name(by, Standing.STEWARD)
    policy = read_unaccepted(path)
    loosened = compare_with_accepted(policy, path)
    refuse_private_as_public(policy)
    if (place := find_ledger(Path(path), ledger)) is not None:
        with open_for_acts(place, policy, COLLECTION) as (opened, _):
            opened.record(state_acceptance(policy, by))
    keep_accepted(policy, path, by, datetime.now(UTC).date())
    note_accepted_rows(policy, path)
    return loosened


def _find_expiry(policy: Policy) -> dict[str, str]:
    """A policy whose last day is over releases nothing, which nobody can accept away."""
    if not policy.is_expired(datetime.now(UTC).date()):
        return {}
    return {"expired": f"its last day was {policy.expires}: everything is refused until expires: is a later day"}


def policy_schema() -> Schema:
    """The JSON Schema of a policy file, for editors."""
    return build_json_schema(POLICY)


def _table(table: TableSchema) -> TableSummary:
    roles = Counter(str(column.role) for column in table.columns)
    return TableSummary(table.name, table.source, _protects(table), len(table.columns), dict(roles))


def _protects(table: TableSchema) -> str:
    unit = table.unit
    if unit is None:
        return "nobody: the table is public"
    bounds = [
        pluralize(limit, one) + where
        for limit, one, where in (
            (unit.max_groups, "group", ""),
            (unit.max_rows_per_group, "row", " in each"),
            (unit.max_rows, "row", " in all"),
        )
        if limit is not None
    ]
    limits = f", at most {' and '.join(bounds)}" if bounds else ""
    exchanged = ", where one is exchanged for another" if unit.neighboring is Neighboring.REPLACE else ""
    return f"{unit}{limits}{exchanged}"


def _budgets(budgets: Budgets) -> BudgetSummary:
    return BudgetSummary(
        dataset=allowance(budgets.dataset),
        accounting=str(budgets.accounting),
        purposes={p.name: allowance(p.allowance) + _renewed(p.every) for p in budgets.purposes},
        analysts={a.name: f"{allowance(a.allowance)} for {', '.join(a.purposes)}" for a in budgets.analysts},
    )


def _renewed(every: Period | None) -> str:
    return f" every {every}" if every else ""


def allowance(budget: Budget) -> str:
    """A budget in words."""
    name, amount = ("rho", budget.rho) if isinstance(budget, ZCDP) else ("epsilon", budget.epsilon)
    delta = f", delta {format_number(budget.delta)}" if budget.delta else ""
    return f"{name} {format_number(amount)}{delta}"


def _find_missing_sources(policy: Policy) -> list[str]:
    """Sources that are plain paths and not there; a policy is valid without its data, but a steward wants to know."""
    plain = [t for t in policy.tables if not t.source.startswith(tuple(f"{s}:" for s in SCHEMES))]
    missing = [t for t in plain if not set("*?[#") & set(t.source) and not policy.path(t.source).exists()]
    return [f"{table.name}: its source is not there yet ({table.source})." for table in missing]


AT_ONCE = 100
"""So many columns are counted by one statement: a table may have thousands."""


def compare_with_rows(policy: Policy, ledger: str | None = None) -> list[DataFinding]:
    """Where the private tables are not as the policy says, for the steward's eyes; without whoever withdrew."""
    found: list[DataFinding] = []
    with closing(open_context(policy, ledger=ledger)) as context:
        for table in policy.private:
            engine = context.scope.attach(table.name)
            present = {field.name for field in engine.describe(table.name)}
            rows = engine.count(table.name)
            columns = [column for column in table.columns if column.name in present]
            for start in range(0, len(columns), AT_ONCE) if rows else ():
                found += _compare_columns(engine, table, columns[start : start + AT_ONCE], rows)
        for table in (each for each in policy.tables if each.public):
            found += _doubt_public(context.scope, policy, table)
    return found


RECOGNIZED = 0.05
"""So large a share of a public table's rows may be those of one person in a private table by chance."""
_NAMING = ("e-mail", "given name", "surname", "social security number", "national id", "card number")


def _doubt_public(scope: Scope, policy: Policy, public: TableSchema) -> Iterator[DataFinding]:
    """What of people stands in a table that is declared public: it is released raw, and at no cost."""
    from deniable.curator.mask.run import sample
    from deniable.masking.identifiers import detect

    engine = scope.attach(public.name)
    rows = engine.count(public.name)
    if not rows:
        return
    for finding in detect(sample(engine, public.name)):
        if finding.kind in _NAMING:
            words = f"the values look like {finding.kind}, which names people, though the table is public"
            share = max(each.share for each in finding.evidence)
            yield DataFinding(public.name, finding.column, words, share, True)
    present = {field.name for field in engine.describe(public.name)}
    for private in policy.private:
        shared = [field.name for field in scope.attach(private.name).describe(private.name) if field.name in present]
        share = _count_known(engine, public.name, private.name, shared) / rows if len(shared) > 1 else 0.0
        if share > RECOGNIZED:
            words = f"the values are those of one row of the private table '{private.name}', in {', '.join(shared[:5])}"
            yield DataFinding(public.name, None, words, share, True)


def _count_known(engine: Engine, public: str, private: str, shared: Sequence[str]) -> int:
    """How many rows of a public table are, in the columns that both have, like exactly one row of a private table."""
    from deniable.engines.base import quote

    texts = ", ".join(f"CAST({quote(name)} AS VARCHAR) AS c{place}" for place, name in enumerate(shared))
    using = ", ".join(f"c{place}" for place in range(len(shared)))
    once = f"SELECT {using} FROM (SELECT {texts} FROM {quote(private)}) GROUP BY ALL HAVING COUNT(*) = 1"  # noqa: S608
    asked = f"SELECT COUNT(*) FROM (SELECT {texts} FROM {quote(public)}) SEMI JOIN ({once}) USING ({using})"  # noqa: S608
    return int(engine.run(asked).column(0)[0].as_py())


def _compare_columns(engine: Engine, table: TableSchema, columns: Sequence[Column], rows: int) -> Iterator[DataFinding]:
    """What the rows say of some columns, all counted in one statement."""
    from deniable.engines.base import quote

    asked = [each for column in columns for each in _list_questions(table, column)]
    if not asked:
        return
    listed = ", ".join(f"{question.count} AS c{place}" for place, question in enumerate(asked))
    counted = engine.run(f"SELECT {listed} FROM {quote(table.name)}")  # noqa: S608  our own words and quoted names
    for question, values in zip(asked, counted.columns, strict=True):
        share = float(values[0].as_py() or 0) / rows
        if share > 0:
            yield DataFinding(table.name, question.column, question.words, share, question.serious)


@dataclass(frozen=True, slots=True)
class _Question:
    """A count of rows that are not as a column's declaration says."""

    column: str
    count: str
    words: str
    serious: bool


def _list_questions(table: TableSchema, column: Column) -> Iterator[_Question]:
    from deniable.engines.base import quote

    name, is_unit = quote(column.name), table.unit is not None and table.unit.column == column.name
    nulls = f"count(*) - count({name})"
    if is_unit:
        yield _Question(column.name, nulls, "the unit is missing: nobody can tell whose they are", True)
    elif not column.nullable:
        words = "the values are missing, though it says nullable: false: averages over it are wrong"
        yield _Question(column.name, nulls, words, True)
    if table.unit is not None and table.unit.is_row and column.role is Role.IDENTIFIER:
        words = "the values repeat, though each row is taken for another person: say unit: {column: ...}"
        yield _Question(column.name, f"count({name}) - count(DISTINCT {name})", words, True)
    if column.bounds is not None:
        low, high = (_write_literal(end) for end in (column.bounds.lower, column.bounds.upper))
        outside = f"count(*) FILTER (WHERE {name} < {low} OR {name} > {high})"
        yield _Question(column.name, outside, "the values are outside the bounds, and clamped to them", False)
    if column.categories is not None:
        listed = ", ".join(_write_text(each) for each in column.categories)
        other = f"count(*) FILTER (WHERE {name} IS NOT NULL AND CAST({name} AS VARCHAR) NOT IN ({listed}))"
        yield _Question(column.name, other, "the values are none of the categories, and count as missing", False)


def _write_literal(end: object) -> str:
    if isinstance(end, datetime):
        return f"TIMESTAMP '{end.isoformat(sep=' ')}'"
    return f"DATE '{end.isoformat()}'" if isinstance(end, date) else f"({end})"


def _write_text(value: object) -> str:
    written = str(value).lower() if isinstance(value, bool) else str(value)
    doubled = written.replace("'", "''")
    return f"'{doubled}'"
