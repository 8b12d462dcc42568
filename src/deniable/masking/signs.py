"""The signs by which kinds of columns are known: words in the name, and tests of the values.

A sign is evidence, not proof: each carries a weight, the probability that a column showing it is of the kind, as judged
on tables whose kinds are known. `detect.py` combines them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date

from deniable.masking import checksums, lexicon
from deniable.masking.profile import Profile

Test = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class NameSign:
    """Words in a column's name that speak for a kind; `fits` says which columns can be of it at all."""

    kind: str
    words: re.Pattern[str]
    weight: float
    fits: Callable[[Profile], bool]


@dataclass(frozen=True, slots=True)
class ValueSign:
    """A test of values that speaks for a kind when at least `share` of the distinct values pass."""

    kind: str
    evidence: str
    test: Test
    share: float
    weight: float
    fits: Callable[[Profile], bool]


def text(p: Profile) -> bool:
    """Text columns."""
    return p.textual


def text_or_whole(p: Profile) -> bool:
    """Text or whole numbers: where identifiers live."""
    return p.textual or p.whole


def several(p: Profile) -> bool:
    """Text with enough different values that they can tell people apart."""
    return p.textual and p.distinct >= 10


def number(p: Profile) -> bool:
    """Numbers."""
    return p.numeric


def dated(p: Profile) -> bool:
    """Dates, timestamps, or text in which dates are written."""
    return p.dated or (p.textual and share(p, date_like) >= 0.9)


def anything(_: Profile) -> bool:
    """Every column."""
    return True


def share(p: Profile, test: Test) -> float:
    """The share of the distinct values looked at that pass a test."""
    return sum(map(test, p.values)) / len(p.values) if p.values else 0.0


def _full(pattern: str) -> Test:
    compiled = re.compile(pattern)
    return lambda value: compiled.fullmatch(value.strip()) is not None


email = _full(r"[\w.+%'-]+@[\w-]+(\.[\w-]+)+")
url = _full(r"(?i)(https?://|ftp://|www\.)\S+")
ip = _full(r"((25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(25[0-5]|2[0-4]\d|1?\d?\d)|([0-9a-fA-F]{1,4}:){4,7}[0-9a-fA-F:]{1,4}")
mac = _full(r"([0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}")
us_phone = _full(r"(\+?1[ .-]?)?(\(\d{3}\) ?|\d{3}[ .-])\d{3}[ .-]\d{4}(\s*(x|ext\.?)\s*\d+)?")
world_phone = _full(r"\+\d{1,3}[ .-]?(\(?\d{1,4}\)?[ .-]?){2,5}\d{2,4}")
zip_code = _full(r"\d{5}(-\d{4})?")
world_postcode = _full(r"[A-Z]{1,2}\d[A-Z\d]? ?\d[A-Z]{2}|[A-Z]\d[A-Z] ?\d[A-Z]\d")
ssn_written = _full(r"(?!000|666|9\d\d)\d{3}-(?!00)\d{2}-(?!0000)\d{4}")
uuid = _full(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
picture = _full(r"(?i).+\.(jpe?g|png|tiff?|dcm|gif|bmp)")
_ISO = re.compile(r"(\d{4})-(\d{2})-(\d{2})([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?")
_SLASHED = re.compile(r"(\d{1,2})[/.](\d{1,2})[/.](\d{4}|\d{2})")
_ADDRESS = re.compile(
    r"(?i)^\s*(p\.?\s*o\.?\s*box\s+\d+|\d+\w?(-\d+)?\s+\S.*|.+\s\d+\w?)$",
)
_WORD = re.compile(r"[^\W\d_]+(?:['\u2019-][^\W\d_]+)*")


def date_like(value: str) -> bool:
    """Written as a date, though perhaps with a mistake in it (a thirteenth month)."""
    return _ISO.fullmatch(value.strip()) is not None or _SLASHED.fullmatch(value.strip()) is not None


def iso_date(value: str) -> bool:
    """A calendar date, ISO or with slashes or dots."""
    found = _ISO.fullmatch(value.strip())
    if found:
        try:
            date(int(found[1]), int(found[2]), int(found[3]))
        except ValueError:
            return False
        return True
    other = _SLASHED.fullmatch(value.strip())
    return other is not None and 1 <= int(other[1]) <= 31 and 1 <= int(other[2]) <= 31


def street(value: str) -> bool:
    """A number beside a word of streets and buildings."""
    words = {word.lower().rstrip(".") for word in value.replace(",", " ").replace(".", " ").split()}
    return bool(_ADDRESS.match(value)) and not words.isdisjoint(lexicon.STREET_WORDS)


def given_name(value: str) -> bool:
    """One of the common given names, perhaps with an initial or a second one."""
    first = _WORD.findall(value.lower())
    return bool(first) and len(first) <= 2 and first[0] in lexicon.folded("given_names")


def surname(value: str) -> bool:
    """One of the common surnames, perhaps doubled or with Jr."""
    parts = _WORD.findall(value.lower().replace("-", " "))
    return 1 <= len(parts) <= 2 and parts[0] in lexicon.folded("surnames")


def full_name(value: str) -> bool:
    """A given name and a surname in either order, with at most three words more."""
    parts = [part for part in _WORD.findall(value.lower()) if len(part) > 1]
    if not 2 <= len(parts) <= 5 or any(sign.isdigit() for sign in value):
        return False
    given, last = lexicon.folded("given_names"), lexicon.folded("surnames")
    return (parts[0] in given and (parts[-1] in last or len(parts) == 2)) or (parts[0] in last and parts[1] in given)


def city(value: str) -> bool:
    """One of the larger cities."""
    return value.strip().lower() in lexicon.folded("cities")


def _name(kind: str, words: str, weight: float, fits: Callable[[Profile], bool]) -> NameSign:
    return NameSign(kind, re.compile(rf"\b(?:{words})\b"), weight, fits)


NAME_SIGNS = (
    _name(
        "given name",
        r"first ?names?|fore ?names?|given ?names?|middle ?names?|fname|vorname|prenom|" r"nombre",
        0.9,
        several,
    ),
    _name(
        "surname",
        r"last ?names?|sur ?names?|family ?names?|lname|maiden ?name|nachname|apellidos?|" r"nom de famille",
        0.9,
        several,
    ),
    _name(
        "name",
        r"(full|person|patient|customer|employee|contact|display|official|user) ?(full ?)?names?|"
        r"name (full|official)",
        0.8,
        several,
    ),
    _name("name", r"names?|official full", 0.4, several),
    _name("birth date", r"birth ?(date|day)?|birthday|dob|date of birth|born|geburtsdatum", 0.9, dated),
    _name(
        "date",
        r"dates?|day|time|timestamp|(admi|discharge|death|start|end|begin|visit|hire)\w*( ?(date|"
        r"on|at))?|\w* (at|on)",
        0.6,
        dated,
    ),
    _name("age", r"ages?|age (years?|yrs?|at \w+)", 0.8, number),
    _name("telephone", r"(tele)?phones?( (number|no|nr))?|tel|mobile|cell( ?phone)?|telefon", 0.8, text_or_whole),
    _name("fax", r"fax(es)?( (number|no))?", 0.9, text_or_whole),
    _name("e-mail", r"e ?mails?( address)?", 0.8, text),
    _name(
        "street address",
        r"(street|home|postal|mailing|work|office)? ?addr(ess)?( ?(line)? ?\d)?|street|building",
        0.6,
        several,
    ),
    _name("city", r"city|town|municipality|village|place of birth|birth ?place", 0.6, text),
    _name("county or district", r"county|district|precinct|parish|census (tract|block)|puma", 0.5, anything),
    _name("postal code", r"zip ?(code)?\d?|postal ?code|post ?code|plz", 0.8, text_or_whole),
    _name("coordinate", r"lat(itude)?|lon(g|gitude)?|lng|geo(location|point)?|coordinates?", 0.7, anything),
    _name("social security number", r"ssn|social security( (number|no))?", 0.8, text_or_whole),
    _name(
        "national id",
        r"national id( (number|no))?|passport( (number|no))?|tax id|nhs( (number|no))?|"
        r"nino|bsn|dni|cpf|pesel|aadhaar",
        0.8,
        text_or_whole,
    ),
    _name(
        "medical record number",
        r"mrn|(medical )?record (number|no)|patient (number|no|nbr|nr)|encounter id|" r"chart (number|no)",
        0.8,
        text_or_whole,
    ),
    _name(
        "health plan number",
        r"(health )?plan (id|number|no)|beneficiary( \w+)?|member (id|number|no)|insurance (id|"
        r"number|no)|policy (number|no)",
        0.7,
        text_or_whole,
    ),
    _name("account number", r"account( (number|no|id))?|acct( (no|number|id))?", 0.6, text_or_whole),
    _name("card number", r"(credit |debit )?card (number|no)|pan|cc (number|no)|credit card", 0.8, text_or_whole),
    _name("bank account", r"iban|bank account|sort code", 0.8, text),
    _name(
        "license number",
        r"(driv\w* )?licen[sc]e( (number|no|id))?|certificate (number|no)|npi|dea (number|" r"no)",
        0.7,
        text_or_whole,
    ),
    _name("vehicle identifier", r"vin|vehicle (id|number)|(license )?plate( (number|no))?|tail ?num(ber)?", 0.8, text),
    _name(
        "device identifier",
        r"device (id|serial|identifier)|serial (number|no)|imei|imsi|mac( address)?|" r"udi",
        0.8,
        text_or_whole,
    ),
    _name("url", r"urls?|web ?(site|page|address)|home ?page|link", 0.6, text),
    _name("ip address", r"ip( ?addr(ess)?)?", 0.6, text),
    _name(
        "biometric",
        r"finger ?prints?|voice ?prints?|retina|iris (scan|code)|face (id|template)|" r"biometric\w*",
        0.8,
        anything,
    ),
    _name("photograph", r"photo(graph)?s?|picture|portrait|head ?shot|image", 0.6, anything),
    _name(
        "demographic",
        r"sex|gender|race|ethnic\w*|religion|nationality|citizenship|marital( status)?|native country|mother tongue",
        0.6,
        anything,
    ),
    _name("free text", r"notes?|comments?|remarks?|narrative|free ?text|description|memo", 0.3, several),
)
"""What names say."""

VALUE_SIGNS = (
    ValueSign("e-mail", "values are e-mail addresses", email, 0.8, 0.98, text),
    ValueSign("url", "values are web addresses", url, 0.8, 0.98, text),
    ValueSign("ip address", "values are IP addresses", ip, 0.9, 0.95, text),
    ValueSign("device identifier", "values are MAC addresses", mac, 0.9, 0.95, text),
    ValueSign("telephone", "values are telephone numbers", us_phone, 0.8, 0.95, text),
    ValueSign("telephone", "values are international telephone numbers", world_phone, 0.8, 0.9, text),
    ValueSign("social security number", "values are social security numbers", ssn_written, 0.9, 0.95, text),
    ValueSign("card number", "card check digits fit", checksums.card, 0.9, 0.95, text_or_whole),
    ValueSign("bank account", "IBAN check digits fit", checksums.iban, 0.9, 0.98, text),
    ValueSign("vehicle identifier", "VIN check digits fit", checksums.vin, 0.9, 0.95, text),
    ValueSign("street address", "numbers beside words of streets", street, 0.5, 0.8, several),
    ValueSign("given name", "values are common given names", given_name, 0.6, 0.6, several),
    ValueSign("surname", "values are common surnames", surname, 0.5, 0.6, several),
    ValueSign("name", "values are given names with surnames", full_name, 0.5, 0.8, several),
    ValueSign("city", "values are names of cities", city, 0.5, 0.7, several),
    ValueSign("postal code", "values are five or nine digits", zip_code, 0.95, 0.3, text),
    ValueSign("postal code", "values are postcodes", world_postcode, 0.9, 0.9, text),
    ValueSign("photograph", "values are names of picture files", picture, 0.9, 0.8, text),
    ValueSign("record id", "values are UUIDs", uuid, 0.95, 0.95, text),
    *(
        ValueSign("national id", f"check digits of {known.name} fit", known.test, 0.95, 1 - known.chance, text_or_whole)
        for known in checksums.NATIONAL
    ),
)
