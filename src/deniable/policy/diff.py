"""What a policy protects less than another did: a change that loosens protection needs the steward's word.

Only loosening is listed; tightening a policy or wider bounds need nobody's word. What cannot be
compared, such as another mask, counts as loosened, so that somebody looks at it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date
from fractions import Fraction
from typing import Protocol

from deniable.policy.access import (
    Analyst,
    AttackLimits,
    Budgets,
    Epochs,
    JointLimit,
    Minimize,
    Purpose,
    ReleaseSettings,
)
from deniable.policy.budget import ZCDP, Budget, covers, format_number
from deniable.policy.schema import Anonymize, Column, Neighboring, PrivacyUnit, Role, TableSchema, is_removed


class Terms(Protocol):
    """The parts of a policy that decide how much is protected."""

    @property
    def tables(self) -> tuple[TableSchema, ...]:
        """Tables with their units and columns."""

    @property
    def budgets(self) -> Budgets | None:
        """Who may ask how much."""

    @property
    def release(self) -> ReleaseSettings:
        """What releases must meet."""

    @property
    def expires(self) -> date | None:
        """The last day."""

    @property
    def epochs(self) -> Epochs | None:
        """When equal questions are answered anew."""

    @property
    def accepts(self) -> tuple[str, ...]:
        """What the steward stands for."""

    @property
    def witness(self) -> str | None:
        """Who is told the head of the ledger."""

    @property
    def stewards(self) -> tuple[str, ...]:
        """The people who decide on requests."""


STRICTNESS = (Role.INSENSITIVE, Role.SENSITIVE, Role.QUASI_IDENTIFIER, Role.IDENTIFIER, Role.UNDECIDED)
"""Roles by what a release does to their columns: shown, shown where classes are diverse, generalized, left out."""
WITHHELD = (Role.IDENTIFIER, Role.UNDECIDED)


def list_loosened(before: Terms, after: Terms) -> tuple[str, ...]:
    """One sentence for each thing that `after` protects less than `before`."""
    found: list[str] = []
    known = {table.name: table for table in before.tables}
    for table in after.tables:
        found += _compare_tables(known.get(table.name), table)
    found += _compare_budgets(before.budgets, after.budgets)
    found += _compare_releases(before.release, after.release)
    if before.expires is not None and (after.expires is None or after.expires > before.expires):
        found.append(f"expires: {before.expires} became {after.expires or 'never'}")
    if before.epochs != after.epochs and after.epochs is not None:
        found.append("epochs: equal questions are answered anew at other times")
    found += [f"accepts: {name} was added" for name in after.accepts if name not in before.accepts]
    if before.witness is not None and before.witness != after.witness:
        found.append("witness: the head of the ledger is no longer told to the one before")
    if before.stewards and not after.stewards:
        found.append("stewards: nobody is listed any more")
    found += [
        f"stewards: {each} decides too" for each in after.stewards if before.stewards and each not in before.stewards
    ]
    return tuple(found)


def _compare_tables(before: TableSchema | None, after: TableSchema) -> Iterator[str]:
    if before is None:
        # Under another name, or beside it, the same rows could be declared with other columns and another unit.
        words = "public table, whose rows are free to use" if after.public else "table"
        yield f"{after.name}: a new {words}"
        return
    if after.public and not before.public:
        yield f"{after.name}: private became public"
        return
    if before.public:
        return
    if before.source != after.source:
        yield f"{after.name}: its source became {after.source}"
    yield from _compare_units(after.name, before.unit, after.unit)
    if before.same_people_as is not None and before.same_people_as != after.same_people_as:
        yield f"{after.name}: who withdraws from {before.same_people_as} is no longer left out of it"
    if after.rows_out > before.rows_out:
        yield f"{after.name}: {after.rows_out} rows may be brought out of its database, not {before.rows_out}"
    columns = {column.name: column for column in before.columns}
    for column in after.columns:
        for words in _compare_columns(columns.get(column.name), column):
            yield f"{after.name}.{column.name}: {words}"


def _compare_units(table: str, before: PrivacyUnit | None, after: PrivacyUnit | None) -> Iterator[str]:
    if before is None or after is None:
        return
    if (before.column, before.via, before.network) != (after.column, after.via, after.network):
        yield f"{table}: it protected {before}, and now {after}"
    if before.neighboring is Neighboring.REPLACE and after.neighboring is not before.neighboring:
        yield f"{table}: neighboring {before.neighboring} became {after.neighboring}"


def _compare_columns(before: Column | None, after: Column) -> Iterator[str]:
    role = Role.UNDECIDED if before is None else before.role
    if after.decided and STRICTNESS.index(after.role) < STRICTNESS.index(role):
        yield f"{role if before else 'not declared'} became {after.role}"
    gained = after.mask if before is not None and before.mask is None and role in WITHHELD else None
    if gained is not None and not is_removed(gained):
        yield f"it was withheld, and now leaves with the mask {gained.kind}"
    if before is not None and before.mask is not None and before.mask != after.mask:
        yield f"the mask {before.mask.kind} " + (f"became another {after.mask.kind}" if after.mask else "was dropped")


def _compare_budgets(before: Budgets | None, after: Budgets | None) -> Iterator[str]:
    if after is None:
        return
    if before is None:
        yield "budgets: private questions are answered from now on"
        return
    yield from _compare_amounts("budgets: dataset", before.dataset, after.dataset)
    if before.accounting != after.accounting:
        yield f"budgets: {before.accounting} accounting became {after.accounting}"
    purposes = {each.name: each for each in before.purposes}
    for purpose in after.purposes:
        yield from _compare_purposes(purposes.get(purpose.name), purpose)
    analysts = {each.name: each for each in before.analysts}
    for analyst in after.analysts:
        yield from _compare_analysts(analysts.get(analyst.name), analyst)


def _compare_amounts(what: str, before: Budget, after: Budget) -> Iterator[str]:
    if isinstance(before, ZCDP) != isinstance(after, ZCDP) or not covers(before, after):
        yield f"{what}: {_describe_amount(before)} became {_describe_amount(after)}"


def _describe_amount(budget: Budget) -> str:
    name, amount = ("rho", budget.rho) if isinstance(budget, ZCDP) else ("epsilon", budget.epsilon)
    return f"{name} {format_number(amount)} with delta {format_number(budget.delta)}"


def _compare_purposes(before: Purpose | None, after: Purpose) -> Iterator[str]:
    what = f"budgets: purpose {after.name}"
    if before is None:
        yield f"{what}: it is new"
        return
    yield from _compare_amounts(what, before.allowance, after.allowance)
    if after.every is not None and before.every != after.every:
        yield f"{what}: renewed every {before.every or 'time the policy says so'} became every {after.every}"
    if after.approvals < before.approvals:
        yield f"{what}: approvals {before.approvals} became {after.approvals}"
    if before.justify and not after.justify:
        yield f"{what}: requests need no justification any more"
    if before.terms and not after.terms:
        yield f"{what}: the terms were dropped"


def _compare_analysts(before: Analyst | None, after: Analyst) -> Iterator[str]:
    what = f"budgets: analyst {after.name}"
    if before is None:
        yield f"{what}: new"
        return
    yield from _compare_amounts(what, before.allowance, after.allowance)
    yield from (f"{what}: may ask for {name}" for name in after.purposes if name not in before.purposes)
    if before.until is not None and (after.until is None or after.until > before.until):
        yield f"{what}: the grant until {before.until} became until {after.until or 'the policy ends'}"
    yield from (f"{what}: {name} is a new member" for name in after.members if name not in before.members)
    yield from _compare_lists(f"{what}: columns", before.columns, after.columns)
    for column, values in before.rows.items():
        yield from _compare_lists(f"{what}: rows by {column}", values, after.rows.get(column))


def _compare_lists(what: str, before: tuple[str, ...] | None, after: tuple[str, ...] | None) -> Iterator[str]:
    """Lists of what is allowed; None is everything. Values of rows are counted, not told."""
    if before is None:
        return
    if after is None:
        yield f"{what}: the list was dropped, so that all are allowed"
    elif more := set(after) - set(before):
        yield f"{what}: {len(more)} more are allowed"


def _compare_releases(before: ReleaseSettings, after: ReleaseSettings) -> Iterator[str]:
    yield from _compare_models(before.anonymize, after.anonymize)
    yield from _compare_minimization(before.minimize, after.minimize)
    yield from _compare_attacks(before.attack, after.attack)
    yield from _compare_joint(before.joint, after.joint)


def _compare_models(before: Anonymize | None, after: Anonymize | None) -> Iterator[str]:
    if before is None:
        return
    now = after or Anonymize()
    if now.k < before.k:
        yield f"release: anonymize: k {before.k} became {now.k}"
    if now.suppress > before.suppress:
        shares = f"{format_number(before.suppress)} became {format_number(now.suppress)}"
        yield f"release: anonymize: suppress {shares}, by which more rows may be left out unseen"
    yield from _compare_demands("release: anonymize: l", before.l, now.l, sign=-1)
    yield from _compare_demands("release: anonymize: t", before.t, now.t, sign=1)
    yield from (f"release: anonymize: the model {m.kind} changed" for m in before.models if m not in now.models)
    if before.second_release == "refuse" and now.second_release != "refuse":
        yield "release: anonymize: a second release is no longer refused"


def _compare_demands(
    what: str, before: Mapping[str, Fraction], after: Mapping[str, Fraction], sign: int
) -> Iterator[str]:
    for name, demand in before.items():
        now = after.get(name)
        if now is None:
            yield f"{what} of {name}: {format_number(demand)} was dropped"
        elif sign * now > sign * demand:
            yield f"{what} of {name}: {format_number(demand)} became {format_number(now)}"


def _compare_minimization(before: Minimize | None, after: Minimize | None) -> Iterator[str]:
    if before is None:
        return
    now = after or Minimize()
    if now.sample > before.sample:
        yield f"release: minimize: sample {format_number(before.sample)} became {format_number(now.sample)}"
    yield from _compare_lists("release: minimize: columns", before.columns, now.columns)


def _compare_attacks(before: AttackLimits | None, after: AttackLimits | None) -> Iterator[str]:
    yield from _compare_acceptance("attack", before, after)
    if before is None:
        return
    now = after or AttackLimits()
    yield from _compare_demands("release: attack: most", before.most, now.most, sign=1)
    lost = [name for name in before.knows or () if name not in (now.knows or ())]
    if before.knows is None and now.knows is not None:  # before, every quasi-identifier was known
        yield f"release: attack: the intruder is taken to know {', '.join(now.knows) or 'nothing'} alone"
    elif lost:
        yield f"release: attack: the intruder is no longer taken to know {', '.join(lost)}"


def _compare_joint(before: JointLimit | None, after: JointLimit | None) -> Iterator[str]:
    if before is not None and (after is None or after.most > before.most):
        now = "was dropped" if after is None else f"became {format_number(after.most)}"
        yield f"release: joint: most {format_number(before.most)} {now}"
    yield from _compare_acceptance("joint", before, after)


def _compare_acceptance(
    limit: str, before: AttackLimits | JointLimit | None, after: AttackLimits | JointLimit | None
) -> Iterator[str]:
    if after is not None and after.accepted_by and (before is None or before.accepted_by != after.accepted_by):
        yield f"release: {limit}: {after.accepted_by} accepts releases beyond the limit"
