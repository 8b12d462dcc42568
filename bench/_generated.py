"""Tables of the same shape as the real ones, for machines on which those are not: same columns, sizes and files.

Rows come from a mixture of a few kinds of people with a fixed seed, so columns hang together; nobody in them exists.
`find_data` gives the folder of real tables if it is beside the project, else one of generated tables, and says which.
Figures on generated tables compare tools with each other on one machine; they are not the figures of the real tables.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parents[1]
REAL = ROOT.parent / "shared" / "data"
MADE = ROOT / "bench" / "results" / "generated"
KINDS = 12
ADULT_ROWS, CODED_ROWS, CENSUS_ROWS, SURVEY_ROWS, WIDE_ROWS = 30_162, 48_842, 63_000, 30_000, 299_285
ADULT = {"sex": 2, "age": 74, "race": 5, "marital-status": 7, "education": 16, "native-country": 41, "workclass": 7,
         "occupation": 14, "salary-class": 2}  # fmt: skip
CODED = {"age": 85, "workclass": 9, "fnlwgt": 100, "education-num": 16, "marital-status": 7, "occupation": 15,
         "relationship": 6, "race": 5, "sex": 2, "capital-gain": 100, "capital-loss": 100, "hours-per-week": 99,
         "native-country": 42, "income>50K": 2}  # fmt: skip
CENSUS = {"age": 91, "weeks_worked_in_year": 53, "detailed_industry_recode": 52, "detailed_occupation_recode": 47,
          "education": 17, "marital_stat": 7, "sex": 2, "race": 5, "country_of_birth_self": 43, "class_of_worker": 9,
          "major_occupation_code": 15, "income": 2}  # fmt: skip
WIDE = {"age": 91, "wage_per_hour": 100, "capital_gains": 100, "capital_losses": 100, "dividends_from_stocks": 100,
        "weeks_worked_in_year": 53} | {f"column_{place:02}": 2 + place * 17 % 51 for place in range(35)}  # fmt: skip
NUMBERS = ("AGEP", "DENSITY", "PINCP", "PWGTP", "WGTP")
SURVEY = dict.fromkeys(NUMBERS, 90) | {f"Q{place:02}": 2 + place % 9 for place in range(19)}


def find_data(name: str) -> Path:
    """The folder of a table: the real one if it is there, else a generated one of its shape.

    What follows a slash names another shape that is generated of the same real table, such as all of its columns.
    """
    real = REAL / name.partition("/")[0]
    if real.exists():
        return real
    folder = MADE / name.replace("/", "-")
    if not folder.exists():
        part = folder.with_name(f"{folder.name}.part")
        part.mkdir(parents=True, exist_ok=True)
        MAKERS[name](part)
        part.rename(folder)
    return folder


def say_source(name: str) -> str:
    """A line for the output: whether the real table was measured."""
    real = (REAL / name.partition("/")[0]).exists()
    return f"table {name}: {'the real one' if real else 'generated, of the same shape (the real one is not there)'}"


def draw_codes(sizes: dict[str, int], rows: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Columns of codes below their sizes, which hang together through the kind of each person."""
    chance = np.random.default_rng(seed)
    kind = chance.choice(KINDS, rows, p=chance.dirichlet(np.full(KINDS, 2.0)))
    columns = {}
    for name, size in sizes.items():
        shares = np.cumsum(chance.dirichlet(np.full(size, min(1.0, 8 / size)), KINDS), axis=1)
        columns[name] = np.minimum((chance.random(rows)[:, None] > shares[kind]).sum(axis=1), size - 1)
    return columns


def _write_adult(folder: Path) -> None:
    columns = draw_codes(ADULT, ADULT_ROWS)
    texts = {n: [str(17 + c) if n == "age" else f"{n}-{c}" for c in codes] for n, codes in columns.items()}
    lines = [";".join(texts), *(";".join(row) for row in zip(*texts.values(), strict=True))]
    (folder / "adult.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for name, size in ADULT.items():
        lines = [_write_leaf(name, code, size) for code in range(size)]
        (folder / f"adult_hierarchy_{name}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _write_leaf(name: str, code: int, size: int) -> str:
    """A value and its groups, each level four times as coarse, up to one group of all."""
    words, width = [str(17 + code) if name == "age" else f"{name}-{code}"], 4
    while width < size:
        words.append(f"{code // width * width} to {code // width * width + width - 1}")
        width *= 4
    return ";".join([*words, "*"])


def _write_coded(folder: Path) -> None:
    columns = draw_codes(CODED, CODED_ROWS)
    (folder / "adult-domain.json").write_text(json.dumps(CODED), encoding="utf-8")
    table = np.stack(list(columns.values()), axis=1)
    np.savetxt(folder / "adult.csv", table, fmt="%d", delimiter=",", header=",".join(CODED), comments="")


def _write_census(folder: Path) -> None:
    columns = draw_codes(CENSUS, CENSUS_ROWS)
    numeric = ("age", "weeks_worked_in_year", "detailed_industry_recode", "detailed_occupation_recode")
    table = {n: codes if n in numeric else [f"{n}-{code}" for code in codes] for n, codes in columns.items()}
    pq.write_table(pa.table(table), folder / "census_income_kdd_1994_1995.parquet")


def _write_wide(folder: Path) -> None:
    columns = draw_codes(WIDE, WIDE_ROWS)
    table = {n: [f"{n}-{code}" for code in codes] if n.startswith("column") else codes for n, codes in columns.items()}
    pq.write_table(pa.table(table), folder / "census_income_kdd_1994_1995.parquet")


def _write_survey(folder: Path) -> None:
    columns = draw_codes(SURVEY, SURVEY_ROWS)
    lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    (folder / "made").mkdir()
    (folder / "made" / "made2019.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


MAKERS = {"adult": _write_adult, "adult14": _write_coded, "census_kdd": _write_census, "nist_acs": _write_survey,
          "census_kdd/all": _write_wide}  # fmt: skip
