"""Releases that join by their tokens: what left beside which tokens is remembered, and measured with what leaves.

Whoever holds two releases with the same tokens puts the rows of a person together, of whatever tables they are. What
left is remembered beside the ledger: the columns with their masks, and no row."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.curator.mask.keys import open_keyring
from deniable.errors import NOTHING_CHARGED, DataError, DeniableError, Infeasible, KeyUnavailable, StorageError

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.curator.context import Context
    from deniable.engines.base import Engine
    from deniable.masking.keys import Key, Keyring
    from deniable.masking.plan import ColumnPlan, TablePlan
    from deniable.policy.schema import Spec

LINKED = "linked"
"""The collection of what left beside tokens: later releases with the same tokens are measured together with it."""
EARLIER = "released before"
SAID = "what the row said"
Written = list[Any]
"""A mask as it is remembered: its kind and its options."""


@dataclass(frozen=True, slots=True)
class LinkedRelease:
    """Rows of a table that leave, or left, beside tokens: which tokens, what else, and where the rows were read."""

    tokens: str
    """Equal wherever equal values have equal tokens."""
    table: str
    link: str
    """The column of tokens."""
    mask: Written
    columns: Mapping[str, Written | None]
    """The other columns of which somebody may know a value, each with its mask."""
    source: str = ""
    """The file that was read instead of the policy's."""
    beside: Sequence[str] = ()
    """What the tokens of its other columns are equal with."""

    @property
    def joins(self) -> set[str]:
        """All tokens by which its rows can be put together with others."""
        return {self.tokens, *self.beside}

    def covers(self, other: LinkedRelease) -> bool:
        """Whether it tells all that another one does, of the same rows beside the same tokens."""
        mine, theirs = ((each.tokens, each.table, each.link, each.source) for each in (self, other))
        return mine == theirs and other.columns.items() <= self.columns.items() and other.joins <= self.joins


def gate_linked_releases(
    engine: Engine, context: Context, plans: Sequence[TablePlan], opened: Mapping[str, Key], places: Sequence[str] = ()
) -> dict[str, dict[str, Any]]:
    """What tables single out beside each other and beside earlier releases with the same tokens, or a refusal.

    By table, for its statement. Which columns left is remembered beside the ledger, whatever the table, and whether
    they left in a file or in memory. They are read from the source and masked again, as they were then; one whose key
    cannot be opened is taken as it stands in the table.
    """
    before = _recall_linked(context)
    leaving = [
        (made, link, _describe_linked(context, made, link, opened)) for made in plans for link in _list_links(made)
    ]
    told: dict[str, dict[str, Any]] = {}
    bridged = _refuse_bridged(context, [each for _, _, each in leaving], before)
    for tokens in dict.fromkeys(each.tokens for _, _, each in leaving if each.columns):
        now = [each for each in leaving if each[2].tokens == tokens and each[2].columns]
        earlier = [each for each in before.values() if each.tokens == tokens and each.columns]
        earlier = [each for each in earlier if not any(new.covers(each) for _, _, new in now)]
        earlier = [a for a in earlier if not any(b is not a and b.covers(a) and not a.covers(b) for b in earlier)]
        found = _measure_linked(engine, context, now, earlier, opened, places)
        for made, _, _ in now:
            told[made.table] = _keep_worst(told.get(made.table, {}), found)
    for made, _, _ in leaving if bridged else ():
        told[made.table] = _keep_worst(told.get(made.table, {}), {"not_measured_with": sorted(bridged)})
    _remember_linked(context, [each for _, _, each in leaving], before)
    return told


def _list_links(made: TablePlan) -> list[ColumnPlan]:
    """The columns of tokens by which rows are put together: several, or one beside what somebody may know."""
    found = [each for each in made.columns if each.name in made.linking]
    return found if made.knowable or len(found) > 1 else []


def _describe_linked(context: Context, made: TablePlan, link: ColumnPlan, opened: Mapping[str, Key]) -> LinkedRelease:
    source, own = context.scope.sources.get(made.table), context.policy.path(context.policy.table(made.table).source)
    shown = [each for each in made.columns if each.name in made.knowable]
    columns = {each.name: None if each.spec is None else _write_mask(each.spec) for each in shown}
    given = isinstance(source, str | Path) and Path(source).exists() and Path(source).resolve() != own.resolve()
    place = str(Path(str(source)).absolute()) if given else ""
    assert link.spec is not None  # a column without a mask links nothing
    tokens = _name_tokens(link, opened)
    beside = sorted({_name_tokens(each, opened) for each in _list_links(made)} - {tokens})
    return LinkedRelease(tokens, made.table, link.name, _write_mask(link.spec), columns, place, beside)


def _write_mask(spec: Spec) -> Written:
    options = {
        name: int(value) if isinstance(value, Fraction) and value.denominator == 1
        else list(value) if isinstance(value, tuple)
        else value if isinstance(value, bool | int | float)
        else str(value)
        for name, value in spec.options.items()
    }  # fmt: skip
    return [spec.kind, options]


def _name_tokens(link: ColumnPlan, opened: Mapping[str, Key]) -> str:
    """Equal values have equal tokens where mask, key and domain are the same, whatever the table.

    A key is told apart by its check value, a codebook by its vault. How long tokens are does not count: a short one is
    the beginning of a long one.
    """
    from deniable.masking import vault

    assert link.spec is not None
    if isinstance(link.mask, vault.Codebook):
        return f"codebook {vault.describe_vault(link.mask.path, link.mask.key)[0]} {link.mask.domain}"
    options = link.spec.options
    name = str(options["key"])
    return f"{link.spec.kind} {opened[name].check} {options.get('domain', options.get('kind', name))}"


def _recall_linked(context: Context) -> dict[str, LinkedRelease]:
    """What left beside tokens before, by the name under which it is remembered."""
    return {name: LinkedRelease(**json.loads(kept)) for name, kept in sorted(context.store.list_all(LINKED).items())}


def _remember_linked(context: Context, leaving: Sequence[LinkedRelease], before: Mapping[str, LinkedRelease]) -> None:
    """Remember what leaves beside tokens; refused where another process remembered something meanwhile.

    Whichever of two looks last sees the other. So no two are released without being measured together.
    """
    written = [json.dumps(asdict(each), sort_keys=True).encode() for each in leaving]
    mine = {hashlib.sha256(each).hexdigest(): each for each in written}
    for name, each in mine.items():
        context.store.keep(LINKED, name, name, each)
    others = [each.tokens for name, each in _recall_linked(context).items() if name not in before.keys() | mine.keys()]
    if {*others} & {each.tokens for each in leaving}:
        raise StorageError(
            "another release with the same tokens was made meanwhile",
            expected="What both single out together is measured before either leaves",
            remedy="Run it again. Nothing was written",
        )


Leaving = tuple["TablePlan", "ColumnPlan", LinkedRelease]


def _measure_linked(
    engine: Engine,
    context: Context,
    now: Sequence[Leaving],
    earlier: Sequence[LinkedRelease],
    opened: Mapping[str, Key],
    places: Sequence[str],
) -> dict[str, Any]:
    """What releases with the same tokens single out together, and which could not be read any more; or a refusal."""
    from deniable.assess.exposure import LinkedRows, Whose, judge_joint_exposure, measure_linked_tables
    from deniable.engines.base import PERSON

    shop = _Again(context, opened, open_keyring(context.policy, places))
    tables, lost, known = [], [], set()
    for made, link, each in now:
        whose = None if made.unit is None else Whose(f"people of {made.table}", PERSON)
        tables.append(LinkedRows(made.table, f"released {made.table}", list(each.columns), link.name, whose))
        known |= {(made.table, name) for name in each.columns}
    for place, each in enumerate(earlier):
        attached = f"{EARLIER} {place}"
        try:
            person = shop.attach(engine, each, now[0][1], attached)
        except DeniableError:
            lost.append(each.table)
            continue
        tables.append(LinkedRows(each.table, attached, [SAID], each.link, person))
        known |= {(each.table, name) for name in each.columns}
    _refuse_lost(context, lost)
    if not earlier and len({made.table for made, _, _ in now}) < 2:
        return {}
    before = ", ".join(dict.fromkeys(each.table for each in earlier))
    of = f"this release and earlier ones with the same tokens ({before})" if earlier else ""
    found = judge_joint_exposure(measure_linked_tables(engine, tables, of, len(known)), context.policy.release.joint)
    name = "joint_with_earlier" if earlier else "joint_of_tables"
    told = {} if found is None else {name: found.to_dict()}
    return told | ({"not_measured_with": sorted({*lost})} if lost else {})


def _keep_worst(held: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """Of several columns of tokens in one table, what is worst of each kind."""
    lost = sorted({*held.get("not_measured_with", ()), *found.get("not_measured_with", ())})
    worst = {
        name: max((each[name] for each in (held, found) if name in each), key=lambda one: one["together"])
        for name in ("joint_of_tables", "joint_with_earlier")
        if name in held or name in found
    }
    return worst | ({"not_measured_with": lost} if lost else {})


def _refuse_bridged(
    context: Context, leaving: Sequence[LinkedRelease], before: Mapping[str, LinkedRelease]
) -> set[str]:
    """The tables whose rows are joined only through other tokens of a third release; refused where there is a limit.

    What such tables single out together is not measured.
    """
    held, bridged = [*leaving, *before.values()], set()
    for first in leaving:
        reach: set[str] = set()
        while more := {name for each in held if each.joins & (reach or first.joins) for name in each.joins} - reach:
            reach |= more
        tables = [each for each in held if each.columns and each.joins & reach]
        bridged |= {one.table for one in tables for other in tables if not one.joins & other.joins}
    if bridged:
        _refuse_unmeasured(
            context,
            f"tokens of several columns in one release join rows of {' and '.join(map(repr, sorted(bridged)))} that "
            "have no token in common: whom they single out together is not measured",
            "Releases that join by one column of tokens, now and earlier",
            "Leave all but one column of tokens out",
        )
    return bridged


def _refuse_lost(context: Context, lost: Sequence[str]) -> None:
    """Refuse beside earlier releases that cannot be read any more, where there is a limit."""
    if lost:
        _refuse_unmeasured(
            context,
            f"rows of {', '.join(map(repr, sorted({*lost})))} left before with the same tokens, and cannot be read "
            "now: whom they single out together with this release cannot be measured",
            "The source of every table that left beside tokens of this key, and its columns in the policy",
            "Put it back",
        )


def _refuse_unmeasured(context: Context, happened: str, expected: str, remedy: str) -> None:
    """Refuse where the policy has a limit for which nobody stands, and what it limits is not measured."""
    limit = context.policy.release.joint
    if limit is not None and limit.accepted_by is None:
        others = "use another key, or let the steward stand for it in the policy: release: {joint: {accepted_by: NAME}}"
        raise Infeasible(
            happened, expected=expected, remedy=f"{remedy}, {others}", charge=NOTHING_CHARGED, limit="joint"
        )


@dataclass(frozen=True, slots=True)
class _Again:
    """Earlier releases, made once more: from the sources as they are now, and by the masks of the policy."""

    context: Context
    opened: Mapping[str, Key]
    ring: Keyring

    def attach(self, engine: Engine, each: LinkedRelease, now: ColumnPlan, name: str) -> str | None:
        """Attach a number for what each row said, beside its token and whose it is; says which column tells that."""
        import pyarrow as pa

        from deniable.engines.base import PERSON, quote

        unit = self.context.policy.table(each.table).unit
        person = PERSON if unit and unit.column else None
        said = ", ".join(f"CAST({quote(one)} AS VARCHAR)" for one in each.columns)
        shown = ", ".join(map(quote, filter(None, (each.link, person))))
        numbered = f"SELECT {shown}, hash({said}) AS {quote(SAID)} FROM {quote(name)}"  # noqa: S608  quoted names
        parts = []
        for masked in self._read(each, now, unit.column if unit else None):
            engine.attach(name, masked)
            parts.append(engine.run(numbered))
        engine.attach(name, pa.concat_tables(parts))
        return person

    def _read(self, each: LinkedRelease, now: ColumnPlan, unit: str | None) -> Iterator[pa.Table]:
        """The rows of an earlier release, masked, and whose they are; at least one part."""
        import pyarrow as pa

        from deniable.engines.base import PERSON, read_rows, tell_apart
        from deniable.masking import plan, streaming

        columns = (self._plan_link(each, now), *(self._plan_column(each, one) for one in each.columns))
        again = plan.TablePlan(each.table, columns, unit=unit)
        sources = {each.table: each.source} if each.source and Path(each.source).exists() else {}
        with self.context.scope.narrow_to(None).open_rows({each.table: each.table}, sources=sources) as engine:
            if gone := {each.link, *each.columns} - {column.name for column in engine.describe(each.table)}:
                raise DataError(f"columns of '{each.table}' that left are gone: {', '.join(sorted(gone))}")
            query = read_rows(each.table, "*", whose=tell_apart(engine, each.table, unit) if unit else None)
            for batch in engine.stream(query, streaming.PART_ROWS):
                masked = pa.Table.from_batches([streaming.mask_batch(again, batch)])
                yield masked.append_column(PERSON, batch.column(PERSON)) if unit else masked

    def _plan_link(self, each: LinkedRelease, now: ColumnPlan) -> ColumnPlan:
        """The column of tokens as it was masked then, with tokens as long as they are now."""
        kind, then = each.mask
        now_options = now.spec.options if now.spec is not None else {}
        length = {name: value for name, value in now_options.items() if name == "length"}
        options = {name: value for name, value in then.items() if name != "length"}
        return self._build(each.table, each.link, [kind, {**options, **length}])

    def _plan_column(self, each: LinkedRelease, name: str) -> ColumnPlan:
        from deniable.masking.plan import ColumnPlan

        written = each.columns[name]
        try:
            return ColumnPlan(name, None) if written is None else self._build(each.table, name, written)
        except KeyUnavailable:
            return ColumnPlan(name, None)

    def _build(self, table: str, name: str, written: Written) -> ColumnPlan:
        from deniable.masking import plan
        from deniable.policy.schema import Spec

        spec = Spec(written[0], written[1])
        shop = plan.MaskContext(self._open, self.context.policy.folder, date.today().year)
        return plan.ColumnPlan(name, spec, plan.build_mask(spec, self.context.policy.table(table), name, shop))

    def _open(self, name: str) -> Key:
        return self.opened[name] if name in self.opened else self.ring.open(name)
