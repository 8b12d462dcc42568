"""Word lists: common given names, surnames, cities, countries, states; words of dates and addresses.

Each file names its source at its top. The lists that patterns are built from are written as parts of them."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

STREET_WORDS = (
    "street", "st", "avenue", "ave", "road", "rd", "boulevard", "blvd", "lane", "ln", "drive", "dr", "court", "ct",
    "place", "pl", "square", "sq", "highway", "hwy", "parkway", "pkwy", "terrace", "way", "circle", "plaza", "building",
    "bldg", "suite", "ste", "floor", "room", "apartment", "apt", "box", "house", "office", "straße", "rue", "calle",
    "via",
)  # fmt: skip
_ENGLISH = (
    "January", "February", "March", "April", "June", "July", "August", "September", "October", "November", "December",
)  # fmt: skip
MONTHS = "May|MAY|Sept|SEPT|" + "|".join(
    f"{name[:3]}(?:{name[3:]})?|{name[:3].upper()}(?:{name[3:].upper()})?" for name in _ENGLISH
)
FOREIGN_MONTHS = (
    "enero|febrero|marzo|abril|mayo|junio|julio|agosto|septiembre|setiembre|octubre|noviembre|diciembre"
    "|janvier|février|mars|avril|mai|juin|juillet|août|septembre|octobre|novembre|décembre"
    "|[Jj]anuar|[Ff]ebruar|März|[Aa]pril|Mai|[Jj]uni|[Jj]uli|[Aa]ugust|[Ss]eptember|[Oo]ktober|[Nn]ovember|Dezember"
    "|gennaio|febbraio|aprile|maggio|giugno|luglio|settembre|ottobre|dicembre"
    "|janeiro|fevereiro|março|maio|junho|julho|setembro|outubro|novembro|dezembro"
    "|januari|februari|maart|mei|augustus|oktober|december|maj|augusti"
    "|stycznia|lutego|marca|kwietnia|maja|czerwca|lipca|sierpnia|września|października|listopada|grudnia"
    "|января|февраля|марта|апреля|мая|июня|июля|августа|сентября|октября|ноября|декабря"
)
_TENTH = "first|second|third|fourth|fifth|sixth|seventh|eighth|ninth"
ORDINALS = (
    f"{_TENTH}|tenth|eleventh|twelfth|thirteenth|fourteenth|fifteenth|sixteenth|seventeenth|eighteenth|nineteenth"
    f"|twentieth|twenty[ -](?:{_TENTH})|thirtieth|thirty[ -]first"
)
_SMALL = "one|two|three|four|five|six|seven|eight|nine"
_TENS = "twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety"
_YEAR_WORDS = (
    f"(?:nineteen|twenty|two thousand(?: and)?)(?:[ -](?:hundred|oh|ten|eleven|twelve|\\w{{3,5}}teen|{_TENS}|{_SMALL}))"
    f"(?:[ -](?:{_SMALL}))?"
)
YEAR = rf"(?:,? (?:of )?(?:\d{{4}}|{_YEAR_WORDS}))?"
WAYS = (
    "Street|St|Avenue|Ave|Road|Rd|Boulevard|Blvd|Lane|Ln|Drive|Dr|Court|Ct|Place|Pl|Square|Sq|Highway|Hwy|Parkway|Pkwy"
    "|Terrace|Way|Circle|Close|Crescent|Gardens|Row"
)
DOMAINS = (
    "com|org|net|gov|edu|mil|int|info|biz|io|ai|app|dev|co|us|uk|de|fr|it|es|"
    "nl|be|ch|at|eu|se|no|dk|fi|pl|cz|ru|in|cn|jp"
    "|kr|br|mx|au|nz|ca|za|il|ie|me|tv|cc|ly|xyz|online|site|tech|store|cloud"
)
POSTAL_AREAS = frozenset(
    (
        "AB", "AL", "B", "BA", "BB", "BD", "BH", "BL", "BN", "BR", "BS", "BT", "CA", "CB", "CF", "CH", "CM", "CO", "CR",
        "CT", "CV", "CW", "DA", "DD", "DE", "DG", "DH", "DL", "DN", "DT", "DY", "E", "EC", "EH", "EN", "EX", "FK", "FY",
        "G", "GL", "GU", "GY", "HA", "HD", "HG", "HP", "HR", "HS", "HU", "HX", "IG", "IM", "IP", "IV", "JE", "KA", "KT",
        "KW", "KY", "L", "LA", "LD", "LE", "LL", "LN", "LS", "LU", "M", "ME", "MK", "ML", "N", "NE", "NG", "NN", "NP",
        "NR", "NW", "OL", "OX", "PA", "PE", "PH", "PL", "PO", "PR", "RG", "RH", "RM", "S", "SA", "SE", "SG", "SK", "SL",
        "SM", "SN", "SO", "SP", "SR", "SS", "ST", "SW", "SY", "TA", "TD", "TF", "TN", "TQ", "TR", "TS", "TW", "UB", "W",
        "WA", "WC", "WD", "WF", "WN", "WR", "WS", "WV", "YO", "ZE",
    )
)  # fmt: skip
"""The letters that British postcodes begin with."""


@cache
def load_words(name: str) -> tuple[str, ...]:
    """The entries of one list, in its order."""
    text = files(__name__).joinpath(f"{name}.txt").read_text(encoding="utf-8")
    return tuple(line for line in text.splitlines() if line and not line.startswith("#"))


@cache
def fold_words(name: str) -> frozenset[str]:
    """The entries of one list in lower case, for looking words up."""
    if name == "states":
        return frozenset(part.lower() for line in load_words(name) for part in line.split(" ", 1))
    return frozenset(word.lower() for word in load_words(name))


@cache
def fold_world(letter: str) -> frozenset[str]:
    """The given names (g), surnames (s) or places (c) of the list that spans many countries, in lower case."""
    lines = (line.split() for line in load_words("world"))
    return frozenset(word.lower() for first, *rest in lines if first == letter for word in rest)
