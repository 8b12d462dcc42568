"""Identifiers in free text, beside Presidio without a language model, in the same run and at the recall of each.

Sentences hold one planted identifier each, of the kinds that Presidio finds by patterns; an identifier counts as found
when nine tenths of its characters are. Presidio runs all its English pattern recognizers over a blank tokenizer, so
that neither side has a model; it is installed from the package registry into .venvs/presidio, and the comparison is
skipped with a message where that fails. CPU seconds, best of several runs.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np

from deniable.masking import format_preserving, replacement

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

registry = RecognizerRegistry()
registry.load_predefined_recognizers(languages=["en"])
for name in ("SpacyRecognizer", "TransformersRecognizer", "StanzaRecognizer"):
    registry.remove_recognizer(name)
analyzer = AnalyzerEngine(registry=registry, nlp_engine=Blank(), supported_languages=["en"])
texts = json.load(open(sys.argv[1]))
analyzer.analyze(texts[0]["text"], language="en")
times, found = [], []
for _ in range(2):
    start = time.process_time()
    found = [[(r.start, r.end) for r in analyzer.analyze(t["text"], language="en")] for t in texts]
    times.append(time.process_time() - start)
json.dump({"seconds": min(times), "found": found}, open(sys.argv[2], "w"))
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
    ours = best(lambda: replacement.scrub_texts(plain))
    found = [[(span.start, span.end) for span in spans] for spans in replacement.find_spans(plain)]
    mine = recall(many, found)
    print(f"text    {len(plain) / ours:,.0f} texts a CPU second, recall {sum(mine.values()) / len(mine):.3f}")
    if not install_presidio():
        return
    few = many[:1_400]
    with tempfile.TemporaryDirectory() as name:
        given, answer = Path(name) / "texts.json", Path(name) / "found.json"
        given.write_text(json.dumps(few))
        ran = subprocess.run(
            [PRESIDIO / "bin" / "python", "-W", "ignore", "-c", PEER, given, answer], check=False, capture_output=True
        )
        if ran.returncode:
            print(f"text    Presidio did not run: {ran.stderr.decode().splitlines()[-1:]}")
            return
        theirs = json.loads(answer.read_text())
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
