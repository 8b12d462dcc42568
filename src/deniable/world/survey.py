"""The survey world: answers of a kind that people give only if they can deny them.

One row a respondent: categories, an ordinal scale, numbers, a favorite web page from a long list (for frequency
sketches), and two sensitive yes/no questions. One respondent in five uses drugs.

Planted: drug use falls with age and, for **men of 18 to 24 in the North only**, is half again as frequent; income grows
with education; satisfaction grows with income; five in a hundred leave the question about income open (null).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from deniable.world import arrays
from deniable.world.arrays import (
    Draws,
    Ints,
    draw_quantiles,
    make_choice_table,
    make_choice_tables,
    scramble,
    tabulate_lognormal,
)
from deniable.world.population import SEXES

CHUNK = 1 << 16
AGE_GROUPS = ("18-24", "25-34", "35-44", "45-54", "55-69", "70+")
REGIONS = ("East", "North", "South", "West")
EDUCATION = ("none", "school", "college", "degree", "doctorate")
PAGES = 1000
MOST_INCOME = 250_000
_KEY = 3
_AGE = make_choice_table([14, 19, 18, 17, 21, 11])
_EDUCATION = make_choice_tables(
    [[4, 60, 26, 9, 1]] + [[6, 38, 28, 24, 4]] * 3 + [[10, 44, 26, 17, 3], [16, 50, 20, 12, 2]]
)
_DRUGS_IN_1000 = np.array([320, 290, 220, 170, 110, 50])
_TAXES_IN_1000 = np.array([60, 100, 130, 140, 110, 60])
_INCOME = np.array([18_000, 29_000, 38_000, 58_000, 82_000])
_SATISFACTION = make_choice_tables([[24, 28, 26, 16, 6], [12, 20, 30, 26, 12], [6, 12, 26, 34, 22], [4, 8, 20, 38, 30]])
_PAGE = make_choice_table([100_000 // (rank + 3) for rank in range(PAGES)])
_SPREAD, _HOURS = tabulate_lognormal(0.45), tabulate_lognormal(0.55, center=32)


def reference() -> dict[str, pa.Table]:
    """No public list beside the table."""
    return {}


def batches(people: int, seed: int) -> Iterator[dict[str, pa.Table]]:
    """The answers, chunk by chunk."""
    for start in range(0, max(1, people), CHUNK):
        yield {"survey": _draw_chunk(Draws(seed, _KEY, start // CHUNK), start, min(CHUNK, people - start))}


def _draw_chunk(draws: Draws, start: int, size: int) -> pa.Table:
    age, sex, region = draws.pick(_AGE, size), draws.below(2, size), draws.below(len(REGIONS), size)
    education = draws.pick_by(_EDUCATION, age)
    income = (
        (_INCOME[education] * draw_quantiles(_SPREAD, draws.indexes(size)) // 1024).clip(0, MOST_INCOME) // 100 * 100
    )
    number = np.arange(start, start + size, dtype=np.int64)
    return pa.table(
        {
            "respondent_id": arrays.format_digits("R########", scramble(number, 10**8, 70_710_677, 8_675_309)),
            "age_group": arrays.look_up(AGE_GROUPS, age),
            "sex": arrays.look_up(SEXES, sex),
            "region": arrays.look_up(REGIONS, region),
            "education": arrays.look_up(EDUCATION, education),
            "used_drugs": arrays.look_up(("no", "yes"), _draw_drug_use(draws, age, sex, region)),
            "evaded_taxes": arrays.look_up(("no", "yes"), draws.chance(_TAXES_IN_1000[age], size).astype(np.int64)),
            "satisfaction": pa.array(1 + draws.pick_by(_SATISFACTION, np.searchsorted(_STEPS, income)), pa.int64()),
            "income": pa.array(income, pa.int64(), mask=draws.chance(50, size)),
            "screen_hours": pa.array(draw_quantiles(_HOURS, draws.indexes(size)).clip(0, 160) / 10.0, pa.float64()),
            "favorite_page": arrays.format_digits("page-####", draws.pick(_PAGE, size)),
        }
    )


_STEPS = np.array([20_000, 40_000, 70_000])


def _draw_drug_use(draws: Draws, age: Ints, sex: Ints, region: Ints) -> Ints:
    planted = (age == 0) & (sex == SEXES.index("M")) & (region == REGIONS.index("North"))
    return draws.chance(_DRUGS_IN_1000[age] * (2 + planted) // 2, len(age)).astype(np.int64)
