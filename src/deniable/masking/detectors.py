"""Detectors: how a kind of column is recognized, by words in its name and by tests of its values.

A detector gives evidence, not proof: each carries a weight, the probability that a column showing it is of the kind,
as judged on tables whose kinds are known; `identifiers.py` combines them. A column is seen through its profile:
distinct values, counts and shapes. A profile holds values, so it never leaves this package: findings carry shares and
names only."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property
from unicodedata import normalize

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deniable.masking import checksums, columns, lexicon

Test = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class NameDetector:
    """Words in a column's name that speak for a kind; `fits` says which columns can be of it at all."""

    kind: str
    words: re.Pattern[str]
    weight: float
    fits: Callable[[Profile], bool]


@dataclass(frozen=True, slots=True)
class ValueDetector:
    """A test of values that speaks for a kind when at least `measure_share` of the distinct values pass."""

    kind: str
    evidence: str
    test: Test
    share: float
    weight: float
    fits: Callable[[Profile], bool]
    few: bool = False
    """Whether a handful of different values is enough."""


def is_textual(p: Profile) -> bool:
    """Text columns."""
    return p.textual


def is_textual_or_whole(p: Profile) -> bool:
    """Text or whole numbers: where identifiers live."""
    return p.textual or p.whole


def holds_more_than_words(p: Profile) -> bool:
    """Text with several values of which fewer than half are ordinary words: colors are surnames, too."""
    return has_several_values(p) and measure_share(p, is_ordinary_word) < 0.5


def has_several_values(p: Profile) -> bool:
    """Text with enough different values that they can tell people apart."""
    return p.textual and p.distinct >= 10


def is_repeated_text(p: Profile) -> bool:
    """Text with several values that most people share with others."""
    return has_several_values(p) and p.ratio < 0.5


def is_numeric(p: Profile) -> bool:
    """Numbers, also where text writes them beside markers of missing ones, and brackets of numbers."""
    return p.numeric or (p.textual and measure_share(p, number) >= 0.9)


MISSING = frozenset(
    ("", "?", "-", "--", ".", "*", "n", "na", "n/a", "n.a.", "<na>", "#n/a", "nan", "nil", "none", "null", "unknown",
     "missing", "refused", "not known", "not stated", "not applicable", "-9", "-99", "-999")
)  # fmt: skip
"""How files write that a value is missing, in lower case."""


def is_missing(value: str) -> bool:
    """Written as if nothing was known."""
    return value.strip().lower() in MISSING


def is_dated(p: Profile) -> bool:
    """Dates, timestamps, or text in which dates are written."""
    return p.dated or (p.textual and measure_share(p, is_date_like) >= 0.9)


def is_any_column(_: Profile) -> bool:
    """Every column."""
    return True


def measure_share(p: Profile, test: Test, least: float = 0.0) -> float:
    """The share of the distinct values looked at that pass a test; markers of missing ones are not looked at.

    A share that cannot reach the least asked for is 0: most columns fail most tests with their first values.
    """
    bearable = (1 - least) * len(p.present) + 1e-9
    passed = failed = 0
    for value in p.present:
        if test(value):
            passed += 1
        else:
            failed += 1
            if failed > bearable:
                return 0.0
    return passed / len(p.present) if p.present else 0.0


def _match_whole(pattern: str) -> Test:
    compiled = re.compile(pattern)
    return lambda value: compiled.fullmatch(value.strip()) is not None


email = _match_whole(r"[\w.+%'-]+@[\w-]+(\.[\w-]+)+")
url = _match_whole(r"(?i)(https?://|ftp://|www\.)\S+")
ip = _match_whole(
    r"((25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(25[0-5]|2[0-4]\d|1?\d?\d)|([0-9a-fA-F]{1,4}:){4,7}[0-9a-fA-F:]{1,4}"
)
mac = _match_whole(r"([0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}")
us_phone = _match_whole(r"(\+?1[ .-]?)?(\(\d{3}\) ?|\d{3}[ .-])\d{3}[ .-]\d{4}(\s*(x|ext\.?)\s*\d+)?")
world_phone = _match_whole(r"\+\d{1,3}[ .-]?(\(?\d{1,4}\)?[ .-]?){2,5}\d{2,4}")
number = _match_whole(
    r"(?i)([-+]?\d+(\.\d+)?|[\[(]?\d{1,3} ?(-|\u2013|,|to) ?\d{1,3}[)\]]?|\d+ ?\+|\d+s"
    r"|([<>]=?|under|over|below|above|less than) ?\d+)( ?(y|yrs?|years?)( old)?)?(,? (and|or) (over|older|above|more))?"
)
diagnosis = _match_whole(r"\d{1,3}(\.\d{1,2})?|[VE]\d{2,3}(\.\d{1,2})?|[A-TV-Z]\d[0-9A-Z](\.[0-9A-Z]{1,4})?")
zip_code = _match_whole(r"\d{5}(-\d{4})?")
long_zip_code = _match_whole(r"\d{5}-\d{4}")
world_postcode = _match_whole(r"[A-Z]{1,2}\d[A-Z\d]? ?\d[A-Z]{2}|[A-Z]\d[A-Z] ?\d[A-Z]\d")
ssn_written = _match_whole(r"(?!000|666|9\d\d)\d{3}-(?!00)\d{2}-(?!0000)\d{4}")
uuid = _match_whole(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
picture = _match_whole(r"(?i).+\.(jpe?g|png|tiff?|dcm|gif|bmp)")
_ISO = re.compile(r"(\d{4})-(\d{2})-(\d{2})([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?")
_SLASHED = re.compile(r"(\d{1,2})[/.](\d{1,2})[/.](\d{4}|\d{2})")
_WORDED = re.compile(rf"\d{{1,2}}\.?[ -](?:{lexicon.MONTHS}|{lexicon.FOREIGN_MONTHS})\.?[ -](?:\d{{4}}|\d\d)")
_COMPACT = re.compile(r"(?:19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])")
_ADDRESS = re.compile(
    r"(?i)^\s*(p\.?\s*o\.?\s*box\s+\d+|\d+\w?(-\d+)?\s+\S.*|.+\s\d+\w?)$",
)
_WORD = re.compile(r"[^\W\d_]+(?:['\u2019-][^\W\d_]+)*")


def is_date_like(value: str) -> bool:
    """Written as a date, though perhaps with a mistake in it (a thirteenth month)."""
    return any(form.fullmatch(value.strip()) for form in (_ISO, _SLASHED, _WORDED, _COMPACT))


def is_street(value: str) -> bool:
    """A number beside a word of streets and buildings."""
    words = {word.lower().rstrip(".") for word in value.replace(",", " ").replace(".", " ").split()}
    return bool(_ADDRESS.match(value)) and not words.isdisjoint(lexicon.STREET_WORDS)


@cache
def _list_names(common: str, world: str) -> frozenset[str]:
    return lexicon.fold_words(common) | lexicon.fold_world(world)


def is_given_name(value: str) -> bool:
    """One of the common given names, perhaps with an initial or a second one."""
    first = _WORD.findall(value.lower())
    return bool(first) and len(first) <= 2 and first[0] in _list_names("given_names", "g")


def is_surname(value: str) -> bool:
    """One of the common surnames, perhaps doubled or with Jr."""
    parts = _WORD.findall(value.lower().replace("-", " "))
    return 1 <= len(parts) <= 2 and parts[0] in _list_names("surnames", "s")


def is_ordinary_word(value: str) -> bool:
    """One of the ordinary words, as it stands."""
    return value.strip().lower() in lexicon.fold_words("common")


def is_full_name(value: str) -> bool:
    """A given name and a surname in either order, with at most three words more."""
    parts = [part for part in _WORD.findall(value.lower()) if len(part) > 1]
    if not 2 <= len(parts) <= 5 or any(sign.isdigit() for sign in value):
        return False
    given, last = _list_names("given_names", "g"), _list_names("surnames", "s")
    return (parts[0] in given and (parts[-1] in last or len(parts) == 2)) or (parts[0] in last and parts[1] in given)


SEXES = frozenset(
    ("m", "f", "male", "female", "man", "woman", "other", "x", "unknown/invalid", "w", "d", "mann", "frau", "weiblich",
     "m\u00e4nnlich", "maennlich", "divers", "homme", "femme", "masculin", "f\u00e9minin", "hombre", "mujer", "varon",
     "var\u00f3n", "masculino", "femenino", "feminino", "maschio", "femmina", "uomo", "donna", "vrouw", "kvinna",
     "kvinde", "kvinne", "mies", "nainen", "kobieta", "m\u0119\u017cczyzna", "homem", "mulher", "erkek", "kad\u0131n")
)  # fmt: skip
"""Words for sexes in tables of several languages, in lower case."""


def is_sex(value: str) -> bool:
    """A word for a sex."""
    return value.strip().lower() in SEXES


def is_country(value: str) -> bool:
    """The name of a country, in any of the usual ways to write spaces."""
    return value.strip().lower().replace("-", " ").replace("_", " ") in lexicon.fold_words("countries")


def has_diagnoses(p: Profile) -> bool:
    """Text with many values of which some are written as no plain number is: with a letter, or with decimals."""
    written = [value for value in p.present if "." in value or value[:1].isalpha()]
    lettered = [value for value in written if value[:1].isalpha()]
    return p.textual and p.distinct >= 30 and len(written) >= 0.05 * len(p.present) and bool(lettered)


def is_city(value: str) -> bool:
    """One of the larger cities."""
    return value.strip().lower() in lexicon.fold_words("cities")


def _detect_by_name(kind: str, words: str, weight: float, fits: Callable[[Profile], bool]) -> NameDetector:
    return NameDetector(kind, re.compile(rf"\b(?:{words})\b"), weight, fits)


NAME_DETECTORS = (
    _detect_by_name(
        "given name",
        r"first ?names?|fore ?names?|given ?names?|middle ?names?|fname|vorname|prenom|" r"nombre",
        0.9,
        has_several_values,
    ),
    _detect_by_name(
        "surname",
        r"last ?names?|sur ?names?|family ?names?|lname|maiden ?name|nachname|apellidos?|" r"nom de famille",
        0.9,
        has_several_values,
    ),
    _detect_by_name(
        "name",
        r"(full|person|patient|customer|employee|contact|display|official|user) ?(full ?)?names?|"
        r"name (full|official)",
        0.8,
        has_several_values,
    ),
    _detect_by_name("name", r"names?|official full", 0.4, has_several_values),
    _detect_by_name("birth date", r"birth ?(date|day)?|birthday|dob|date of birth|born|geburtsdatum", 0.9, is_dated),
    _detect_by_name(
        "date",
        r"dates?|day|time|timestamp|(admi|discharge|death|start|end|begin|visit|hire)\w*( ?(date|"
        r"on|at))?|\w* (at|on)",
        0.6,
        is_dated,
    ),
    _detect_by_name(
        "age",
        r"ages?\d?|agep|age ?(in )?(years?|yrs?|at \w+)|years? old|ridageyr|alter|edad|eta|idade|leeftijd|alder|wiek",
        0.8,
        is_numeric,
    ),
    _detect_by_name(
        "telephone", r"(tele)?phones?( (number|no|nr))?|tel|mobile|cell( ?phone)?|telefon", 0.8, is_textual_or_whole
    ),
    _detect_by_name("fax", r"fax(es)?( (number|no))?", 0.9, is_textual_or_whole),
    _detect_by_name("e-mail", r"e ?mails?( address)?", 0.8, is_textual),
    _detect_by_name(
        "street address",
        r"(street|home|postal|mailing|work|office)? ?addr(ess)?( ?(line)? ?\d)?|street|building",
        0.6,
        has_several_values,
    ),
    _detect_by_name("city", r"city|town|municipality|village|place of birth|birth ?place", 0.6, is_textual),
    _detect_by_name(
        "county or district", r"county|district|precinct|parish|census (tract|block)|puma", 0.5, is_any_column
    ),
    _detect_by_name("postal code", r"zip ?(code)?\d?|postal ?code|post ?code|plz", 0.8, is_textual_or_whole),
    _detect_by_name(
        "coordinate", r"lat(itude)?|lon(g|gitude)?|lng|geo(location|point)?|coordinates?", 0.7, is_any_column
    ),
    _detect_by_name("social security number", r"ssn|social security( (number|no))?", 0.8, is_textual_or_whole),
    _detect_by_name(
        "national id",
        r"national id( (number|no))?|passport( (number|no))?|tax id|nhs( (number|no))?|"
        r"nino|bsn|dni|cpf|pesel|aadhaar",
        0.8,
        is_textual_or_whole,
    ),
    _detect_by_name(
        "medical record number",
        r"mrn|(medical )?record (number|no)|patient (number|no|nbr|nr)|encounter id|" r"chart (number|no)",
        0.8,
        is_textual_or_whole,
    ),
    _detect_by_name(
        "health plan number",
        r"(health )?plan (id|number|no)|beneficiary( \w+)?|member (id|number|no)|insurance (id|"
        r"number|no)|policy (number|no)",
        0.7,
        is_textual_or_whole,
    ),
    _detect_by_name("account number", r"account( (number|no|id))?|acct( (no|number|id))?", 0.6, is_textual_or_whole),
    _detect_by_name(
        "card number", r"(credit |debit )?card (number|no)|pan|cc (number|no)|credit card", 0.8, is_textual_or_whole
    ),
    _detect_by_name("bank account", r"iban|bank account|sort code", 0.8, is_textual),
    _detect_by_name(
        "license number",
        r"(driv\w* )?licen[sc]e( (number|no|id))?|certificate (number|no)|npi|dea (number|" r"no)",
        0.7,
        is_textual_or_whole,
    ),
    _detect_by_name(
        "vehicle identifier",
        r"vin|vehicle (id|number)|(license )?plate( (number|no))?|tail ?num(ber)?",
        0.8,
        is_textual,
    ),
    _detect_by_name(
        "device identifier",
        r"device (id|serial|identifier)|serial (number|no)|imei|imsi|mac( address)?|" r"udi",
        0.8,
        is_textual_or_whole,
    ),
    _detect_by_name("url", r"urls?|web ?(site|page|address)|home ?page|link", 0.6, is_textual),
    _detect_by_name("ip address", r"ip( ?addr(ess)?)?", 0.6, is_textual),
    _detect_by_name(
        "biometric",
        r"finger ?prints?|voice ?prints?|retina|iris (scan|code)|face (id|template)|" r"biometric\w*",
        0.8,
        is_any_column,
    ),
    _detect_by_name("photograph", r"photo(graph)?s?|picture|portrait|head ?shot|image", 0.6, is_any_column),
    _detect_by_name(
        "demographic",
        r"sex|gender|race|rac ?\d? ?p|ethnic\w*|hisp(anic)?|religion|nationality|citizenship|marital( status)?|"
        r"native country|country of birth|mother tongue",
        0.6,
        is_any_column,
    ),
    _detect_by_name(
        "free text", r"notes?|comments?|remarks?|narrative|free ?text|description|memo", 0.3, has_several_values
    ),
)
"""What names say."""

VALUE_DETECTORS = (
    ValueDetector("e-mail", "values are e-mail addresses", email, 0.8, 0.98, is_textual),
    ValueDetector("url", "values are web addresses", url, 0.8, 0.98, is_textual),
    ValueDetector("ip address", "values are IP addresses", ip, 0.9, 0.95, is_textual),
    ValueDetector("device identifier", "values are MAC addresses", mac, 0.9, 0.95, is_textual),
    ValueDetector("telephone", "values are telephone numbers", us_phone, 0.8, 0.95, is_textual),
    ValueDetector("telephone", "values are international telephone numbers", world_phone, 0.8, 0.9, is_textual),
    ValueDetector("social security number", "values are social security numbers", ssn_written, 0.9, 0.95, is_textual),
    ValueDetector("card number", "card check digits fit", checksums.is_card, 0.9, 0.95, is_textual_or_whole),
    ValueDetector("bank account", "IBAN check digits fit", checksums.is_iban, 0.9, 0.98, is_textual),
    ValueDetector("license number", "NPI check digits fit", checksums.is_us_npi, 0.95, 0.9, is_textual_or_whole),
    ValueDetector("vehicle identifier", "VIN check digits fit", checksums.is_vin, 0.9, 0.95, is_textual),
    ValueDetector("street address", "numbers beside words of streets", is_street, 0.5, 0.8, has_several_values),
    ValueDetector("given name", "values are common given names", is_given_name, 0.6, 0.6, has_several_values),
    ValueDetector("surname", "values are common surnames", is_surname, 0.5, 0.6, holds_more_than_words),
    ValueDetector("name", "values are given names with surnames", is_full_name, 0.5, 0.8, has_several_values),
    ValueDetector("city", "values are names of cities", is_city, 0.5, 0.7, has_several_values),
    ValueDetector("demographic", "values are names of countries", is_country, 0.6, 0.6, has_several_values),
    ValueDetector("demographic", "values are words for sexes", is_sex, 1.0, 0.6, is_textual, few=True),
    ValueDetector("diagnosis", "values are written as codes of diagnoses", diagnosis, 0.95, 0.7, has_diagnoses),
    ValueDetector("postal code", "values are five or nine digits", zip_code, 0.95, 0.3, is_textual),
    ValueDetector("postal code", "values of five or nine digits repeat", zip_code, 0.95, 0.6, is_repeated_text),
    ValueDetector("postal code", "values are nine digits of a ZIP code", long_zip_code, 0.95, 0.8, is_textual),
    ValueDetector("postal code", "values are postcodes", world_postcode, 0.9, 0.9, is_textual),
    ValueDetector("photograph", "values are names of picture files", picture, 0.9, 0.8, is_textual),
    ValueDetector("record id", "values are UUIDs", uuid, 0.95, 0.95, is_textual),
    *(
        ValueDetector(
            "national id", f"check digits of {known.name} fit", known.test, 0.95, 1 - known.chance, is_textual_or_whole
        )
        for known in checksums.NATIONAL
    ),
)


LOOKED_AT = 2_000  # distinct values that are tested one by one
_DIGIT = re.compile(r"\d")
_LOWER = re.compile(r"[^\W\d_]+")
_WHOLE = re.compile(r"-?\d+")


@dataclass(frozen=True)
class Profile:
    """One column of a sample."""

    name: str
    type: pa.DataType
    rows: int
    nulls: int
    distinct: int
    values: tuple[str, ...] = field(repr=False)
    middle: tuple[float, float] | None = field(default=None, repr=False)
    """Of a column of whole numbers, between which of them eight of ten rows lie."""

    @property
    def filled(self) -> int:
        """Rows that hold a value."""
        return self.rows - self.nulls

    @property
    def ratio(self) -> float:
        """Distinct values for each row that holds one."""
        return self.distinct / self.filled if self.filled else 0.0

    @cached_property
    def words(self) -> str:
        """The column's name as lower-case words: birthDate, BIRTH_DATE and birth-date become 'birth date'."""
        plain = normalize("NFKD", self.name).encode("ascii", "ignore").decode()  # prénom is prenom
        split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", plain)
        return re.sub(r"[^a-z0-9]+", " ", split.lower()).strip()

    @cached_property
    def present(self) -> tuple[str, ...]:
        """The distinct values looked at, without markers of missing ones; a number such as -9 may be a value."""
        return tuple(value for value in self.values if not is_missing(value)) if self.textual else self.values

    @property
    def textual(self) -> bool:
        """Whether the column is text."""
        return bool(pa.types.is_string(self.type) or pa.types.is_large_string(self.type))

    @cached_property
    def whole(self) -> bool:
        """Whether the column is whole numbers, of whichever type: a column with gaps is often stored as decimals."""
        return bool(pa.types.is_integer(self.type)) or (
            self.numeric and bool(self.values) and all(map(_WHOLE.fullmatch, self.values))
        )

    @property
    def numeric(self) -> bool:
        """Whether the column is numbers of any kind."""
        return bool(pa.types.is_integer(self.type) or pa.types.is_floating(self.type) or pa.types.is_decimal(self.type))

    @property
    def dated(self) -> bool:
        """Whether the column is dates or timestamps."""
        return bool(pa.types.is_date(self.type) or pa.types.is_timestamp(self.type))

    @cached_property
    def shape_share(self) -> tuple[str, float]:
        """The most frequent shape (digits as 9, words as A) and its share among the distinct values looked at."""
        shapes = Counter(_LOWER.sub("A", _DIGIT.sub("9", value)) for value in self.values)
        if not shapes:
            return "", 0.0
        shape, count = shapes.most_common(1)[0]
        return shape, count / len(self.values)

    @cached_property
    def mean_words(self) -> float:
        """Words in a value, on average."""
        return float(np.mean([len(value.split()) for value in self.values])) if self.values else 0.0


def profile_columns(sample: pa.Table) -> tuple[Profile, ...]:
    """The profile of every column."""
    return tuple(_profile_column(name, sample.column(name)) for name in sample.schema.names)


def _profile_column(name: str, column: pa.ChunkedArray) -> Profile:
    values = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    distinct = pc.unique(values.drop_null())
    if pa.types.is_floating(kind) and pa.types.is_floating(distinct.type):
        distinct = distinct.filter(pc.invert(pc.is_nan(distinct)))  # no number is no value
    step = max(1, len(distinct) // LOOKED_AT)
    looked = distinct.take(pa.array(np.arange(0, len(distinct), step)[:LOOKED_AT]))
    if _holds_whole_decimals(distinct):
        texts = tuple(str(int(value)) for value in looked.to_pylist())
    elif pa.types.is_floating(kind):
        texts = tuple(repr(value) for value in looked.to_pylist())
    else:
        texts = tuple(columns.as_text(looked).to_pylist())
    middle = None
    if pa.types.is_integer(kind) and pa.types.is_integer(values.type) and len(distinct):
        low, high = pc.quantile(values, [0.1, 0.9], interpolation="nearest").to_pylist()
        middle = float(low), float(high)
    return Profile(name, kind, len(values), values.null_count, len(distinct), texts, middle)


def _holds_whole_decimals(distinct: pa.Array) -> bool:
    """Whether numbers that may have decimals have none: 1007.0 and 1007.00 are the code 1007."""
    kind = distinct.type
    if not (pa.types.is_floating(kind) or pa.types.is_decimal(kind)) or not len(distinct):
        return False
    if pa.types.is_decimal(kind):
        return kind.scale <= 0 or all(value == int(value) for value in distinct.to_pylist())
    wide = distinct.cast(pa.float64())
    return bool(pc.all(pc.and_(pc.is_finite(wide), pc.equal(wide, pc.floor(wide)))).as_py())
