"""Masking through the curator: frames in memory, people who withdrew, the ledger, and the shape of what is claimed."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

from deniable.curator.context import ledger_of
from deniable.curator.curator import Curator
from deniable.curator.governance import withdrawals
from deniable.curator.mask.keys import reveal
from deniable.curator.mask.run import Request, mask
from deniable.errors import AccessRefused, DataError, DeniableError, Infeasible, IntegrityError, ParameterError
from deniable.governance.grants import Asker, Role
from deniable.masking import joins, keys
from deniable.masking.plan import MaskContext, plan_table, specs_of
from deniable.policy.document import parse
from deniable.release import Technique

POLICY = """
version: 1
dataset: clinic
tables:
  people:
    source: people.csv
    unit: {column: id}
    columns:
      id: {role: identifier, mask: {token: {key: people}}}
      city: {role: quasi-identifier}
      age: {type: integer, role: quasi-identifier, mask: {generalize: age_over_89}}
  lists: {source: lists.csv, public: true}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DENIABLE_KEYS", str(tmp_path / "keys"))
    keys.store_key(keys.generate_key("people"), tmp_path / "keys" / "people.key")
    return tmp_path


def _frame() -> pd.DataFrame:
    return pd.DataFrame({"id": ["a", "b", "c", "d"], "city": ["X", "X", "Y", "Z"], "age": [30, 95, 40, 50]})


def test_a_frame_is_masked_in_memory_and_the_claim_is_measured(folder: Path) -> None:
    with Curator(parse(POLICY, folder=folder), sources={"people": _frame()}) as curator:
        release = curator.mask("people", keep_order=True)
    assert release.rows["age"].to_pylist() == [30, 90, 40, 50]
    assert "pasting" in release.details["remaining_attacks"][0]
    assert not set(release.rows["id"].to_pylist()) & {"a", "b", "c", "d"}
    assert release.guarantee.technique is Technique.MASKING
    assert not release.guarantee.formal
    assert "single out 100.0% of the people (city, age)" in release.guarantee.reason
    assert release.details["singling_out"][0] == {"columns": ["city", "age"], "singled_out": 1.0}
    assert "***" not in str(release)


@pytest.mark.parametrize("ending", ["", ".csv", ".parquet"])
def test_masks_of_one_column_each_cannot_be_pasted_together(folder: Path, ending: str) -> None:
    """Each by itself is within the limit; line by line they would be the rows that may not leave."""
    limited = POLICY + "release: {joint: {most: 0.1}}\n"
    (folder / "policy.yaml").write_text(limited)
    rows = pd.DataFrame(
        {"id": range(60), "city": [f"C{i % 6}" for i in range(60)], "age": [20 + i // 6 for i in range(60)]}
    )
    rows.to_csv(folder / "people.csv", index=False)
    with pytest.raises(Infeasible), Curator(parse(limited, folder=folder)) as curator:
        curator.mask("people", columns=["city", "age"])

    def release(*names: str) -> list[tuple[object, ...]]:
        if not ending:
            with Curator(parse(limited, folder=folder)) as curator:
                found = curator.mask("people", columns=list(names)).rows
        else:
            out = folder / f"out{ending}"
            mask(Request(folder / "policy.yaml", {"people": out}, columns=names))
            found = csv.read_csv(out) if ending == ".csv" else pq.read_table(out)
        return list(zip(*(found[name].to_pylist() for name in names), strict=True))

    cities, ages = release("city"), release("age")
    pasted = [(city, age) for (city,), (age,) in zip(cities, ages, strict=True)]
    assert sorted(cities) == sorted((city,) for city in rows["city"])
    assert len(set(pasted)) < 60  # in the table every pair is there once
    assert [city for (city,) in cities] != rows["city"].tolist()
    assert release("city") != cities


def test_an_analyst_gets_no_rows_in_their_own_order(folder: Path) -> None:
    policy = (
        POLICY + "budgets: {dataset: {epsilon: 1}, purposes: {a: {epsilon: 1}}, analysts: {ana: {purposes: [a]}}}\n"
    )
    with Curator(parse(policy, folder=folder), sources={"people": _frame()}) as curator:
        for deed in (curator.mask, partial(curator.anonymize, k=2)):
            with pytest.raises(AccessRefused, match="own order"):
                deed("people", keep_order=True, who=Asker("ana", "a", Role.ANALYST))


def test_a_masked_release_is_written_to_the_ledger_without_price(folder: Path) -> None:
    with Curator(
        parse(POLICY, folder=folder), sources={"people": _frame()}, ledger=folder / "ledger.sqlite"
    ) as curator:
        curator.mask("people")
        (entry,) = [entry for entry in curator.ledger.entries() if entry.technique == "masking"]
        assert entry.tables == ("people",)


def test_who_withdrew_is_in_no_masked_release(folder: Path) -> None:
    with Curator(parse(POLICY, folder=folder), sources={"people": _frame()}) as curator:
        withdrawals.withdraw(curator.context, "id", "b")
        assert sorted(curator.mask("people").rows["city"].to_pylist()) == ["X", "Y", "Z"]


def test_what_cannot_be_masked_is_refused_and_nothing_is_recorded(folder: Path) -> None:
    with Curator(parse(POLICY, folder=folder), sources={"people": _frame(), "lists": _frame()}) as curator:
        for table, options in (("lists", {}), ("peple", {}), ("people", {"mode": "safeharbor"})):
            with pytest.raises(ParameterError):
                curator.mask(table, **options)
        assert not [entry for entry in curator.ledger.entries() if entry.technique == "masking"]


@pytest.mark.parametrize("rows", [0, 1])
def test_an_empty_table_and_one_row_are_masked(folder: Path, rows: int) -> None:
    frame = pa.Table.from_pandas(_frame()).slice(0, rows)
    with Curator(parse(POLICY, folder=folder), sources={"people": frame}) as curator:
        release = curator.mask("people")
    assert release.rows.num_rows == rows
    assert release.rows.schema.names == ["id", "city", "age"]


def test_tables_that_no_longer_join_are_caught(folder: Path) -> None:
    """Tokens cut to four characters merge people; the count of distinct values shows it."""
    text = POLICY.replace("key: people}}", "key: people, length: 4}}") + (
        "  visits:\n    source: visits.csv\n    unit: {column: id}\n    columns:\n"
        "      id: {role: identifier, mask: {token: {key: people, length: 4}}}\n"
    )
    (folder / "policy.yaml").write_text(text)
    many = pa.table({"id": [f"p{i}" for i in range(6000)], "city": ["X"] * 6000, "age": [30] * 6000})
    csv.write_csv(many, folder / "people.csv")
    csv.write_csv(many.select(["id"]), folder / "visits.csv")
    outputs = {"people": folder / "p.parquet", "visits": folder / "v.parquet"}
    with pytest.raises(IntegrityError, match=r"people\.id and visits\.id"):
        mask(Request(folder / "policy.yaml", outputs))


def test_columns_join_where_key_and_domain_agree_and_nowhere_else(folder: Path) -> None:
    text = """
version: 1
dataset: d
tables:
  a: {source: a.csv, unit: row, columns: {x: {mask: {token: {key: people}}}, y: {mask: {token: {key: other}}}}}
  b:
    source: b.csv
    unit: row
    columns: {x: {mask: {token: {key: people}}}, z: {mask: {token: {key: people, domain: z}}}}
"""
    policy = parse(text, folder=folder)
    context = MaskContext(keys.generate_key, folder)
    plans = {}
    for name in "ab":
        schema = policy.table(name)
        plans[name] = plan_table(schema, schema.names, specs_of(schema, schema.names), context)
    assert joins.find_join_classes(plans) == ((("a", "x"), ("b", "x")),)


@pytest.mark.parametrize("mask_of_age", ["{generalize: age_over_89}", "{round: 5}", "{noise: 3}"])
def test_no_refusal_of_masking_quotes_a_value(folder: Path, mask_of_age: str) -> None:
    odd = pa.table({"id": ["Wilhelmina"], "city": ["X"], "age": ["Wilhelmina"]})
    policy = parse(POLICY.replace("{generalize: age_over_89}", mask_of_age), folder=folder)
    with Curator(policy, sources={"people": odd}) as curator, pytest.raises(DeniableError) as refusal:
        curator.mask("people")
    assert "Wilhelmina" not in str(refusal.value.as_dict())


@pytest.mark.parametrize(
    ("mask_of_id", "values"),
    [
        ("{regex: {find: '^P(\\d)$', put: '\\1'}}", ["P1", "Smith, Ann", "P2", "P3"]),
        ("scrub", ["ward-seventeen", "ann@example.com", "b", "c"]),
        ("shuffle", ["AB1", "AB2", "AB3", "AB4"]),
    ],
)
def test_identifiers_that_a_mask_leaves_as_they_are_do_not_leave(
    folder: Path, mask_of_id: str, values: list[str]
) -> None:
    policy = folder / "policy.yaml"
    policy.write_text(POLICY.replace("{token: {key: people}}", mask_of_id))
    rows = _frame().assign(id=values)
    rows.to_csv(folder / "people.csv", index=False)
    (folder / "lists.csv").write_text("x\n1\n")
    with pytest.raises(DataError, match="the mask of 'id' leaves identifiers as they are") as refusal:
        mask(Request(policy, {"people": folder / "out.csv"}))
    assert not any(value in str(refusal.value.as_dict()) for value in values if len(value) > 1)
    assert not list(folder.glob("out*"))
    with (
        Curator(parse(policy.read_text(), folder=folder), sources={"people": rows}) as curator,
        pytest.raises(DataError, match="leaves identifiers"),
    ):
        curator.mask("people")


@pytest.mark.parametrize("mask_of_id", ["{round: 1}", "{noise: 0.001}", "{noise: {scale: 0.5, shape: uniform}}"])
def test_numbers_that_identify_and_a_mask_hardly_changes_do_not_leave(folder: Path, mask_of_id: str) -> None:
    told = POLICY.replace("id: {role: identifier,", "id: {type: integer, role: identifier,")
    policy = parse(told.replace("{token: {key: people}}", mask_of_id), folder=folder)
    rows = pd.concat([_frame()] * 20).assign(id=range(400_000, 400_080))
    with (
        Curator(policy, sources={"people": rows}) as curator,
        pytest.raises(DataError, match="leaves identifiers"),
    ):
        curator.mask("people")


def test_identifiers_that_a_mask_changes_all_of_leave(folder: Path) -> None:
    policy = parse(POLICY.replace("{token: {key: people}}", "{regex: {find: '.*(.)', put: '*\\1'}}"), folder=folder)
    rows = _frame().assign(id=["P11", "P21", "P32", "P42"])
    with Curator(policy, sources={"people": rows}) as curator:
        assert sorted(curator.mask("people").rows["id"].to_pylist()) == ["*1", "*1", "*2", "*2"]


@pytest.mark.parametrize(
    ("mask_of_id", "known"),
    [
        ("{regex: {find: '^.(.*)$', put: 'Q\\1'}}", True),
        ("{regex: {find: '^(.*).$', put: '\\1'}}", True),
        ("{regex: {find: '^..(.*)$', put: 'P-**\\1'}}", True),
        ("{regex: {find: '^(.).*$', put: '\\1*****'}}", False),
        ("{regex: {find: '^.*$', put: 'somebody'}}", False),
        ("{regex: {find: '^(.)(.)(.)(.)(.)(.)(.)$', put: '\\7\\6\\5\\4\\3\\2\\1'}}", True),
        ("{regex: {find: '^(..)(..)(...)$', put: '\\3-\\1-\\2'}}", True),
        ("{regex: {find: '(.)(.)', put: '\\2\\1'}}", True),
        ("{regex: {find: '^..(.)(.)(.)(.).$', put: '\\4\\3\\2\\1'}}", True),
        ("{redact: {keep_first: 6}}", True),
        ("{redact: {keep_last: 5}}", True),
        ("{redact: {keep_first: 3, keep_last: 2}}", True),
        ("{redact: {keep_last: 3}}", True),
        ("{redact: {keep_last: 1}}", False),
    ],
)
def test_identifiers_that_a_mask_changes_a_little_reorders_or_keeps_in_part_do_not_leave(
    folder: Path, mask_of_id: str, known: bool
) -> None:
    """Whoever has the list of identifiers finds the one that is nearest, and it is the right one."""
    policy = parse(POLICY.replace("{token: {key: people}}", mask_of_id), folder=folder)
    rows = pd.concat([_frame()] * 50).assign(id=[f"P{(n * 791_911) % 1_000_003:06}" for n in range(200)])
    with Curator(policy, sources={"people": rows}) as curator:
        if not known:
            assert len(curator.mask("people").rows) == 200
            return
        with pytest.raises(DataError, match="easily recognized"):
            curator.mask("people")


@pytest.mark.parametrize("share", [0.75, 0.02])
def test_identifiers_are_looked_for_in_all_rows_and_not_only_in_the_first(folder: Path, share: float) -> None:
    """The first rows are redacted, and the last ones lose a character; few of them are found as many are."""
    late = int(4_000 * share)
    ids = [f"A{n:06}" for n in range(4_000 - late)] + [f"B{(n * 7919) % 1_000_003:06}" for n in range(late)]
    text = POLICY.replace("{token: {key: people}}", "{regex: {find: '^(B.*).$', put: '\\1', unmatched: redact}}")
    (folder / "policy.yaml").write_text(text)
    pd.concat([_frame()] * 1_000).assign(id=ids).to_csv(folder / "people.csv", index=False)
    (folder / "lists.csv").write_text("x\n1\n")
    for out in ("out.csv", "out.parquet"):
        with pytest.raises(DataError, match="leaves identifiers"):
            mask(Request(folder / "policy.yaml", {"people": folder / out}))
    assert not list(folder.glob("out*"))


@pytest.mark.parametrize(
    ("kind", "mask_of_id", "known"),
    [
        ("integer", "{round: 100000}", True),
        ("integer", "{round: 100000000}", False),
        ("integer", "{noise: {scale: 50000, shape: laplace}}", True),
        ("integer", "{noise: {scale: 100000000, shape: laplace}}", False),
        ("date", "{shift_dates: {key: people, by: city, days: 1}}", True),
        ("date", "{shift_dates: {key: people, by: city, days: 3650}}", False),
    ],
)
@pytest.mark.parametrize("out", ["out.csv", "out.parquet"])
def test_numbers_and_dates_whose_nearest_original_is_the_right_one_do_not_leave(
    folder: Path, kind: str, mask_of_id: str, known: bool, out: str
) -> None:
    """As quasi-identifiers they may leave in the same form: those are known to tell something of a person."""
    order = [(n * 7919) % 1_000_003 for n in range(300)]
    dates = pd.Timestamp("1930-01-01") + pd.to_timedelta([n % 27_000 for n in order], unit="D")
    ids = [f"{day:%Y-%m-%d}" for day in dates] if kind == "date" else [10_000_000 + 90 * n for n in order]
    people = [f"c{n}" for n in range(300)]
    pd.concat([_frame()] * 75).assign(id=ids, city=people).to_csv(folder / "people.csv", index=False)
    (folder / "lists.csv").write_text("x\n1\n")
    text = POLICY.replace("unit: {column: id}", "unit: row")
    for role, refused in (("identifier", known), ("quasi-identifier", False)):
        told = f"id: {{type: {kind}, role: {role}, mask: {mask_of_id}}}"
        policy = folder / f"{role}.yaml"
        policy.write_text(text.replace("id: {role: identifier, mask: {token: {key: people}}}", told))
        with pytest.raises(DataError, match="easily recognized") if refused else nullcontext():
            mask(Request(policy, {"people": folder / out}, fresh=True))
        assert (folder / out).exists() is not refused


def test_what_a_redaction_keeps_is_released_like_any_other_column(folder: Path) -> None:
    """Nobody decided on such a column: it is withheld. With a role it is measured with the others."""
    rows = _frame().assign(note=["abcd1", "abcd2", "abcd3", "abcd4"], city="X", age=30)
    text = POLICY.replace("  lists", "      note: {NOTE}\n  lists")
    kept = "mask: {redact: {keep_first: 1, keep_last: 1}}"
    with Curator(parse(text.replace("NOTE", kept), folder=folder), sources={"people": rows}) as curator:
        assert "note" not in curator.mask("people").rows.column_names
        with pytest.raises(AccessRefused, match="undecided"):
            curator.mask("people", columns=["note"])
    limited = text.replace("NOTE", f"role: sensitive, {kept}") + "release: {joint: {most: 0.01}}\n"
    with Curator(parse(limited, folder=folder), sources={"people": rows}) as curator, pytest.raises(Infeasible):
        curator.mask("people")
    whole = limited.replace("{keep_first: 1, keep_last: 1}", "{put: x}")
    with Curator(parse(whole, folder=folder), sources={"people": rows}) as curator:
        release = curator.mask("people")
    assert release.details["joint"]["together"] == 0.0
    assert not any("redact" in attack for attack in release.details["remaining_attacks"])


def test_a_vault_opens_by_the_ledger_that_recorded_its_releases_alone(folder: Path) -> None:
    policy = folder / "policy.yaml"
    policy.write_text(POLICY.replace("{token: {key: people}}", "{codebook: {key: people, vault: ids.vault}}"))
    _frame().assign(id=["anna", "berta", "carl", "dora"]).to_csv(folder / "people.csv", index=False)
    (folder / "lists.csv").write_text("x\n1\n")
    ledger = ledger_of(policy, None)
    mask(Request(policy, {"people": folder / "out.csv"}, ledger=ledger))
    tokens = csv.read_csv(folder / "out.csv")["id"].to_pylist()
    told = reveal(folder / "ids.vault", "people", tokens, policy=policy, ledger=ledger)
    assert sorted(map(str, told.values())) == ["anna", "berta", "carl", "dora"]
    other = folder / "other.yaml"
    other.write_text(policy.read_text())
    with pytest.raises(AccessRefused, match="belongs to another ledger"):
        reveal(folder / "ids.vault", "people", tokens, policy=other, ledger=str(folder / "unseen.sqlite"))
