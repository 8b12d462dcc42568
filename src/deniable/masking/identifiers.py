"""Which columns identify people: the kinds there are, and the findings in a table. No language model, no network.

Each kind has its role in the eyes of an intruder and its place among the 18 of HIPAA: the letters are those of 45 CFR
164.514(b)(2)(i), (A) to (R). `safe` is the mask that the Safe Harbor rule allows for the kind, `usual` the one proposed
for a pseudonymized release in which tables must still join.

Detectors that agree strengthen each other as independent witnesses do: the confidence of a kind is one less the product
of what each leaves open. A column's finding is its strongest kind, if that is at least as likely as not."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass

import pyarrow as pa

from deniable.masking import detectors
from deniable.masking.detectors import Profile, profile_columns
from deniable.masking.text_search import search_kinds
from deniable.policy.schema import Role, Spec

KEY = "people"  # the key that drafted policies name


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of identifying content."""

    name: str
    letter: str
    role: Role
    usual: Spec | None
    safe: Spec | None


def _token() -> Spec:
    return Spec("token", {"key": KEY})


def _same_form() -> Spec:
    return Spec("format_preserving", {"key": KEY})


def _fake(kind: str) -> Spec:
    return Spec("fake", {"kind": kind, "key": KEY})


REDACT = Spec("redact")
NULLIFY = Spec("nullify")
YEAR = Spec("generalize", {"to": "year"})
ZIP3 = Spec("generalize", {"to": "zip3"})
OLD = Spec("generalize", {"to": "age_over_89"})
ID, QUASI, PLAIN = Role.IDENTIFIER, Role.QUASI_IDENTIFIER, Role.INSENSITIVE

KINDS = (
    Kind("name", "A", ID, _fake("name"), REDACT),
    Kind("given name", "A", ID, _fake("first_name"), REDACT),
    Kind("surname", "A", ID, _fake("last_name"), REDACT),
    Kind("street address", "B", ID, _fake("street"), REDACT),
    Kind("city", "B", QUASI, None, REDACT),
    Kind("postal code", "B", QUASI, ZIP3, ZIP3),
    Kind("coordinate", "B", QUASI, Spec("round", {"to": 1}), NULLIFY),
    Kind("county or district", "B", QUASI, None, REDACT),
    Kind("birth date", "C", QUASI, YEAR, YEAR),
    Kind("date", "C", QUASI, None, YEAR),
    Kind("age", "C", QUASI, OLD, OLD),
    Kind("telephone", "D", ID, _same_form(), REDACT),
    Kind("fax", "E", ID, _same_form(), REDACT),
    Kind("e-mail", "F", ID, _fake("email"), REDACT),
    Kind("social security number", "G", ID, _same_form(), REDACT),
    Kind("national id", "R", ID, _token(), REDACT),
    Kind("medical record number", "H", ID, _token(), REDACT),
    Kind("health plan number", "I", ID, _token(), REDACT),
    Kind("account number", "J", ID, _token(), REDACT),
    Kind("card number", "J", ID, _same_form(), REDACT),
    Kind("bank account", "J", ID, _token(), REDACT),
    Kind("license number", "K", ID, _token(), REDACT),
    Kind("vehicle identifier", "L", ID, _token(), REDACT),
    Kind("device identifier", "M", ID, _token(), REDACT),
    Kind("url", "N", ID, REDACT, REDACT),
    Kind("ip address", "O", ID, _token(), REDACT),
    Kind("biometric", "P", ID, NULLIFY, NULLIFY),
    Kind("photograph", "Q", ID, NULLIFY, NULLIFY),
    Kind("record id", "R", ID, _token(), REDACT),
    Kind("free text", "R", PLAIN, Spec("scrub"), REDACT),
    Kind("demographic", "", QUASI, None, None),  # no identifier of the rule, but what people are linked by
    Kind("diagnosis", "", Role.SENSITIVE, None, None),
)
BY_NAME = {kind.name: kind for kind in KINDS}


ENOUGH = 0.5
LEAST_TESTED = 5  # distinct values below which value tests say little


@dataclass(frozen=True, slots=True)
class Evidence:
    """One reason: what was seen, in how many of the values looked at (1 for names), and how much it weighs."""

    seen: str
    share: float
    weight: float

    def __str__(self) -> str:
        return self.seen if self.share == 1 else f"{self.seen} ({self.share:.0%})"


@dataclass(frozen=True, slots=True)
class Finding:
    """A column that identifies people, by itself or with others. No value of the column is in it."""

    column: str
    kind: str
    confidence: float
    evidence: tuple[Evidence, ...]

    @property
    def about(self) -> Kind:
        """The kind's role, HIPAA letter and masks."""
        return BY_NAME[self.kind]

    def as_dict(self) -> dict[str, object]:
        """The shape that is printed and saved."""
        return {
            "column": self.column,
            "kind": self.kind,
            "role": str(self.about.role),
            "hipaa": self.about.letter,
            "confidence": round(self.confidence, 3),
            "evidence": [str(one) for one in self.evidence],
        }


def detect(sample: pa.Table) -> tuple[Finding, ...]:
    """The findings of a sample, in the order of its columns."""
    found = (judge(profile) for profile in profile_columns(sample))
    return tuple(finding for finding in found if finding is not None)


def judge(profile: Profile) -> Finding | None:
    """The strongest kind that a column shows, or None."""
    if profile.filled == 0:
        return None
    gathered: dict[str, list[Evidence]] = defaultdict(list)
    for kind, evidence in [*_by_name(profile), *_by_values(profile), *_by_uniqueness(profile)]:
        gathered[kind].append(evidence)
    _resolve_conflicts(profile, gathered)
    if max(map(_confidence, gathered.values()), default=0) < ENOUGH:  # else the values as a whole are of a kind
        for kind, evidence in _by_contents(profile):
            gathered[kind].append(evidence)
    if not gathered:
        return None
    best = max(gathered, key=lambda kind: (_confidence(gathered[kind]), -_rank(kind)))
    confidence = _confidence(gathered[best])
    return Finding(profile.name, best, confidence, tuple(gathered[best])) if confidence >= ENOUGH else None


def _confidence(evidence: list[Evidence]) -> float:
    open_ = 1.0
    for one in evidence:
        open_ *= 1 - one.weight
    return 1 - open_


def _rank(kind: str) -> int:
    return KINDS.index(BY_NAME[kind])


def says_kind(p: Profile, kind: str) -> bool:
    """Whether a column's name speaks for a kind."""
    return any(named == kind for named, _ in _by_name(p))


def _by_name(p: Profile) -> list[tuple[str, Evidence]]:
    """The strongest evidence of each kind that the column's name shows."""
    best: dict[str, Evidence] = {}
    for detector in detectors.NAME_DETECTORS:
        found = detector.words.search(p.words)
        if (
            found
            and found[0]
            and detector.fits(p)
            and detector.weight > best.get(detector.kind, Evidence("", 1, 0)).weight
        ):
            best[detector.kind] = Evidence(f"its name says '{found[0]}'", 1, detector.weight)
    return list(best.items())


def _by_values(p: Profile) -> list[tuple[str, Evidence]]:
    """The strongest evidence of each kind that the values show; a handful of values shows nothing."""
    handful = p.distinct < LEAST_TESTED and p.ratio < 1
    best: dict[str, Evidence] = {}
    for detector in detectors.VALUE_DETECTORS:
        if (
            (handful and not detector.few)
            or not detector.fits(p)
            or detector.weight <= best.get(detector.kind, Evidence("", 1, 0)).weight
        ):
            continue
        share = detectors.measure_share(p, detector.test, detector.share)
        if share > 0 and share >= detector.share:
            best[detector.kind] = Evidence(detector.evidence, share, detector.weight)
    if p.dated or (p.textual and not handful and detectors.measure_share(p, detectors.is_date_like, 0.95) > 0):
        best["date"] = Evidence("values are dates", 1, 0.6)
        if _says_nothing(p) and _spans_lives(p):
            best["birth date"] = Evidence("dates differ and span as many years as births do", 1, 0.3)
    unclear = _says_nothing(p) or (not _says_amount(p) and _spreads_like_ages(p))
    if unclear and detectors.is_numeric(p) and _runs_like_ages(p):
        best["age"] = Evidence("numbers run as years of life do", 1, 0.5)
    return list(best.items())


def _says_nothing(p: Profile) -> bool:
    """Whether a column's name is only a place in the file, as in c7, x or field_12."""
    return re.fullmatch(r"([a-z]|col|column|var|variable|field)? ?\d*", p.words) is not None


def _spans_lives(p: Profile) -> bool:
    """Whether dates lie as far apart as births do, and most of them differ: days on which terms began do not."""
    years = sorted(int(found[0]) for value in p.present if (found := re.search(r"(?:18|19|20)\d\d", value)))
    if p.distinct < 100 or p.ratio < 0.2 or len(years) < 0.9 * len(p.present):
        return False
    return years[-1 - len(years) // 10] - years[len(years) // 10] >= 30


def _runs_like_ages(p: Profile) -> bool:
    """Whether numbers begin with youth and run to old age with few gaps, and end there: percentages end at 100."""
    numbers = [float(value) for value in p.present if re.fullmatch(r"\d{1,3}(\.0)?", value)]
    low, high = min(numbers, default=0), max(numbers, default=0)
    if len(numbers) < 0.95 * len(p.present):
        return False
    return 0 <= low <= 20 and 75 <= high <= 115 and high != 100 and p.distinct >= 0.8 * (high - low + 1)


def _spreads_like_ages(p: Profile) -> bool:
    """Whether most rows lie as far apart as ages do, and few are near the oldest: codes and scores run more evenly."""
    if p.middle is None or re.search(r"\b(num|count|cnt|qty|nr|no|n|of|id|code|recode|year|yr)\b", p.words):
        return False
    numbers = [float(value) for value in p.present]
    low, high = min(numbers, default=0.0), max(numbers, default=0.0)
    return 30 <= p.middle[1] - p.middle[0] <= 70 and high - p.middle[1] >= THIN_END * (high - low)


THIN_END = 0.15
"""Of the years from the youngest to the oldest, so large a share at the end holds a tenth of the people."""


def _by_uniqueness(p: Profile) -> list[tuple[str, Evidence]]:
    """Signs of a record id: (nearly) one value a row, or one rigid form with very many values."""
    found = []
    names_it = any(
        word in ("id", "ids", "uid", "guid", "key", "no", "nbr", "number", "code") for word in p.words.split()
    )
    shape, share = p.shape_share
    rigid = share >= 0.9 and "9" in shape and len(shape) >= 4 and not re.fullmatch(r"99?:99(:99)?", shape)
    single = p.whole or (p.textual and p.mean_words < 2)
    if p.ratio >= 0.95 and p.filled >= 20 and single and not is_measurement(p):
        found.append(Evidence("nearly every row has a value of its own", p.ratio, 0.6))
    if p.textual and rigid and p.distinct >= 10 and (p.distinct >= 50 or p.ratio >= 0.3):
        many = p.distinct >= 200 or p.ratio >= 0.5
        found.append(Evidence("values share one rigid form", share, 0.6 if many else 0.4))
    if names_it and p.distinct >= 20 and (p.textual or p.whole):
        found.append(Evidence("its name says that it identifies", 1, 0.5 if found else 0.3))
    if p.textual and p.mean_words >= 6 and p.ratio > 0.5:
        return [("free text", Evidence("values are sentences", 1, 0.7))]
    return [("record id", one) for one in found]


SEARCHED = 200
"""Texts of a column that are searched for identifiers inside them."""
INSIDE = ("email", "url", "phone", "card", "ip", "national_id", "iban", "address")
"""Kinds of identifiers whose form alone says what they are."""
LEAST_INSIDE = 0.02
LEAST_NAMED = 0.3


def _by_contents(p: Profile) -> list[tuple[str, Evidence]]:
    """Identifiers inside longer texts, however few of these there are: a note that repeats names somebody, too."""
    if not p.textual or p.mean_words < 3:
        return []
    texts = p.present[:SEARCHED]
    found = [{span.kind for span in search_kinds(text)} for text in texts]
    formed = sum(not kinds.isdisjoint(INSIDE) for kinds in found)
    named = sum("name" in kinds for kinds in found)
    if formed >= max(1, LEAST_INSIDE * len(texts)) or named >= max(2, LEAST_NAMED * len(texts)):
        share = max(formed, named) / len(texts)
        return [("free text", Evidence("identifiers stand inside its values", share, 0.7))]
    return []


AMOUNTS = (
    "amount", "price", "salary", "weight", "income", "total", "count", "sum", "cost", "charge", "fee", "wage", "value",
    "quantity", "height", "length", "size", "duration", "distance", "score", "balance", "revenue", "payment", "summa",
    "betrag", "preis", "summe", "kosten", "umsatz", "gehalt", "lohn", "einkommen", "gewicht", "menge", "anzahl", "wert",
    "dauer", "montant", "prix", "somme", "cout", "salaire", "revenu", "poids", "quantite", "nombre", "valeur", "duree",
    "importe", "monto", "precio", "suma", "costo", "coste", "salario", "sueldo", "ingreso", "peso", "cantidad", "valor",
    "bpm", "pulse", "puls", "rate", "temperature", "temp", "pressure", "glucose", "dose", "steps", "speed", "level",
    "percent", "percentage", "pct", "points", "stars", "seconds", "minutes", "hours", "days", "weeks", "months",
    "importo", "prezzo", "somma", "stipendio", "reddito", "quantita", "valore", "preco", "quantia", "renda", "bedrag",
    "prijs", "som", "loon", "inkomen", "belopp", "pris", "lon", "belob", "kwota", "cena", "ilosc", "tutar", "fiyat",
)  # fmt: skip
"""Words for what is measured or paid, in names of columns, without accents."""


def is_measurement(p: Profile) -> bool:
    """Whether whole numbers measure something: salaries differ from row to row, too.

    The column's name says so; or some numbers repeat and most lie close together or far below the mean, as amounts do,
    while numbers that were given out run evenly.
    """
    if not p.whole:
        return False
    named = _says_amount(p)
    numbers = sorted(int(value) for value in p.values)
    if named or not numbers or p.ratio == 1:
        return named
    quarter = (numbers[-1] - numbers[0]) / 4
    close = sum(numbers[0] + quarter <= number <= numbers[-1] - quarter for number in numbers) > 0.7 * len(numbers)
    skewed = sum(numbers) > 1.3 * len(numbers) * max(numbers[len(numbers) // 2], 1) and p.shape_share[1] < 0.9
    return close or skewed


def _says_amount(p: Profile) -> bool:
    """Whether a column's name says that it is measured or paid; a number of an account, or an id, is not.

    Words may be joined, as in Rechnungsbetrag; short ones stand by themselves.
    """
    words = p.words.split()
    if any(word in ("id", "ids", "no", "nr", "nbr", "number", "key", "account", "code") for word in words):
        return False
    return any(word.endswith(each) if len(each) > 4 else word == each for word in words for each in AMOUNTS)


def _resolve_conflicts(p: Profile, gathered: dict[str, list[Evidence]]) -> None:
    """Where one kind explains what another only seems to see, the weaker reading goes."""
    if "birth date" in gathered and "date" in gathered:
        gathered["birth date"] += gathered.pop("date")
    specific = [
        kind for kind in gathered if kind not in ("record id", "date") and _confidence(gathered[kind]) >= ENOUGH
    ]
    if specific or "date" in gathered:
        gathered.pop("record id", None)
    if p.numeric and "postal code" in gathered and p.distinct and max(map(len, p.values)) > 5:
        gathered.pop("postal code")
    if "age" in gathered and detectors.measure_share(p, _is_age, 0.95) == 0:  # the rest may be markers such as 999
        gathered.pop("age")
    if "fax" in gathered and "telephone" in gathered:
        gathered["fax"] += gathered.pop("telephone")


def _is_age(value: str) -> bool:
    """A number of years, or a bracket of them such as [90-100)."""
    found = [float(number) for number in re.findall(r"\d+(?:\.\d+)?", value)]
    return detectors.number(value) and not value.startswith("-") and all(0 <= number <= 125 for number in found)
