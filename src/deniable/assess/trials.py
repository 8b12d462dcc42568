"""Trials: every attack that the motivated intruder is played by, what each needs, and how it is run.

Nothing here is random but by the seed, and no outcome holds a row. Trials that need preparation come first: other
releases of the same people; minimality, which asks the search again; the ends of intervals; tokens, taken for such
where the release and a table in clear text both have a column and next to no value is the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deniable.assess.evidence import COUNT, NEEDS_RECODING, NOBODY, Evidence, Settings, Trial, find_row_keys
from deniable.attacks import class_disclosure, inference, linkage, membership, networks, ratings, singling_out
from deniable.attacks.aggregates.differencing import find_parents, subtract_maps
from deniable.attacks.codes import Codes, draw_places, encode_column, encode_combinations, pack_codes, require_column
from deniable.attacks.composition import (
    cross_releases,
    join_releases,
    prepare_releases,
    publishes_means,
    subtract_means,
)
from deniable.attacks.generalized_cells import parse_cell
from deniable.attacks.linkage import Field, Like, link_with_errors
from deniable.attacks.minimality import (
    assume_class_shares,
    find_closed_intervals,
    infer_within_classes,
    read_interval_ends,
    score_beliefs,
)
from deniable.attacks.nearest_records import convert_to_floats
from deniable.attacks.outcome import Outcome
from deniable.attacks.tokens import MOST_ASSIGNED, SHORTEST, invert_hashes, invert_projection, match_tokens
from deniable.attacks.traces import sweep_traces
from deniable.attacks.uniqueness import measure_uniqueness
from deniable.errors import Infeasible, ParameterError
from deniable.kanonymity.anonymize import anonymize, recode_table
from deniable.kanonymity.recoding import Recoding, Suppressed
from deniable.kanonymity.request import Request, parse_condition


def combine_releases(evidence: Evidence, settings: Settings) -> tuple[Outcome, ...]:
    """Every way to combine the release with the others that applies; none is an error of the caller."""
    found = (*_try_crossing(evidence, settings), *_try_subtracting(evidence), *_try_joining(evidence, settings))
    if not found:
        raise ParameterError(
            "The releases have nothing to combine",
            expected="Columns in common: what an intruder knows, a sensitive column, or cells at two resolutions",
            remedy="Name what they share with --knows or --sensitive, or attack them one by one",
        )
    return found


def _try_crossing(evidence: Evidence, settings: Settings) -> tuple[Outcome, ...]:
    """Crossing needs people: the original rows, which also score it, or a register of those who are in."""
    people = evidence.original if evidence.original is not None else evidence.register
    knows = evidence.knowledge or evidence.knows
    if people is None or not knows:
        return ()
    tables = (evidence.release, *evidence.others)
    found: list[Outcome] = []
    for name in evidence.sensitive:
        having = [place for place, table in enumerate(tables) if name in table.column_names]
        if len(having) < 2:
            continue
        noisy = [bool(evidence.noisy[place]) if place < len(evidence.noisy) else False for place in having]
        releases = prepare_releases([tables[place] for place in having], knows, noisy)
        if publishes_means(releases, name):
            found.append(subtract_means(releases, people, name))
        else:
            found += cross_releases(
                releases, _sample(people, settings), name, scored=name in people.column_names, seconds=settings.seconds
            )
    return tuple(found)


def _try_subtracting(evidence: Evidence) -> tuple[Outcome, ...]:
    """Pairs of releases that show the known columns at two resolutions, the coarser one first."""
    found = []
    for other in evidence.others:
        columns = [name for name in evidence.knows if all(name in t.column_names for t in (evidence.release, other))]
        for coarse, fine in ((evidence.release, other), (other, evidence.release)):
            if columns and find_parents(coarse, fine, columns) is not None:
                counted = COUNT if all(COUNT in table.column_names for table in (coarse, fine)) else None
                found.append(subtract_maps(coarse, fine, columns, counted))
                break
    return tuple(found)


def _try_joining(evidence: Evidence, settings: Settings) -> tuple[Outcome, ...]:
    """Pairs of releases of which each shows what the other does not, joined on all that both show."""
    found = []
    for other in evidence.others:
        ours, theirs = evidence.release.column_names, other.column_names
        shared = [name for name in ours if name in theirs]
        if shared and set(theirs) - set(ours) and set(ours) - set(theirs):
            sample = _sample(evidence.release, settings)
            found.append(join_releases(sample, other, shared, seed=settings.seed, seconds=settings.seconds))
    return tuple(found)


def _sample(table: pa.Table, settings: Settings) -> pa.Table:
    return table.take(pa.array(_draw(table, table.column_names, settings.attacks, settings)))


def _draw(table: pa.Table, columns: Sequence[str], most: int, settings: Settings, **how: bool) -> NDArray[np.int64]:
    """The places of so many rows at random, by the seed."""
    return draw_places(table, columns, most, np.random.default_rng(settings.seed), **how)


MOST_ROWS = 2_000
"""Larger tables are generalized because of many classes at once, which tells next to nothing about any one of them."""
MOST_WORLDS = 1_000
SOME_WORLDS = 60
"""Worlds asked of a table of more than a hundred rows, for each of which the search runs anew."""


def lacks_minimality(evidence: Evidence) -> str:
    """Why minimality cannot be tried; empty when it can."""
    if evidence.recoding is None or evidence.original is None:
        return NEEDS_RECODING
    if any("person" in spec.options for spec in evidence.recoding.models):
        return "needs classes that are counted in rows: whose a row is stands in no recoding"
    if _find_secret(evidence.recoding) is None:
        return "k alone does not look at secrets, so it tells none; a privacy model about a secret (l, t) could"
    if evidence.original.num_rows != evidence.recoding.rows:
        return "needs exactly the rows that were anonymized (--original): a sample of them was, or others"
    if evidence.original.num_rows > MOST_ROWS:
        return f"needs at most {MOST_ROWS:,} rows: a larger release is generalized because of many classes at once"
    return ""


def try_minimality(evidence: Evidence, settings: Settings) -> tuple[Outcome, ...]:
    """Minimality: the release is made again from every way to deal out the values of its classes."""
    recoding, table = evidence.recoding, evidence.original
    assert recoding is not None
    assert table is not None
    secret = _find_secret(recoding)
    assert secret is not None
    values = table[secret].to_pylist()
    classes = _find_classes(recoding, table)
    # Values of suppressed rows are in no release; the intruder is given them, which is the worst case.
    classes = np.where(classes < 0, -1 - np.arange(len(classes)), classes)
    most = MOST_WORLDS if table.num_rows <= 100 else SOME_WORLDS
    place = table.column_names.index(secret)

    def same_release(deal: Sequence[Any]) -> bool:
        world = table.set_column(place, secret, pa.array(deal, table[secret].type))
        return _rerun_search(recoding, world) == (recoding.levels, sorted(recoding.classes.tuples, key=repr))

    found = infer_within_classes(classes, values, same_release, most=most, seed=settings.seed, seconds=settings.seconds)
    return (score_beliefs(found, assume_class_shares(classes, values), values),)


def _find_secret(recoding: Recoding) -> str | None:
    """The sensitive column that a privacy model is about."""
    return next((str(spec.options["column"]) for spec in recoding.models if spec.options.get("column")), None)


def _rebuild_request(recoding: Recoding) -> Request:
    models = tuple(parse_condition(spec) for spec in recoding.models)
    return Request(recoding.names, models, recoding.sensitive, (), recoding.limit)


def _rerun_search(recoding: Recoding, world: pa.Table) -> tuple[Any, Any] | None:
    """The levels and classes that the search would choose for another world; None where there is no release."""
    named = list(dict.fromkeys((*recoding.names, *recoding.sensitive)))
    try:
        found = anonymize(
            world.select(named), _rebuild_request(recoding), {c.name: c.spec for c in recoding.columns}
        ).recoding
    except Infeasible:
        return None
    return found.levels, sorted(found.classes.tuples, key=repr)


def _find_classes(recoding: Recoding, table: pa.Table) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Everybody's class in the release; -1 for those who were suppressed, whose secrets a starred row leaves empty."""
    named = [name for name in table.column_names if name in (*recoding.names, *recoding.sensitive)]
    shown = recode_table(table.select(named), replace(recoding, suppressed_rows=Suppressed.STAR))
    codes = pack_codes(encode_combinations([shown], recoding.names, missing=True)[0])
    secret = _find_secret(recoding)
    gone = shown[secret].is_null().to_numpy() & table[secret].is_valid().to_numpy()
    return np.where(gone, -1, codes)


def lacks_downcoding(evidence: Evidence) -> str:
    """Why downcoding cannot be tried; empty when it can."""
    if missing := evidence.lacks("knows", "original"):
        return missing
    assert evidence.original is not None
    shown = find_closed_intervals(evidence.release, evidence.original, evidence.knows)
    return "" if shown else "no numbers are written as intervals from the lowest to the highest value of a class"


def try_downcoding(evidence: Evidence, settings: Settings) -> tuple[Outcome, ...]:
    """Downcoding: exact values at the ends of intervals."""
    assert evidence.original is not None
    known = [name for name in evidence.knows if name in evidence.original.column_names]
    return (
        read_interval_ends(evidence.release, evidence.original, known, classes=settings.attacks, seed=settings.seed),
    )


MOST_KEPT = 0.01
"""A column with a larger share of values in clear text was not replaced by tokens."""
MOST_BESIDE = 2_000
"""What stands beside a token is counted in so many kinds at most: more would be seen once each."""


def choose_clear_table(evidence: Evidence) -> pa.Table | None:
    """The table in clear text that an intruder is taken to hold; other people's before these people's own."""
    tables = (evidence.control, evidence.register, evidence.original)
    return next((table for table in tables if table is not None and _find_token_columns(evidence, table)), None)


def lacks_tokens(evidence: Evidence) -> str:
    """Why tokens cannot be attacked; empty when they can."""
    if evidence.control is None and evidence.register is None and evidence.original is None:
        return "needs a table that has columns of tokens in clear (--original, --register or --control)"
    return "" if choose_clear_table(evidence) is not None else "no table that was given has a column of tokens in clear"


def try_tokens(evidence: Evidence, settings: Settings) -> tuple[Outcome, ...]:
    """Every attack on every column of tokens that applies."""
    found: list[Outcome] = []
    for table in (evidence.register, evidence.original):
        if table is not None and not found:
            names = [name for name in _find_token_columns(evidence, table) if _are_digests(evidence.release[name])]
            found = [_invert_column(evidence.release[name], table, name, settings) for name in names]
    known = choose_clear_table(evidence)
    assert known is not None
    for name in _find_token_columns(evidence, known):
        found += _match_column(evidence, known, name)
    return tuple(found)


def _invert_column(tokens: pa.ChunkedArray, clear: pa.Table, name: str, settings: Settings) -> Outcome:
    guesses = [value for value in clear[name].unique().cast(pa.string()).to_pylist() if value is not None]
    found = invert_hashes(tokens.to_pylist(), guesses, seconds=settings.seconds)
    return replace(found, name=f"dictionary of {name}")


def _match_column(evidence: Evidence, known: pa.Table, name: str) -> list[Outcome]:
    """By counts, and by counts beside columns that both tables show in clear; scored by the original."""
    release, truth = evidence.release, evidence.original
    if truth is None or truth.num_rows != release.num_rows or name not in truth.column_names:
        return []
    keys, told = find_row_keys(release, truth, _find_token_columns(evidence, truth))
    if known is truth:
        told = ("the intruder was given the original's own counts: the worst case", *told)
    held = [table.filter(pc.is_valid(table[name])) for table in (release, known)]
    tokens, clear = held[0][name], held[1][name].cast(pa.string())
    ours, theirs = (codes[part[name].is_valid().to_numpy()] for codes, part in zip(keys, (release, truth), strict=True))
    secret = truth[name].cast(pa.string()).drop_null()
    if not len(secret) or not len(tokens):
        return []
    match = partial(match_tokens, tokens, clear, secret, keys=(ours, theirs))
    found = [_rename_outcome(match(), f"counting {name}", told)]
    beside = _encode_beside(held[0], held[1], evidence, name)
    few = max(len(tokens.unique()), len(pa.chunked_array([*clear.chunks, *secret.chunks]).unique())) <= MOST_ASSIGNED
    if beside is not None and few:
        found.append(_rename_outcome(match(beside=beside), f"counting {name} beside others", told))
    return found


def _align_rows(evidence: Evidence, truth: pa.Table) -> NDArray[np.int64] | None:
    """The original's row of each released row, by what both show in clear; None where that does not tell."""
    (ours, theirs), _ = find_row_keys(evidence.release, truth, _find_token_columns(evidence, truth))
    if len(np.unique(ours)) != len(ours):
        return None
    return np.asarray(np.argsort(theirs)[np.argsort(np.argsort(ours))], np.int64)


def _rename_outcome(outcome: Outcome, name: str, words: tuple[str, ...]) -> Outcome:
    return replace(outcome, name=name, warnings=(*outcome.warnings, *words))


def _encode_beside(release: pa.Table, known: pa.Table, evidence: Evidence, name: str) -> tuple[Codes, Codes] | None:
    """The known columns that both tables show, as many of them as have few enough combinations."""
    chosen: list[str] = []
    best: tuple[Codes, Codes] | None = None
    hidden = _find_token_columns(evidence, known)
    for other in evidence.knows:
        shown = all(other in table.column_names for table in (release, known))
        if other == name or other in hidden or not shown:
            continue
        codes = pack_codes(np.concatenate(encode_combinations([release, known], [*chosen, other], missing=True)))
        if codes.max(initial=0) < MOST_BESIDE:
            chosen.append(other)
            best = codes[: release.num_rows], codes[release.num_rows :]
    return best


def _find_token_columns(evidence: Evidence, clear: pa.Table) -> tuple[str, ...]:
    """Columns of the release that hold tokens of what the other table has in clear text."""
    both = [name for name in evidence.release.column_names if name in clear.column_names]
    return tuple(name for name in both if _is_tokenized(evidence.release[name], clear[name]))


def _is_tokenized(released: pa.ChunkedArray, clear: pa.ChunkedArray) -> bool:
    if not (pa.types.is_string(released.type) or pa.types.is_large_string(released.type)) or not len(released):
        return False
    tokens, values = (pa.array(part.unique()).cast(pa.string()).drop_null() for part in (released, clear))
    if len(tokens) < 2 or not len(values):
        return False
    same = pc.sum(pc.is_in(tokens, values)).as_py() or 0
    return same <= MOST_KEPT * len(tokens) and not any(parse_cell(cell) for cell in tokens.slice(0, 50).to_pylist())


def _are_digests(values: pa.ChunkedArray) -> bool:
    """Whether values look like hexadecimal digests."""
    sample = [value for value in values.slice(0, 200).to_pylist() if value]
    hexadecimal = set("0123456789abcdefABCDEF")
    return bool(sample) and all(len(value) >= SHORTEST and set(value) <= hexadecimal for value in sample)


PROJECTED = "projection_"
"""How the columns that come out of a random projection begin."""


def lacks_projection(evidence: Evidence) -> str:
    """Why a projection cannot be attacked; empty when it can."""
    if not any(name.startswith(PROJECTED) for name in evidence.release.column_names):
        return "there are no columns of a random projection (projection_1, ...)"
    if missing := evidence.lacks("original"):
        return missing
    assert evidence.original is not None
    found = _list_projected(evidence) and _order_projected(evidence) is not None
    return "" if found else "needs the original rows in the order of the release"


def _order_projected(evidence: Evidence) -> NDArray[np.int64] | None:
    """The original's row of each released row; where nothing is shown that would tell, they are in one order."""
    release, original = evidence.release, evidence.original
    if original is None or original.num_rows != release.num_rows:
        return None
    both = set(release.column_names) & set(original.column_names)
    return _align_rows(evidence, original) if both else np.arange(release.num_rows)


def _list_projected(evidence: Evidence) -> list[str]:
    """The numeric columns of the original that the release does not show."""
    assert evidence.original is not None
    hidden = [name for name in evidence.original.column_names if name not in evidence.release.column_names]
    kinds = {name: evidence.original.schema.field(name).type for name in hidden}
    return [n for n, t in kinds.items() if pa.types.is_integer(t) or pa.types.is_floating(t) or pa.types.is_decimal(t)]


def try_projection(evidence: Evidence, settings: Settings) -> tuple[Outcome, ...]:
    """Known people invert the projection: twice as many as there are hidden numeric columns, drawn at random."""
    assert evidence.original is not None
    shown = [name for name in evidence.release.column_names if name.startswith(PROJECTED)]
    released, truth = (
        np.column_stack([np.nan_to_num(convert_to_floats(table[name])) for name in names])
        for table, names in ((evidence.release, shown), (evidence.original, _list_projected(evidence)))
    )
    truth, known = truth[_order_projected(evidence)], np.zeros(len(truth), np.bool_)
    known[_draw(evidence.original, _list_projected(evidence), 2 * (truth.shape[1] + 1), settings)] = True
    return (invert_projection(released, truth, known),)


MOST_VALUES = 200
"""A sensitive column with more different values is not guessed by class."""


def _try_uniqueness(evidence: Evidence, _: Settings) -> tuple[Outcome, ...]:
    return (measure_uniqueness(evidence.release, evidence.knows, unit=_unit(evidence)),)


def _try_linkage(evidence: Evidence, settings: Settings) -> tuple[Outcome, ...]:
    assert evidence.register is not None
    found = linkage.link_register(
        evidence.release, evidence.register, evidence.knows, truth=evidence.truth, unit=_unit(evidence),
        seed=settings.seed, seconds=settings.seconds,
    )  # fmt: skip
    return (found,)


def _lacks_fuzzy_linkage(evidence: Evidence) -> str:
    if missing := evidence.lacks("knows", "register"):
        return missing
    return "" if _choose_fields(evidence) else "needs known columns that the register has too, of the same type"


def _try_fuzzy_linkage(evidence: Evidence, settings: Settings) -> tuple[Outcome, ...]:
    """Linkage that allows for errors, on a sample of the rows: every pair of rows that agrees somewhere is compared."""
    assert evidence.register is not None
    chosen = _draw(evidence.release, evidence.release.column_names, settings.attacks, settings)
    truth = None if evidence.truth is None else evidence.truth[chosen]
    found = link_with_errors(
        evidence.release.take(pa.array(chosen)), evidence.register, _choose_fields(evidence), truth=truth,
        seed=settings.seed, seconds=settings.seconds,
    )  # fmt: skip
    return (found,)


def _choose_fields(evidence: Evidence) -> list[Field]:
    """How the known columns are compared with the register: by their type, and text by how many values it has."""
    assert evidence.register is not None
    shared = [n for n in evidence.knows if all(n in t.column_names for t in (evidence.release, evidence.register))]
    likes = {name: _choose_likeness(evidence.release[name], evidence.register[name]) for name in shared}
    return [Field(name, like) for name, like in likes.items() if like is not None]


def _choose_likeness(ours: pa.ChunkedArray, theirs: pa.ChunkedArray) -> Like | None:
    if pa.types.is_date(ours.type) and pa.types.is_date(theirs.type):
        return Like.DATE
    if pa.types.is_integer(ours.type) and pa.types.is_integer(theirs.type):
        return Like.AGE
    if not (pa.types.is_string(ours.type) and pa.types.is_string(theirs.type)):
        return None
    return Like.NAME if len(theirs.unique()) > MOST_VALUES else Like.VALUE


def _lacks_classes(evidence: Evidence) -> str:
    alone = evidence.of_nobody and evidence.original is None
    return evidence.lacks("knows", "sensitive") or (NOBODY if alone else "")


def _unit(evidence: Evidence) -> str | None:
    return evidence.unit if evidence.unit in evidence.release.column_names else None


def _try_ratings(evidence: Evidence, settings: Settings) -> tuple[Outcome, ...]:
    assert evidence.ratings is not None
    person, item, stars, day = (require_column(evidence.release, name) for name in evidence.ratings)
    days = convert_to_floats(day)
    if pa.types.is_timestamp(day.type):
        days = days / {"s": 86_400, "ms": 86_400e3, "us": 86_400e6, "ns": 86_400e9}[day.type.unit]
    who, what = pack_codes(encode_column([person])), pack_codes(encode_column([item]))
    records = ratings.Records.of(who, what, convert_to_floats(stars), days.astype(np.int64))
    sweep = partial(ratings.sweep_facts, records, (2, 4, 8), targets=settings.attacks, seed=settings.seed)
    return (*sweep(), *sweep(plain=True))


def _try_traces(evidence: Evidence, settings: Settings) -> tuple[Outcome, ...]:
    sweep = partial(sweep_traces, targets=settings.attacks, seed=settings.seed, seconds=settings.seconds)
    return sweep(evidence.release, evidence.trace or (), original=evidence.original, resolutions=evidence.resolutions)


def _try_graph(e: Evidence, settings: Settings) -> tuple[Outcome, ...]:
    return networks.attack_graph(e.release, e.edges or (), e.original, targets=settings.attacks, seed=settings.seed)


def _try_singling_out(evidence: Evidence, settings: Settings, widths: tuple[int, ...] = (1, 3)) -> tuple[Outcome, ...]:
    assert evidence.original is not None
    return tuple(
        singling_out.single_out_people(
            evidence.original, evidence.release, control=evidence.control, columns=_list_shared_columns(evidence),
            width=width,
            attacks=settings.attacks, seed=settings.seed, seconds=settings.seconds,
        )
        for width in widths
    )  # fmt: skip


def _try_linkability(evidence: Evidence, settings: Settings) -> tuple[Outcome, ...]:
    assert evidence.original is not None
    rest = tuple(name for name in _list_shared_columns(evidence) if name not in evidence.knows)
    known = tuple(name for name in evidence.knows if name in evidence.original.column_names)
    found = inference.link_halves(
        evidence.original, evidence.release, (known, rest), control=evidence.control, attacks=settings.attacks,
        seed=settings.seed, seconds=settings.seconds,
    )  # fmt: skip
    return (found,)


def _try_inference(evidence: Evidence, settings: Settings) -> tuple[Outcome, ...]:
    release = evidence.release
    guessed = () if evidence.of_nobody else evidence.sensitive
    few = [name for name in guessed if len(require_column(release, name).unique()) <= MOST_VALUES]
    by_class = tuple(class_disclosure.guess_from_class(release, evidence.knows, name) for name in few)
    return by_class if evidence.original is None else (*by_class, *_try_inference_by_likeness(evidence, settings))


def _try_inference_by_likeness(evidence: Evidence, settings: Settings) -> tuple[Outcome, ...]:
    assert evidence.original is not None
    knows = tuple(name for name in evidence.knows if name in evidence.original.column_names)
    return tuple(
        inference.infer_secret(
            evidence.original, evidence.release, knows, name, control=evidence.control,
            attacks=settings.attacks, seed=settings.seed, seconds=settings.seconds,
        )
        for name in (evidence.sensitive if knows else ())  # the original has no column of an interval's ends
    )  # fmt: skip


def _try_memberships(evidence: Evidence, settings: Settings) -> tuple[Outcome, ...]:
    """Membership by closeness, and by density: half of the others then say how dense people like these are anyway."""
    assert evidence.original is not None
    assert evidence.control is not None
    names = _list_shared_columns(evidence)
    others = _draw(evidence.control, names, evidence.control.num_rows, settings, shuffled=True)
    reference, strangers = np.array_split(others, 2)
    members = _draw(evidence.original, names, 2 * settings.attacks, settings, shuffled=True)
    sides = ((evidence.original, members), (evidence.control, strangers[: 2 * settings.attacks]))
    known = evidence.control.take(pa.array(reference))
    if min(len(reference), len(members)) == 0 or len(strangers) < 2:
        return _try_membership(evidence, settings)
    scores = [
        membership.score_density(table.take(pa.array(places)), evidence.release, known, names)
        for table, places in sides
    ]
    by_density = membership.claim_membership(*scores, name="membership by density")
    return (*_try_membership(evidence, settings), by_density)


def _try_membership(evidence: Evidence, settings: Settings) -> tuple[Outcome, ...]:
    assert evidence.original is not None
    assert evidence.control is not None
    generator, names = np.random.default_rng(settings.seed), _list_shared_columns(evidence)
    scores = []
    for table in (evidence.original, evidence.control):
        # Every second of the others sets the threshold: in the order of the draw, which is not the table's.
        chosen = draw_places(table, names, 2 * settings.attacks, generator, shuffled=True)
        scores.append(membership.score_closeness(table.take(pa.array(chosen)), evidence.release, names))
    return (membership.claim_membership(*scores),)


def _list_shared_columns(evidence: Evidence) -> tuple[str, ...]:
    """Columns that the release shares with the original, without the unit and tokens, which alone name nobody."""
    assert evidence.original is not None
    gone = {*_find_token_columns(evidence, evidence.original), evidence.unit}
    return tuple(each for each in evidence.release.column_names if each in {*evidence.original.column_names} - gone)


TRIALS = (
    Trial("uniqueness", lambda e: e.lacks("knows") or (NOBODY if e.of_nobody else ""), _try_uniqueness),
    Trial("linkage", lambda e: e.lacks("knows", "register"), _try_linkage),
    Trial("fuzzy_linkage", _lacks_fuzzy_linkage, _try_fuzzy_linkage),
    Trial("inference", _lacks_classes, _try_inference),
    Trial("singling_out", lambda e: e.lacks("original"), _try_singling_out),
    Trial("linkability", lambda e: e.lacks("knows", "original") or _lacks_rest(e), _try_linkability),
    Trial("membership", lambda e: e.lacks("original", "control"), _try_memberships),
    Trial("ratings", lambda e: e.lacks("ratings"), _try_ratings),
    Trial("traces", lambda e: e.lacks("trace") or (NOBODY if e.of_nobody and e.original is None else ""), _try_traces),
    Trial("network", lambda e: e.lacks("edges") or (NOBODY if e.of_nobody and e.original is None else ""), _try_graph),
    Trial("minimality", lacks_minimality, try_minimality),
    Trial("downcoding", lacks_downcoding, try_downcoding),
    Trial("combining", lambda e: e.lacks("others"), combine_releases),
    Trial("tokens", lacks_tokens, try_tokens),
    Trial("projection", lacks_projection, try_projection),
)

CONTROLLED = (
    Trial("membership", lambda e: e.lacks("original", "control"), _try_membership),
    Trial("singling_out", lambda e: e.lacks("original", "control"), _try_singling_out),
    Trial("linkability", lambda e: e.lacks("knows", "original", "control") or _lacks_rest(e), _try_linkability),
    Trial("inference", lambda e: e.lacks("knows", "sensitive", "original", "control"), _try_inference_by_likeness),
)
"""Membership and the three risks of WP29, each beside the same attack on people who were not in the data."""

GENERATED = (
    Trial("membership", lambda e: e.lacks("original", "control"), _try_memberships),
    Trial("singling_out", lambda e: e.lacks("original", "control"), partial(_try_singling_out, widths=(3,))),
    *CONTROLLED[2:],
)
"""The same for rows that somebody else generated, of which nothing is known.

One rare value alone singles nobody out here: that it exists was in the data, but nothing else stands beside it."""


def _lacks_rest(evidence: Evidence) -> str:
    shared = _list_shared_columns(evidence)
    if not set(shared) & set(evidence.knows):
        return "needs what the intruder knows in the columns of the original rows; the release writes it in others"
    return "" if set(shared) - set(evidence.knows) else "the release has no columns beside those the intruder knows"
