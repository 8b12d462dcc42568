"""Findings about the generated survey: functions from a table to an effect, or to yes or no.

deniable parity findings.py --methods all --epsilon 0.5,1,2,4,10 --runs 20
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

AGES = ("18-24", "25-34", "35-44", "45-54", "55-69", "70+")
EDUCATION = ("none", "school", "college", "degree", "doctorate")


def _of(rows: pa.Table, **wanted: str) -> pa.Table:
    for name, value in wanted.items():
        rows = rows.filter(pc.equal(rows[name], value))
    return rows


def _share(rows: pa.Table, name: str, **wanted: str) -> float:
    chosen = _of(rows, **wanted)
    return float(_of(chosen, **{name: "yes"}).num_rows / chosen.num_rows)


def _correlation(rows: pa.Table, *names: str) -> float:
    """Of two columns, over the rows that have both."""
    whole = rows.select(list(names)).drop_null()
    columns = [np.asarray(whole[name].cast(pa.float64()).to_numpy(zero_copy_only=False)) for name in names]
    return float(np.asarray(np.corrcoef(np.stack(columns)))[0, 1])


def the_young_use_more_drugs(rows: pa.Table) -> float:
    """Drug use is likelier from 18 to 24 than from 70 on (a log odds ratio)."""
    odds = [(share := _share(rows, "used_drugs", age_group=age)) / (1 - share) for age in ("18-24", "70+")]
    return float(np.log(odds[0] / odds[1]))


def drug_use_falls_with_age(rows: pa.Table) -> bool:
    """From each age group to the next, fewer use drugs (a rank order)."""
    shares = [_share(rows, "used_drugs", age_group=age) for age in AGES]
    return shares == sorted(shares, reverse=True)


def income_grows_with_education(rows: pa.Table) -> float:
    """A step of education adds to the income (a regression coefficient)."""
    known = rows.filter(pc.is_valid(rows["income"]))
    steps = pc.index_in(known["education"], pa.array(EDUCATION)).to_numpy(zero_copy_only=False).astype(float)
    income = known["income"].cast(pa.float64()).to_numpy(zero_copy_only=False)
    fit = np.isfinite(steps)
    return float(np.polyfit(steps[fit], income[fit], 1)[0])


def satisfaction_grows_with_income(rows: pa.Table) -> bool:
    """Satisfaction and income are correlated, by more than a fifth (a correlation)."""
    return _correlation(rows, "satisfaction", "income") > 0.2


def taxes_are_evaded_most_in_the_middle_of_life(rows: pa.Table) -> bool:
    """More evade taxes from 35 to 54 than of the younger or the older (a comparison of groups)."""
    middle = min(_share(rows, "evaded_taxes", age_group=age) for age in ("35-44", "45-54"))
    return middle > max(_share(rows, "evaded_taxes", age_group=age) for age in ("18-24", "70+"))


def women_and_men_have_the_same_income(rows: pa.Table) -> bool:
    """Mean incomes of women and men differ by less than a twentieth (nothing to find)."""
    women, men = (float(pc.mean(_of(rows, sex=sex)["income"]).as_py()) for sex in ("F", "M"))
    return abs(women - men) < 0.05 * men


def screens_have_nothing_to_do_with_income(rows: pa.Table) -> bool:
    """Hours before a screen and income are not correlated, within a tenth (nothing to find)."""
    return abs(_correlation(rows, "screen_hours", "income")) < 0.1


def young_men_of_the_north_use_more_drugs(rows: pa.Table) -> float:
    """Young men use more drugs in the North than elsewhere (an effect of three columns together)."""
    men = _of(rows, age_group="18-24", sex="M")
    elsewhere = men.filter(pc.not_equal(men["region"], "North"))
    return _share(men, "used_drugs", region="North") - _share(elsewhere, "used_drugs")
