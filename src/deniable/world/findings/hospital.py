"""Findings about the generated hospital's visits: functions from a table to an effect, or to yes or no.

deniable parity findings.py --table visits --methods all --epsilon 0.5,1,2,4,10 --runs 20
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


def _of(rows: pa.Table, **wanted: str) -> pa.Table:
    for name, value in wanted.items():
        rows = rows.filter(pc.equal(rows[name], value))
    return rows


def _age(rows: pa.Table) -> Numbers:
    return np.asarray(2025 - pc.year(rows["birth_date"]).to_numpy(zero_copy_only=False), dtype=np.float64)


def _nights(rows: pa.Table) -> Numbers:
    stay = pc.days_between(rows["admission"], rows["discharge"])
    return np.asarray(stay.to_numpy(zero_copy_only=False), dtype=np.float64)


def _charge(rows: pa.Table) -> float:
    return float(pc.mean(rows["charge"].cast(pa.float64())).as_py())


def _between(rows: pa.Table, least: int, most: int = 200) -> pa.Table:
    age = _age(rows)
    return rows.filter(pa.array((age >= least) & (age <= most)))


def stays_grow_with_age(rows: pa.Table) -> float:
    """A year of age adds to the nights stayed (a regression coefficient)."""
    age, nights = _age(rows), _nights(rows)
    known = np.isfinite(age) & np.isfinite(nights)
    return float(np.polyfit(age[known], nights[known], 1)[0])


def charges_follow_the_nights(rows: pa.Table) -> bool:
    """Charges and nights are correlated, by more than a half (a correlation)."""
    charge = rows["charge"].cast(pa.float64()).to_numpy(zero_copy_only=False)
    nights = _nights(rows)
    known = np.isfinite(charge) & np.isfinite(nights)
    return float(np.corrcoef(charge[known], nights[known])[0, 1]) > 0.5


def medicare_pays_for_the_old(rows: pa.Table) -> float:
    """From 66 on, Medicare is likelier to pay than before (a log odds ratio)."""
    groups = (_between(rows, 66), _between(rows, 0, 64))
    shares = [_of(group, payer="Medicare").num_rows / group.num_rows for group in groups]
    return float(np.log(shares[0] / (1 - shares[0])) - np.log(shares[1] / (1 - shares[1])))


def most_of_the_younger_are_insured_privately(rows: pa.Table) -> bool:
    """Below 65 more than half of the visits are paid by private insurance (a share)."""
    younger = _between(rows, 0, 64)
    return bool(_of(younger, payer="private").num_rows * 2 > younger.num_rows)


def women_and_men_are_charged_alike(rows: pa.Table) -> bool:
    """Mean charges of women and men differ by less than a fifth (nothing to find)."""
    women, men = (_charge(_of(rows, sex=sex)) for sex in ("F", "M"))
    return abs(women - men) < 0.2 * men


def old_hispanic_women_are_charged_more(rows: pa.Table) -> float:
    """From 61 on, Hispanic women are charged more than Hispanic men (an effect of four columns together)."""
    old = _between(_of(rows, ethnicity="Hispanic"), 61)
    return _charge(_of(old, sex="F")) - _charge(_of(old, sex="M"))


def depression_is_missed_in_black_men(rows: pa.Table) -> float:
    """Of men of 30 to 44, Black men are diagnosed with depression less often (an effect of four columns together)."""
    men = _between(_of(rows, sex="M"), 31, 43)
    black, others = _of(men, ethnicity="Black"), men.filter(pc.not_equal(men["ethnicity"], "Black"))
    missed, seen = (_of(group, diagnosis="F32.9").num_rows / group.num_rows for group in (black, others))
    return float(seen - missed)
