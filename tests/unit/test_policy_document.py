"""A policy file becomes frozen values; the hash depends on its meaning alone."""

from __future__ import annotations

import itertools
import pickle
from datetime import date, datetime
from fractions import Fraction
from pathlib import Path

import pytest

from deniable.errors import ParameterError, PolicyError
from deniable.policy.access import Accounting, AttackLimits, KeyPlace, Period
from deniable.policy.budget import ZCDP, ApproxDP, PureDP
from deniable.policy.document import Policy, parse, read
from deniable.policy.schema import Bounding, Bounds, ColumnType, Neighboring, PrivacyUnit, Role, Spec

CLINIC = r"""
version: 1
dataset: clinic
tables:
  visits:
    source: visits.parquet
    unit: {column: patient_id, max_groups: 5, max_rows_per_group: 2}
    columns:
      patient_id: {role: identifier, mask: {token: {key: people}}}
      name:       {role: identifier, mask: redact}
      zip:        {role: quasi-identifier, hierarchy: {redact: right}}
      birth_date: {role: quasi-identifier, type: date, between: [1910-01-01, 2026-12-31],
                   hierarchy: {dates: [month, year, decade]}}
      sex:        {role: quasi-identifier, categories: [F, M]}
      diagnosis:  {role: sensitive, categories: {file: icd10.csv, column: code}}
      charge:     {role: sensitive, type: decimal, between: [0, 250000], step: 0.01}
      note:       {role: insensitive, mask: {regex: {find: '\d{3}-\d{2}-(\d{4})', put: 'xxx-xx-\1'}}}
  drugs: {source: drugs.csv, public: true}
budgets:
  dataset: {epsilon: 10, delta: 1e-6, accounting: zcdp}
  purposes:
    research:   {epsilon: 4}
    operations: {epsilon: 2, every: month}
  analysts:
    ana: {purposes: [research], epsilon: 1}
release:
  anonymize: {k: 5, l: {diagnosis: 3}, t: {charge: 0.2}, suppress: 0.02}
  minimize:  {sample: 0.10, columns: [zip, birth_date, sex, diagnosis]}
expires: 2027-12-31
"""


@pytest.fixture
def clinic(tmp_path: Path) -> Path:
    (tmp_path / "icd10.csv").write_text("code,label\nA00,cholera\nB01,varicella\nA00,cholera\n")
    (tmp_path / "clinic.yaml").write_text(CLINIC)
    return tmp_path / "clinic.yaml"


def small(columns: str = "a: {}", rest: str = "", unit: str = "row") -> Policy:
    return parse(
        f"version: 1\ndataset: d\ntables: {{t: {{source: t.csv, unit: {unit}, columns: {{{columns}}}}}}}\n{rest}"
    )


def test_the_clinic_of_the_docs_becomes_values(clinic: Path) -> None:
    policy = read(clinic)
    visits = policy.table("visits")
    assert visits.unit == PrivacyUnit("patient_id", 5, 2)
    assert [c.name for c in visits.with_role(Role.QUASI_IDENTIFIER)] == ["zip", "birth_date", "sex"]
    charge = visits.column("charge")
    assert charge
    assert charge.bounds == Bounds(Fraction(0), Fraction(250000), Fraction(1, 100))
    diagnosis = visits.column("diagnosis")
    assert diagnosis
    assert diagnosis.categories == ("A00", "B01")
    assert visits.column("birth_date").bounds == Bounds(date(1910, 1, 1), date(2026, 12, 31))  # type: ignore[union-attr]
    assert visits.column("zip").hierarchy == Spec("redact", {"from": "right"})  # type: ignore[union-attr]
    assert policy.table("drugs").public
    assert policy.table("drugs").unit is None
    assert [table.name for table in policy.private] == ["visits"]
    assert policy.expires == date(2027, 12, 31)
    assert policy.is_expired(date(2028, 1, 1))
    assert not policy.is_expired(date(2027, 12, 31))


def test_the_budget_tree_is_exact_and_delta_is_inherited(clinic: Path) -> None:
    budgets = read(clinic).budgets
    assert budgets is not None
    delta = Fraction(1, 10**6)
    assert budgets.dataset == ApproxDP(Fraction(10), delta)
    assert budgets.accounting is Accounting.ZCDP
    assert [(p.name, p.allowance, p.every) for p in budgets.purposes] == [
        ("research", ApproxDP(Fraction(4), delta), None),
        ("operations", ApproxDP(Fraction(2), delta), Period.MONTH),
    ]
    assert budgets.analysts[0].allowance == ApproxDP(Fraction(1), delta)


def test_release_settings_are_exact(clinic: Path) -> None:
    release = read(clinic).release
    assert release.anonymize
    assert release.anonymize.k == 5
    assert dict(release.anonymize.l) == {"diagnosis": 3}
    assert dict(release.anonymize.t) == {"charge": Fraction(1, 5)}
    assert release.anonymize.suppress == Fraction(1, 50)
    assert release.minimize
    assert release.minimize.sample == Fraction(1, 10)
    assert release.minimize.columns == ("zip", "birth_date", "sex", "diagnosis")


def test_rho_budgets_are_zero_concentrated_by_themselves() -> None:
    budgets = small(rest="budgets: {dataset: {rho: 0.5}, purposes: {p: {rho: 0.25}}}").budgets
    assert budgets is not None
    assert budgets.dataset == ZCDP(Fraction(1, 2))
    assert budgets.accounting is Accounting.ZCDP


def test_an_analyst_without_an_amount_has_the_datasets() -> None:
    rest = "budgets: {dataset: {epsilon: 1}, purposes: {p: {epsilon: 0.5}}, analysts: {a: {purposes: [p]}}}"
    budgets = small(rest=rest).budgets
    assert budgets
    assert budgets.analysts[0].allowance == PureDP(Fraction(1))


def test_units_say_neighbors_and_bounding() -> None:
    table = small("id: {}", unit="{column: id, neighboring: replace, bounding: scale}").table("t")
    assert table.unit == PrivacyUnit("id", None, None, Neighboring.REPLACE, Bounding.SCALE)
    assert small().table("t").unit == PrivacyUnit()


def test_types_read_values_and_yaml_does_not_guess() -> None:
    table = small(
        "zip: {categories: [02138, 02139]}, country: {categories: [NO, yes, on, 1, 1.50, 2020-01-01, true]},"
        "code: {type: integer, categories: [1, 2_000]}, flag: {type: boolean, categories: [true, False]},"
        "at: {type: datetime, between: [2020-01-01 10:00:00, 2020-01-02], step: 3600}"
    ).table("t")
    assert table.column("zip").categories == ("02138", "02139")  # type: ignore[union-attr]
    assert table.column("country").categories == ("NO", "yes", "on", "1", "1.50", "2020-01-01", "true")  # type: ignore[union-attr]
    assert table.column("code").categories == (1, 2000)  # type: ignore[union-attr]
    assert table.column("flag").categories == (True, False)  # type: ignore[union-attr]
    at = table.column("at")
    assert at
    assert at.type is ColumnType.DATETIME
    assert at.bounds == Bounds(datetime(2020, 1, 1, 10), datetime(2020, 1, 2), Fraction(3600))


def test_masks_and_hierarchies_become_specs_in_every_way_of_writing() -> None:
    table = small(
        "a: {mask: redact}, b: {mask: {redact: {put: x, keep_last: 4}}}, c: {mask: {token: people}},"
        "d: {type: decimal, mask: {round: 0.5}, hierarchy: {rounding: [1, 10]}},"
        "e: {mask: {regex: street}, hierarchy: {tree: {inline: {any: {north: [Oslo, Bergen], south: [Rome]}}}}},"
        "f: {type: integer, hierarchy: {brackets: ages}}, g: {hierarchy: {like: e}}, h: {mask: {constant: '02138'}}"
    ).table("t")
    masks = {c.name: c.mask for c in table.columns}
    trees = {c.name: c.hierarchy for c in table.columns}
    assert masks["a"] == Spec("redact")
    assert masks["b"] == Spec("redact", {"put": "x", "keep_last": 4})
    assert masks["c"] == Spec("token", {"key": "people"})
    assert masks["d"] == Spec("round", {"to": Fraction(1, 2)})
    assert masks["e"] == Spec("regex", {"preset": "street"})
    assert masks["h"] == Spec("constant", {"value": "02138"})
    rows = (("Oslo", "north", "any"), ("Bergen", "north", "any"), ("Rome", "south", "any"))
    assert trees["e"] == Spec("tree", {"rows": rows}) == trees["g"]
    assert trees["f"] == Spec("brackets", {"edges": "ages"})


def test_a_tree_is_read_from_a_file_of_any_separator(tmp_path: Path) -> None:
    (tmp_path / "tree.csv").write_text("Oslo;north;*\nRome;south;*\n")
    columns = "a: {hierarchy: {tree: {file: tree.csv}}}"
    text = f"{{version: 1, dataset: d, tables: {{t: {{source: t.csv, unit: row, columns: {{{columns}}}}}}}}}"
    hierarchy = parse(text, folder=tmp_path).table("t").columns[0].hierarchy
    assert hierarchy == Spec("tree", {"rows": (("Oslo", "north", "*"), ("Rome", "south", "*"))})


def test_truths_attack_limits_models_and_keys_are_kept() -> None:
    policy = small(
        "sex: {categories: [F, M]}, n: {type: integer}, m: {type: integer}, total: {type: integer}",
        "release:\n"
        "  anonymize: {models: [{average_risk: 0.05}]}\n"
        "  attack: {knows: [sex], most: {linkage: 0.05}}\n"
        "  truths:\n"
        "    - {impossible: {when: {sex: M, n: [1, 2]}}}\n"
        "    - {sum: {parts: [n, m], total: total}}\n"
        "    - {order: [n, total]}\n"
        "keys: {people: {command: [vault, read, people]}, old: {file: old.key}}\n",
    )
    release = policy.release
    assert release.attack == AttackLimits(("sex",), {"linkage": Fraction(1, 20)})
    assert release.anonymize
    assert release.anonymize.models == (Spec("average_risk", {"most": Fraction(1, 20)}),)
    assert release.truths[0] == Spec("impossible", {"when": {"sex": ("M",), "n": (1, 2)}})
    assert [truth.kind for truth in release.truths] == ["impossible", "sum", "order"]
    assert policy.keys == (
        KeyPlace("people", "command", ("vault", "read", "people")),
        KeyPlace("old", "file", ("old.key",)),
    )


def test_anchors_and_merges_share_settings() -> None:
    table = parse(
        "version: 1\ndataset: d\ntables:\n  t:\n    source: t.csv\n    unit: row\n    columns:\n"
        "      a: &money {type: decimal, between: [0, 10], step: 0.5}\n      b: *money\n"
        "      c: {<<: *money, step: 0.1}\n"
    ).table("t")
    a, b, c = table.columns
    assert a.bounds == b.bounds
    assert c.bounds == Bounds(Fraction(0), Fraction(10), Fraction(1, 10))


def test_an_unknown_table_is_refused_with_the_nearest_name() -> None:
    policy = parse("{version: 1, dataset: d, tables: {visits: {source: t.csv, public: true}}}")
    with pytest.raises(ParameterError, match="Did you mean 'visits'"):
        policy.table("visit")


def test_a_policy_is_a_value(clinic: Path) -> None:
    policy = read(clinic)
    assert policy == read(clinic)
    assert hash(policy) == hash(read(clinic))
    assert pickle.loads(pickle.dumps(policy)) == policy
    with pytest.raises(AttributeError):
        policy.dataset = "x"  # type: ignore[misc]
    with pytest.raises(TypeError):
        policy.release.anonymize.l["x"] = 1  # type: ignore[index,union-attr]


REWRITTEN = """
# the same clinic, written by somebody else
expires: '2027-12-31'
dataset: "clinic"
release: {minimize: {columns: [zip, birth_date, sex, diagnosis], sample: 0.1},
          anonymize: {suppress: 2e-2, t: {charge: .2}, l: {diagnosis: 3.0}}}
budgets: {analysts: {ana: {epsilon: 1.0, purposes: [research]}},
          purposes: {operations: {every: month, epsilon: 2}, research: {epsilon: 4.000, delta: 0.000001}},
          dataset: {accounting: zcdp, delta: 0.000001, epsilon: 1e1}}
version: 1
tables:
    drugs: {public: true, source: drugs.csv}
    visits:
        columns:
            note: {role: insensitive, mask: {regex: {put: "xxx-xx-\\\\1", find: "\\\\d{3}-\\\\d{2}-(\\\\d{4})"}}}
            charge: {step: 1e-2, between: [0.0, 2.5e5], type: decimal, role: sensitive, nullable: true}
            diagnosis: {categories: [A00, B01], role: sensitive}
            sex: {categories: ['F', "M"], role: quasi-identifier, type: text}
            birth_date: {hierarchy: {dates: {levels: [month, year, decade]}}, between: [1910-01-01, 2026-12-31],
                         type: date, role: quasi-identifier, step: 1}
            zip: {hierarchy: {redact: {from: right}}, role: quasi-identifier}
            name: {mask: {redact: }, role: identifier}
            patient_id: {mask: {token: people}, role: identifier}
        unit: {max_rows_per_group: 2, max_groups: 5, column: patient_id, neighboring: add-remove}
        source: visits.parquet
"""


def test_the_hash_forgets_formatting_order_defaults_folder_and_where_categories_stand(
    clinic: Path, tmp_path: Path
) -> None:
    other = tmp_path / "elsewhere"
    other.mkdir()
    (other / "c.yaml").write_text(REWRITTEN)
    assert read(other / "c.yaml").hash == read(clinic).hash


def test_the_hash_is_the_same_on_every_machine_and_in_every_version() -> None:
    # A changed value here means that ledgers and releases no longer recognize their policies.
    assert small().hash == "sha256:1397dcbb24b3ce2b504dc806e0eb4b77152b9f13d5d8056f6f2f0a777d439f81"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("epsilon: 4", "epsilon: 4.5"),
        ("max_groups: 5", "max_groups: 6"),
        ("[F, M]", "[M, F]"),
        ("step: 0.01", "step: 0.1"),
        ("mask: redact", "mask: nullify"),
        ("role: sensitive, type", "role: insensitive, type"),
        ("2027-12-31", "2027-12-30"),
        ("source: drugs.csv", "source: drugs.parquet"),
        ("every: month", "every: week"),
        ("k: 5", "k: 6"),
    ],
)
def test_the_hash_changes_with_the_meaning(clinic: Path, old: str, new: str) -> None:
    assert old in CLINIC
    assert parse(CLINIC.replace(old, new, 1), folder=clinic.parent).hash != read(clinic).hash


def test_the_hash_changes_with_the_content_of_a_side_file(clinic: Path) -> None:
    before = read(clinic).hash
    (clinic.parent / "icd10.csv").write_text("code\nA00\nB02\n")
    assert read(clinic).hash != before


def test_a_file_that_is_not_utf8_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_bytes(b"version: 1\ndataset: caf\xe9\n")
    with pytest.raises(PolicyError, match=r"p.yaml:2: the file is not UTF-8"):
        read(tmp_path / "p.yaml")


def test_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    text = "version: 1\ndataset: d\ntables: {t: {source: t.csv, public: true}}\n"
    (tmp_path / "p.yaml").write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert read(tmp_path / "p.yaml") == parse(text)


@pytest.mark.parametrize("name", ["nowhere.yaml", ".", "a\0b"])
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(PolicyError, match="cannot be read"):
        read(f"{tmp_path}/{name}")


def test_an_alias_bomb_is_refused() -> None:
    letters = "abcdefghij"
    bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n"
    for before, here in itertools.pairwise(letters):
        bomb += f"{here}: &{here} [{', '.join(['*' + before] * 9)}]\n"
    with pytest.raises(PolicyError) as caught:
        parse(bomb)
    assert "once its aliases are followed" in caught.value.mistakes[0].message


@pytest.mark.parametrize("text", ["[" * 500, "a: " + "[" * 500 + "]" * 500, "{a: " * 60 + "1" + "}" * 60])
def test_a_nesting_too_deep_is_refused(text: str) -> None:
    with pytest.raises(PolicyError) as caught:
        parse(text)
    assert "nested too deeply" in caught.value.mistakes[0].message


def test_a_huge_file_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("# é\n" * 1_000_000, encoding="utf-8")
    with pytest.raises(PolicyError) as caught:
        read(tmp_path / "p.yaml")
    assert "larger than" in caught.value.mistakes[0].message


@pytest.mark.slow
def test_a_policy_of_twenty_thousand_columns_with_three_words_each_is_read() -> None:
    columns = "".join(f"      c{i}: {{type: text, role: sensitive, nullable: true}}\n" for i in range(20_000))
    head = "version: 1\ndataset: wide\ntables:\n  wide:\n    source: wide.csv\n    unit: row\n    columns:\n"
    (table,) = parse(head + columns).private
    assert len(table.columns) == 20_000


def test_many_mistakes_are_counted_and_the_first_are_shown() -> None:
    columns = ", ".join(f"c{i}: {{x: 1}}" for i in range(500))
    with pytest.raises(PolicyError, match="500 mistakes; the first 200 follow") as caught:
        small(columns)
    assert len(caught.value.mistakes) == 200
    assert all(each.message in caught.value.message for each in caught.value.mistakes), "as a server logs and keeps it"


def test_no_message_about_a_side_file_quotes_its_values(tmp_path: Path) -> None:
    (tmp_path / "codes.csv").write_text("code\n17\nsecret-value\n")
    columns = "a: {type: integer, categories: {file: codes.csv}}"
    text = f"{{version: 1, dataset: d, tables: {{t: {{source: t.csv, unit: row, columns: {{{columns}}}}}}}}}"
    with pytest.raises(PolicyError) as caught:
        parse(text, folder=tmp_path)
    assert "secret-value" not in str(caught.value.as_dict())
    assert caught.value.mistakes
