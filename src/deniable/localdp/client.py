"""Client file for answering a deniable survey from Python: one file, standard library only, copy it anywhere.

The answer is randomized here, with the operating system's entropy, before anything is sent. A recipe, fetched from the
survey server or written by hand, carries exact integer probabilities, so nothing here rounds. The same algorithms, in
the same order of draws, are in `client.mjs` for browsers; both pass the same test vectors.

    survey = Survey.fetch("http://localhost:8765")
    survey.submit({"smoker": "no", "hours": 38}, Memory("answers.json"))
"""

from __future__ import annotations

import json
import math
import os
import urllib.request
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

FORMAT = 1
GRID = 65536
Draw = Callable[[int], int]
Recipe = dict[str, Any]


class Refused(Exception):
    """The client will not answer: its limits are used up, or the answer does not fit the question."""


def system_draw(bound: int, take: Callable[[int], bytes] = os.urandom) -> int:
    """A uniform integer below the bound: as many big-endian bytes as it needs, drawn again while in the uneven rest."""
    width = ((bound - 1).bit_length() + 7) // 8
    whole = 256**width
    fair = whole - whole % bound
    while True:
        number = int.from_bytes(take(width), "big")
        if number < fair:
            return number % bound


def _respond_coins(recipe: Recipe, answer: int, draw: Draw) -> list[Any]:
    word = recipe["instructions"][draw(len(recipe["instructions"]))]
    return [{"yes": 1, "no": 0, "truth": answer, "opposite": 1 - answer}[word]]


def _respond_k_ary(recipe: Recipe, answer: int, draw: Draw, domain: int = 0) -> list[Any]:
    numerator, denominator = recipe["odds"]
    drawn = draw(numerator + ((domain or recipe["domain"]) - 1) * denominator)
    if drawn < numerator:
        return [answer]
    other = (drawn - numerator) // denominator
    return [other + (other >= answer)]


def _pack_bits(length: int, one: Callable[[int], bool]) -> str:
    packed = bytearray((length + 7) // 8)
    for place in range(length):
        packed[place >> 3] |= one(place) << (place & 7)
    return packed.hex()


def _respond_unary(recipe: Recipe, answer: int, draw: Draw) -> list[Any]:
    return [_pack_bits(recipe["domain"], lambda at: draw(GRID) < (recipe["keep"] if at == answer else recipe["flip"]))]


def hash32(value: int, seed: int) -> int:
    """The 32-bit hash of local hashing."""
    word = (value * 0x9E3779B1 ^ seed) & 0xFFFFFFFF
    for shift, factor in ((17, 0xED5AD4BB), (11, 0xAC4C1B51), (15, 0x31848BAB)):
        word = (word ^ word >> shift) * factor & 0xFFFFFFFF
    return word ^ word >> 14


def _respond_hashing(recipe: Recipe, answer: int, draw: Draw) -> list[Any]:
    seed = draw(1 << 32)
    bucket = hash32(answer, seed) * recipe["buckets"] >> 32
    return [seed, *_respond_k_ary(recipe, bucket, draw, recipe["buckets"])]


def _respond_hadamard(recipe: Recipe, answer: int, draw: Draw) -> list[Any]:
    numerator, denominator = recipe["odds"]
    rows = -(-recipe["domain"] // recipe["blocks"])
    order, outside = 1 << rows.bit_length(), 2 * recipe["blocks"] - 1
    inside = draw(numerator + outside * denominator) < numerator
    column, elsewhere = draw(order), draw(outside)
    block, row = answer // rows, answer % rows + 1
    if not inside and elsewhere > 0:
        other = (elsewhere - 1) // 2
        return [(other + (other >= block)) * order + column]
    minus = (column & row).bit_count() % 2 == 1
    return [block * order + (column ^ (row & -row) if minus == inside else column)]


def _respond_subset(recipe: Recipe, answer: int, draw: Draw) -> list[Any]:
    numerator, denominator = recipe["odds"]
    count, domain = recipe["count"], recipe["domain"]
    holds = draw(count * numerator + (domain - count) * denominator) < count * numerator
    others = [other for other in range(domain) if other != answer]
    for place in range(min(count, domain - 2)):
        drawn = place + draw(domain - 1 - place)
        others[place], others[drawn] = others[drawn], others[place]
    return [sorted([*others[: count - 1], answer] if holds else others[:count])]


def position(string: str, function: int, width: int) -> int:
    """Where a function of the SHA-256 family sends a string."""
    digest = sha256((function // 16).to_bytes(4, "little") + string.encode()).digest()
    word = function % 16 * 2
    return int.from_bytes(digest[word : word + 2], "little") % width


def _respond_rappor(recipe: Recipe, answer: str, draw: Draw) -> list[Any]:
    cohort, width = draw(recipe["cohorts"]), recipe["width"]
    first = cohort * recipe["hashes"]
    true = {position(answer, first + index, width) for index in range(recipe["hashes"])}
    lasting = [(draw(GRID) < recipe["flip"]) != (place in true) for place in range(width)]
    return [cohort, _pack_bits(width, lambda at: lasting[at])]


def rappor_report(recipe: Recipe, permanent: list[Any], draw: Draw = system_draw) -> list[Any]:
    """A fresh report from a remembered permanent RAPPOR response."""
    packed = bytes.fromhex(permanent[1])
    lasting = [packed[place >> 3] >> (place & 7) & 1 for place in range(recipe["width"])]
    shown = _pack_bits(recipe["width"], lambda at: draw(GRID) < (recipe["one"] if lasting[at] else recipe["zero"]))
    return [permanent[0], shown]


def _respond_sketch(recipe: Recipe, answer: str, draw: Draw) -> list[Any]:
    function = draw(recipe["hashes"])
    true = position(answer, function, recipe["width"])
    return [function, _pack_bits(recipe["width"], lambda at: (draw(GRID) < recipe["flip"]) != (at == true))]


def _respond_hadamard_sketch(recipe: Recipe, answer: str, draw: Draw) -> list[Any]:
    function, coefficient = draw(recipe["hashes"]), draw(recipe["width"])
    minus = (coefficient & position(answer, function, recipe["width"])).bit_count() % 2
    return [function, coefficient, minus ^ (draw(sum(recipe["odds"])) >= recipe["odds"][0])]


def _respond_duchi(recipe: Recipe, answer: int, draw: Draw) -> list[Any]:
    upper = draw(recipe["scale"]["steps"]) < answer
    return [int(upper != (draw(sum(recipe["odds"])) >= recipe["odds"][0]))]


def _respond_window(recipe: Recipe, answer: int, draw: Draw) -> list[Any]:
    numerator, denominator = recipe["odds"]
    places, width, steps = recipe["places"], recipe["width"], recipe["scale"]["steps"]
    start, rest = divmod(answer * places, steps)
    start += draw(steps) < rest
    drawn = draw(width * numerator + places * denominator)
    if drawn < width * numerator:
        return [start + drawn // numerator]
    outside = (drawn - width * numerator) // denominator
    return [outside + (width if outside >= start else 0)]


def _respond_hybrid(recipe: Recipe, answer: int, draw: Draw) -> list[Any]:
    if draw(GRID) < recipe["window_turns"]:
        return [1, *_respond_window(recipe["window"], answer, draw)]
    return [0, *_respond_duchi(recipe["bit"], answer, draw)]


def _flip_exponential_coin(numerator: int, denominator: int, draw: Draw) -> bool:
    """True with probability exp(-numerator/denominator), for a ratio of at most 1 (Canonne, Kamath, Steinke 2020)."""
    turn = 1
    while draw(denominator * turn) < numerator:
        turn += 1
    return turn % 2 == 1


def _draw_discrete_laplace(numerator: int, denominator: int, draw: Draw) -> int:
    """Discrete Laplace noise of scale numerator/denominator, exactly."""
    while True:
        rest = draw(numerator)
        if not _flip_exponential_coin(rest, numerator, draw):
            continue
        whole = 0
        while _flip_exponential_coin(1, 1, draw):
            whole += 1
        size, negative = (rest + numerator * whole) // denominator, draw(2)
        if size or not negative:
            return -size if negative else size


def _reach(recipe: Recipe) -> int:
    steps, (numerator, denominator) = recipe["scale"]["steps"], recipe["claimed"]
    return 0 if recipe["clamped"] else -(-44 * steps * denominator // numerator)


def _respond_laplace(recipe: Recipe, answer: int, draw: Draw) -> list[Any]:
    steps, (numerator, denominator) = recipe["scale"]["steps"], recipe["claimed"]
    common = math.gcd(steps * denominator, numerator)
    noisy = answer + _draw_discrete_laplace(steps * denominator // common, numerator // common, draw)
    reach = _reach(recipe)
    return [min(max(noisy, -reach), steps + reach) + reach]


RANDOMIZERS: dict[str, Callable[[Recipe, Any, Draw], list[Any]]] = {
    "coins": _respond_coins,
    "k-ary": _respond_k_ary,
    "unary": _respond_unary,
    "hashing": _respond_hashing,
    "hadamard": _respond_hadamard,
    "subset": _respond_subset,
    "rappor": _respond_rappor,
    "count-mean-sketch": _respond_sketch,
    "hadamard-sketch": _respond_hadamard_sketch,
    "duchi": _respond_duchi,
    "window": _respond_window,
    "hybrid": _respond_hybrid,
    "laplace": _respond_laplace,
}


def randomize(recipe: Recipe, answer: Any, draw: Draw = system_draw) -> list[Any]:
    """The response to send for an answer: an index, a position on the scale, or a string.

    For RAPPOR this is the permanent response: remember it, and send `rappor_report` of it.
    """
    return RANDOMIZERS[recipe["protocol"]](recipe, answer, draw)


class Memory:
    """What a respondent's own device remembers: responses already given, and how much was spent on them.

    The same answer to the same question always gets the same response (memoization), so asking again teaches
    nothing. A new answer costs its epsilon; when a question has been answered in `most_answers` different ways, or the
    period's allowance is spent, the client refuses. The file is as private as the device it lies on.
    """

    def __init__(self, path: str | None = None, most_answers: int = 3, allowance: float = math.inf) -> None:
        self._path = Path(path) if path else None
        self.most_answers = most_answers
        self.allowance = allowance
        stored = self._path.read_text("utf-8") if self._path and self._path.exists() else "{}"
        self._state: dict[str, Any] = {"responses": {}, "spent": {}} | json.loads(stored)

    def response(
        self, question: str, recipe: Recipe, answer: Any, epsilon: float, period: str = "", draw: Draw = system_draw
    ) -> list[Any]:
        """The remembered response to this answer, or a fresh one within the limits."""
        told = self._state["responses"].setdefault(question, {})
        key = json.dumps([recipe, answer], sort_keys=True)
        if key not in told:
            self._spend(question, told, epsilon, period)
            told[key] = randomize(recipe, answer, draw)
            self._save()
        remembered: list[Any] = told[key]
        return rappor_report(recipe, remembered, draw) if recipe["protocol"] == "rappor" else remembered

    def _spend(self, question: str, told: dict[str, Any], epsilon: float, period: str) -> None:
        spent = self._state["spent"].get(period, 0.0)
        if len(told) >= self.most_answers:
            raise Refused(f"'{question}' was already answered in {self.most_answers} different ways")
        if spent + epsilon > self.allowance + 1e-9:
            raise Refused(f"epsilon {spent:.3g} of {self.allowance:.3g} is spent in this period")
        self._state["spent"][period] = spent + epsilon

    def _save(self) -> None:
        if self._path:
            unfinished = self._path.with_suffix(".part")
            unfinished.touch(mode=0o600)
            unfinished.write_text(json.dumps(self._state), "utf-8")
            unfinished.replace(self._path)


class Survey:
    """A survey as its server describes it."""

    def __init__(self, description: dict[str, Any], address: str = "") -> None:
        self.description = description
        self.address = address.rstrip("/")

    @classmethod
    def fetch(cls, address: str) -> Survey:
        """The survey served at an address."""
        return cls(_exchange(f"{address.rstrip('/')}/survey.json"), address)

    # a dictionary: by the questions' names, as it is sent
    def responses(self, answers: dict[str, Any], memory: Memory, draw: Draw = system_draw) -> dict[str, Any]:
        """Randomized responses to plain answers, by question; questions without an answer are left out."""
        known = {question["name"]: question for question in self.description["questions"]}
        sent: dict[str, Any] = {}
        for name, answer in answers.items():
            if name not in known:
                raise Refused(f"the survey has no question '{name}'; it has {', '.join(known)}")
            sent[name] = self._respond_to(known[name], answer, memory, draw)
        return sent

    def _respond_to(self, question: dict[str, Any], answer: Any, memory: Memory, draw: Draw) -> list[Any]:
        period = self.description.get("period", "")
        parts = question["parts"]
        values = encode(question, answer)
        each = question["epsilon"] / len(parts)
        return [
            memory.response(f"{question['name']}/{index}", part, value, each, period, draw)
            for index, (part, value) in enumerate(zip(parts, values, strict=True))
        ]

    # a dictionary: JSON as the server sent it
    def submit(self, answers: dict[str, Any], memory: Memory | None = None, ticket: str = "") -> dict[str, Any]:
        """Randomize here, send only that, and return the server's receipt."""
        sent = self.responses(answers, memory or Memory())
        ticket = ticket or _exchange(f"{self.address}/ticket", b"{}")["ticket"]
        body = {"format": FORMAT, "survey": self.description["survey"], "ticket": ticket, "responses": sent}
        return _exchange(f"{self.address}/responses", json.dumps(body).encode())


def encode(question: dict[str, Any], answer: Any) -> list[Any]:
    """An answer as the numbers or strings that the question's parts randomize."""
    if question["type"] == "number":
        low, high, steps = question["lower"], question["upper"], question["steps"]
        held = min(max(float(answer), low), high)
        return [math.floor((held - low) / (high - low) * steps + 0.5)]
    if question["type"] == "word":
        return [str(answer).strip().lower()]
    options = question["options"]
    chosen = list(answer) if isinstance(answer, list | tuple | set) else [answer]
    if any(choice not in options for choice in chosen):
        raise Refused(f"an answer to '{question['name']}' is one of {', '.join(options)}")
    if question["type"] == "several":
        return [int(option in chosen) for option in options]
    return [options.index(chosen[0])]


def _exchange(address: str, body: bytes | None = None) -> dict[str, Any]:
    if not address.startswith(("http://", "https://")):
        raise Refused("the survey's address does not begin with http:// or https://")
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(address, body, headers)  # noqa: S310  checked above
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
        document: dict[str, Any] = json.load(answer)
        return document
