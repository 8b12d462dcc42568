"""Generate: rows from a model, as many as wanted, in the types that the policy declares.

Post-processing of public numbers: it costs nothing and may be seeded. Records are drawn clique by clique, which is
exact where the cliques form a tree, and then changed value by value until every clique fits. Counts are rounded with
little variance (whole parts first, the rest by lot), and records within a group are shuffled, so that no order of
drawing shows.

Where some columns are given (children for parents, an event after the one before), the others follow the tables
conditionally. The records drawn may be another population than the tables tell of (first visits, of all visits), so a
table is moved to the margins that they should have: the given columns' own counts, and for a free column what the table
that says most of it predicts from them. Associations stay (iterative proportional fitting keeps odds ratios).

Under conditions (`generate(where=...)`) a value among values that the noise joined says no more of the other columns
than all of them together do, so records are drawn that have the joined value, and get the value itself. A value that no
row can have is refused, in the asker's own words."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deniable.errors import NOTHING_CHARGED, ParameterError, nearest
from deniable.synth.bins import find_empty
from deniable.synth.constraints import ConstraintEngine
from deniable.synth.domain import Bins, Clique, Domain, Labels, Surrogate, arrow_type
from deniable.synth.draw import (
    apportion_counts,
    draw_along_cliques,
    draw_children,
    draw_column,
    draw_leaves,
    draw_records,
    fit_records,
    split_clique,
    unpack_codes,
)
from deniable.synth.encode import decode_column, encode_column, generate_surrogates
from deniable.synth.estimate import Estimates, dependence_of
from deniable.synth.estimate.graphical_model import (
    ConditionalModel,
    ConditionPlan,
    fit_condition,
    plan_condition,
)
from deniable.synth.estimate.residuals import fit_axis_margins, project_to_simplex
from deniable.synth.marginal import Codes, Floats, index_cells
from deniable.synth.model import Description, SynthModel

CHUNK = 500_000
"""Rows in a batch. Records are fitted once for so many: further batches are the same records in another order, with
numbers and dates drawn anew inside their bins. Under a condition every batch is fitted by itself, so that rare rows
are not the same few again."""
FEWEST_TRIED, MOST_TRIED, TRIES = 20_000, 1_000_000, 2
"""How many records are drawn at least to keep those that meet a condition, how many at most in all, and how often."""

Where = Mapping[str, str]
LEAST = 1e-15
"""What a value weighs that noise alone may fill, beside others in records."""
NULL_TEXT = "null"
"""How a condition writes null."""
LONGEST_SHOWN = 60
"""How much of a text of the asker's stands in a message."""


@dataclass(frozen=True, slots=True)
class Condition:
    """Columns with the values that rows have there, and their codes."""

    values: tuple[tuple[str, pa.Scalar], ...]
    codes: Mapping[int, int] = field(default_factory=dict)
    """By the place of the column in the model's domain."""

    def fits(self, rows: pa.RecordBatch) -> pa.BooleanArray:
        """Of each row, whether it fits."""
        found = pa.array(np.ones(rows.num_rows, dtype=bool))
        for name, value in self.values:
            column = rows.column(name)
            held = pc.equal(column.cast(value.type, safe=False), value) if value.is_valid else pc.is_null(column)
            found = pc.and_(found, pc.fill_null(held, False))
        return found


def parse_condition(text: str) -> dict[str, str]:
    """Conditions as they are written.

    >>> parse_condition("sex=F, zip=02138")
    {'sex': 'F', 'zip': '02138'}
    """
    try:
        parts = [part.partition("=") for part in next(csv.reader([text], skipinitialspace=True), [])]
    except csv.Error:  # a line break outside quotes, or a text that is far too long
        parts = []
    names = {name.strip() for name, sign, _ in parts if sign}
    if not names or len(names) < len(parts) or "" in names:
        expected = 'Each column once, separated by commas: sex=F,payer=null; "town=A, B" where a value has a comma'
        raise ParameterError("a condition cannot be read", expected=expected, charge=NOTHING_CHARGED)
    return {name.strip(): value.strip() for name, _, value in parts}


def build_condition(model: SynthModel, where: Mapping[str, str]) -> Condition:
    """The condition that a model's rows can meet; what none can meet is refused."""
    known = {attribute.name: attribute for attribute in model.attributes if isinstance(attribute, Labels | Bins)}
    values, names = parse_values(known, where), model.description.domain.names
    codes = {names.index(name): int(encode_column(known[name], pa.array([value]))[0]) for name, value in values}
    return Condition(values, codes)


def parse_values(known: Mapping[str, Labels | Bins], where: Mapping[str, str]) -> tuple[tuple[str, pa.Scalar], ...]:
    """The values that are meant, by the columns that conditions can speak of."""
    for name in where:
        if name not in known:
            raise ParameterError(
                f"the model has no column '{_show_text(name)}' that conditions can speak of",
                expected=f"Columns with declared values: {', '.join(known)}",
                remedy=nearest(name, known) if len(name) <= LONGEST_SHOWN else "",
                charge=NOTHING_CHARGED,
            )
    return tuple((name, _parse_scalar(known[name], text)) for name, text in where.items())


def estimate_share(description: Description, codes: Mapping[int, int]) -> float:
    """The estimated share of records that have given values: what the model says of their columns together.

    Of a bin with several steps each has its part: the model says no more of them.
    """
    estimates, domain, within = description.estimates, description.collapsed.domain, 1.0
    given = {place: int(description.collapsed.maps[place][code]) for place, code in codes.items()}
    for place, code in codes.items():
        members = description.collapsed.members(place, given[place])
        weights = weigh_members(description, place, members, _find_empty(description, place))
        within *= float(weights[members == code].sum() / weights.sum())
        cuts = description.domain.cuts.get(place, ())
        within /= cuts[code + 1] - cuts[code] if code + 1 < len(cuts) else 1
    return within * fit_condition(domain, estimates, plan_condition(domain, estimates, given)).share if codes else 1.0


def _find_empty(description: Description, place: int) -> NDArray[np.bool_]:
    marginals = description.one_way
    none = np.zeros(description.domain.sizes[place], dtype=bool)
    return find_empty(description.domain, place, marginals[place]) if marginals else none


def weigh_members(description: Description, place: int, members: NDArray[np.int64], empty: NDArray[np.bool_]) -> Floats:
    """What the values behind one joined code weigh: their noisy counts, made to be counts of the table that was seen.

    Counts are brought to the estimate of the joined code, never to the number of rows that are drawn: noise would weigh
    more the more the two differ. Of all values of the column, those that are `empty` weigh next to nothing: a condition
    can still ask for them.
    """
    if members.size == 1 or not description.one_way:
        return np.ones(members.size)
    estimated = float(description.estimates.columns[place][int(description.collapsed.maps[place][members[0]])])
    seen = ~empty[members] | empty[members].all()
    weights = np.full(members.size, LEAST)
    weights[seen] = project_to_simplex(description.one_way[place].counts[members[seen]], estimated) + 1e-9
    return weights


def _parse_scalar(attribute: Labels | Bins, text: str) -> pa.Scalar:
    kind = arrow_type(attribute)
    if text == NULL_TEXT and attribute.nullable:
        return pa.scalar(None, kind)
    try:
        value = pa.scalar(text, pa.string()).cast(kind)
    except (pa.ArrowInvalid, UnicodeEncodeError):
        value = pa.scalar(None, kind)
    if not value.is_valid or not _is_declared(attribute, value.as_py()):
        listed = [str(label) for label in attribute.labels] if isinstance(attribute, Labels) else []
        raise ParameterError(
            f"'{_show_text(text)}' is not a value of column '{attribute.name}'",
            remedy=nearest(text, listed) if len(text) <= LONGEST_SHOWN else "",
            charge=NOTHING_CHARGED,
        )
    return value


def _show_text(text: str) -> str:
    """A text of the asker's in a message: not much of a long one, and no signs that cannot be printed."""
    shown = text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + "..."
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in shown)


def _is_declared(attribute: Labels | Bins, value: Any) -> bool:
    if isinstance(attribute, Labels):
        return value in attribute.labels
    return attribute.holds(value)


def check_drawing(rows: int | None, seed: int) -> None:
    """Refuse numbers of rows, and seeds, that are not whole or below 0."""
    for name, value in (("rows", rows), ("seed", seed)):
        if value is not None and (value != int(value) or isinstance(value, float) or value < 0):
            raise ParameterError(f"{name} is {value}", expected="A whole number from 0 up", charge=NOTHING_CHARGED)


def generate(model: SynthModel, rows: int | None = None, seed: int = 0, where: Where | None = None) -> pa.Table:
    """A synthetic table; as many rows as the table is estimated to have, if not told otherwise."""
    return pa.Table.from_batches(list(generate_batches(model, rows, seed, where=where)))


def generate_batches(
    model: SynthModel,
    rows: int | None = None,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
    where: Where | None = None,
) -> Iterator[pa.RecordBatch]:
    """The same in batches, so that any number of rows fits in memory; `where` names values that all rows have."""
    only = build_condition(model, where or {})
    total = model.description.estimates.total
    wanted = round(total * estimate_share(model.description, only.codes)) if rows is None else rows
    if wanted < 0:
        raise ParameterError("a table cannot have a negative number of rows")
    made = 0
    for drawn in _draw_batches(model, wanted, seed, only):
        yield _add_surrogates(model, drawn, made, wanted)
        made += drawn.num_rows
        if progress is not None:
            progress(made / wanted if wanted else 1.0)


def _draw_batches(model: SynthModel, wanted: int, seed: int, only: Condition) -> Iterator[pa.RecordBatch]:
    """Batches until there are enough rows; the first comes even if it is empty, for its columns."""
    coded = [attribute for attribute in model.attributes if not isinstance(attribute, Surrogate)]
    engine = ConstraintEngine(model.truths, coded, frozenset(name for name, _ in only.values))
    pool = _RecordPool(model, seed)
    for offset in range(0, max(wanted, 1), CHUNK):
        size, d = min(CHUNK, wanted - offset), model.description
        drawn = draw_meeting(d, only.codes, size, (seed, offset)) if only.codes else pool.take(size, offset)
        rows = _decode_batch(model, drawn, (seed, offset), only)
        yield engine.enforce(rows, np.random.default_rng((seed, offset, 3)))


def draw_meeting(description: Description, codes: Mapping[int, int], records: int, seed: tuple[int, ...]) -> Codes:
    """Records whose columns have given values, each among those that the noise joined with it.

    Where a model can hold all tables, records are drawn from it, given the values. Else records of all kinds are drawn
    and those that meet the condition are kept, which keeps all that the estimates say, up to a number of records; what
    is missing then is drawn from a model of the tables that say most, so no condition starves.
    """
    estimates, domain = description.estimates, description.collapsed.domain
    given = {place: int(description.collapsed.maps[place][code]) for place, code in codes.items()}
    share = math.prod(float(estimates.columns[place][code]) / estimates.total for place, code in given.items())
    plan = plan_condition(domain, estimates, given)
    model = fit_condition(domain, estimates, plan) if plan.whole else None
    found, left, missing = [np.zeros((len(domain), 0), dtype=np.int32)], MOST_TRIED, records
    for attempt in range(0 if plan.whole else TRIES):
        if model is None and _count_tries(missing, share) > FEWEST_TRIED:
            # The first share is a guess, as if columns were independent; to draw few records it is good enough.
            model = fit_condition(domain, estimates, plan)
            share = model.share
        tried = _count_tries(missing, share)
        if not missing or tried > 2 * left:  # not half of what is missing would be found
            break
        tried = min(tried, left)
        drawn = draw_records(estimates, domain, tried, (*seed, attempt))
        meets = np.all([drawn[place] == code for place, code in given.items()], axis=0)
        found.append(drawn[:, np.flatnonzero(meets)[:missing]])
        left, missing = left - tried, missing - found[-1].shape[1]
    if missing:
        model = model or fit_condition(domain, estimates, plan)
        found.append(_draw_conditionally(estimates, domain, plan, model, missing, (*seed, TRIES)))
    return np.concatenate(found, axis=1)


def _count_tries(missing: int, share: float) -> int:
    return max(math.ceil(1.1 * missing / max(share, 1e-12)), FEWEST_TRIED)


def _draw_conditionally(
    estimates: Estimates, domain: Domain, plan: ConditionPlan, model: ConditionalModel, records: int,
    seed: tuple[int, ...],
) -> Codes:  # fmt: skip
    """So many records from a model that was cut at given values, and the columns that hang on it."""
    generator, given = np.random.default_rng(seed), plan.given
    cut = Domain(domain.names, tuple(1 if place in given else size for place, size in enumerate(domain.sizes)))
    columns = [column[:1] if place in given else column for place, column in enumerate(estimates.columns)]
    inner = Estimates(estimates.total, tuple(columns), model.tables)
    codes = draw_along_cliques(inner, cut, records, generator, list(model.tables))
    for place, code in given.items():
        codes[place] = code
    draw_leaves(codes, domain, plan.leaves, generator)
    return codes


def _add_surrogates(model: SynthModel, rows: pa.RecordBatch, after: int, total: int) -> pa.RecordBatch:
    """The rows with the columns that are made anew, in the table's order."""
    columns = [
        generate_surrogates(attribute, after, rows.num_rows, total)
        if isinstance(attribute, Surrogate)
        else rows.column(attribute.name)
        for attribute in model.attributes
    ]
    return pa.record_batch(columns, names=[attribute.name for attribute in model.attributes])


class _RecordPool:
    """Records that fit the estimates: fitted for the first batch, and shuffled for each further one."""

    def __init__(self, model: SynthModel, seed: int) -> None:
        self._description, self._seed = model.description, seed
        self._held: Codes | None = None

    def take(self, size: int, offset: int) -> Codes:
        """The records of a batch that begins at an offset."""
        if self._held is None or size > self._held.shape[1]:
            d = self._description
            self._held = draw_records(d.estimates, d.collapsed.domain, size, (self._seed, offset))
            return self._held
        order = np.random.default_rng((self._seed, offset, 4)).permutation(self._held.shape[1])
        return self._held[:, order[:size]]


def _decode_batch(model: SynthModel, drawn: Codes, start: tuple[int, int], only: Condition) -> pa.RecordBatch:
    codes, given = restore_codes(model.description, drawn, start), dict(only.values)
    generator = np.random.default_rng((*start, 2))
    coded = [attribute for attribute in model.attributes if not isinstance(attribute, Surrogate)]
    columns = [
        pa.repeat(given[attribute.name], own.size)
        if attribute.name in given
        else decode_column(attribute, own, generator)
        for attribute, own in zip(coded, codes, strict=True)
    ]
    return pa.record_batch(columns, names=[attribute.name for attribute in coded])


MIXED_SHARE = 1e-6
"""How much of a column's own distribution is mixed into each conditional one: for given values never seen together."""


def draw_given_columns(
    estimates: Estimates, domain: Domain, given: Mapping[int, Codes], seed: int | tuple[int, ...], records: int,
    fit: bool = True,
) -> Codes:  # fmt: skip
    """Records over the collapsed domain with the given columns as they are.

    With `fit` they are moved until all tables suit the population that the given columns tell of.
    """
    generator = np.random.default_rng(seed)
    codes = np.zeros((len(domain), records), dtype=np.int32)
    for place, column in given.items():
        codes[place] = column
    cliques = [clique for clique in estimates.tables if not set(clique) <= set(given)]
    if records:
        _draw_free_columns(codes, estimates, domain, set(given), cliques, generator)
        if fit:
            _fit_within_groups(codes, estimates, domain, set(given), cliques, generator)
    return codes


def _draw_free_columns(
    codes: Codes, estimates: Estimates, domain: Domain, given: set[int], cliques: list[Clique],
    generator: np.random.Generator,
) -> None:  # fmt: skip
    """Free columns along the strongest table that joins them to what is drawn; loose ones by themselves."""
    known, strengths = set(given), {clique: dependence_of(estimates, clique) for clique in cliques}
    while free := [place for place in range(len(domain)) if place not in known]:
        joined = [c for c in cliques if known.intersection(c) and not known.issuperset(c)]
        if not joined:
            codes[free[0]] = draw_column(estimates.columns[free[0]], codes.shape[1], generator)
            known.add(free[0])
            continue
        best = max(joined, key=lambda clique: (len(known.intersection(clique)) == len(clique) - 1, strengths[clique]))
        old, new = split_clique(best, known)
        unpack_codes(
            codes,
            domain,
            new,
            draw_children(index_cells(codes, domain, old), _conditional_table(estimates, best, old, new), generator),
        )
        known.update(new)


def _conditional_table(estimates: Estimates, clique: Clique, old: Clique, new: Clique) -> Floats:
    """A clique's table with the cells of its old columns as rows, none of them empty."""
    table = estimates.tables[clique].transpose([clique.index(place) for place in old + new])
    rows = table.reshape(int(np.prod(table.shape[: len(old)], dtype=np.int64)), -1)
    mixed: Floats = rows + MIXED_SHARE * rows.sum(axis=0) + 1e-12
    return mixed


def _fit_within_groups(
    codes: Codes, estimates: Estimates, domain: Domain, given: set[int], cliques: list[Clique],
    generator: np.random.Generator,
) -> None:  # fmt: skip
    """Change free columns until each clique has the counts that the given columns lead to expect."""
    margins = _predict_margins(codes, estimates, domain, given)
    targets = {}
    for clique in cliques:
        old, new = split_clique(clique, given)
        flat = _target_counts(codes, estimates, domain, margins, clique, old, new)
        targets[old + new] = flat.reshape(domain.shape(old + new))
    free = [place for place in range(len(domain)) if place not in given]
    if targets and free:
        fit_records(codes, targets, domain, free, generator)


def _predict_margins(codes: Codes, estimates: Estimates, domain: Domain, given: set[int]) -> dict[int, Floats]:
    """The counts of each free column that its strongest table with a given one predicts; its own shares without one."""
    pairs = sorted((c for c in estimates.tables if len(c) == 2), key=lambda c: dependence_of(estimates, c))
    found = {place: _normalize(estimates.columns[place]) * codes.shape[1] for place in range(len(domain))}
    for pair in pairs:
        old, new = split_clique(pair, given)
        if len(old) == 1:
            found[new[0]] = _predict_counts(codes, estimates, domain, pair, old, new).sum(axis=0)
    return found


def _normalize(counts: Floats) -> Floats:
    held: Floats = counts + 1e-9
    shares: Floats = held / held.sum()
    return shares


def _predict_counts(
    codes: Codes, estimates: Estimates, domain: Domain, clique: Clique, old: Clique, new: Clique
) -> Floats:
    """The counts of a clique if each group of given values is divided as estimated."""
    table = _conditional_table(estimates, clique, old, new)
    held = (
        np.bincount(index_cells(codes, domain, old), minlength=domain.cells(old)) if old else np.array([codes.shape[1]])
    )
    predicted: Floats = table / table.sum(axis=1, keepdims=True) * held[:, np.newaxis]
    return predicted


def _target_counts(
    codes: Codes, estimates: Estimates, domain: Domain, margins: dict[int, Floats], clique: Clique, old: Clique,
    new: Clique,
) -> Floats:  # fmt: skip
    """The counts a clique should have: as predicted, moved to the margins of its free columns."""
    table = _predict_counts(codes, estimates, domain, clique, old, new)
    shaped = table.reshape(table.shape[0], *domain.shape(new))
    return fit_axis_margins(shaped, table.sum(axis=1), *(margins[place] for place in new)).ravel()


def restore_codes(description: Description, drawn: Codes, seed: int | tuple[int, ...]) -> Codes:
    """The drawn records over the full domain."""
    start = seed if isinstance(seed, tuple) else (seed,)
    generator = np.random.default_rng((*start, 1))
    return np.stack(
        [_restore_column(description, place, drawn[place], generator) for place in range(len(description.domain))]
    )


def _restore_column(description: Description, place: int, drawn: Codes, generator: np.random.Generator) -> Codes:
    collapsed = description.collapsed
    members = [collapsed.members(place, code) for code in range(collapsed.domain.sizes[place])]
    values: Codes = np.array([own[0] for own in members], dtype=np.int32)[drawn]
    if all(own.size == 1 for own in members):
        return values
    order = np.argsort(drawn.astype(np.uint16) if len(members) <= 1 << 16 else drawn, kind="stable")  # radix sort
    ends, empty = np.cumsum(np.bincount(drawn, minlength=len(members))), _find_empty(description, place)
    for own, at in zip(members, np.split(order, ends[:-1]), strict=True):
        if own.size > 1 and at.size:
            weights = weigh_members(description, place, own, empty)
            values[at] = generator.permutation(np.repeat(own, apportion_counts(weights, at.size, generator)))
    return values
