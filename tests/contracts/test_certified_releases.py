"""Random tables through every method and format: the file on the disk has every row and every property it claims.

The checker here reads files with a reader of its own, counts with dictionaries, and shares nothing with the product."""

from __future__ import annotations

import json
import math
import random
import unicodedata
from collections import Counter, defaultdict
from datetime import date, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deniable.curator.anonymize.request import Asked, Order
from deniable.curator.anonymize.run import METHODS, anonymize
from deniable.errors import DeniableError, InternalError
from deniable.policy.schema import Spec

ODD = (None, "", " ", "*", "?", "a,b", 'a"b', "a\nb", "a\r\nb", "None", "null", "NaN", "0", "-0")
LOOKALIKES = ("Oslo", "\u041eslo", "\u00e9", "e\u0301")
FORMS = ("text", "bounds", "sets", "json")
ENDINGS = (".csv", ".parquet", ".arrow")

Cells = list[str | None]


def texts(dice: random.Random, rows: int) -> pa.Array:
    known = ODD + LOOKALIKES
    chosen = dice.sample(known, dice.randint(1, len(known)))
    return pa.array([dice.choice(chosen) for _ in range(rows)], pa.string())


def numbers(dice: random.Random, rows: int) -> pa.Array:
    if dice.random() < 0.5:
        return pa.array([dice.choice((None, dice.randint(-3, 90))) for _ in range(rows)], pa.int64())
    odd = (None, math.nan, -0.0, 0.0, 0.1, 1.5, 1e15, 20.0, dice.uniform(-5, 5))
    return pa.array([dice.choice(odd) for _ in range(rows)], pa.float64())


def days(dice: random.Random, rows: int) -> pa.Array:
    first = date(1979, 12, 30)
    return pa.array([dice.choice((None, first + timedelta(dice.randint(0, 900)))) for _ in range(rows)], pa.date32())


def truths(dice: random.Random, rows: int) -> pa.Array:
    return pa.array([dice.choice((None, True, False)) for _ in range(rows)], pa.bool_())


def codes(dice: random.Random, rows: int) -> pa.Array:
    return pa.array([dice.choice((None, f"0{dice.randint(2130, 2160)}")) for _ in range(rows)], pa.string())


def table_of(dice: random.Random) -> tuple[pa.Table, tuple[str, ...]]:
    rows = dice.choice((0, 1, 2, 3, 7, 10, 20, 40, 60))
    kinds = [dice.choice((texts, numbers, days, truths, codes)) for _ in range(dice.randint(1, 4))]
    columns = {f"q{i}": kind(dice, rows) for i, kind in enumerate(kinds)}
    if dice.random() < 0.8:
        columns["illness"] = texts(dice, rows)
        columns["weeks"] = pa.array([dice.choice((None, dice.randint(0, 30))) for _ in range(rows)], pa.int64())
        columns["name"] = pa.array([f"person {i}" for i in range(rows)], pa.string())
    made = pa.table(columns)
    if rows and dice.random() < 0.2:
        made = pa.concat_tables([made] * dice.randint(2, 4))  # every row several times
    return made, tuple(f"q{i}" for i in range(len(kinds)))


def models_of(dice: random.Random, secret: str) -> tuple[Spec, ...]:
    known = (
        Spec("distinct_diversity", {"column": secret, "l": "2"}),
        Spec("entropy_diversity", {"column": secret, "l": "1.5"}),
        Spec("recursive_diversity", {"column": secret, "c": "3", "l": "2"}),
        Spec("closeness", {"column": secret, "t": "0.5"}),
        Spec("closeness", {"column": secret, "t": "0.3", "distance": "ordered"}),
        Spec("delta_disclosure", {"column": secret, "delta": "1.5"}),
        Spec("delta_disclosure", {"column": secret, "delta": "3", "absent_violates": "true"}),
        Spec("beta_likeness", {"column": secret, "beta": "2"}),
        Spec("beta_likeness", {"column": secret, "beta": "2", "enhanced": "true"}),
        Spec("average_risk", {"most": "0.3"}),
    )
    return tuple(dice.sample(known, dice.choice((0, 0, 1, 2))))


def order_of(dice: random.Random, table: pa.Table, known: tuple[str, ...], out: Path) -> Order:
    secrets = ("illness", "weeks") if "illness" in table.column_names else ()
    models = models_of(dice, dice.choice(secrets)) if secrets else ()
    share = Fraction(dice.choice(("0", "0.1", "0.5", "1")))
    return Order(
        table,
        out,
        None,
        None,
        known,
        secrets,
        ("name",) if secrets else (),
        Asked(dice.choice((1, 2, 3, 5)), {}, {}, models, share),
        method=dice.choice(("optimal", "optimal", *METHODS)),
        form=dice.choice(FORMS),
        suppressed_rows=dice.choice(("drop", "star")),
        keep_order=dice.random() < 0.3,
    )


def read(path: Path) -> tuple[list[str], list[Cells]]:
    """Names and rows, every cell as text; None where there is nothing."""
    if path.suffix == ".csv":
        first, *rows = parse_csv(path.read_bytes().decode())
        return [str(name) for name in first], rows
    table = pq.read_table(path) if path.suffix == ".parquet" else pa.ipc.open_file(path).read_all()
    return table.column_names, [[write(cell) for cell in row.values()] for row in table.to_pylist()]


def write(value: Any) -> str | None:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value + 0) if isinstance(value, int | float) else str(value)


def parse_csv(text: str) -> list[Cells]:
    """RFC 4180, except that a cell without quotes and letters is missing."""
    rows, row, cell, place, quoted = [], [], "", 0, False
    while place < len(text):
        sign = text[place]
        if sign == '"':
            end = place + 1
            while text[end] != '"' or text[end : end + 2] == '""':
                end += 2 if text[end : end + 2] == '""' else 1
            cell, quoted, place = text[place + 1 : end].replace('""', '"'), True, end + 1
        elif sign in ",\n":
            row.append(cell if quoted or cell else None)
            cell, quoted, place = "", False, place + 1
            if sign == "\n":
                rows.append(row)
                row = []
        else:
            cell, place = cell + sign, place + 1
    return rows


def find_broken(table: pa.Table, order: Order, told: Any) -> list[str]:
    """Every claim of a report that its file does not keep."""
    assert order.out is not None
    names, rows = read(order.out)
    broken = []
    if told.rows != table.num_rows:
        broken.append("rows read")
    starred = told.suppressed and len(rows) == table.num_rows
    if len(rows) + (0 if starred else told.suppressed) != table.num_rows or told.released != len(rows):
        broken.append("rows lost")
    if "name" in names or any(str(cell).startswith("person ") for row in rows for cell in row):
        broken.append("identifier")
    columns = [name.removesuffix("_low").removesuffix("_high") for name in names]
    places = [i for i, name in enumerate(columns) if name in order.quasi_identifiers]
    classes = defaultdict(list)
    for row in rows:
        classes[tuple(row[i] for i in places)].append(row)
    if classes and min(map(len, classes.values())) < (order.asked.k or 5):
        broken.append("k")
    kept = {cells: held for cells, held in classes.items() if not (starred and is_starred(cells, held, names, places))}
    return broken + [str(spec) for spec in order.asked.models if not holds(spec, kept, table, names)]


def is_starred(cells: tuple[str | None, ...], rows: list[Cells], names: list[str], places: list[int]) -> bool:
    split = [names[i].endswith(("_low", "_high")) for i in places]
    secrets = [i for i, name in enumerate(names) if name in ("illness", "weeks")]
    plain = all(cell is None if two else cell == "*" for cell, two in zip(cells, split, strict=True))
    return plain and all(row[i] is None for row in rows for i in secrets)


def holds(spec: Spec, classes: dict[Any, list[Cells]], table: pa.Table, names: list[str]) -> bool:
    given = {name: str(value) for name, value in spec.options.items()}
    if spec.kind == "average_risk":
        rows = sum(map(len, classes.values()))
        return not rows or len(classes) / rows <= float(given["most"]) + 1e-9
    values = unify(table[given["column"]].to_pylist())
    whole = Counter(write(value) for value in values)
    ranked = [write(v) for v in sorted({v for v in values if v is not None})] + ([None] if None in whole else [])
    place, stands = names.index(given["column"]), dict(zip(table[given["column"]].to_pylist(), values, strict=True))
    told = {write(raw): write(one) for raw, one in stands.items()}
    owns = (Counter(told[row[place]] if row[place] else None for row in rows) for rows in classes.values())
    return all(keeps(spec.kind, given, own, whole, ranked) for own in owns)


def unify(values: list[Any]) -> list[Any]:
    """Texts of which the first in their order stands for all that look alike, and nothing for those that show none."""
    texts = sorted({value for value in values if isinstance(value, str)}, reverse=True)
    shown = {text: " ".join(unicodedata.normalize("NFKC", text).casefold().split()) for text in texts}
    first = {shown[text]: text for text in texts}
    return [first[shown[v]] if isinstance(v, str) and shown[v] else None if isinstance(v, str) else v for v in values]


def keeps(kind: str, given: dict[str, str], own: Counter[Any], whole: Counter[Any], ranked: list[Any]) -> bool:
    n, total = sum(own.values()), sum(whole.values())
    if not set(own) <= set(whole):
        return False
    p, q = {v: own[v] / n for v in whole}, {v: whole[v] / total for v in whole}
    falling = sorted((own[v] for v in own if v is not None), reverse=True) or [0]
    falling[0] += own[None]  # what is missing may be what is commonest
    if kind == "distinct_diversity":
        return len(falling) >= float(given["l"])
    if kind == "entropy_diversity":
        return -sum(x / n * math.log(x / n) for x in falling) >= math.log(float(given["l"])) - 1e-9
    if kind == "recursive_diversity":
        return falling[0] < float(given["c"]) * sum(falling[int(given["l"]) - 1 :])
    if kind == "closeness" and given.get("distance") == "ordered":
        steps = [abs(sum(p[v] - q[v] for v in ranked[: i + 1])) for i in range(len(ranked))]
        return sum(steps) / max(len(ranked) - 1, 1) <= float(given["t"]) + 1e-9
    if kind == "closeness":
        return sum(abs(p[v] - q[v]) for v in whole) / 2 <= float(given["t"]) + 1e-9
    if kind == "delta_disclosure":
        there = [v for v in whole if p[v]] if "absent_violates" not in given else list(whole)
        return all(p[v] and abs(math.log2(p[v] / q[v])) < float(given["delta"]) for v in there)
    beta = float(given["beta"])
    most = {v: min(beta, -math.log(q[v])) if "enhanced" in given else beta for v in whole}
    return all((p[v] - q[v]) / q[v] <= most[v] + 1e-9 for v in own)


def try_tables(first: int, count: int, folder: Path) -> int:
    """How many of so many random tables were released; each of them keeps what it claims, or this fails."""
    released = 0
    for seed in range(first, first + count):
        dice = random.Random(seed)
        table, known = table_of(dice)
        order = order_of(dice, table, known, folder / f"{seed}{dice.choice(ENDINGS)}")
        try:
            told = anonymize(order)
        except InternalError as fault:
            pytest.fail(f"table {seed}, {order.method}, {order.form}: {fault}")
        except DeniableError:
            continue
        released += 1
        assert not find_broken(table, order, told), f"table {seed}, {order.method}, {order.form}, {order.out}"
        stated = json.loads((folder / f"{order.out.name}.release.json").read_text())["statement"]["details"]
        assert stated["measured"]["rows"] == told.released
    return released


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("part", range(5))
def test_what_is_written_keeps_what_is_claimed(part: int, tmp_path: Path) -> None:
    assert try_tables(30 * part, 30, tmp_path) >= 10


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_what_is_written_keeps_what_is_claimed_of_a_thousand_tables(part: int, tmp_path: Path) -> None:
    assert try_tables(1_000 + 100 * part, 100, tmp_path) >= 40
