"""Published findings about four real frames, and how many of them synthetic rows keep.

What is published is the statement at the head of each finding (`findings/*.sql`); the key in brackets at its end names
its source in SOURCES, which was read for it. What is ours: how the statement is written as a question of the columns at
hand, the choice of the frames and columns, and that one counts as kept where the sign of its effect is that of the real
rows. Nothing was chosen by what a method keeps. Every finding holds in the real rows, which is checked at each run. One
that does not was left out: that of all carriers Frontier arrives latest (solutions, 5.6.5). So were statements about
columns that the frames do not have (primary diagnoses, destinations, weekdays, minutes of the actual departure).

The rows are not always those of the source. Flights are a sample of 30,000 of the same ones, stays the first of each
patient, and terms in Congress all the same. The frame of the survey is another excerpt than the tables of the sources:
one year, some areas, no weights, and four of its six questions on disability.

The frames are other rows than those on which methods were compared (`_synth_tables.py`): another excerpt of the same
survey, all first stays instead of a sample, other flights; of Congress all members are in both.
"""

from __future__ import annotations

import json
import re
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from _synth_tables import DATA, Table, _declare

from deniable.assess.parity import Finding, derive_workload, evaluate_finding, is_same_conclusion, load_findings
from deniable.assess.parity import require_conclusions as conclude
from deniable.assess.utility import build_comparison_domain
from deniable.policy.budget import ApproxDP
from deniable.synth.bins import CollapsedDomain
from deniable.synth.describe import describe_table, encode_table
from deniable.synth.domain import Coded, Domain, attributes_of
from deniable.synth.encode import decode_column
from deniable.synth.generate import generate


def _acs() -> Table:
    told = pyarrow.csv.ConvertOptions(null_values=["N"], strings_can_be_null=True)
    rows = pyarrow.csv.read_csv(DATA / "nist_acs" / "national" / "national2019.csv", convert_options=told)
    rows = rows.drop_columns(["PWGTP", "WGTP", "INDP", "PINCP_DECILE", "DENSITY"])
    return _declare(rows, {"AGEP": (0, 99), "PINCP": (-20_000, 1_500_000), "POVPIP": (0, 501)})


def _diabetes() -> Table:
    """The first stay of every patient."""
    rows = pq.read_table(DATA / "diabetes130" / "diabetic_data.parquet", columns=[
        "patient_nbr", "race", "gender", "age", "admission_type_id", "time_in_hospital", "num_medications",
        "num_procedures", "number_inpatient", "number_emergency", "number_diagnoses", "A1Cresult", "insulin", "change",
        "diabetesMed", "readmitted"])  # fmt: skip
    first = np.unique(rows["patient_nbr"].to_numpy(), return_index=True)[1]
    rows = rows.take(np.sort(first)).drop_columns(["patient_nbr"])
    for name in ("number_inpatient", "number_emergency"):
        place = rows.column_names.index(name)
        rows = rows.set_column(place, name, pc.min_element_wise(rows[name], 5))
    return _declare(rows, {"num_medications": (0, 100)})


def _flights() -> Table:
    """Flights that the sample of `_synth_tables.py` does not have."""
    rows = pq.read_table(DATA / "flights" / "nycflights13_flights.parquet")
    rows = rows.select(["month", "hour", "dep_delay", "arr_delay", "carrier", "origin", "air_time", "distance"])
    rows = rows.take(np.random.default_rng(0).permutation(rows.num_rows)[10_000:40_000])
    return _declare(rows, {"dep_delay": (-60, 1440), "arr_delay": (-120, 1440), "air_time": (0, 720),
                           "distance": (0, 5000)})  # fmt: skip


def _officials() -> Table:
    rows = pyarrow.csv.read_csv(DATA / "officials" / "congress-terms.csv")
    rows = rows.select(["congress", "chamber", "state", "party", "incumbent", "age"])
    return _declare(rows, {"congress": (80, 113), "age": (0, 110)})


FRAMES: dict[str, Callable[[], Table]] = {
    "acs": _acs,
    "diabetes": _diabetes,
    "flights": _flights,
    "officials": _officials,
}
Made = Callable[[int], pa.Table]
SOURCES = {
    "silver": "N. Silver and D. Mehta, Both Republicans And Democrats Have an Age Problem, FiveThirtyEight, 2014, "
    "https://fivethirtyeight.com/features/both-republicans-and-democrats-have-an-age-problem/",
    "skelley": "G. Skelley, Congress Today Is Older Than It's Ever Been, FiveThirtyEight, 2023, as quoted in "
    "http://www.pensito.com/2023/04/05/",
    "crs": "J. E. Manning, Membership of the 113th Congress: A Profile, Congressional Research Service, R42964, 2014, "
    "https://docslib.org/doc/4104229/membership-of-the-113th-congress-a-profile",
    "moderndive": "C. Ismay and A. Y. Kim, Statistical Inference via Data Science: A ModernDive into R and the "
    "Tidyverse, chapters 2, 3 and 9, https://github.com/moderndive/moderndive_book",
    "solutions": "J. B. Arnold, R for Data Science: Exercise Solutions, 5.7.3, "
    "https://github.com/jrnold/r4ds-exercise-solutions",
    "r4ds": "H. Wickham, M. Cetinkaya-Rundel and G. Grolemund, R for Data Science, second edition, Numbers, "
    "https://github.com/hadley/r4ds",
    "r4ds1": "H. Wickham and G. Grolemund, R for Data Science, first edition, Data transformation and Model building, "
    "https://github.com/hadley/r4ds/tree/first-ed",
    "strack": "B. Strack and others, Impact of HbA1c Measurement on Hospital Readmission Rates, BioMed Research "
    "International, 2014, https://pmc.ncbi.nlm.nih.gov/articles/PMC3996476",
    "ventura": "J.-P. Ventura and A. Carpenter, Diabetes Hospitalizations, "
    "https://github.com/jvntra/Diabetes_Hospitalization_Readmission",
    "fairlearn": "Fairness in AI systems: From social context to practice using Fairlearn, SciPy 2021, "
    "https://github.com/fairlearn/talks/tree/main/2021_scipy_tutorial",
    "sas": "SAS paper 3254-2015, as summarized in https://github.com/rilut/SAS-analytics-challenge",
    "bauman": "K. Bauman and C. Ryan, Women Now at the Head of the Class, Lead Men in College Attainment, US Census "
    "Bureau (survey of 2014), http://blogs.census.gov/page/3/",
    "acs2019": "Census Bureau: New American Community Survey 5-Year Estimates Released (2015 to 2019), "
    "https://learncra.com/census-bureau-new-american-community-survey-5-year-estimates-released",
    "ada2011": "A look at America's disabled population as the ADA turns 21, HR Daily Advisor, 2011 (figures of the US "
    "Census Bureau), https://hrdailyadvisor.blr.com/2011/07/17/"
    "a-look-at-americas-disabled-population-as-the-ada-turns-21",
    "nysdca": "Anniversary of Americans with Disabilities Act: July 26, 2011 (survey of 2009), "
    "http://nysdca.blogspot.com/2011/07/anniversary-of-americans-with.html",
    "demomemo2018": "Demo Memo, July 2018 (survey of 2012 to 2016), "
    "https://demomemo.blogspot.com/2018/07/50-of-people-aged-75-plus-have.html",
    "demomemo2020": "Demo Memo, Nearly Half the 75-Plus Population Has a Disability, 2020 (survey of 2018), "
    "https://demomemo.blogspot.com/2020/07/nearly-half-75-plus-population-has.html",
}
"""By key: author, title and where it was read."""
SEEN_WHOLE = 128
"""Peers see numbers of so many values as they are, and others in 16 stretches."""


def read_findings(frame: str) -> tuple[Finding, ...]:
    """The findings about a frame."""
    return load_findings(Path(__file__).with_name("findings") / f"{frame}.sql", "rows")


def find_source(finding: Finding) -> str:
    """The key of its source."""
    found = re.search(r"\[(\w+)\]$", finding.text)
    if found is None or found[1] not in SOURCES:
        sys.exit(f"{finding.name} names no source: expected a key of SOURCES in brackets at the end of its sentence")
    return found[1]


def require_true(findings: tuple[Finding, ...], rows: pa.Table) -> None:
    """Stop where a finding does not hold in the real rows; each is written so that its effect is positive."""
    wrong = [name for name, effect in conclude(findings, rows).items() if effect <= 0]
    if wrong:
        sys.exit(f"not true of the real rows: {', '.join(wrong)}")


def make_ours(rows: pa.Table, table: object, findings: tuple[Finding, ...], method: str, epsilon: float) -> Made:
    """Synthetic rows of one of our methods; `auto asked` is told what the findings name, as `deniable parity` tells."""
    name, _, asked = method.partition(" ")
    workload = derive_workload([finding.function for finding in findings], rows.column_names) if asked else ()

    def make(run: int) -> pa.Table:
        return generate(describe_table(rows, table, ApproxDP(epsilon, "1e-9"), name, workload=workload), seed=run)

    return make


def make_peers(rows: pa.Table, table: object, command: list[str | Path], minutes: float) -> Made:
    """Synthetic rows of a peer, which sees long ranges in 16 stretches; a value is drawn evenly inside its stretch.

    A run that has not ended after so many minutes of the processor is an error (subprocess.TimeoutExpired).
    """
    coded = attributes_of(table)
    compared = _build_peers_domain(coded)
    codes = compared.apply(encode_table(rows, coded))

    def make(run: int) -> pa.Table:
        with tempfile.TemporaryDirectory() as folder:
            real, sizes, made = (Path(folder) / name for name in ("real.csv", "sizes.json", "made.csv"))
            names = compared.domain.names
            np.savetxt(real, codes.T, fmt="%d", delimiter=",", header=",".join(names), comments="")
            sizes.write_text(json.dumps(dict(zip(names, compared.domain.sizes, strict=True))))
            given = {"REAL": real, "SIZES": sizes, "MADE": made, "RUN": str(run)}
            whole = [given.get(str(part), part) for part in command]
            seconds = int(60 * minutes)
            limit = partial(resource.setrlimit, resource.RLIMIT_CPU, (seconds, seconds + 1))
            ended = subprocess.run(whole, capture_output=True, preexec_fn=limit)
            if ended.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
                raise subprocess.TimeoutExpired(str(whole[0]), seconds)
            ended.check_returncode()
            theirs = np.loadtxt(made, delimiter=",", skiprows=1, dtype=np.float64).T.astype(np.int64)
        lots, columns = np.random.default_rng(run), []
        for place, attribute in enumerate(coded):
            within = [np.flatnonzero(compared.maps[place] == code) for code in range(compared.domain.sizes[place])]
            old = np.array([lots.choice(within[code]) for code in theirs[place]])
            columns.append(decode_column(attribute, old.astype(np.int32), lots))
        return pa.table(columns, [attribute.name for attribute in coded])

    return make


def _build_peers_domain(coded: Sequence[Coded]) -> CollapsedDomain:
    short = build_comparison_domain(coded).maps
    maps = tuple(np.arange(a.size, dtype=np.int32) if a.size <= SEEN_WHOLE else old
                 for a, old in zip(coded, short, strict=True))  # fmt: skip
    return CollapsedDomain(Domain(tuple(a.name for a in coded), tuple(int(m.max()) + 1 for m in maps)), maps)


def count_kept(rows: pa.Table, findings: tuple[Finding, ...], make: Made, runs: int) -> dict[str, float]:
    """The share of runs in which each finding is kept."""
    real = conclude(findings, rows)
    kept = {finding.name: 0 for finding in findings}
    for run in range(runs):
        made = make(run)
        for finding in findings:
            kept[finding.name] += is_same_conclusion(real[finding.name], evaluate_finding(finding, made))
    return {name: held / runs for name, held in kept.items()}
