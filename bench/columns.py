"""Columns: which kinds are found when headers say nothing, and how often a draft decides wrongly about real tables.

Generated columns of 18 identifying kinds are called c1, c2, ..., among others that tell of nobody (amounts, counts,
codes, scores, categories, dates of events, hashes); the same seed gives the same columns. A kind counts as found when
the scan names it and the draft gives its role. Real tables are read where they stand beside the project; the right
roles of their columns are written down below. A column left undecided is not decided wrongly: it is withheld until
somebody decides.
"""

from __future__ import annotations

import random
import string
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa

from deniable.curator.policy.draft import decide_role, draft
from deniable.masking import checksums, lexicon
from deniable.masking.detectors import profile_columns
from deniable.masking.identifiers import judge
from deniable.policy.document import parse
from deniable.policy.schema import Role

ROWS = 800
LEAST_FOUND = 15
MOST_WRONG = 0.05
Maker = Callable[[random.Random], object]


def _digits(rng: random.Random, count: int) -> str:
    return "".join(rng.choices(string.digits, k=count))


def _until(test: Callable[[str], bool], make: Callable[[], str]) -> str:
    while not test(value := make()):
        pass
    return value


def _given(rng: random.Random) -> str:
    return rng.choice(lexicon.load_words("given_names")[:800])


def _surname(rng: random.Random) -> str:
    return rng.choice(lexicon.load_words("surnames")[:1500])


def _day(rng: random.Random, first: int, last: int) -> date:
    return date(first, 1, 1) + timedelta(days=rng.randrange(365 * (last - first)))


def _draw_age(rng: random.Random) -> int:
    return min(99, max(0, round(rng.triangular(0, 99, 38))))


def _draw_iban(rng: random.Random) -> str:
    body = _digits(rng, 18)
    return f"DE{98 - int(body + '131400') % 97:02d}{body}"


def _draw_vin(rng: random.Random) -> str:
    signs = "ABCDEFGHJKLMNPRSTUVWXYZ0123456789"
    return _until(checksums.is_vin, lambda: "1HG" + "".join(rng.choices(signs, k=8)) + _digits(rng, 6))


IDENTIFYING: dict[str, tuple[Maker, Role]] = {
    "name": (lambda r: f"{_given(r)} {_surname(r)}", Role.IDENTIFIER),
    "given name": (_given, Role.IDENTIFIER),
    "surname": (_surname, Role.IDENTIFIER),
    "street address": (
        lambda r: f"{r.randint(1, 999)} {_surname(r)} {r.choice(['Street', 'Road', 'Ave', 'Lane'])}",
        Role.IDENTIFIER,
    ),
    "city": (lambda r: r.choice(lexicon.load_words("cities")[:600]), Role.QUASI_IDENTIFIER),
    "postal code": (lambda r: f"{r.choice(['021', '100', '606', '941'])}{r.randint(1, 60):02d}", Role.QUASI_IDENTIFIER),
    "postal code, British": (
        lambda r: f"{r.choice(['SW', 'M', 'LS', 'EH', 'B'])}{r.randint(1, 20)} {r.randint(1, 9)}{r.choice('ABDE')}A",
        Role.QUASI_IDENTIFIER,
    ),
    "telephone": (lambda r: f"({r.randint(201, 989)}) {r.randint(200, 999)}-{_digits(r, 4)}", Role.IDENTIFIER),
    "e-mail": (lambda r: f"{_given(r).lower()}.{_surname(r).lower()}@example.org", Role.IDENTIFIER),
    "social security number": (
        lambda r: f"{r.randint(100, 650)}-{r.randint(10, 99)}-{r.randint(1000, 9999)}",
        Role.IDENTIFIER,
    ),
    "national id": (lambda r: _until(checksums.is_uk_nhs, lambda: "9" + _digits(r, 9)), Role.IDENTIFIER),
    "record id": (lambda r: f"MRN{r.randrange(10**7):07d}", Role.IDENTIFIER),
    "birth date": (lambda r: _day(r, 1928, 2008), Role.QUASI_IDENTIFIER),
    "age": (_draw_age, Role.QUASI_IDENTIFIER),
    "bank account": (_draw_iban, Role.IDENTIFIER),
    "card number": (lambda r: _until(checksums.is_card, lambda: "4" + _digits(r, 15)), Role.IDENTIFIER),
    "ip address": (lambda r: ".".join(str(r.randint(1, 254)) for _ in range(4)), Role.IDENTIFIER),
    "vehicle identifier": (_draw_vin, Role.IDENTIFIER),
}
"""The kinds that are looked for and the role of each; the kind is what stands before a comma."""


def _group(value: str) -> str:
    return " ".join(value[i : i + 4] for i in range(0, len(value), 4))


def _draw_dni(rng: random.Random) -> str:
    return _until(checksums.is_es_dni, lambda: _digits(rng, 8) + rng.choice("TRWAGMYFPDXBNJZSQVHLCKE"))


WORLD_CITIES = sorted(lexicon.fold_world("c"))
OTHER_FORMS: dict[str, Maker] = {
    "name": lambda r: f"{_surname(r)}, {_given(r)}".upper(),
    "given name": lambda r: _given(r).lower(),
    "surname": lambda r: _surname(r).upper(),
    "street address": lambda r: f"{r.randint(1, 99)} rue de {_given(r)}",
    "city": lambda r: r.choice(WORLD_CITIES),
    "postal code": lambda r: f"{r.randint(10000, 99999)}-{_digits(r, 4)}",
    "postal code, British": lambda r: (
        f"{r.choice(['SW', 'M', 'LS'])}{r.randint(1, 20)}{r.randint(1, 9)}{r.choice('AD')}A"
    ),
    "telephone": lambda r: f"+44 20 7{_digits(r, 3)} {_digits(r, 4)}",
    "e-mail": lambda r: f"{_surname(r)}{r.randint(1, 99)}@EXAMPLE.COM",
    "national id": _draw_dni,
    "record id": lambda r: r.randrange(10**7, 10**8),
    "birth date": lambda r: _day(r, 1928, 2008).strftime("%d/%m/%Y"),
    "age": lambda r: str(_draw_age(r)),
    "bank account": lambda r: _group(_draw_iban(r)),
    "card number": lambda r: _group(_until(checksums.is_card, lambda: "5" + _digits(r, 15))),
    "ip address": lambda r: ":".join(f"{r.randint(1, 65535):x}" for _ in range(8)),
}
"""The same kinds as other countries and other programs write them; those left out have one form."""

HARMLESS: dict[str, Maker] = {
    "amount": lambda r: round(r.lognormvariate(6, 1), 2),
    "count": lambda r: int(r.expovariate(0.2)),
    "large count": lambda r: int(r.lognormvariate(10, 1)),
    "score": lambda r: round(min(100.0, max(0.0, r.gauss(60, 15)))),
    "score of ten": lambda r: r.randint(0, 10),
    "share": lambda r: r.random(),
    "code of a product": lambda r: f"{r.choice('ABC')}-{r.randint(1, 40)}",
    "code of few values": lambda r: r.randint(1, 9),
    "category": lambda r: r.choice(["low", "medium", "high", "none"]),
    "color": lambda r: r.choice(["red", "green", "blue", "white", "black", "grey", "silver", "brown", "beige", "pink"]),
    "department": lambda r: r.choice(["sales", "finance", "legal", "support", "research", "logistics"]),
    "yes or no": lambda r: r.choice(["yes", "no"]),
    "true or false": lambda r: r.random() < 0.5,
    "year": lambda r: r.randint(2015, 2024),
    "duration": lambda r: f"{r.randint(0, 23):02d}:{r.randint(0, 59):02d}",
    "version": lambda r: f"{r.randint(1, 4)}.{r.randint(0, 9)}.{r.randint(0, 20)}",
    "temperature": lambda r: round(r.gauss(20, 8), 1),
    "height": lambda r: round(r.gauss(170, 10)),
    "pay": lambda r: round(r.gauss(50_000, 9_000)),
    "percentage": lambda r: r.randint(0, 100),
    "minute": lambda r: r.randint(0, 59),
}
EVENTS: dict[str, tuple[Maker, frozenset[str]]] = {
    "date of an event": (lambda r: _day(r, 2021, 2024), frozenset(("date",))),
    "hash": (lambda r: f"{r.getrandbits(128):032x}", frozenset(("record id",))),
}
"""Columns of no kind above that a scan may rightly name: a day of something, and a value of its own for each row."""


def make_columns(seed: int = 1, *, other_forms: bool = False) -> dict[str, tuple[str, pa.Array]]:
    """What each column holds, and its values; headers say nothing."""
    rng = random.Random(seed)
    made = {name: make for name, (make, _) in IDENTIFYING.items()} | (OTHER_FORMS if other_forms else {}) | HARMLESS
    made |= {name: make for name, (make, _) in EVENTS.items()}
    named = list(made.items())
    rng.shuffle(named)
    return {
        f"c{place}": (name, pa.array([make(rng) for _ in range(ROWS)])) for place, (name, make) in enumerate(named, 1)
    }


def find_hidden(seed: int = 1, *, other_forms: bool = False) -> tuple[dict[str, str], dict[str, str]]:
    """The identifying kinds that were missed, each with what was said, and the other columns that raised an alarm."""
    columns = make_columns(seed, other_forms=other_forms)
    missed, alarms = {}, {}
    profiles = profile_columns(pa.table({name: values for name, (_, values) in columns.items()}))
    for profile in profiles:
        holds, finding = columns[profile.name][0], judge(profile)
        role = decide_role(profile, finding)[0]
        kind = finding.kind if finding is not None else "nothing"
        if holds in IDENTIFYING:
            if kind != holds.partition(",")[0] or role is not IDENTIFYING[holds][1]:
                missed[holds] = f"{kind}, {role}"
        elif kind != "nothing" and kind not in EVENTS.get(holds, ("", frozenset()))[1]:
            alarms[holds] = f"{kind}, {role}"
    return missed, alarms


def score_hidden(seeds: tuple[int, ...] = (1, 2, 3)) -> None:
    """Print how many kinds were found under headers that say nothing, and which other columns raised an alarm."""
    kinds, others = len(IDENTIFYING), len(HARMLESS) + len(EVENTS)
    for seed, other_forms in [(seed, other) for seed in seeds for other in (False, True)]:
        missed, alarms = find_hidden(seed, other_forms=other_forms)
        title = f"columns seed {seed}, headers hidden{', other forms' if other_forms else ''}"
        print(f"{title}: {kinds - len(missed)} of {kinds} kinds found (bar {LEAST_FOUND})")
        print(f"columns   missed: {missed or 'none'}; alarms in {others} other columns: {alarms or 'none'}")


REAL = Path(__file__).resolve().parents[2] / "shared" / "data"
_DRUGS = (
    "metformin repaglinide nateglinide chlorpropamide glimepiride acetohexamide glipizide glyburide tolbutamide"
    " pioglitazone rosiglitazone acarbose miglitol troglitazone tolazamide examide citoglipton insulin"
    " glyburide-metformin glipizide-metformin glimepiride-pioglitazone metformin-rosiglitazone metformin-pioglitazone"
)
RIGHT = {
    "adult/adult.csv": {
        "q": "sex age race marital-status education native-country",
        "qs": "workclass occupation",
        "s": "salary-class",
    },
    "census_kdd/census_income_kdd_1994_1995.parquet": {
        "q": "age education marital_stat race hispanic_origin sex detailed_household_and_family_stat"
        " detailed_household_summary_in_household family_members_under_18 country_of_birth_father"
        " country_of_birth_mother country_of_birth_self enroll_in_edu_inst_last_wk region_of_previous_residence"
        " state_of_previous_residence migration_code_change_in_msa migration_code_change_in_reg"
        " migration_code_move_within_reg live_in_this_house_1_year_ago migration_prev_res_in_sunbelt",
        "qs": "class_of_worker detailed_industry_recode detailed_occupation_recode major_industry_code"
        " major_occupation_code member_of_a_labor_union reason_for_unemployment full_or_part_time_employment_stat"
        " num_persons_worked_for_employer citizenship own_business_or_self_employed veterans_benefits"
        " fill_inc_questionnaire_veterans_admin weeks_worked_in_year tax_filer_stat",
        "s": "wage_per_hour capital_gains capital_losses dividends_from_stocks income",
        "": "instance_weight year part",
    },
    "diabetes130/diabetic_data.parquet": {
        "i": "encounter_id patient_nbr",
        "q": "race gender age",
        "qs": "weight admission_type_id discharge_disposition_id admission_source_id time_in_hospital payer_code"
        " medical_specialty num_lab_procedures num_procedures num_medications number_outpatient number_emergency"
        " number_inpatient",
        "s": f"diag_1 diag_2 diag_3 number_diagnoses max_glu_serum A1Cresult change diabetesMed readmitted {_DRUGS}",
    },
    "nist_acs/national/national2019.csv": {
        "q": "PUMA AGEP SEX MSP HISP RAC1P NOC NPF HOUSING_TYPE OWN_RENT DENSITY EDU",
        "qs": "INDP INDP_CAT DVET",
        "s": "PINCP PINCP_DECILE POVPIP DREM DPHY DEYE DEAR",
        "": "PWGTP WGTP",
    },
    "officials/congress-terms.csv": {
        "i": "bioguide firstname middlename lastname",
        "q": "suffix birthday state termstart age",
        "qs": "party",
        "": "congress chamber incumbent",
    },
}
"""For each table the columns that are identifiers (i), quasi-identifiers (q), sensitive (s) or either (qs); the others
tell of the survey or of an office and not of a person."""
LETTERS = {Role.IDENTIFIER: "i", Role.QUASI_IDENTIFIER: "q", Role.SENSITIVE: "s"}


def draft_real(name: str) -> dict[str, Role]:
    """The roles that a real table's columns are drafted with."""
    text = draft(str(REAL / name), encoding="latin-1" if name.startswith("officials") else None)
    return {column.name: column.role for column in parse(text, folder=REAL).tables[0].columns}


def list_wrong(name: str, roles: dict[str, Role]) -> list[str]:
    """The columns of a real table that were decided, and wrongly."""
    right = {column: letters for letters, columns in RIGHT[name].items() for column in columns.split()}
    decided = {column: LETTERS.get(role, "-") for column, role in roles.items() if role is not Role.UNDECIDED}
    return [column for column, letter in decided.items() if letter not in right[column]]


def score_drafts() -> None:
    """Print the share of columns of real tables that drafts decide wrongly, and facts of people they call harmless."""
    if not REAL.exists():
        print("columns the real tables are not here: drafts were not judged")
        return
    wrong = total = 0
    for name in RIGHT:
        roles = draft_real(name)
        listed, harmless = list_wrong(name, roles), [c for c, role in roles.items() if role is Role.INSENSITIVE]
        wrong, total = wrong + len(listed), total + len(roles)
        decided = sum(role is not Role.UNDECIDED for role in roles.values())
        print(f"columns {name}: {decided} of {len(roles)} decided, wrongly: {listed or 'none'}")
        print(f"columns   called harmless: {harmless or 'none'}")
    print(f"columns {wrong / total:.1%} of {total} columns decided wrongly (bar {MOST_WRONG:.0%})")


if __name__ == "__main__":
    score_hidden()
    score_drafts()
