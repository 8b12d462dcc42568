"""What a steward or an auditor looks over: incidents of one ledger, and the estate of all policies of an organization.

Incidents are read off the ledger alone. The estate is read off policies and the ledgers beside them: which people and
columns are in which datasets, what each released, and what that adds up to for one person. No row is looked at.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from deniable.curator.context import ledger_of
from deniable.curator.governance.reports import BudgetStanding, summarize_budget, trust_ledger
from deniable.errors import DeniableError, ParameterError
from deniable.ledger.ledger import POSTGRES, open_ledger
from deniable.ledger.witness import Source, Witness, name_place
from deniable.policy.budget import ZCDP
from deniable.policy.document import Policy, read_unaccepted
from deniable.policy.schema import Role
from deniable.release.record import Record

if TYPE_CHECKING:
    from deniable.ledger import Entry, Ledger

WINDOW = timedelta(hours=1)
UNUSUAL_SHARE = Fraction(1, 4)
"""Whoever spends so much of what they may within an hour is shown."""
NOTABLE = {
    "fail": "a question failed after it was charged",
    "decline": "a request was declined",
    "pause": "a token was paused",
    "revoke": "a token was revoked",
    "reveal": "tokens of a vault were turned back into values",
    "separate": "a budget of its own was given to rows that another ledger protects, or a lost ledger was begun anew",
    "reinstate": "a withdrawal was taken back",
    "accept": "a policy was accepted",
}


@dataclass(frozen=True, slots=True, eq=False)
class Alert(Record):
    """Something that a steward looks at: when, who, what, and the number of its entry."""

    time: str
    who: str
    kind: str
    words: str
    number: int


@dataclass(frozen=True, slots=True, eq=False)
class Usage(Record):
    """What one asker did for one purpose; `busiest_share` is the most of the allowance that was spent in an hour."""

    who: str
    purpose: str
    charges: int
    releases: int
    failures: int
    spent: float
    busiest_share: float | None
    first: str
    last: str


@dataclass(frozen=True, slots=True, eq=False)
class IncidentReport(Record):
    """Who asked what, and what is unusual."""

    usage: list[Usage]
    alerts: list[Alert]


def list_incidents(ledger: Ledger, after: int = 0, share: Fraction = UNUSUAL_SHARE) -> IncidentReport:
    """Who asked what since an entry, with alerts: failures, reversals, clocks that ran backwards, bursts."""
    entries = list(ledger.entries(after))
    groups: dict[tuple[str, str], list[Entry]] = defaultdict(list)
    for entry in entries:
        if entry.act in ("charge", "release", "fail"):
            groups[entry.analyst, entry.purpose].append(entry)
    usage = [_sum_usage(ledger, who, purpose, listed) for (who, purpose), listed in sorted(groups.items())]
    alerts = [*_find_notable(entries), *_find_clocks(entries), *_find_bursts(ledger, groups, share)]
    return IncidentReport(usage, sorted(alerts, key=lambda alert: alert.number))


def _sum_usage(ledger: Ledger, who: str, purpose: str, listed: Sequence[Entry]) -> Usage:
    acts = Counter(entry.act for entry in listed)
    spent = sum((amount for _, amount, _ in _list_amounts(ledger, listed)), Fraction(0))
    busiest = _find_busiest(ledger, who, purpose, listed)
    first, last = (_write_time(listed[place].time) for place in (0, -1))
    return Usage(
        who, purpose, acts["charge"], acts["release"], acts["fail"], float(spent),
        None if busiest is None else float(busiest[0]), first, last,
    )  # fmt: skip


def _list_amounts(ledger: Ledger, listed: Iterable[Entry]) -> Iterator[tuple[datetime, Fraction, int]]:
    """What each charge cost, in epsilon, or in rho where budgets are."""
    from deniable.ledger.export import price_of

    in_rho = ledger.budgets is not None and isinstance(ledger.budgets.dataset, ZCDP)
    for entry in listed:
        price = price_of(entry)
        amount = price.rho if in_rho and price.rho is not None else price.epsilon
        if amount is not None:
            yield entry.time, amount, entry.sequence


def _find_busiest(ledger: Ledger, who: str, purpose: str, listed: Iterable[Entry]) -> tuple[Fraction, int] | None:
    """The largest share of an allowance that was spent within an hour, and the entry that ended it."""
    limit = _find_allowance(ledger, who, purpose)
    if not limit:
        return None
    window: list[tuple[datetime, Fraction, int]] = []
    most, number = Fraction(0), 0
    for charged in sorted(_list_amounts(ledger, listed)):
        window = [each for each in window if charged[0] - each[0] < WINDOW] + [charged]
        share = sum((amount for _, amount, _ in window), Fraction(0)) / limit
        most, number = max((most, number), (share, charged[2]))
    return most, number


def _find_allowance(ledger: Ledger, who: str, purpose: str) -> Fraction | None:
    """What somebody may spend for a purpose: the least of their own allowance, the purpose's and the dataset's."""
    budgets = ledger.budgets
    if budgets is None:
        return None
    nodes = (budgets.find_analyst(who), budgets.find_purpose(purpose))
    limits = (budgets.dataset, *(node.allowance for node in nodes if node is not None))
    amounts = (limit.rho if isinstance(limit, ZCDP) else limit.epsilon for limit in limits)
    return min((amount for amount in amounts if amount), default=None)


def _find_notable(entries: Iterable[Entry]) -> Iterator[Alert]:
    for entry in entries:
        if entry.act in NOTABLE:
            yield Alert(_write_time(entry.time), entry.analyst, entry.act, NOTABLE[entry.act], entry.sequence)


def _find_clocks(entries: Sequence[Entry]) -> Iterator[Alert]:
    for before, entry in pairwise(entries):
        if entry.time < before.time:
            words = f"the clock was behind entry {before.sequence}, of {_write_time(before.time)}"
            yield Alert(_write_time(entry.time), entry.analyst, "clock", words, entry.sequence)


def _find_bursts(ledger: Ledger, groups: Mapping[tuple[str, str], Sequence[Entry]], share: Fraction) -> Iterator[Alert]:
    for (who, purpose), listed in sorted(groups.items()):
        busiest = _find_busiest(ledger, who, purpose, listed)
        if busiest is not None and busiest[0] >= share:
            at = next(entry for entry in listed if entry.sequence == busiest[1])
            words = f"{float(busiest[0]):.0%} of what may be spent was spent within an hour"
            yield Alert(_write_time(at.time), who, "burst", words, at.sequence)


def _write_time(at: datetime) -> str:
    return at.isoformat(timespec="seconds")


@dataclass(frozen=True, slots=True, eq=False)
class EstateTable(Record):
    """One table of a dataset: whom it tells apart by which column, and its columns by their role."""

    name: str
    source: str
    public: bool
    unit: str | None
    columns: dict[str, str]


@dataclass(frozen=True, slots=True, eq=False)
class EstateDataset(Record):
    """One policy: its tables, what its ledger spent, and how often each technique released."""

    dataset: str
    policy: str
    tables: list[EstateTable]
    standing: BudgetStanding | None
    techniques: dict[str, int]
    released_tables: list[str]
    """Tables of which rows were released without a formal guarantee."""


@dataclass(frozen=True, slots=True, eq=False)
class EstatePeople(Record):
    """People who are told apart by one column, or stand in one source: where they are, and what was spent on one."""

    known_by: str
    places: list[str]
    spent: dict[str, str]
    rows_released: int
    """Releases of rows, which no number bounds."""


@dataclass(frozen=True, slots=True, eq=False)
class EstateReport(Record):
    """All policies of a folder, and what they are together."""

    datasets: list[EstateDataset]
    people: list[EstatePeople]
    key_columns: dict[str, list[str]]
    """Quasi-identifiers that releases of rows lean on, with the tables whose rows were released by them."""
    findings: list[str]
    """Where one policy undoes what another protects."""
    unread: list[str]
    """Files that look like policies and could not be read, and policies whose ledger is elsewhere."""


def survey_estate(folder: Path, ledger: str | None = None) -> EstateReport:
    """All policies under a folder with their ledgers; reads no row.

    A policy's ledger is the one given, if it holds that dataset, as a database may hold many; else the one beside it.
    """
    if not folder.is_dir():
        raise ParameterError(f"'{folder}' is not a folder", expected="A folder with policies in it")
    policies, unread = _read_policies(folder)
    if not policies:
        raise ParameterError(f"there is no policy in '{folder}'", remedy="Draft one with: deniable policy init TABLE")
    ledgers = {path: _find_ledger(path, policy, ledger) for path, policy in policies}
    datasets = [_describe_dataset(folder, path, policy, ledgers[path]) for path, policy in policies]
    counted = {name_place(at, policy.dataset) for path, policy in policies if (at := ledgers[path]) is not None}
    for path, policy in (each for each in policies if ledgers[each[0]] is None):
        unread += [f"{path.relative_to(folder)}: {told}" for told in _find_elsewhere(policy, counted)]
    return EstateReport(
        datasets, _find_people(datasets), _find_key_columns(datasets), [*_find_conflicts(datasets)], unread
    )


def _read_policies(folder: Path) -> tuple[list[tuple[Path, Policy]], list[str]]:
    """The policies under a folder, and files that name a dataset and tables and cannot be read."""
    found, unread = [], []
    for path in sorted(path for ending in ("yaml", "yml") for path in folder.rglob(f"*.{ending}")):
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        if "dataset:" in text and "tables:" in text:
            try:
                found.append((path, read_unaccepted(path)))
            except DeniableError as refusal:
                unread.append(f"{path.relative_to(folder)}: {refusal.happened}")
    return found, unread


def _find_elsewhere(policy: Policy, counted: set[str]) -> Iterator[str]:
    """Where the ledger of a policy is that was not found: what was spent from it is not counted."""
    if not Witness().is_blank:
        sources = [Source(_name_source(policy, table.source), "") for table in policy.private]
        for place in sorted({*Witness().find_holders(sources)} - counted):
            yield f"its ledger is {place}, and what it spent is not counted: name it with --ledger"


def _describe_dataset(folder: Path, path: Path, policy: Policy, ledger: str | None) -> EstateDataset:
    tables = [
        EstateTable(
            table.name,
            _name_source(policy, table.source),
            table.public,
            table.unit.column if table.unit is not None else None,
            {column.name: str(column.role) for column in table.columns},
        )
        for table in policy.tables
    ]
    standing, techniques, released = _read_ledger(policy, ledger)
    place = str(path.relative_to(folder))
    return EstateDataset(policy.dataset, place, tables, standing, techniques, released)


def _name_source(policy: Policy, source: str) -> str:
    """A source by which it is known in every policy: a whole path, or an address."""
    return source if "://" in source or source.startswith("spark:") else str((policy.folder / source).resolve())


def _read_ledger(policy: Policy, at: str | None) -> tuple[BudgetStanding | None, dict[str, int], list[str]]:
    """What a ledger tells, if it is to be trusted; a false total would be worse than none."""
    if at is None:
        return None, {}, []
    with trust_ledger(policy, at) as ledger:
        entries = list(ledger.entries(acts=("charge", "release")))
        techniques = Counter(entry.technique for entry in entries)
        released = {table for entry in entries if not entry.private for table in entry.tables}
        return summarize_budget(ledger), dict(sorted(techniques.items())), sorted(released)


def _find_ledger(path: Path, policy: Policy, given: str | None) -> str | None:
    """The ledger of a policy: the one given if that dataset is in it, or was; else the one beside the policy."""
    beside = ledger_of(path, None)
    if given is not None and given != beside and _holds_entries(given, policy):
        return given
    return beside if Path(beside).exists() or _had_entries(beside, policy) else None


def _holds_entries(at: str, policy: Policy) -> bool:
    first = None
    if at.startswith(POSTGRES) or Path(at).exists():
        with closing(open_ledger(at, policy, writable=False)) as opened:
            first = next(opened.entries(), None)
    return _had_entries(at, policy) if first is None else first.dataset == policy.dataset


def _had_entries(at: str, policy: Policy) -> bool:
    return not Witness().is_blank and Witness().count_entries(name_place(at, policy.dataset)) > 0


def _find_people(datasets: Sequence[EstateDataset]) -> list[EstatePeople]:
    """Who stands in several tables: by the column that tells people apart, and by the source."""
    places: dict[str, list[tuple[EstateDataset, str]]] = defaultdict(list)
    for dataset in datasets:
        for table in (each for each in dataset.tables if not each.public):
            for name in filter(None, (table.unit and f"column {table.unit}", f"source {table.source}")):
                places[name].append((dataset, table.name))
    told = [(name, held) for name, held in sorted(places.items()) if len(held) > 1 or name.startswith("column ")]
    return [_sum_people(name, held) for name, held in told]


def _sum_people(name: str, held: Sequence[tuple[EstateDataset, str]]) -> EstatePeople:
    """What was spent on one of these people: the sum over the datasets, each of which bounds its own."""
    owners = {each.policy: each for each, _ in held}.values()
    spent: dict[str, Fraction] = defaultdict(Fraction)
    for owner in owners:
        for amount, value in (owner.standing.spent or {} if owner.standing else {}).items():
            spent[amount] += Fraction(value)
    without = sum(owner.standing.without_guarantee for owner in owners if owner.standing)
    where = [f"{dataset.dataset}.{table}" for dataset, table in held]
    return EstatePeople(name, where, {key: f"{float(value):.6g}" for key, value in spent.items()}, without)


def _find_key_columns(datasets: Sequence[EstateDataset]) -> dict[str, list[str]]:
    leaning: dict[str, list[str]] = defaultdict(list)
    for dataset in datasets:
        for table in (each for each in dataset.tables if each.name in dataset.released_tables):
            for column, role in table.columns.items():
                if role == Role.QUASI_IDENTIFIER:
                    leaning[column].append(f"{dataset.dataset}.{table.name}")
    return dict(sorted(leaning.items(), key=lambda each: (-len(each[1]), each[0])))


GUARDED = (Role.IDENTIFIER, Role.QUASI_IDENTIFIER, Role.SENSITIVE)


def _find_conflicts(datasets: Sequence[EstateDataset]) -> Iterator[str]:
    """Where one dataset shows what another one guards, in sentences."""
    for one in datasets:
        for other in (each for each in datasets if each is not one):
            for table in one.tables:
                for guarded in (each for each in other.tables if not each.public):
                    yield from _compare_tables(f"{one.dataset}.{table.name}", table, one, other, guarded)


def _compare_tables(
    name: str, table: EstateTable, one: EstateDataset, other: EstateDataset, guarded: EstateTable
) -> Iterator[str]:
    owner = f"{other.dataset}.{guarded.name}"
    keys = [column for column in table.columns if guarded.columns.get(column) in GUARDED]
    if table.public and table.source == guarded.source:
        yield f"{name} is public, and its source is that of {owner}, where people are protected"
    elif table.public and guarded.unit is not None and guarded.unit in table.columns:
        yield f"{name} is public and holds '{guarded.unit}', which tells people of {owner} apart"
    elif table.public and len(keys) > 1:
        yield f"{name} is public and holds {', '.join(keys)}, by which people of {owner} may be found"
    if not table.public and table.name in one.released_tables and table.unit is not None:
        shown = [column for column in keys if table.columns[column] == Role.INSENSITIVE]
        if shown and table.unit == guarded.unit:
            yield f"{name} released {', '.join(shown)} of the same people as they are; {owner} protects them"
