"""Hierarchies of public standards: diagnoses, places, occupations, education, ages, incomes, dates, coordinates.

Facts stand in `data/`, each file with its source. A value is looked up by its standard spelling (case, dots and spaces
aside) and keeps its own spelling at level 0. A value that the standard does not have is refused without being shown, or
stands in a group 'other' where the policy says so. Standards of numbers, dates and coordinates are names for
hierarchies of other kinds, with levels in common use."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import pyarrow as pa

from deniable.errors import DataError, ParameterError, nearest
from deniable.kanonymity.hierarchy import Hierarchy, build_hierarchy, group_by_label, text_of
from deniable.policy.schema import Spec

Row = list[str]
Found = tuple[Any, tuple[str, ...]]
"""Where a value stands in the standard's own order, and its groups, from fine to coarse."""

OTHER = "other"
"""The label of values that a standard does not have, where a policy lets them be one group."""

SMALL_ZIP3 = frozenset(
    ("036", "059", "063", "102", "202", "203", "204", "205", "369", "556", "692", "753", "772", "790", "821", "823",
     "830", "831", "878", "879", "884", "890", "893")
)  # fmt: skip
"""Three-digit ZIP areas with 20,000 people or fewer by the census of 2000 or 2010, as the mask `zip3` has them."""


def read_facts(name: str) -> tuple[list[str], list[Row]]:
    """The remarks at the head of a file of facts, and its rows."""
    text = (files("deniable.kanonymity.builders") / "data" / f"{name}.csv").read_text(encoding="utf-8")
    lines = text.splitlines()
    remarks = [line.removeprefix("#").strip() for line in lines if line.startswith("#")]
    return remarks, [line.split(";") for line in lines if line and not line.startswith("#")]


def simplify(text: str) -> str:
    """Words without case, accents, punctuation and a leading article.

    >>> simplify("Côte d'Ivoire"), simplify("United-States"), simplify("Master's")
    ('cote divoire', 'united states', 'masters')
    """
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower().replace("'", "")
    words = re.sub(r"[^a-z0-9]+", " ", plain.replace("&", " and ")).strip()
    return words.removeprefix("the ")


def expand_ranges(ranges: str) -> Iterator[str]:
    """Every code of ranges.

    >>> list(expand_ranges("X98-Y01,C4A")), list(expand_ranges("E099-E101"))
    (['X98', 'X99', 'Y00', 'Y01', 'C4A'], ['E099', 'E100', 'E101'])
    """
    for part in ranges.split(",") if ranges else ():
        first, _, last = part.partition("-")
        if not last:
            yield first
            continue
        width = len(first.lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ"))
        for number in range(_rank_code(first, width), _rank_code(last, width) + 1):
            letter, digits = divmod(number, 10**width)
            yield (chr(letter) if letter else "") + f"{digits:0{width}}"


def _rank_code(code: str, width: int) -> int:
    letter, digits = code[:-width], code[-width:]
    return int(f"{ord(letter) if letter else 0}{digits}")


@cache
def _list_categories(name: str) -> Mapping[str, tuple[str, str]]:
    """The block and the chapter of every category of an ICD; a category outside all blocks stands with its chapter."""
    found: dict[str, tuple[str, str]] = {}
    chapter = ""
    for level, ranges, title in read_facts(name)[1]:
        label = f"{ranges.replace(',', ', ')} {title}"
        if level == "chapter":
            chapter = label
        here = f"{chapter} (no block)" if level == "chapter" else label
        found |= dict.fromkeys(expand_ranges(ranges), (here, chapter))
    return found


_ICD10 = re.compile(r"([A-Z][0-9][0-9AB])\.?[0-9A-Z]{0,4}[+*†!#]?")
_ICD9 = re.compile(r"([0-9]{1,3})\.[0-9]{0,2}|([0-9]{1,3})|([0-9]{3})[0-9]{1,2}|(V[0-9]{2})\.?[0-9]{0,2}"
                   r"|(E[0-9]{3})\.?[0-9]?")  # fmt: skip


def _find_icd10(text: str) -> Found | None:
    code = text.strip().upper()
    match = _ICD10.fullmatch(code)
    groups = _list_categories("icd10").get(match[1]) if match else None
    return (code.replace(".", ""), (match[1], *groups)) if match and groups else None


def _find_icd9(text: str) -> Found | None:
    """The category of a code; zeros that a number lost at its left are put back."""
    code = text.strip().upper()
    match = _ICD9.fullmatch(code)
    category = match[match.lastindex or 0].zfill(3) if match else ""
    groups = _list_categories("icd9").get(category)
    return ((category, code), (category, *groups)) if groups else None


@cache
def _list_countries() -> Mapping[str, Found]:
    found: dict[str, Found] = {}
    for two, three, number, name, subregion, region, others in read_facts("countries")[1]:
        for word in filter(None, (two, three, number, number.lstrip("0"), name, *others.split("|"))):
            found[simplify(word)] = (simplify(name), (subregion, region))
    return found


def _find_country(text: str) -> Found | None:
    return _list_countries().get(simplify(text))


@cache
def _list_states() -> Mapping[str, tuple[str, str, str]]:
    """State, division and region by abbreviation, FIPS code and name."""
    found: dict[str, tuple[str, str, str]] = {}
    for short, fips, name, division, region, _ in read_facts("us_states")[1]:
        for word in filter(None, (short, fips, fips.lstrip("0"), name)):
            found[simplify(word)] = (short, division, region)
    return found


def _find_state(text: str) -> Found | None:
    groups = _list_states().get(simplify(text))
    return (groups[0], groups[1:]) if groups else None


@cache
def _list_zip_areas() -> Mapping[str, tuple[str, str, str]]:
    rows = read_facts("us_states")[1]
    return {area: (row[0], row[3], row[4]) for row in rows for area in expand_ranges(row[5])}


def _find_zip(text: str) -> Found | None:
    """Five or nine digits, or the three of an area; areas of 20,000 people or fewer are one group, 000, at every level.

    Four digits are a code that lost its zero."""
    code = text.strip()
    code = code.zfill(5) if len(code) == 4 else code
    if not re.fullmatch(r"[0-9]{3}|[0-9]{5}(-?[0-9]{4})?", code):
        return None
    area = code[:3]
    if area in SMALL_ZIP3 or code in ("000", "00000"):
        return code, ("000",) * 5
    groups = _list_zip_areas().get(area)
    return (code, (code[:4], area, *groups)) if groups else None


@cache
def _list_nuts_countries() -> Mapping[str, str]:
    return {code: f"{code} {name}" for code, name in read_facts("nuts")[1]}


def _find_nuts(text: str) -> Found | None:
    code = text.strip().upper()
    country = _list_nuts_countries().get(code[:2])
    if country is None or not re.fullmatch(r"[A-Z]{2}[0-9A-Z]{0,3}", code):
        return None
    return code, (code[:4], code[:3], country)


@cache
def _list_occupations() -> Mapping[str, str]:
    return {code: f"{code} {title}" for code, title in read_facts("isco08")[1]}


def _find_occupation(text: str) -> Found | None:
    """Groups by digits. No minor group ends in 0: three digits that do are an armed force's code that lost its zero."""
    code = text.strip()
    code = f"0{code}" if re.fullmatch(r"[123]10", code) else code
    titles = _list_occupations()
    if not re.fullmatch(r"[0-9]{1,4}", code) or code[:2] not in titles:
        return None
    return code, (code[:3], titles[code[:2]], titles[code[0]])


@cache
def _list_education() -> Mapping[str, Found]:
    found: dict[str, Found] = {}
    for level, title, group, words in read_facts("education")[1]:
        groups = (f"{level} {title}", group)
        for word in (level, f"isced {level}", f"level {level}", f"ed{level}", title, *words.split("|")):
            found.setdefault(simplify(word), ((int(level), len(found)), groups))
    return found


def _find_education(text: str) -> Found | None:
    return _list_education().get(simplify(text))


def _find_hour(text: str) -> Found | None:
    match = re.fullmatch(r"([0-9]{1,2})(?::[0-5][0-9](?::[0-5][0-9](?:\.[0-9]+)?)?|h)?", text.strip())
    hour = int(match[1]) if match else 24
    if hour > 23:
        return None
    return (hour, text), (f"{hour:02}h", ("night", "morning", "afternoon", "evening")[hour // 6])


WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
MONTHS = ("january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
          "december")  # fmt: skip


def _place_name(text: str, names: tuple[str, ...]) -> int | None:
    """The place of a name, of its first three letters, or of its number from 1."""
    word = simplify(text)
    places = [n for n, name in enumerate(names) if word in (name, name[:3], str(n + 1), f"{n + 1:02}")]
    return places[0] if places else None


def _find_weekday(text: str) -> Found | None:
    """Names, or the numbers of ISO 8601: 1 is Monday."""
    day = _place_name(text, WEEKDAYS)
    return None if day is None else (day, ("weekend" if day > 4 else "working day",))


def _find_month(text: str) -> Found | None:
    """Names, or numbers; seasons as north of the equator, beginning with December, so that each is one run."""
    month = _place_name(text, MONTHS)
    if month is None:
        return None
    season = (month + 1) % 12 // 3
    return (month + 1) % 12, (("winter", "spring", "summer", "autumn")[season],)


@dataclass(frozen=True, slots=True)
class Standard:
    """A public classification.

    `find` gives a value's groups; `ordered` says that the order of its values has a meaning. A standard with `make`
    instead is a name for a hierarchy of another kind: its words for the levels become that kind's options.
    """

    name: str
    title: str
    example: str
    source: str
    find: Callable[[str], Found | None] | None = None
    known: Callable[[], Iterable[str]] = tuple
    """Values that reach every group there is."""
    ordered: bool = False
    make: Callable[[tuple[str, ...]], Spec] | None = None
    called: str = ""
    """What columns with such values are called, as a pattern."""
    telling: str = ""
    """Values that can hardly be anything else, as a pattern; empty where the column's name must speak for it."""
    digits: int = 0
    """To how many digits numbers are filled with zeros: a column of numbers has lost them."""

    @property
    def levels(self) -> tuple[str, ...]:
        """The levels above the value itself, from fine to coarse."""
        from deniable.policy.layout.hierarchies import STANDARD_LEVELS  # slow to load, and seldom asked for

        return STANDARD_LEVELS[self.name]


def _make_dates(levels: tuple[str, ...]) -> Spec:
    return Spec("dates", {"levels": levels})


_CALENDAR = "ISO 8601 (weeks begin on Monday); meteorological seasons of the northern hemisphere"
_COUNTS = re.compile(r"(n|nr|no|num|number|count|total)_|.*_(count|total)$")
"""Columns that count something: number_diagnoses holds no diagnoses."""
_WORDS = r".*[A-Za-z]{4}.*"
_DIAGNOSES = r"(.*_)?(diag|dx|icd|disease|condition|cause|illness).*"

STANDARDS: Mapping[str, Standard] = {
    standard.name: standard
    for standard in (
        Standard("icd10", "Diagnoses by ICD-10 or ICD-10-CM", "E11.9",
                 "World Health Organization, ICD-10 2019; NCHS and CMS, ICD-10-CM (public domain)", _find_icd10,
                 lambda: _list_categories("icd10"), called=_DIAGNOSES,
                 telling=r"(?i)[A-Z][0-9][0-9A-Z]\.[0-9A-Z]{1,4}"),
        Standard("icd9", "Diagnoses by ICD-9-CM", "250.83", "NCHS and CMS, ICD-9-CM 2014 (public domain)", _find_icd9,
                 lambda: _list_categories("icd9"), called=_DIAGNOSES),
        Standard("countries", "Countries by ISO 3166-1 code or English name", "NOR",
                 "United Nations, M49; country-codes of Open Knowledge (ODC-PDDL 1.0)", _find_country,
                 _list_countries, telling=_WORDS,
                 called=r".*(country|countries|nation(ality)?|citizenship|birth_?place)"),
        Standard("us_states", "States of the United States by abbreviation, FIPS code or name", "MA",
                 "US Census Bureau, regions and divisions (public domain)", _find_state,
                 _list_states, called=r"(.*_)?(state|us_?state)s?(_?(code|name|fips))?", telling=_WORDS),
        Standard("us_zip", "ZIP codes of the United States; areas of 20,000 people or fewer are 000", "02139",
                 "US Postal Service, list L002; US Census Bureau; 45 CFR 164.514(b)(2)(i)(B) (public domain)",
                 _find_zip, lambda: (*_list_zip_areas(), *SMALL_ZIP3), called=r".*zip(_?code)?[0-9]?", digits=5),
        Standard("nuts", "Regions of the European Union by NUTS code", "DE212",
                 "Eurostat, Regulation (EC) No 1059/2003 (reuse allowed, CC BY 4.0)", _find_nuts,
                 _list_nuts_countries, called=r".*nuts.*"),
        Standard("isco08", "Occupations by ISCO-08 code", "2211", "International Labour Organization, ISCO-08",
                 _find_occupation, _list_occupations, called=r".*(isco|occupation|job|profession).*"),
        Standard("education", "Levels of education by ISCED 2011 or in common words", "Bachelors",
                 "UNESCO Institute for Statistics, ISCED 2011; Eurostat", _find_education, _list_education,
                 ordered=True, called=r".*(educ|isced|school|degree|qualification).*", telling=_WORDS),
        Standard("hours", "Hours of the day, as 14 or 14:30", "14:30", _CALENDAR, _find_hour,
                 lambda: map(str, range(24)), ordered=True, called=r"(.*_)?hour(_of_day)?"),
        Standard("weekdays", "Days of the week by English name or ISO number", "Tuesday", _CALENDAR, _find_weekday,
                 lambda: WEEKDAYS, ordered=True, telling=r"[A-Za-z]{3,9}",
                 called=r"(.*_)?(week_?day|day_of_(the_)?week|dow)"),
        Standard("months", "Months of the year by English name or number", "May", _CALENDAR, _find_month,
                 lambda: MONTHS, ordered=True, called=r"(.*_)?month", telling=r"[A-Za-z]{3,9}"),
        Standard("ages", "Ages in years, 90 or more as one", "39",
                 "45 CFR 164.514(b)(2)(i)(C): ages over 89 as one group (public domain)", called=r"(.*_)?age",
                 make=lambda widths: Spec("intervals", {"widths": tuple(map(int, widths)), "top": 90})),
        Standard("incomes", "Amounts of money", "41250", "Widths in common use",
                 make=lambda widths: Spec("intervals", {"widths": tuple(map(int, widths))})),
        Standard("dates", "Dates", "2024-05-17", _CALENDAR, make=_make_dates),
        Standard("times", "Dates with a time", "2024-05-17 08:30", _CALENDAR, make=_make_dates),
        Standard("seasons", "Dates whose year is forgotten", "2024-05-17", _CALENDAR, make=_make_dates),
        Standard("coordinates", "Latitude or longitude in degrees, by decimals kept", "59.9139",
                 "One degree of latitude is about 111 km", called=r"(.*_)?(lat(itude)?|lon(gitude)?|lng)",
                 make=lambda digits: Spec("coordinates", {"digits": tuple(map(int, digits))})),
    )
}  # fmt: skip
"""Every standard by name; names and levels are those of the policy's grammar."""


def list_groups(standard: Standard) -> tuple[tuple[str, ...], ...]:
    """Every group of a standard as a path from the finest level it lists to the coarsest, in the standard's order.

    >>> list_groups(STANDARDS["weekdays"])
    (('working day',), ('weekend',))
    """
    found = [what for value in standard.known() if standard.find and (what := standard.find(value)) is not None]
    return tuple(dict.fromkeys(groups for _, groups in sorted(found)))


def find_standard(name: str) -> Standard:
    """A standard by name, or a refusal that names the nearest."""
    if name not in STANDARDS:
        raise ParameterError(
            f"There is no standard '{name}'", expected=f"One of {', '.join(STANDARDS)}", remedy=nearest(name, STANDARDS)
        )
    return STANDARDS[name]


def choose_levels(standard: Standard, chosen: tuple[str, ...]) -> tuple[str, ...]:
    """The levels of a standard that a policy names, fine to coarse; all of them where it names none."""
    wrong = [level for level in chosen if level not in standard.levels]
    ordered = tuple(level for level in standard.levels if level in chosen)
    if wrong or ordered != chosen:
        told = f"has no level '{wrong[0]}'" if wrong else "has these levels in another order"
        raise ParameterError(
            f"The standard '{standard.name}' {told}", expected=f"From fine to coarse: {', '.join(standard.levels)}"
        )
    return chosen or standard.levels


def expand_standard(spec: Spec) -> Spec:
    """A standard that is a name for a hierarchy of another kind, in that kind's words; others as they are.

    >>> expand_standard(Spec("standard", {"name": "ages"})).options["widths"]
    (5, 10, 20)
    """
    if spec.kind != "standard":
        return spec
    rest = dict(spec.options)
    standard = find_standard(str(rest.pop("name")))
    if standard.make is None:
        return spec
    levels = choose_levels(standard, tuple(map(str, rest.pop("levels", None) or ())))  # type: ignore[call-overload]
    if rest.pop("other", None):
        raise ParameterError(
            f"The standard '{standard.name}' has no group '{OTHER}'", remedy="Leave out other, or set cells to missing"
        )
    made = standard.make(levels)
    return Spec(made.kind, {**made.options, **{name: value for name, value in rest.items() if value is not None}})


@dataclass(frozen=True, slots=True)
class Classification:
    """Values in the groups of a standard, over those values that there are."""

    name: str
    levels: tuple[str, ...] = ()
    other: bool = False

    def __post_init__(self) -> None:
        choose_levels(find_standard(self.name), self.levels)

    def hierarchy(self, column: str, values: pa.Array) -> Hierarchy:
        """The hierarchy over these distinct values, in the order of the standard."""
        standard = find_standard(self.name)
        fits, misfits = look_up(standard, values.drop_null())
        if misfits and not self.other:
            raise _refuse_misfits(standard, column)
        leaves = [*fits, *misfits]
        wanted = choose_levels(standard, self.levels)
        groups = [*fits.values(), *((OTHER,) * len(standard.levels) for _ in misfits)]
        places = [n for n, level in enumerate(standard.levels) if level in wanted]
        levels = [group_by_label([group[n] for group in groups]) for n in places]
        return build_hierarchy(column, leaves, [group_by_label(leaves), *levels], ordered=standard.ordered)


def look_up(standard: Standard, values: pa.Array) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """The groups of every value that the standard has, in its order, and the values that it does not have."""
    if standard.find is None:
        raise ParameterError(f"The standard '{standard.name}' is a name for another kind", remedy="Expand it first")
    lost = 0 if _is_text(values.type) else standard.digits
    found = {text: standard.find(text.zfill(lost)) for text in text_of(values)}
    fits = sorted((what[0], text, what[1]) for text, what in found.items() if what is not None)
    return {text: groups for _, text, groups in fits}, sorted(text for text, what in found.items() if what is None)


def _refuse_misfits(standard: Standard, column: str) -> DataError:
    return DataError(
        f"Values of column '{column}' are not in the standard '{standard.name}' ({standard.title})",
        expected=f"Values such as {standard.example}",
        remedy=f"Set those cells to missing, or declare {{standard: {{name: {standard.name}, other: true}}}}, "
        f"which makes them one group '{OTHER}'",
        column=column,
    )


FEWEST = 3
"""So many distinct values must fit before a standard is suggested for what they look like."""
MOST_FIT = 0.95
"""The share of distinct values that must fit where the column's name speaks for a standard; the rest are 'other'."""
MOST_CODES = 200_000
"""A column with more distinct values is none of codes."""


def suggest_hierarchy(values: pa.Array, name: str = "") -> Spec | None:
    """The standard that a column's distinct values fit, or None.

    The column's name, where it is given, may speak for a standard (`diag_1`, `zip`); then nearly all values must fit,
    or, for ages and coordinates, be numbers. Without such a name all values must fit and look like nothing else.

    >>> suggest_hierarchy(pa.array(["E11.9", "I10.0", "J45.1"])).options["name"]
    'icd10'
    """
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode().unique()
    values = values.drop_null()
    if len(values) > MOST_CODES and not pa.types.is_floating(values.type):
        return None
    words = re.sub(r"[^a-z0-9]+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()).strip("_")
    named = [s for s in STANDARDS.values() if s.called and re.fullmatch(s.called, words) and not _COUNTS.match(words)]
    suggested = [spec for s in named if (spec := _try_named(s, values)) is not None]
    looks = [Spec("standard", {"name": s.name}) for s in STANDARDS.values() if s.telling and _looks_like(s, values)]
    return suggested[0] if suggested else looks[0] if len(looks) == 1 else None


def _try_named(standard: Standard, values: pa.Array) -> Spec | None:
    spec, kind = Spec("standard", {"name": standard.name}), values.type
    if standard.find is None:
        return spec if pa.types.is_floating(kind) or (pa.types.is_integer(kind) and standard.name == "ages") else None
    if not _is_text(kind) and not pa.types.is_integer(kind) and not pa.types.is_floating(kind):
        return None
    fits, misfits = look_up(standard, values)
    if len(fits) < FEWEST or len(fits) < MOST_FIT * len(values):
        return None
    return Spec("standard", {**spec.options, "other": True}) if misfits else spec


def _looks_like(standard: Standard, values: pa.Array) -> bool:
    if len(values) < FEWEST or not _is_text(values.type):
        return False
    pattern = re.compile(standard.telling)
    return all(pattern.fullmatch(v.as_py().strip()) for v in values) and not look_up(standard, values)[1]


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
