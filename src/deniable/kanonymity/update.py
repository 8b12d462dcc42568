"""Adding rows to what was released: what may be shown of them, and what must change.

The recoding stays as it is. A new row goes where the old ones of its kind went. Two conditions must hold for the new
rows of a class to be shown: the class with them meets the models, and so do the new rows by themselves, since whoever
holds both versions sees them apart. The work is proportional to the new rows; where a model compares with the whole
table, every released class is looked at again, but no old row is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deniable.errors import ParameterError
from deniable.kanonymity.encoding import (
    Histograms,
    build_histograms,
    column_of,
    factorize,
    number_rows,
    unify_spellings,
)
from deniable.kanonymity.hierarchy import Label, text_of
from deniable.kanonymity.models import (
    AverageRisk,
    Closeness,
    DeltaPresence,
    Distance,
    DistinctDiversity,
    KAnonymity,
    KMap,
    PrivacyModel,
    holds,
)
from deniable.kanonymity.models.base import Classes, build_reference, name_pairs
from deniable.kanonymity.recoding import Recoder, Recoding, ReleasedClasses, Suppressed
from deniable.kanonymity.request import Condition, code_people, pair_with_people

MISSING = "None"
"""How a recoding writes a missing sensitive value."""


@dataclass(frozen=True, slots=True)
class Update:
    """The verdict on new rows, and the recoding with those that are shown.

    `shown` new rows can be added as they are; `waiting` ones would be too few by themselves, or break a model, and
    wait for more of their kind. `broken` counts released classes that no longer meet a model because the whole table
    changed: the release should be made anew.
    """

    recoding: Recoding
    rows: int
    shown: int
    waiting: int
    new_classes: int
    grown_classes: int
    broken: int

    @property
    def search_again(self) -> bool:
        """Whether the recoding no longer serves: a class broke, or more rows wait than may be suppressed."""
        waiting = self.recoding.suppressed
        return self.broken > 0 or waiting > self.recoding.limit * max(self.recoding.rows, 1) + 1e-9


def update_recoding(recoding: Recoding, added: pa.Table, conditions: Iterable[Condition]) -> Update:
    """Judge rows that are added to a release, by its own recoding."""
    conditions = tuple(conditions)
    models = _require_judged(conditions)
    recoder = Recoder(recoding)
    columns = [c.codes(column_of(added, c.column.name))[0] for c in recoder.columns]
    spans = [max(len(c.labels), 1) for c in recoder.columns]
    many, first, class_of = number_rows(columns, spans)
    known = recoder.index.find([column[first] for column in columns])
    values = {name: _read_texts(added, name) for name in recoding.sensitive}
    kinds = {name: column_of(added, name).type for name in recoding.sensitive}
    old, both, new = _tally_classes(recoding, known, class_of, many, values, kinds)
    fine = _check_models(models, new) & _check_models(models, both) & _check_people(conditions, added, class_of, many)
    stays = _check_models(models, old) if len(known) else np.zeros(0, np.bool_)
    shown = int(np.bincount(class_of, minlength=many)[fine].sum()) if many else 0
    labels = [tuple(c.labels[codes[i]] for c, codes in zip(recoder.columns, columns, strict=True)) for i in first]
    grown = _extend_recoding(recoding, known, fine, labels, new, added.num_rows, shown)
    return Update(
        grown,
        added.num_rows,
        shown,
        added.num_rows - shown,
        int((fine & (known < 0)).sum()),
        int((fine & (known >= 0)).sum()),
        int((~stays).sum()),
    )


def _require_judged(conditions: Iterable[Condition]) -> tuple[PrivacyModel, ...]:
    """The models in rows, if a recoding holds all that they are judged by; who the people are is not kept."""
    models: list[PrivacyModel] = []
    for each in conditions:
        tree = isinstance(each, Closeness) and each.distance is Distance.HIERARCHICAL
        if isinstance(each, AverageRisk | KMap | DeltaPresence) or tree or _weighs_people(each):
            raise ParameterError(
                f"Rows that are added cannot be judged by {each}",
                expected="Models of each class, without a population, a hierarchy of values or shares of people",
                remedy="Anonymize the whole table again",
            )
        models.append(replace(each, person=None) if _counts_people(each) else each)  # type: ignore[type-var]
    return tuple(models)


def _counts_people(model: object) -> bool:
    return getattr(model, "person", None) is not None


def _weighs_people(model: object) -> bool:
    return _counts_people(model) and not isinstance(model, KAnonymity | DistinctDiversity)


def _check_people(
    conditions: Iterable[Condition], added: pa.Table, class_of: NDArray[np.int64], many: int
) -> NDArray[np.bool_]:
    """Which classes have new rows of enough people; those before had enough, and more rows take nobody away."""
    fine = np.ones(many, np.bool_)
    sizes = np.bincount(class_of, minlength=many).astype(np.int64)
    for each in conditions:
        if isinstance(each, KAnonymity | DistinctDiversity) and each.person is not None:
            fine &= holds(each, _tally_people(each, added, class_of, sizes))
    return fine


def _tally_people(
    model: KAnonymity | DistinctDiversity, added: pa.Table, class_of: NDArray[np.int64], sizes: NDArray[np.int64]
) -> Classes:
    """The new rows by themselves, with the people who have them or their values."""
    assert model.person is not None
    person, many = code_people(column_of(added, model.person)), len(sizes)
    if isinstance(model, KAnonymity):
        return Classes(sizes, {name_pairs(model.person): person.tally(class_of, many)})
    values = code_people(column_of(added, model.column))
    pairs, reference = pair_with_people(values, person, values.size - 1)
    name = name_pairs(model.column)
    return Classes(sizes, {name: pairs.tally(class_of, many)}, {name: reference})


@dataclass(frozen=True, eq=False, repr=False)
class _Tally:
    classes: Classes
    leaves: dict[str, tuple[str, ...]]


def _read_texts(table: pa.Table, name: str) -> NDArray[np.object_]:
    values, positions = factorize(unify_spellings(column_of(table, name)))
    return np.array([*text_of(values), MISSING], object)[positions]


def _tally_classes(
    recoding: Recoding,
    known: NDArray[np.int64],
    class_of: NDArray[np.int64],
    many: int,
    values: dict[str, NDArray[np.object_]],
    kinds: dict[str, pa.DataType],
) -> tuple[_Tally, _Tally, _Tally]:
    """Classes as they were, touched classes with the new rows, and the new rows by themselves."""
    old_sizes = np.array(recoding.classes.sizes, np.int64)
    new_sizes = np.bincount(class_of, minlength=many).astype(np.int64)
    both_sizes = new_sizes + np.append(old_sizes, 0)[known]
    held: list[dict[str, Histograms]] = [{}, {}, {}]
    references, leaves = {}, {}
    for name, texts in values.items():
        histograms, texts = _unify_values(recoding.classes.values[name], texts)
        domain = _sort_texts({value for h in histograms for value in h} | set(texts.tolist()), kinds[name])
        code = {value: n for n, value in enumerate(domain)}
        owner = np.array([c for c, h in enumerate(histograms) for _ in h], np.int64)
        coded = np.array([code[v] for h in histograms for v in h], np.int32)
        counts = np.array([n for h in histograms for n in h.values()], np.int64)
        fresh = np.array([code[v] for v in texts], np.int32)
        old = build_histograms(owner, len(old_sizes), coded, len(domain), counts)
        new = build_histograms(class_of, many, fresh, len(domain))
        place = np.full(len(old_sizes), -1, np.int64)
        place[known[known >= 0]] = np.flatnonzero(known >= 0)
        touched = place[owner] >= 0
        both = build_histograms(
            np.concatenate([class_of, place[owner][touched]]),
            many,
            np.concatenate([fresh, coded[touched]]),
            len(domain),
            np.concatenate([np.ones(len(fresh), np.int64), counts[touched]]),
        )
        references[name], leaves[name] = (
            build_reference(old.total() + new.total(), missing=code.get(MISSING, -1)),
            tuple(domain),
        )
        for slot, made in zip(held, (old, both, new), strict=True):
            slot[name] = made
    sizes = (old_sizes, both_sizes, new_sizes)
    tallies = [_Tally(Classes(n, h, references), leaves) for n, h in zip(sizes, held, strict=True)]
    return tallies[0], tallies[1], tallies[2]


def _unify_values(
    histograms: Sequence[Mapping[str, int]], texts: NDArray[np.object_]
) -> tuple[list[dict[str, int]], NDArray[np.object_]]:
    """The values of a release and of new rows, in which one text stands for all its spellings."""
    known = sorted(({value for h in histograms for value in h} | set(texts.tolist())) - {MISSING})
    chosen = unify_spellings(pa.chunked_array([known], pa.string())).to_pylist()
    stands = {MISSING: MISSING} | dict(zip(known, (one or MISSING for one in chosen), strict=True))
    unified: list[dict[str, int]] = []
    for held in histograms:
        unified.append({})
        for value, count in held.items():
            unified[-1][stands[value]] = unified[-1].get(stands[value], 0) + count
    return unified, np.array([stands[text] for text in texts.tolist()], object)


def _sort_texts(texts: set[str], kind: pa.DataType) -> list[str]:
    """Texts of values in the order of the values; a missing one is last."""
    known = sorted(texts - {MISSING})
    try:
        order = pc.sort_indices(pc.cast(pa.array(known, pa.string()), kind)).to_pylist()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        order = list(range(len(known)))
    return [known[i] for i in order] + ([MISSING] if MISSING in texts else [])


def _check_models(models: tuple[PrivacyModel, ...], tally: _Tally) -> NDArray[np.bool_]:
    fine = np.ones(len(tally.classes), np.bool_)
    for model in models:
        fine &= holds(model, tally.classes)
    return fine


def _extend_recoding(
    recoding: Recoding,
    known: NDArray[np.int64],
    fine: NDArray[np.bool_],
    labels: list[tuple[Label, ...]],
    new: _Tally,
    added: int,
    shown: int,
) -> Recoding:
    """The recoding with the classes that the shown rows enlarge or begin."""
    tuples, sizes = list(recoding.classes.tuples), list(recoding.classes.sizes)
    values = {name: [dict(h) for h in held] for name, held in recoding.classes.values.items()}
    for c in np.flatnonzero(fine):
        at = int(known[c])
        if at < 0:
            at = len(tuples)
            tuples.append(labels[c])
            sizes.append(0)
            for held in values.values():
                held.append({})
        sizes[at] += int(new.classes.sizes[c])
        for name, held in values.items():
            _add_counts(held[at], new.classes.sensitive[name], int(c), new.leaves[name])
    classes = ReleasedClasses(tuple(tuples), tuple(sizes), {name: tuple(held) for name, held in values.items()})
    waiting = recoding.suppressed + added - shown
    return replace(recoding, classes=classes, rows=recoding.rows + added, suppressed=waiting)


def _add_counts(held: dict[str, int], histograms: Histograms, c: int, leaves: tuple[str, ...]) -> None:
    for e in range(int(histograms.starts[c]), int(histograms.starts[c + 1])):
        leaf = leaves[int(histograms.values[e])]
        held[leaf] = held.get(leaf, 0) + int(histograms.counts[e])


def keep_shown_classes(recoding: Recoding, judged: Update) -> Recoding:
    """The recoding with the classes alone that have new rows which may be shown."""
    before = set(recoding.classes.tuples)
    sizes = dict(zip(recoding.classes.tuples, recoding.classes.sizes, strict=True))
    after = judged.recoding.classes
    moved = [
        i
        for i, (labels, size) in enumerate(zip(after.tuples, after.sizes, strict=True))
        if labels not in before or size != sizes[labels]
    ]
    changed = ReleasedClasses(tuple(after.tuples[i] for i in moved), tuple(after.sizes[i] for i in moved), {})
    # Rows that wait are left out, whatever became of those that were suppressed before.
    return replace(recoding, classes=changed, suppressed_rows=Suppressed.DROP)


def recode_shown_rows(recoding: Recoding, added: pa.Table, judged: Update) -> pa.Table:
    """The new rows that may be shown, recoded."""
    return Recoder(keep_shown_classes(recoding, judged)).recode(added)
