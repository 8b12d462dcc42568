"""Identifiers in free text, beside Presidio with the best model at hand, in the same run and at the recall of each.

Sentences hold one planted identifier each, of the kinds that Presidio finds by patterns; an identifier counts as found
when nine tenths of its characters are. Labelled texts hold distractors as well, and give recall and precision by kind:
generated ones, and ones written by hand (`free_text_held_out.txt`). Presidio runs all its English recognizers, over a
blank tokenizer where no spaCy model is installed; it is installed from the package registry into .venvs/presidio, and
the comparison is skipped with a message where that fails. CPU seconds, best of several runs.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from deniable.masking import format_preserving, lexicon, replacement, text_search

PRESIDIO = Path(__file__).resolve().parents[1] / ".venvs" / "presidio"


def best(work: Callable[[], object], repeats: int = 5) -> float:
    """CPU seconds of the fastest of several runs."""
    taken = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return min(taken)


SENTENCES = (
    "Patient called from {} and asked for a refill.", "Please forward the file to {}, thanks.",
    "Seen again, {} on record.",
    "The number given was {} according to the front desk, who wrote it down twice.", "{} was entered by mistake.",
    "Contact: {}", "We could not confirm {} during the visit; follow up next week with the family.",
)  # fmt: skip


def _luhn(body: str) -> str:
    digits = np.array([[int(sign) for sign in body]])
    return body + str(int(format_preserving.luhn_digit(digits)[0]))


def _iban(rng: random.Random) -> str:
    body = "".join(rng.choices("0123456789", k=18))
    check = 98 - int(body + "131400") % 97  # DE is 13 14
    plain = f"DE{check:02d}{body}"
    return plain if rng.random() < 0.5 else " ".join(plain[i : i + 4] for i in range(0, len(plain), 4))


def _digits(rng: random.Random, count: int) -> str:
    return "".join(rng.choices("0123456789", k=count))


def _phone(rng: random.Random) -> str:
    area, mid, end = rng.choice(["202", "425", "617", "312"]), str(rng.randint(200, 999)), _digits(rng, 4)
    style = rng.choice(["{}-{}-{}", "({}) {}-{}", "{} {} {}", "+1 {} {} {}", "+1-{}-{}-{}", "{}.{}.{}", "({}) {} {}"])
    return style.format(area, mid, end)


def _email(rng: random.Random) -> str:
    person = rng.choice(["ann", "bob.lee", "c_d+news", "x.y"])
    return f"{person}{rng.randint(1, 99)}@{rng.choice(['example.com', 'mail.example.org', 'example.co.uk'])}"


def _card(rng: random.Random) -> str:
    number = _luhn(rng.choice(["41", "51", "52"]) + _digits(rng, 13))
    return rng.choice(["", " ", "-"]).join(number[i : i + 4] for i in range(0, 16, 4))


def _machine(rng: random.Random) -> str:
    if rng.random() < 0.7:
        return ".".join(str(rng.randint(1, 254)) for _ in range(4))
    return ":".join(f"{rng.randint(1, 65535):x}" for _ in range(8))


def _date(rng: random.Random) -> str:
    day, month, year = rng.randint(10, 28), rng.randint(1, 12), rng.randint(1950, 2025)
    named = f"{day}-{rng.choice(['JAN', 'MAR', 'OCT'])}-{year}"
    return rng.choice([f"{month}/{day}/{year}", f"{year}-{month:02d}-{day}", named])


URLS = ("https://www.example.com/a", "http://example.org", "www.example.net/page?id=3", "example.com/login")
COINS = (
    "1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa", "3J98t1WpEZ73CNmQviecrnyiWrnqRhWNLy", "1BvBMSEYstWetqTFn5Au4m4GFg7xJaNVN2",
)  # fmt: skip
MAKERS: dict[str, Callable[[random.Random], str]] = {
    "EMAIL_ADDRESS": _email,
    "PHONE_NUMBER": _phone,
    "CREDIT_CARD": _card,
    "IBAN_CODE": _iban,
    "IP_ADDRESS": _machine,
    "US_SSN": lambda r: f"{r.randint(100, 650)}-{r.randint(10, 99)}-{r.randint(1000, 9999)}",
    "US_ITIN": lambda r: f"9{r.randint(10, 99)}-{r.choice([70, 75, 81, 85, 90])}-{r.randint(1000, 9999)}",
    "URL": lambda r: r.choice(URLS),
    "DATE_TIME": _date,
    "CRYPTO": lambda r: r.choice(COINS),
    "MAC_ADDRESS": lambda r: ":".join(f"{r.randint(0, 255):02x}" for _ in range(6)),
    "US_BANK_NUMBER": lambda r: _digits(r, 12),
    "US_PASSPORT": lambda r: str(r.randint(1, 9)) + _digits(r, 8),
    "UK_NHS": lambda r: r.choice(["943 476 5919", "9434765919", "401 023 2137"]),
}


def planted(count: int) -> list[dict[str, object]]:
    """Sentences with one identifier each, and where it stands."""
    rng = random.Random(7)
    made = []
    for i in range(count):
        kind = list(MAKERS)[i % len(MAKERS)]
        sentence, value = rng.choice(SENTENCES), MAKERS[kind](rng)
        start = sentence.index("{}")
        made.append({"text": sentence.format(value), "kind": kind, "start": start, "end": start + len(value)})
    return made


NAMED = """
The referral letter mentions {n} and a relative in {p}.
{n} phoned from {p} about the refund.
We could not reach {g} before the weekend.
Minutes: {n}, {n}, apologies from {g}.
Mrs {s} asked for a copy of her file.
I handed the keys to {g} {s} in {p}.
The tenant {n} left for {p} on Friday.
Their son {g} studies in {p}.
Dr. {s} changed the dose after speaking with {g}.
{g}, please confirm the address in {p}.
Claim filed by {n} of {p}, {c}.
The driver was {n}; nobody else was hurt.
Moved back to {c} with {g} last winter.
cc {n} and {n}
""".strip().splitlines()
NAMELESS = """
The Safety Report was filed on Tuesday; see Section 4.
Started Amoxicillin for Strep throat, stop Warfarin.
Will the May invoice reach Accounting? Mark it as Paid.
Please restart Outlook and install the Security Update.
Parkinson disease and Type 2 Diabetes, no known allergies.
Grace period ends; Hope to hear from Customer Support.
Reading glasses, Turkey sandwich and a Mobile phone were found.
The European Commission and the World Bank agreed.
Ward 3, Bed 12: Vital Signs stable, discharge on Monday.
Dear Sir or Madam, the Annual Budget is attached.
FAMILY HISTORY: NON CONTRIBUTORY
English and French lessons begin in September.
""".strip().splitlines()
HARMLESS = """
In May 2 patients left, and in March 3 nurses.
Version 10.1.22 replaced version 9.4.1 from 2019-2020.
It cost $12500, that is 11000 EUR for 10000 steps.
We saw 10 20 30 40 and then 50 60 70 units.
Aged 45, a 30-year-old with BP 120/80, pulse 72, room 12, pages 4-9.
Ratio 10:20, at 12:30, 3.50 each, 1,234,567 rows, 5 mg twice.
""".strip().splitlines()


def _plate(rng: random.Random) -> str:
    letters = "".join(rng.choices("ABCDEFGHJKLMNPRSTUVWXY", k=7))
    return rng.choice(
        [f"{letters[:2]}{rng.randint(10, 72)} {letters[2:5]}", f"{letters[:2]}-{_digits(rng, 3)}-{letters[2:4]}"]
    )


def _vin(rng: random.Random) -> str:
    return "".join(rng.choices("ABCDEFGHJKLMNPRSTUVWXYZ", k=8)) + "".join(rng.choices("0123456789", k=9))


def _european_phone(rng: random.Random) -> str:
    styles = ("+44 20 7946 {}", "030 12{}", "01 23 45 {} {}", "+49 171 234{}", "+33 6 12 34 {} {}", "0171 234{}")
    return rng.choice(styles).format(_digits(rng, 4), _digits(rng, 2)).replace("  ", " ")


def _worded_date(rng: random.Random) -> str:
    styles = (
        "the third of March {}",
        "12. März {}",
        "le 3 mars {}",
        "5 de mayo de {}",
        "March twenty-first, {}",
        "May 2, {}",
    )
    return rng.choice(styles).format(rng.randint(1940, 2024)).removeprefix("the ").removeprefix("le ")


FORMATS: dict[str, Callable[[random.Random], str]] = {
    "postcode": lambda r: r.choice(["SW1A 2AA", "M1 1AE", "EH1 1YZ", "K1A 0B1", "CF10 3NP", "LS2 9JT"]),
    "vehicle": lambda r: r.choice([_plate, _vin])(r),
    "age": lambda r: r.choice(["aged {}", "{} years old", "{}-year-old"]).format(r.randint(90, 104)),
    "date": lambda r: r.choice([_date, _worded_date])(r),
    "phone": lambda r: r.choice([_phone, _european_phone])(r),
    "iban": _iban,
    "card": _card,
    "national_id": lambda r: r.choice(["44051401359", "9434765919", "12345678Z", "AB123456C", "123-45-6789"]),
    "email": _email,
    "ip": _machine,
    "url": lambda r: r.choice(URLS),
}  # fmt: skip


Labelled = tuple[str, list[tuple[int, int, str]]]


def label_names(count: int) -> list[Labelled]:
    """Generated texts with names and places that were not trained on, half of them made up, and texts without any."""
    from train_names import Maker

    maker = Maker(99)
    maker.given = list(lexicon.load_words("given_names")[1500:])
    maker.surnames = list(lexicon.load_words("surnames")[3000:])
    maker.places = [one for one in lexicon.load_words("cities")[1500:] if one.isascii()]
    drawn = {
        "n": lambda: f"{maker.draw_given()} {maker.draw_surname()}",
        "g": maker.draw_given,
        "s": maker.draw_surname,
        "p": lambda: maker.fill("place")[0],
        "c": lambda: maker.fill("country")[0],
    }

    def fill(slot: re.Match[str]) -> str:
        return f"{{{'p' if slot[1] in 'pc' else 'n'}:{drawn[slot[1]]()}}}"

    templates = [maker.rng.choice(NAMELESS if i % 3 == 0 else NAMED) for i in range(count)]
    return [read_marks(re.sub(r"\{(\w)\}", fill, template)) for template in templates]


def label_formats(count: int) -> list[Labelled]:
    """Sentences with one identifier each, and sentences with numbers that identify nobody."""
    rng = random.Random(5)
    made: list[Labelled] = []
    for i in range(count):
        if i % 3 == 0:
            made.append((rng.choice(HARMLESS), []))
            continue
        kind = list(FORMATS)[i % len(FORMATS)]
        sentence, value = rng.choice(SENTENCES), FORMATS[kind](rng)
        start = sentence.index("{}")
        made.append((sentence.format(value), [(start, start + len(value), kind)]))
    return made


def read_marks(line: str) -> Labelled:
    """A text without its marks, and where they stood."""
    text, spans, at = "", [], 0
    for found in re.finditer(r"\{([np]):(.*?)\}", line):
        text += line[at : found.start()]
        spans.append((len(text), len(text) + len(found[2]), "name" if found[1] == "n" else "place"))
        text, at = text + found[2], found.end()
    return text + line[at:], spans


def read_held_out(name: str = "free_text_held_out.txt") -> list[Labelled]:
    """The texts that were written by hand."""
    lines = Path(__file__).with_name(name).read_text(encoding="utf-8").splitlines()
    return [read_marks(line) for line in lines if line and not line.startswith("#")]


def score(labelled: list[Labelled], found: list[list[tuple[int, int, str]]]) -> dict[str, tuple[float, float]]:
    """Recall and precision by kind: a label counts when nine tenths of it were found, a find if it touches a label."""
    hits: dict[str, list[bool]] = defaultdict(list)
    finds: dict[str, list[bool]] = defaultdict(list)
    for (_, wanted), got in zip(labelled, found, strict=True):
        for start, end, kind in wanted:
            covered = {i for one, two, _ in got for i in range(max(start, one), min(end, two))}
            for name in ("all", kind):
                hits[name].append(len(covered) >= 0.9 * (end - start))
        for start, end, kind in got:
            for name in {"all", kind}:
                finds[name].append(any(start < two and one < end for one, two, _ in wanted))
    return {kind: (_share(hits[kind]), _share(finds[kind])) for kind in [*dict.fromkeys([*hits, *finds])]}


JOINERS = (" ", ", ", "\n", "\t", "\u00a0", "-", "\u2013", "\u2014", "/", "_", "", ")(", "][", ",", ";")


def draw_joined(rng: random.Random) -> tuple[str, str, list[tuple[int, int, str]]]:
    """Two or three identifiers side by side: what joins them, the text, and where they stand."""
    joiner, text, spans = rng.choice(JOINERS), "x ", []
    for kind, make in rng.choices([one for one in FORMATS.items() if one[0] != "age"], k=rng.choice([2, 2, 3])):
        value = make(rng)
        text += joiner if spans else ""
        spans.append((len(text), len(text) + len(value), kind))
        text += value
    return joiner, text + " y", spans


def measure_joined(count: int = 9_000) -> None:
    """Of how many rows of two or three identifiers, joined in several ways, something is left to read."""
    rng = random.Random(3)
    drawn = [draw_joined(rng) for _ in range(count)]
    found = replacement.find_spans([text for _, text, _ in drawn])
    left = [(joiner, is_left(text, spans, got)) for (joiner, text, spans), got in zip(drawn, found, strict=True)]
    kept = sum(one for _, one in left)
    print(f"text    {kept} of {count} rows of two or three identifiers keep five characters or more of one")
    for joiner in JOINERS:
        told = [one for which, one in left if which == joiner]
        print(f"text      joined by {joiner!r:9} {sum(told)} of {len(told)}")


def is_left(text: str, wanted: list[tuple[int, int, str]], found: list[text_search.Span]) -> bool:
    """Whether five characters in a row of an identifier are in no span."""
    covered = {place for span in found for place in range(span.start, span.end)}
    kept = ["".join("\0" if i in covered else text[i] for i in range(start, end)) for start, end, _ in wanted]
    return any(len(part.strip(" ()")) >= 5 for one in kept for part in one.split("\0"))


def _share(values: list[bool]) -> float:
    return sum(values) / len(values) if values else 1.0


def measure_labelled() -> None:
    """Recall and precision on labelled texts with distractors, by kind, beside Presidio's best here."""
    sets = {
        "names, generated": (label_names(6_000), ("name", "place")),
        "names, held out": (read_held_out(), ("name", "place")),
        "formats, generated": (label_formats(6_600), tuple(FORMATS)),
    }
    for title, (labelled, kinds) in sets.items():
        texts = [text for text, _ in labelled]
        spans = [[(s.start, s.end, s.kind) for s in one] for one in replacement.find_spans(texts, kinds)]
        _print_scores(title, "ours", score(labelled, spans))
        taken = best(lambda texts=texts: replacement.find_spans(texts), 3)  # type: ignore[misc]
        print(f"text    {title}: {len(texts) / taken:,.0f} texts a CPU second with all kinds (bar 10,000)")
        theirs = run_presidio([{"text": text} for text in texts[:700]])
        if theirs is not None:
            _print_scores(
                title, "Presidio", score(labelled[:700], [[(a, b, "all") for a, b in one] for one in theirs["found"]])
            )


def _print_scores(title: str, who: str, scores: dict[str, tuple[float, float]]) -> None:
    for kind, (found, right) in scores.items():
        if who == "ours" or kind == "all":
            print(f"text    {title:20} {who:9} {kind:12} recall {found:.3f} precision {right:.3f}")


PEER = """
import json, sys, time
import spacy
from presidio_analyzer import AnalyzerEngine, RecognizerRegistry
from presidio_analyzer.nlp_engine import SpacyNlpEngine

class Blank(SpacyNlpEngine):
    def __init__(self):
        super().__init__(models=[{"lang_code": "en", "model_name": "blank"}])
        self.nlp = {"en": spacy.blank("en")}

    def load(self):
        pass

models = [name for name in ("en_core_web_trf", "en_core_web_lg", "en_core_web_md", "en_core_web_sm")
          if name in spacy.util.get_installed_models()]
registry = RecognizerRegistry()
registry.load_predefined_recognizers(languages=["en"])
if models:
    engine = SpacyNlpEngine(models=[{"lang_code": "en", "model_name": models[0]}])
    engine.load()
else:
    engine = Blank()
    for name in ("SpacyRecognizer", "TransformersRecognizer", "StanzaRecognizer"):
        registry.remove_recognizer(name)
analyzer = AnalyzerEngine(registry=registry, nlp_engine=engine, supported_languages=["en"])
texts = json.load(open(sys.argv[1]))
analyzer.analyze(texts[0]["text"], language="en")
times, found = [], []
for _ in range(2):
    start = time.process_time()
    found = [[(r.start, r.end) for r in analyzer.analyze(t["text"], language="en")] for t in texts]
    times.append(time.process_time() - start)
model = models[0] if models else "patterns alone (no language model is installed)"
json.dump({"seconds": min(times), "found": found, "model": model}, open(sys.argv[2], "w"))
"""


def install_presidio() -> bool:
    """Presidio in an environment of its own; False, with a message, when it cannot be had."""
    python = PRESIDIO / "bin" / "python"
    if python.exists() and subprocess.run([python, "-c", "import presidio_analyzer"], check=False).returncode == 0:
        return True
    try:
        subprocess.run([sys.executable, "-m", "venv", PRESIDIO], check=True)
        subprocess.run(
            [python, "-m", "pip", "install", "--quiet", "presidio-analyzer"], check=True, capture_output=True
        )
    except (OSError, subprocess.CalledProcessError):
        print("text    Presidio could not be installed; no comparison")
        return False
    return True


def run_presidio(few: list[dict[str, object]]) -> dict[str, Any] | None:
    """What Presidio finds in texts, and its CPU seconds; None, with a message, where it cannot be had.

    Its language models come from sites beyond the package registry; where one is installed it is used.
    """
    if not install_presidio():
        return None
    with tempfile.TemporaryDirectory() as name:
        given, answer = Path(name) / "texts.json", Path(name) / "found.json"
        given.write_text(json.dumps(few))
        ran = subprocess.run(
            [PRESIDIO / "bin" / "python", "-W", "ignore", "-c", PEER, given, answer], check=False, capture_output=True
        )
        if ran.returncode:
            print(f"text    Presidio did not run: {ran.stderr.decode().splitlines()[-1:]}")
            return None
        found: dict[str, Any] = json.loads(answer.read_text())
        print(f"text    Presidio ran with {found['model']}")
        return found


def recall(texts: list[dict[str, object]], found: list[list[tuple[int, int]]]) -> dict[str, float]:
    """For each kind, the share of planted identifiers of which at least nine tenths of the characters were found."""
    hits: dict[str, list[bool]] = defaultdict(list)
    for one, spans in zip(texts, found, strict=True):
        wanted = set(range(int(one["start"]), int(one["end"])))  # type: ignore[call-overload]
        covered = wanted & {i for start, end in spans for i in range(start, end)}
        hits[str(one["kind"])].append(len(covered) >= 0.9 * len(wanted))
    return {kind: sum(values) / len(values) for kind, values in hits.items()}


def compare_text() -> None:
    """Texts a second and recall by kind."""
    many = planted(14_000)
    plain = [str(one["text"]) for one in many]
    kinds = sorted({finder.kind for finder in text_search.FINDERS})  # without names, which these texts do not hold
    ours = best(lambda: replacement.scrub_texts(plain, kinds))
    found = [[(span.start, span.end) for span in spans] for spans in replacement.find_spans(plain, kinds)]
    mine = recall(many, found)
    print(f"text    {len(plain) / ours:,.0f} texts a CPU second, recall {sum(mine.values()) / len(mine):.3f}")
    few = many[:1_400]
    theirs = run_presidio(few)
    if theirs is None:
        return
    peer = recall(few, theirs["found"])
    speed = (len(plain) / ours) / (len(few) / theirs["seconds"])
    print(
        f"text    Presidio {len(few) / theirs['seconds']:,.0f} texts a CPU second, recall "
        f"{sum(peer.values()) / len(peer):.3f} | ours x{speed:.0f} (bar 50)"
    )
    for kind in peer:
        print(f"text      {kind:16} recall ours {mine[kind]:.3f} Presidio {peer[kind]:.3f}")


if __name__ == "__main__":
    compare_text()
    measure_labelled()
    measure_joined()
