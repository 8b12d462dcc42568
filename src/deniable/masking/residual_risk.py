"""What a masked release must say instead of a formal guarantee: attacks that remain, and people singled out.

Each kind of mask has its own weaknesses, stated here once in plain words. How many people a few columns together single
out is measured: all single columns, all pairs, and so on, up to the first size where some set singles out the share
asked for. Counting is exact on the rows given; people unique in a sample may still have twins in the whole table, so
shares found in a sample are upper estimates, and the report says how many rows were looked at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.masking.perturbation import is_placeholder
from deniable.masking.plan import TablePlan
from deniable.masking.pseudonyms import LENGTH, collision_probability
from deniable.policy.schema import is_removed
from deniable.release import Guarantee, Technique

_MATCHED = "equal values have equal tokens, so known frequencies match the most common ones; "
FALLS_TO = {
    "codebook": _MATCHED + "vault and key together reveal all",
    "token": _MATCHED + "whoever has the key can test guesses",
    "format_preserving": _MATCHED + "whoever has the key can turn every token back",
    "fake": _MATCHED + "whoever has the key can test guesses",
    "shift_dates": "one true date of a person gives that person's offset, and with it all other dates; placeholders "
    "such as 9999-12-31 stay as they are",
    "regex": "what the expression leaves standing can be guessed from and linked",
    "redact": "the characters that it keeps can be guessed from and linked",
    "nullify": "",
    "constant": "",
    "scrub": "some names, and identifiers written in unexpected ways, stay in the text",
    "generalize": "coarse values still narrow down who it is",
    "round": "coarse values still narrow down who it is",
    "noise": "outliers stay outliers, and several noisy copies of one value average out",
    "shuffle": "values that are one person's alone are still theirs, wherever they stand",
    "projection": "somebody who knows the true values of as many people as there are columns can solve for the rest",
}


def list_remaining_attacks(plan: TablePlan, *, in_order: bool = False) -> tuple[str, ...]:
    """What an intruder can still try against one table, mask by mask, the link by kept columns first."""
    kept = [column.name for column in plan.columns if column.spec is None]
    attacks = []
    if in_order:
        attacks.append("pasting: rows keep the table's own order, and other releases of it can be joined line by line")
    if kept:
        attacks.append(f"linking with other files by the columns that stayed ({', '.join(kept)})")
    if plan.linking:
        attacks.append(
            f"joining by {', '.join(plan.linking)}: releases that another ledger recorded may have the same values "
            "there, and whom they single out together is not measured"
        )
    masked = [(column.name, column.spec) for column in plan.columns if column.spec and not is_removed(column.spec)]
    for kind in dict.fromkeys(spec.kind for _, spec in masked):
        names = [name for name, spec in masked if spec.kind == kind]
        attacks.append(f"{kind} on {', '.join(names)}: {FALLS_TO[kind]}")
    if plan.projection:
        attacks.append(f"projection: {FALLS_TO['projection']}")
    return tuple(attacks)


def list_unmeasured_joins(plan: TablePlan, tables: Sequence[str]) -> list[str]:
    """What an intruder can still try who holds releases that could not be measured together with a table."""
    joining = f"joining by {', '.join(plan.linking)} with releases of {', '.join(tables)}"
    why = "which cannot be read any more, or which only tokens of several columns join"
    return [f"{joining}, {why}: whom they single out together is not measured"] if tables else []


def state_guarantee(mode: str, measured: Sequence[SinglingOut], unit: str) -> Guarantee:
    """No formal guarantee, and why, with what was measured."""
    made = (
        "the identifiers that the Safe Harbor rule lists were removed"
        if mode == "safe-harbor"
        else "identifiers were masked or left out"
    )
    reason = f"{made}, which bounds nothing that other knowledge can add"
    if measured:
        most = measured[0]
        reason += f"; the columns left single out {most.share:.1%} of the people ({', '.join(most.columns)})"
    return Guarantee.none(Technique.MASKING, reason, unit)


def estimate_collisions(plan: TablePlan, rows: int) -> Mapping[str, float]:
    """For each column of keyed tokens, the probability that two values share one, if every row had its own value."""
    return {
        column.name: collision_probability(rows, _read_length(column.spec.options.get("length", LENGTH)))
        for column in plan.columns
        if column.spec is not None and column.spec.kind == "token"
    }


def count_placeholders(plan: TablePlan, batches: Iterable[pa.RecordBatch]) -> dict[str, int]:
    """For each column of shifted dates, how many released rows hold a placeholder such as 1900-01-01, left in place."""
    names = [column.name for column in plan.columns if column.spec and column.spec.kind == "shift_dates"]
    found = dict.fromkeys(names, 0)
    for batch in batches if names else ():
        for name in names:
            if pa.types.is_date(batch.column(name).type) or pa.types.is_timestamp(batch.column(name).type):
                found[name] += int(is_placeholder(batch.column(name)).sum())
    return {name: count for name, count in found.items() if count}


def _read_length(value: object) -> int:
    return int(value) if isinstance(value, int) else LENGTH


MOST_COLUMNS = 14
LARGEST_SET = 4
MOST = 0.5
SHOWN = 5

Codes = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SinglingOut:
    """A set of columns and the share of people it singles out."""

    columns: tuple[str, ...]
    share: float

    def as_dict(self) -> dict[str, object]:
        """The shape that is printed and saved."""
        return {"columns": list(self.columns), "singled_out": round(self.share, 4)}


def measure_singling_out(sample: pa.Table, names: tuple[str, ...], unit: str | None = None) -> float:
    """The share of people whose combination of values in these columns nobody else has.

    With a unit column a person may have several rows: a combination singles somebody out when all its rows are that
    person's, and a person is singled out when one of theirs does so.
    """
    if sample.num_rows == 0 or not names:
        return 0.0
    person = _encode_column(sample, unit) if unit else np.arange(sample.num_rows, dtype=np.int64)
    return _count_share(_combine_codes([_encode_column(sample, name) for name in names]), person)


def find_smallest_sets(
    sample: pa.Table, candidates: tuple[str, ...], unit: str | None = None, most: float = MOST
) -> tuple[SinglingOut, ...]:
    """The smallest column sets that single out at least `most` of the people, strongest first.

    Columns with a single value cannot help; of the rest the ones with most values are searched, up to 14.
    """
    coded = {name: _encode_column(sample, name) for name in candidates}
    useful = sorted((n for n in coded if coded[n].size and coded[n].max() > 0), key=lambda n: -int(coded[n].max()))
    person = _encode_column(sample, unit) if unit else np.arange(sample.num_rows, dtype=np.int64)
    for size in range(1, LARGEST_SET + 1):
        tried = (
            SinglingOut(names, _count_share(_combine_codes([coded[name] for name in names]), person))
            for names in combinations(useful[:MOST_COLUMNS], size)
        )
        found = sorted((one for one in tried if one.share >= most), key=lambda one: -one.share)
        if found:
            return tuple(found[:SHOWN])
    return ()


def _encode_column(sample: pa.Table, name: str) -> Codes:
    column = sample.column(name).combine_chunks()
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    encoded = column.dictionary_encode(null_encoding="encode")
    indices = encoded.indices if not isinstance(encoded, pa.ChunkedArray) else encoded.combine_chunks().indices
    codes: Codes = indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes


def _combine_codes(parts: list[Codes]) -> Codes:
    """One number for each combination; re-coded only where the product would overflow."""
    codes, size = parts[0], int(parts[0].max(initial=0)) + 1
    for part in parts[1:]:
        width = int(part.max(initial=0)) + 1
        if size * width >= 2**62:
            codes = np.unique(codes, return_inverse=True)[1].astype(np.int64)
            size = int(codes.max()) + 1
        codes, size = codes * width + part, size * width
    return codes


def _count_share(codes: Codes, person: Codes) -> float:
    """People who alone have some combination, among all people: rows sorted by combination, runs with one person."""
    if not codes.size:
        return 0.0
    if person[-1] == len(person) - 1 and person[0] == 0 and person.max() == len(person) - 1:
        # One row a person, so runs of length one are people, and sorting needs no order kept.
        ordered = np.sort(codes)
        edge = np.concatenate([[True], ordered[1:] != ordered[:-1], [True]])
        return float(np.count_nonzero(edge[1:] & edge[:-1])) / len(codes)
    order = np.argsort(codes)
    ordered, people = codes[order], person[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    lowest, highest = np.minimum.reduceat(people, starts), np.maximum.reduceat(people, starts)
    alone = np.unique(lowest[lowest == highest])
    return len(alone) / (int(person.max()) + 1)
