"""Earlier k-anonymous releases of the same table: what they and a new one tell, and what rows added to one must meet.

The recoding of every release under a policy is kept beside the ledger. It tells no more than the released rows do: the
levels, the classes with their sizes and their sensitive values. A new release is checked against each of them by
intersecting classes over today's rows. A release whose classes were each generalized in their own way leaves no
recoding; it is noted, and nothing can be said of it later than that it cannot be checked.

Rows that are added to a release are asked for as a first release of the same columns would be, under the policy as it
is today. What the recoding cannot meet is refused: the table is to be released anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from deniable.curator.anonymize import check
from deniable.curator.anonymize.check import CompositionReport
from deniable.curator.anonymize.request import (
    COUNT,
    TABLE,
    Asked,
    Order,
    Roles,
    check_columns,
    demands,
    find_distances,
    find_person,
    statement,
)
from deniable.errors import AccessRefused, Infeasible, ParameterError, pluralize
from deniable.release.record import SparseRecord

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.curator.context import Context
    from deniable.engines.base import Engine
    from deniable.kanonymity.microaggregation import Grid
    from deniable.kanonymity.recoding import Recoding
    from deniable.kanonymity.request import Condition, Request
    from deniable.kanonymity.update import Update

RECODINGS = "recodings"
MAPS = "maps"
SHOWN = "shown"
UNCHECKED = b"without a recoding"
REFUSE = "refuse"


@dataclass(frozen=True, slots=True, eq=False)
class EarlierReleases(SparseRecord):
    """The worst that a release tells together with one before it, or a warning that this cannot be checked."""

    composition: CompositionReport | None = None
    earlier_releases: int | None = None
    warnings: list[str] | None = None


def remember_release(context: Context | None, table: str, recoding: Recoding | None) -> None:
    """Remember a release of a table; None is one without a recoding."""
    from deniable.kanonymity.recoding import to_document

    if context is None:
        return
    written = UNCHECKED if recoding is None else json.dumps(to_document(recoding)).encode()
    name = f"{table}/{hashlib.sha256(written).hexdigest()}"
    context.store.keep(RECODINGS, name, name, written)


def remember_map(context: Context | None, table: str, grid: Grid, cells: pa.Table) -> None:
    """Remember how a map of a table was made, and the digest of what it showed."""
    if context is not None:
        written = json.dumps({**asdict(grid), SHOWN: _digest_cells(cells)}).encode()
        name = f"{table}/{hashlib.sha256(written).hexdigest()}"
        context.store.keep(MAPS, name, name, written)


def _digest_cells(cells: pa.Table) -> str:
    return hashlib.sha256(json.dumps(cells.to_pydict(), default=str).encode()).hexdigest()


def find_maps(context: Context | None, table: str) -> list[tuple[Grid, str]]:
    """How the maps of a table were made that are remembered, each with the digest of what it showed, where known."""
    kept = context.store.list_all(MAPS) if context else {}
    if not kept:
        return []
    from deniable.kanonymity.microaggregation import Grid

    told = [json.loads(kept[name]) for name in sorted(kept) if name.startswith(f"{table}/")]
    shown = [each.pop(SHOWN, "") for each in told]
    return [(Grid(**{**each, "places": tuple(each["places"])}), own) for each, own in zip(told, shown, strict=True)]


def compose_with_maps(
    context: Context | None, order: Order, table: str, read: Callable[[Grid], pa.Table], grid: Grid
) -> list[str]:
    """What a new map tells together with each map before it, as warnings; refused where the order or policy says so.

    `read` gives the rows with the columns of the new map and of one before it. A map made in the same way is the same
    one only if it shows the same: rows that came or went in between are the difference of the two.
    """
    from deniable.kanonymity.microaggregation import compose_grids, cut_to_grid

    warnings, maps = [], find_maps(context, table)
    shown = _digest_cells(cut_to_grid(read(grid), grid).cells) if any(before == grid for before, _ in maps) else ""
    if any(before == grid and own == shown for before, own in maps):
        maps = [(before, own) for before, own in maps if before != grid]
    for before, _ in maps:
        if before == grid:
            told, exposed = (
                f"the earlier map ({_describe_grid(before)}) showed other counts, since rows came or went: the "
                "difference of the two maps betrays those people, however few they are"
            ), True  # fmt: skip
        else:
            together, k = compose_grids(read(before), before, grid), min(before.k, grid.k)
            told, exposed = (
                f"with the earlier map ({_describe_grid(before)}), {together.exposed:,} of those shown are in groups "
                f"under k = {k}: the difference of two maps of one table betrays whom the finer one dropped"
            ), bool(together.exposed)  # fmt: skip
        if exposed and (order.refuse_composition or _refuses(context)):
            raise Infeasible(
                told[0].upper() + told[1:],
                expected="One map of a table, or the same one again",
                remedy="Release one resolution; or a map with noise: deniable places",
            )
        warnings += [told] if exposed else []
    return warnings


def _describe_grid(grid: Grid) -> str:
    time = f", {grid.time} to the {grid.every}" if grid.time else ""
    return f"{', '.join(grid.places)} to {pluralize(grid.digits, 'decimal')}{time}"


def find_earlier(
    context: Context | None, table: str, order: Order, *, maps: bool = True
) -> tuple[Recoding | None, ...]:
    """The releases of a table that are remembered, and the one that was named; None for each without a recoding.

    A map has no recoding; without `maps`, those are left to whoever compares maps.
    """
    from deniable.kanonymity.recoding import from_document, read_recoding

    kept = context.store.list_all(RECODINGS) if context else {}
    mine = [kept[name] for name in sorted(kept) if name.startswith(f"{table}/")]
    found = [None if written == UNCHECKED else from_document(json.loads(written)) for written in mine]
    found += [None] * len(find_maps(context, table)) if maps else []
    return (*found, read_recoding(order.earlier)) if order.earlier else tuple(found)


def compose_with_earlier(
    engine: Engine,
    context: Context | None,
    order: Order,
    before: Sequence[Recoding | None],
    recoding: Recoding | None,
) -> EarlierReleases:
    """The worst that a new release tells together with one before; refused where the order or the policy says so."""
    if not before:
        return EarlierReleases()
    refusing = order.refuse_composition or _refuses(context)
    if recoding is None or None in before:
        return _explain_unchecked(refusing, recoding is None)
    found = [_pair(engine, each, recoding) for each in before if each is not None]
    worst = max(found, key=lambda together: (together.exposed, -together.k))
    if refusing:
        check.refuse_composition(worst)
    return EarlierReleases(worst, len(found))


def _refuses(context: Context | None) -> bool:
    asked = context.policy.release.anonymize if context else None
    return asked is not None and asked.second_release == REFUSE


def _explain_unchecked(refusing: bool, new: bool) -> EarlierReleases:
    which = "this release" if new else "an earlier release of this table"
    told = f"{which} has no recoding (its method generalizes each class in its own way)"
    if refusing:
        raise Infeasible(
            f"Two releases cannot be checked against each other: {told}",
            expected="Releases made with --method optimal",
            remedy="Release one table once, or use --method optimal each time",
        )
    return EarlierReleases(warnings=[f"not checked against earlier releases: {told}"])


def _pair(engine: Engine, before: Recoding, recoding: Recoding) -> CompositionReport:
    sensitive = tuple(dict.fromkeys((*before.sensitive, *recoding.sensitive)))
    named = check_columns(engine, tuple(dict.fromkeys((*before.names, *recoding.names, *sensitive))))
    counted = engine.run(statement("SELECT {}, COUNT(*) AS {} FROM {} GROUP BY ALL", named, COUNT, TABLE))
    return check.composition(counted, before, recoding, sensitive, COUNT)


ANEW = "Release the whole table anew, without --update"


def find_recoding(path: Path) -> Path:
    """The recoding itself, or that beside a released file or its statement."""
    if path.name.endswith(".recoding.json"):
        return path
    from deniable.kanonymity.recoding import path_of_recoding

    return path_of_recoding(path.with_name(path.name.removesuffix(".release.json").removesuffix(".release")))


def ask_for_same_columns(order: Order, recoding: Recoding) -> Order:
    """The order of a first release of the columns that an earlier one shows."""
    shown = recoding.shown
    secret = tuple(name for name in recoding.sensitive if shown is None or name in shown)
    columns = None if shown is None else tuple(dict.fromkeys((*recoding.names, *shown)))
    if columns is not None and order.policy is None:  # without a policy they are those that are kept as they are
        columns = tuple(name for name in columns if name not in (*recoding.names, *secret))
    return replace(order, quasi_identifiers=recoding.names, sensitive=secret, columns=columns)


def refuse_other_columns(order: Order, recoding: Recoding) -> None:
    """Refuse columns that are named otherwise than in the release to which rows are added: they would be ignored."""
    other = {*order.quasi_identifiers} not in ({*recoding.names}, set())
    if other or {*order.sensitive} - {*recoding.sensitive} or order.hierarchies:
        raise ParameterError(
            "Rows are added as the release has them, and other columns or hierarchies are named",
            remedy="Leave --qi, --sensitive and --hierarchy out, or make a new release",
        )


def refuse_other_table(origin: str | None, recoding: Recoding) -> None:
    """Refuse rows that are added without the policy of the release, or to a release of another table."""
    if recoding.table is None or origin == recoding.table:
        return
    given = "no policy is named" if origin is None else f"these rows are of '{origin}'"
    raise AccessRefused(
        f"the release was made under a policy, of '{recoding.table}' (dataset/table), and {given}",
        expected="The policy and the table of the release",
        remedy="Name them: --policy FILE, and --table NAME where the policy has several",
    )


def refuse_changed_roles(roles: Roles, recoding: Recoding) -> None:
    """Refuse where the policy no longer lets a column leave as the release shows it."""
    if roles.schema is None:
        return
    showing = (*recoding.names, *(recoding.shown or ()))
    for name in showing:
        if name in roles.identifiers or name not in roles.schema.names:
            raise AccessRefused(
                f"the release shows column '{name}', which the policy no longer lets leave as it did",
                remedy=ANEW,
            )


def find_person_of_update(engine: Engine, order: Order, roles: Roles, recoding: Recoding) -> str | None:
    """The column that tells people apart: what protects people goes on to, however many rows each had."""
    person = find_person(engine, order, roles) or recoding.person
    return None if person is None else check_columns(engine, (person,))[0]


def request_for_update(
    engine: Engine, context: Context | None, order: Order, roles: Roles, recoding: Recoding
) -> Request:
    """What was asked of the release before, and what is asked today, of the columns that it shows."""
    from deniable.kanonymity.request import Request, count_people, parse_condition

    names = roles.schema.names if roles.schema else [f.name for f in engine.describe(TABLE)]
    shown = {*recoding.names, *(names if recoding.shown is None else recoding.shown)} - set(recoding.removed)
    person = find_person_of_update(engine, order, roles, recoding)
    before = (count_people(parse_condition(spec), person) for spec in recoding.models)
    models = _keep_strictest((*before, *_list_demands(engine, context, order, recoding, person)))
    _refuse_uncounted(models, recoding)
    return Request(recoding.names, models, recoding.sensitive, tuple(name for name in names if name not in shown))


def _list_demands(
    engine: Engine, context: Context | None, order: Order, recoding: Recoding, person: str | None
) -> tuple[Condition, ...]:
    """The models of the policy, tightened by what was asked; none where neither says anything."""
    from deniable.kanonymity.request import build_conditions

    if context is None and order.asked == Asked():
        return ()
    asked = demands(context.policy if context else None, order.asked)
    # A k-map by the size of the population depends on how many rows there are: those before, and those added.
    rows = recoding.rows + engine.count(TABLE)
    return build_conditions(asked, rows, find_distances(engine, tuple(asked.t)), person)


def _keep_strictest(models: Iterable[Condition]) -> tuple[Condition, ...]:
    """Each model once, and of k-anonymity the largest k."""
    from deniable.kanonymity.models import KAnonymity

    listed = tuple(dict.fromkeys(models))
    most = {m.person: max(o.k for o in listed if isinstance(o, KAnonymity) and o.person == m.person)
            for m in listed if isinstance(m, KAnonymity)}  # fmt: skip
    return tuple(m for m in listed if not isinstance(m, KAnonymity) or m.k == most[m.person])


def _refuse_uncounted(models: Iterable[Condition], recoding: Recoding) -> None:
    """Refuse models of columns whose values the release did not count."""
    for model in models:
        column = getattr(model, "column", None)
        if column is not None and column not in recoding.sensitive:
            raise Infeasible(
                f"{model} is asked today, and the release before did not count '{column}'",
                expected="Models of the sensitive columns of the release",
                remedy=ANEW,
            )


def refuse_broken(judged: Update, request: Request, recoding: Recoding) -> None:
    """Refuse where more is asked today than of the release before, and its classes do not meet it."""
    from deniable.kanonymity.request import count_people, parse_condition

    before = {count_people(parse_condition(spec), request.person) for spec in recoding.models}
    more = [str(model) for model in request.models if model not in before]
    if more and judged.broken:
        raise Infeasible(
            f"{judged.broken} classes of the release before do not meet {', '.join(more)}, as is asked today",
            expected="A release whose classes meet it",
            remedy=ANEW,
        )
