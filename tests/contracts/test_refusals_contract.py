"""One contract over every entry point that charges, with hostile arguments and hostile tables.

Before the charge nothing comes out but a refusal, and a refusal leaves the ledger as it was. After it nothing comes out
but the answer or the one fixed sentence. Arguments are empty, doubled, in another order, of another type, out of range
or unknown; tables are empty, of one row, of nulls alone, or without ids; a public table has one key more, or no rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deniable import Curator
from deniable.curator.synthesize.run import Order, describe_to_file, synthesize
from deniable.errors import DeniableError, ExecutionFailed, InternalError
from deniable.policy.budget import budget

POLICY = """
version: 1
dataset: clinic
tables:
  visits:
    source: visits.csv
    unit: {column: id, max_groups: 2, max_rows_per_group: 1}
    columns:
      id: {type: decimal}
      sex: {categories: [F, M]}
      ward: {categories: [a, b, c]}
      charge: {type: integer, between: [0, 100]}
      note: {}
  wards:
    source: wards.csv
    public: true
    columns:
      code: {}
      region: {}
budgets:
  dataset: {epsilon: 1000000, delta: 1e-3}
"""
VISITS = {
    "full": [f"{i},{'FM'[i % 2]},{'abc'[i % 3]},{i},n{i}" for i in range(40)],
    "empty": [],
    "one row": ["1,F,a,3,x"],
    "nulls": [",,,," for _ in range(5)],
    "without ids": [f",{'FM'[i % 2]},{'abc'[i % 3]},{i},n" for i in range(9)],
    "odd ids": ["0.0,F,a,1,x", "-0.0,F,a,2,y", "1e300,M,b,3,z"],
}
WARDS = {
    "as declared": ["a,north", "b,north", "c,south"],
    "one more": ["a,north", "b,north", "c,south", "d,east"],
    "no rows": [],
    "two parents": ["a,north", "a,south", "b,north"],
    "nulls": [",", "a,"],
}
SHAPES = [
    ("full", "as declared"), ("empty", "one more"), ("one row", "no rows"), ("nulls", "two parents"),
    ("without ids", "nulls"), ("odd ids", "as declared"), ("full", "no rows"), ("full", "two parents"),
]  # fmt: skip
JOINED = "visits JOIN wards ON visits.ward = wards.code"
NESTED = ["wards.region", "wards.code"]

Call = Callable[[Curator, Path], Any]


def _rows(block: Any) -> float:
    return float(block.num_rows)


def _raise(_: Any) -> float:
    raise ZeroDivisionError


def _synth(columns: tuple[str, ...] | None = None, method: str = "independent", **rest: Any) -> Call:
    def call(curator: Curator, folder: Path) -> Any:
        order = Order("visits", budget(1, "1e-6"), method, columns=columns, **rest)
        return synthesize(curator.context, order, folder / "made.parquet")

    return call


def _query(sql: str, **rest: Any) -> Call:
    return lambda c, _: c.query(sql, **{"epsilon": 1, **rest})


def _blocks(**changes: Any) -> Call:
    given: dict[str, Any] = {"blocks": 2, "bounds": (0, 9), "epsilon": 1} | changes
    function, table = given.pop("function", _rows), given.pop("table", "visits")
    return lambda c, _: c.sample_and_aggregate(function, table, **given)


def _tree(levels: Any, source: str = "visits", **rest: Any) -> Call:
    return lambda c, _: c.hierarchy(source, levels, **{"epsilon": 1, **rest})


def _margins(wanted: Any, **rest: Any) -> Call:
    return lambda c, _: c.margins("visits", wanted, **{"epsilon": 1, **rest})


def _top(keys: Any, k: Any = 1, source: str = "visits", **rest: Any) -> Call:
    return lambda c, _: c.top(source, keys, k, **{"epsilon": 1, **rest})


def _bounds(column: Any = "charge", table: Any = "visits", epsilon: Any = 1, **rest: Any) -> Call:
    return lambda c, _: c.find_bounds(table, column, epsilon, **rest)


def _watch(sql: Any = "SELECT COUNT(*) FROM visits", threshold: Any = 10, epsilon: Any = 1) -> Call:
    return lambda c, _: c.watch(sql, threshold, epsilon).check()


def _train(target: Any = "charge", **rest: Any) -> Call:
    return lambda c, folder: c.train("visits", target, **{"epsilon": 1, "out": folder / "m.json", **rest})


COUNT = "SELECT COUNT(*) AS n FROM visits"
CALLS: dict[str, Call] = {
    "query": _query("SELECT sex, COUNT(*) AS n, SUM(charge) AS s FROM visits GROUP BY sex"),
    "query joined": _query(f"SELECT region, COUNT(*) AS n FROM {JOINED} GROUP BY region", delta="1e-6"),
    "query sets": _query("SELECT sex, ward, COUNT(*) FROM visits GROUP BY GROUPING SETS ((sex, ward), (ward, sex))"),
    "query rollup": _query("SELECT sex, ward, COUNT(*) AS n FROM visits GROUP BY ROLLUP (sex, ward)", consistent=True),
    "query private keys": _query("SELECT note, COUNT(*) AS n FROM visits GROUP BY note", delta="1e-6"),
    "query quantile": _query("SELECT MEDIAN(charge) AS m FROM visits"),
    "query average": _query("SELECT AVG(charge) AS m FROM visits"),
    "query public": _query("SELECT region, COUNT(*) AS n FROM wards GROUP BY region"),
    "query empty text": _query(""),
    "query nothing": _query("SELECT"),
    "query unknown column": _query("SELECT COUNT(missing) FROM visits"),
    "query unknown table": _query("SELECT COUNT(*) FROM missing"),
    "query bias": _query("SELECT SUM(charge) AS s FROM visits", bias_share="0.1"),
    "query AUTO_CLAMP": _query("SELECT SUM(AUTO_CLAMP(charge)) AS s FROM visits"),
    "query CONTRIBUTION AUTO": _query("SELECT sex, COUNT(*) AS n FROM visits GROUP BY sex CONTRIBUTION AUTO"),
    "query AUTO_CLAMP unknown": _query("SELECT SUM(AUTO_CLAMP(missing)) FROM visits"),
    "query ordered": _query("SELECT sex, COUNT(*) AS n FROM visits GROUP BY sex ORDER BY n DESC LIMIT 1"),
    **{f"query confidence {c!r}": _query(COUNT, confidence=c) for c in (0, 1, -1, 2, math.nan, "0.9", None)},
    **{f"query epsilon {e!r}": _query(COUNT, epsilon=e) for e in (0, -1, "x", math.nan, math.inf, "1e-300", True, [1])},
    **{f"query bias {b!r}": _query("SELECT SUM(charge) AS s FROM visits", bias_share=b) for b in (0, 1, 2, "x", -1)},
    "find_bounds": _bounds(),
    "find_bounds of text": _bounds("sex"),
    "find_bounds unknown": _bounds("missing"),
    "find_bounds public": _bounds("region", "wards"),
    "find_bounds no table": _bounds("charge", ""),
    **{f"find_bounds confidence {c!r}": _bounds(confidence=c) for c in (0, 1, -1, 2, math.nan, "0.9", None)},
    **{f"find_bounds epsilon {e!r}": _bounds(epsilon=e) for e in (0, "x", None)},
    "top": _top("ward"),
    "top none": _top([]),
    "top doubled": _top(["ward", "ward"]),
    "top doubled by table": _top(["ward", "visits.ward"]),
    "top two": _top(["ward", "sex"], 3),
    "top unknown": _top("missing"),
    "top private": _top("note", delta="1e-6"),
    "top private of a text": _top("note", "a", delta="1e-6"),
    "top public keys": _top("wards.region", 2, JOINED),
    "top broken where": _top("ward", where="(("),
    **{f"top {k!r}": _top("ward", k) for k in (0, -1, 2.5, "a", None, 10**9, True, math.nan)},
    **{f"top confidence {c!r}": _top("ward", confidence=c) for c in (0, 1, 2, math.nan, "0.9", None)},
    "margins": _margins([["sex"], ["ward"]]),
    "margins permuted": _margins([["sex", "ward"], ["ward", "sex"]]),
    "margins doubled": _margins([["sex"], ["sex"]]),
    "margins doubled inside": _margins([["sex", "sex"]]),
    "margins doubled by table": _margins([["sex"], ["visits.sex"]]),
    "margins inside one doubled by table": _margins([["sex", "visits.sex"]]),
    "margins in a ring": _margins([["sex", "ward"], ["ward"], []]),
    "margins backwards": _margins([["ward"], ["sex", "ward"], ["sex"]]),
    "margins none": _margins([]),
    "margins of nothing": _margins([[]]),
    "margins of texts": _margins(["sex", "ward"]),
    "margins unknown": _margins([["missing"]]),
    "margins of a number": _margins([[1]]),
    "margins private": _margins([["note"]], delta="1e-6"),
    **{f"margins important {w!r}": _margins([["sex"], ["ward"]], importance=w)
       for w in ({"sex": 0}, {"sex": 0, "ward": 0}, {"sex": -1}, {"sex": math.nan}, {"sex": math.inf}, {"sex": "a"},
                 {"missing": 2}, {"sex": 1e308}, [], "sex")},
    **{f"margins confidence {c!r}": _margins([["sex"]], confidence=c) for c in (0, 1, 2, math.nan, "0.9", None)},
    "hierarchy": _tree(["sex", "ward"]),
    "hierarchy nested": _tree(NESTED, JOINED),
    "hierarchy nested backwards": _tree(NESTED[::-1], JOINED),
    "hierarchy of sums": _tree(["sex"], aggregate="SUM(charge)"),
    "hierarchy of averages": _tree(["sex"], aggregate="AVG(charge)"),
    "hierarchy of nothing": _tree(["sex"], aggregate=""),
    "hierarchy nonnegative": _tree(["sex", "ward"], nonnegative=True),
    "hierarchy none": _tree([]),
    "hierarchy text": _tree("sex"),
    "hierarchy doubled": _tree(["sex", "sex"]),
    "hierarchy doubled by table": _tree(["sex", "visits.sex"]),
    "hierarchy unknown": _tree(["missing"]),
    "hierarchy of a number": _tree([1]),
    "hierarchy important": _tree(["sex", "ward"], importance={"sex": -5}),
    "hierarchy nobody important": _tree(["sex"], importance={"sex": 0, "total": 0}),
    **{f"hierarchy confidence {c!r}": _tree(["sex"], confidence=c) for c in (0, 1, 2, math.nan, "0.9", None)},
    "watch": _watch(),
    "watch groups": _watch("SELECT sex, COUNT(*) FROM visits GROUP BY sex"),
    "watch a sum": _watch("SELECT SUM(charge) FROM visits"),
    "watch nothing": _watch(""),
    "watch public": _watch("SELECT COUNT(*) FROM wards"),
    **{f"watch until {t!r}": _watch(threshold=t) for t in ("a", 2.5, None, True, 10**30)},
    **{f"watch epsilon {e!r}": _watch(epsilon=e) for e in (0, -1, "x", None)},
    "blocks": _blocks(),
    "blocks mean": _blocks(aggregate="mean"),
    "blocks failing": _blocks(function=_raise),
    "blocks pandas": _blocks(frames="pandas"),
    "blocks unknown frames": _blocks(frames="nothing"),
    "blocks unknown aggregate": _blocks(aggregate="mode"),
    "blocks unknown table": _blocks(table="missing"),
    "blocks public": _blocks(table="wards"),
    **{f"blocks {n!r}": _blocks(blocks=n) for n in (0, 1, 2.5, "a", None, True, 10**9)},
    **{f"blocks bounds {b!r}": _blocks(bounds=b)
       for b in ((), (1,), (1, 1), (2, 1), (0, 1, 2), "ab", None, (0, math.nan), (0, math.inf), ("a", "b"))},
    **{f"blocks default {d!r}": _blocks(default=d) for d in ("a", math.nan, 10**9)},
    **{f"blocks epsilon {e!r}": _blocks(epsilon=e) for e in (0, -1, "x", None)},
    "synthesize": _synth(),
    "synthesize mst": _synth(method="mst"),
    "synthesize none": _synth(()),
    "synthesize doubled": _synth(("sex", "sex")),
    "synthesize permuted": _synth(("ward", "sex")),
    "synthesize unknown": _synth(("missing",)),
    "synthesize unknown method": _synth(method="nothing"),
    "synthesize workload unknown": _synth(method="mst", workload=(("missing",),)),
    "synthesize workload doubled": _synth(method="mst", workload=(("sex", "sex"),)),
    "synthesize workload empty": _synth(method="mst", workload=((),)),
    "synthesize linked": _synth(linked=True),
    "describe": lambda c, f: describe_to_file(c.context, Order("visits", budget(1, "1e-6"), "mst"), f / "d.json"),
    "describe public": lambda c, f: describe_to_file(c.context, Order("wards", budget(1, "1e-6")), f / "d.json"),
    "train": _train(features=["sex"]),
    "train logistic": _train("sex", features=["charge"], positive="F"),
    "train boosted": _train(features=["sex"], method="boosted", turns=1),
    "train bayes of a number": _train(features=["sex"], method="bayes"),
    "train none": _train(features=[]),
    "train doubled": _train(features=["sex", "sex"]),
    "train target itself": _train(features=["charge"]),
    "train unknown": _train(features=["missing"]),
    "train unknown target": _train("missing"),
    "train text": _train("note"),
    "train unknown method": _train(method="nothing"),
    "train positive unknown": _train("sex", features=["charge"], positive="X"),
    **{f"train epsilon {e!r}": _train(epsilon=e) for e in (0, -1, "x", None)},
    "explain": lambda c, _: c.explain("SELECT COUNT(missing) FROM visits", epsilon=1),
    "explain_top": lambda c, _: c.explain_top("visits", [], "a", epsilon=1),
    "explain_margins": lambda c, _: c.explain_margins("visits", [["sex", "ward"], ["ward", "sex"]], epsilon=1),
    "explain_hierarchy": lambda c, _: c.explain_hierarchy(JOINED, NESTED, epsilon=1, importance={"region": None}),
    "explain_watch": lambda c, _: c.explain_watch(COUNT, "a", 1),
    "explain_watch confidence": lambda c, _: c.explain_watch(COUNT, 1, 1, confidence="a"),
    "explain_blocks": lambda c, _: c.explain_sample_and_aggregate("visits", blocks=2, bounds=(0,), epsilon=1),
    "explain_blocks confidence": lambda c, _: c.explain_sample_and_aggregate(
        "visits", blocks=2, bounds=(0, 1), epsilon=1, confidence=2),
    "error_curve": lambda c, _: c.error_curve(COUNT, epsilons=("a",)),
    "error_curve confidence": lambda c, _: c.error_curve(COUNT, confidence=None),
}  # fmt: skip


@pytest.fixture(scope="module", params=SHAPES, ids=" / ".join)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Curator, Path]]:
    visits, wards = request.param
    folder = tmp_path_factory.mktemp("clinic")
    (folder / "policy.yaml").write_text(POLICY)
    (folder / "visits.csv").write_text("\n".join(["id,sex,ward,charge,note", *VISITS[visits]]) + "\n")
    (folder / "wards.csv").write_text("\n".join(["code,region", *WARDS[wards]]) + "\n")
    with Curator.open(folder / "policy.yaml") as curator:
        yield curator, folder


def _charged(curator: Curator) -> int:
    return sum(entry.act == "charge" for entry in curator.ledger.entries())


@pytest.mark.quick_cases(500)
@pytest.mark.parametrize("name", CALLS)
def test_only_a_refusal_before_the_charge_and_only_the_fixed_sentence_after_it(
    place: tuple[Curator, Path], name: str
) -> None:
    curator, folder = place
    before, left = _charged(curator), curator.remaining()
    told = _catch(CALLS[name], curator, folder)
    if isinstance(told, ExecutionFailed):
        assert str(told) == str(ExecutionFailed())
        assert _charged(curator) > before
    elif told is not None:
        assert not isinstance(told, InternalError)
        assert _charged(curator) == before
        assert curator.remaining() == left


def _catch(call: Call, curator: Curator, folder: Path) -> DeniableError | None:
    try:
        call(curator, folder)
    except DeniableError as refusal:
        return refusal
    return None
