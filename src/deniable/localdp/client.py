"""Client file for answering a deniable survey from Python: one file, standard library only, copy it anywhere.

The answer is randomized here, with the operating system's entropy, before anything is sent. The server is not trusted:
epsilon is computed from the recipe that is run, the limits are this device's own, a link pins the survey it was made
for, and a ticket cannot be traced to the invitation it was given for. A recipe carries exact integer probabilities, so
nothing here rounds. `client.mjs` for browsers draws the same in the same order, and passes the same test vectors.

    survey = Survey.fetch("http://localhost:8765/#the-rest-of-your-link")
    survey.submit({"smoker": "no", "hours": 38}, Memory("answers.json"))
"""

from __future__ import annotations

import base64
import json
import math
import os
import re
import time
import unicodedata
import urllib.request
from collections.abc import Callable
from hashlib import sha256, sha384
from numbers import Real
from pathlib import Path
from typing import Any

FORMAT = 2
GRID = 65536
ALLOWANCE = 10.0  # the epsilon that a device tells in a month of its own calendar, unless its owner says otherwise
MOST_ANSWERS = 12  # how often a device answers one question
MOST_DRAWN = 1024  # up to so many possible answers, the responses to all of them are drawn beforehand
NO_ANSWER = "no answer"  # the option that stands for a question left out, where that is randomized too
Draw = Callable[[int], int]
Recipe = dict[str, Any]


class Refused(Exception):
    """The client will not answer: its limits are used up, or the answer does not fit the question."""


def system_draw(bound: int, take: Callable[[int], bytes] = os.urandom) -> int:
    """A uniform integer below the bound: as many big-endian bytes as it needs, drawn again while in the uneven rest."""
    width = ((bound - 1).bit_length() + 7) // 8
    fair = 256**width - 256**width % bound
    while True:
        number = int.from_bytes(take(width), "big")
        if number < fair:
            return number % bound


def _respond_coins(recipe: Recipe, answer: int, draw: Draw) -> list[Any]:
    told = {"yes": 1, "no": 0, "truth": answer, "opposite": 1 - answer}
    return [told[recipe["instructions"][draw(len(recipe["instructions"]))]]]


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
    digest = sha256((function // 16).to_bytes(4, "little") + string.encode()).digest()[function % 16 * 2 :]
    return int.from_bytes(digest[:2], "little") % width


def _respond_rappor(recipe: Recipe, answer: str, draw: Draw) -> list[Any]:
    cohort, width, hashes = draw(recipe["cohorts"]), recipe["width"], recipe["hashes"]
    true = {position(answer, cohort * hashes + index, width) for index in range(hashes)}
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


def _respond_prefix_tree(recipe: Recipe, answer: str, draw: Draw) -> list[Any]:
    longest, step, levels = recipe["longest"], recipe["step"], recipe["longest"] // recipe["step"]
    turn = draw(levels + recipe["counting"])
    letters = [letter if letter in recipe["alphabet"] else "\ufffd" for letter in answer[:longest]]
    prefix = "".join(letters).ljust(longest, "\0")[: min(turn + 1, levels) * step]
    return [turn, *_respond_hadamard_sketch(recipe["sketch"], prefix, draw)]


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


def _respond_laplace(recipe: Recipe, answer: int, draw: Draw) -> list[Any]:
    steps, (numerator, denominator) = recipe["scale"]["steps"], recipe["claimed"]
    common = math.gcd(steps * denominator, numerator)
    reach = 0 if recipe.get("clamped") else -(-44 * steps * denominator // numerator)
    noisy = answer + _draw_discrete_laplace(steps * denominator // common, numerator // common, draw)
    return [min(max(noisy, -reach), steps + reach) + reach]


def _read_whole(recipe: Recipe, name: str, least: int, most: int) -> int:
    number = recipe[name]
    if type(number) is not int or not least <= number <= most:
        raise ValueError(name)
    return number


def _count_steps(recipe: Recipe) -> int:
    return _read_whole(recipe["scale"], "steps", 1, 1 << 30)


def _log_odds(recipe: Recipe, name: str = "odds") -> float:
    numerator, denominator = recipe[name]
    if type(numerator) is not int or type(denominator) is not int or min(numerator, denominator) < 1:
        raise ValueError(name)
    return abs(math.log(numerator) - math.log(denominator))


def _log_bit(one: int, other: int) -> float:
    """The loss of a biased bit that is 1 with probability one / GRID under one answer, other / GRID under another."""
    return abs(math.log(one) - math.log(other)) + abs(math.log(GRID - one) - math.log(GRID - other))


def _lose_by_coins(recipe: Recipe) -> float:
    told = [{"yes": (1, 1), "no": (0, 0), "truth": (0, 1), "opposite": (1, 0)}[word] for word in recipe["instructions"]]
    no, yes = (sum(each[truth] for each in told) for truth in (0, 1))
    return max(abs(math.log(yes) - math.log(no)), abs(math.log(len(told) - yes) - math.log(len(told) - no)))


def _lose_by_domain(recipe: Recipe) -> float:
    domain = _read_whole(recipe, "domain", 2, 1 << 26)
    more = {"hashing": ("buckets", 2, 1 << 20), "hadamard": ("blocks", 1, domain), "subset": ("count", 1, domain - 1)}
    if recipe["protocol"] in more:
        _read_whole(recipe, *more[recipe["protocol"]])
    if recipe["protocol"] == "unary":
        _read_whole(recipe, "domain", 2, 1 << 24)
        return _log_bit(*(_read_whole(recipe, name, 1, GRID - 1) for name in ("keep", "flip")))
    return _log_odds(recipe)


def _lose_by_string(recipe: Recipe) -> float:
    if recipe["protocol"] == "prefix-tree":
        longest, step = (_read_whole(recipe, name, 1, 64) for name in ("longest", "step"))
        _read_whole(recipe, "counting", 1, 64)
        if longest % step or type(recipe["alphabet"]) is not str or recipe["sketch"]["protocol"] != "hadamard-sketch":
            raise ValueError("tree")
        recipe = recipe["sketch"]
    _read_whole(recipe, "width", 1, 1 << 16), _read_whole(recipe, "hashes", 1, 1 << 16)
    if recipe["protocol"] == "hadamard-sketch":
        return _log_odds(recipe)
    flip, bits = _read_whole(recipe, "flip", 1, GRID - 1), 1
    if recipe["protocol"] == "rappor":
        bits = recipe["hashes"]
        _read_whole(recipe, "cohorts", 1, 1 << 12)
    return bits * _log_bit(GRID - flip, flip)  # two strings differ in two bits for each function


def _lose_by_position(recipe: Recipe) -> float:
    _count_steps(recipe)
    if recipe["protocol"] == "window":
        _read_whole(recipe, "places", 1, 1 << 20), _read_whole(recipe, "width", 1, 1 << 20)
    if recipe["protocol"] == "laplace":
        _log_odds(recipe, "claimed")
        return float(recipe["claimed"][0] / recipe["claimed"][1])
    return _log_odds(recipe)


def _lose_by_hybrid(recipe: Recipe) -> float:
    turns, bit, window = _read_whole(recipe, "window_turns", 0, GRID), recipe["bit"], recipe["window"]
    if (bit["protocol"], window["protocol"]) != ("duchi", "window") or _count_steps(bit) != _count_steps(window):
        raise ValueError("arms")
    return max(_lose_by_position(arm) for arm in [bit] * (turns < GRID) + [window] * (turns > 0))


PROTOCOLS: dict[str, tuple[Callable[[Recipe, Any, Draw], list[Any]], Callable[[Recipe], float]]] = {
    "coins": (_respond_coins, _lose_by_coins), "k-ary": (_respond_k_ary, _lose_by_domain),
    "unary": (_respond_unary, _lose_by_domain), "hashing": (_respond_hashing, _lose_by_domain),
    "hadamard": (_respond_hadamard, _lose_by_domain), "subset": (_respond_subset, _lose_by_domain),
    "rappor": (_respond_rappor, _lose_by_string), "count-mean-sketch": (_respond_sketch, _lose_by_string),
    "hadamard-sketch": (_respond_hadamard_sketch, _lose_by_string),
    "prefix-tree": (_respond_prefix_tree, _lose_by_string),
    "duchi": (_respond_duchi, _lose_by_position), "window": (_respond_window, _lose_by_position),
    "hybrid": (_respond_hybrid, _lose_by_hybrid), "laplace": (_respond_laplace, _lose_by_position),
}  # fmt: skip


def privacy_loss(recipe: Recipe) -> float:
    """The epsilon of a recipe as it is run: the logarithm of the largest likelihood ratio among its responses."""
    try:
        return PROTOCOLS[recipe["protocol"]][1](recipe)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise Refused("a recipe of the survey is unknown, broken, or would prove the answer") from None


def count_answers(recipe: Recipe) -> int | None:
    """How many different answers a recipe randomizes; None for strings."""
    protocol, (_, loss) = recipe["protocol"], PROTOCOLS[recipe["protocol"]]
    if protocol == "coins" or loss is _lose_by_string:
        return 2 if protocol == "coins" else None
    if loss is _lose_by_domain:
        return _read_whole(recipe, "domain", 2, 1 << 26)
    return _count_steps(recipe["bit"] if protocol == "hybrid" else recipe) + 1


def check_answer(recipe: Recipe, answer: Any) -> int | None:
    """How many answers a recipe randomizes; refused where this is none of them, since no noise would cover it."""
    most = count_answers(recipe)
    if not (isinstance(answer, str) if most is None else type(answer) is int and 0 <= answer < most):
        raise Refused("the answer is none of those that the recipe randomizes")
    return most


def randomize(recipe: Recipe, answer: Any, draw: Draw = system_draw) -> list[Any]:
    """The response to an index, a position or a string; for RAPPOR the permanent one: send `rappor_report` of it."""
    check_answer(recipe, answer)
    return PROTOCOLS[recipe["protocol"]][0](recipe, answer, draw)


class Memory:
    """What a respondent's own device remembers: responses drawn beforehand, and how much was told.

    The responses to all possible answers of a question are drawn at its first use and kept, so that the same answer
    always gets the same response (asking again teaches nothing) and the file does not say which answer was given.
    What it cannot tell apart it counts in full: each time a question is answered costs the recipe's epsilon, until
    all of its responses are told. Months are those of this device; when the month's allowance is spent, or a question
    was answered `most_answers` times, the client refuses. Strings are drawn anew each time, and counted each time.
    """

    def __init__(
        self, path: str | None = None, most_answers: int = MOST_ANSWERS, allowance: float = ALLOWANCE,
        name_period: Callable[[], str] = lambda: time.strftime("%Y-%m"),
    ) -> None:  # fmt: skip
        self._path, self._name_period = Path(path) if path else None, name_period
        self.most_answers, self.allowance = most_answers, allowance
        stored = self._path.read_text("utf-8") if self._path and self._path.exists() else "{}"
        known = _read_object(stored, "the file of what this device remembers is damaged: bring back a copy of it")
        self.state: dict[str, Any] = {"questions": {}, "spent": {}, "tickets": {}} | known

    def response(
        self, question: str, recipe: Recipe, answer: Any, draw: Draw = system_draw, most_answers: int | None = None
    ) -> list[Any]:
        """The response to this answer, drawn beforehand or now; refused beyond the limits."""
        epsilon, size = privacy_loss(recipe), check_answer(recipe, answer)
        if recipe["protocol"] == "rappor":
            raise Refused("RAPPOR is for one string for life: keep its permanent response, send reports of that")
        known = self.state["questions"].setdefault(question, {"times": 0, "drawn": {}})
        drawn = known["drawn"].setdefault(json.dumps(recipe, sort_keys=True), {"told": 0, "responses": []})
        if size is None or drawn["told"] < size:
            self._spend(question, known, epsilon, min(self.most_answers, most_answers or self.most_answers))
            drawn["told"] += 1
        if size is not None and size <= MOST_DRAWN:
            if not drawn["responses"]:
                drawn["responses"] = [randomize(recipe, each, draw) for each in range(size)]
            response: list[Any] = drawn["responses"][answer]
        else:
            response = randomize(recipe, answer, draw)
        self.save()
        return response

    def _spend(self, question: str, known: dict[str, Any], epsilon: float, most: int) -> None:
        period, question = self._name_period(), question.split("/")[0]
        spent = self.state["spent"].get(period, 0.0)
        if known["times"] >= most:
            raise Refused(f"'{question}' was already answered {most} times on this device")
        if spent + epsilon > self.allowance + 1e-9:
            told = f"this device has told {spent:.3g} of {self.allowance:.3g} in this month"
            raise Refused(f"'{question}' would tell epsilon {epsilon:.3g}; {told}. Leave it out, or allow Memory more")
        known["times"] += 1
        self.state["spent"][period] = spent + epsilon

    def ticket(self, invitation: str, modulus: int, draw: Draw = system_draw) -> tuple[bytes, int]:
        """A key's own serial and secret, until the response is in: uniform, so any serial explains a blinded one."""
        pending, name = self.state["tickets"], sha256(f"{invitation} {modulus:x}".encode()).hexdigest()
        if name not in pending:
            pending[name] = [os.urandom(32).hex(), hex(draw(modulus - 1) + 1)]
            self.save()
        return bytes.fromhex(pending[name][0]), int(pending[name][1], 16)

    def forget_ticket(self, invitation: str, modulus: int) -> None:
        """The response was received: nothing here may join it with its invitation."""
        if self.state["tickets"].pop(sha256(f"{invitation} {modulus:x}".encode()).hexdigest(), None):
            self.save()

    def save(self) -> None:
        """Keep what is remembered in the file, where there is one."""
        if self._path:
            unfinished = self._path.with_suffix(".part")
            unfinished.touch(mode=0o600)
            unfinished.write_text(json.dumps(self.state), "utf-8")
            unfinished.replace(self._path)


def pin(document: bytes) -> str:
    """What a link says of the survey it was made for: the SHA-256 digest of the survey's document."""
    return base64.urlsafe_b64encode(sha256(document).digest()).decode().rstrip("=")


class Survey:
    """A survey as its server describes it."""

    def __init__(self, description: dict[str, Any], address: str = "", invitation: str = "") -> None:
        self.description, self.invitation, self.address = description, invitation, address.rstrip("/")

    @classmethod
    def fetch(cls, link: str) -> Survey:
        """The survey that a link leads to, refused if it is not the one that the link was made for."""
        address, _, fragment = link.partition("#")
        pinned, _, invitation = fragment.partition(".")
        if invitation and not pinned:
            raise Refused("the link has an invitation and does not say for which survey: ask for the whole link")
        document = _exchange(f"{address.rstrip('/')}/survey.json")
        if pinned and pin(document) != pinned:
            raise Refused("the server shows another survey than the one this link was made for")
        return cls(_read_object(document, "the server's answer is not a survey: check the link"), address, invitation)

    # a dictionary: by the questions' names, as it is sent
    def responses(self, answers: dict[str, Any], memory: Memory, draw: Draw = system_draw) -> dict[str, Any]:
        """Randomized responses to answers, by question; where the survey says so, also to questions left out."""
        known = check_survey(self.description)
        unanswered = {name: None for name in known if known[name].get("unanswered") == "randomized"}
        if strange := [name for name in answers if name not in known]:
            raise Refused(f"the survey has no question '{strange[0]}'; it has {', '.join(known)}")
        values = {name: encode(known[name], answer) for name, answer in (unanswered | answers).items()}
        before = json.dumps(memory.state)
        try:
            return {name: self._respond_to(known[name], each, memory, draw) for name, each in values.items()}
        except Refused:  # nothing leaves: nothing was told
            memory.state = json.loads(before)
            memory.save()
            raise

    def _respond_to(self, question: dict[str, Any], values: list[Any], memory: Memory, draw: Draw) -> list[Any]:
        # Another wording is another question: what was drawn for one is no answer to the other.
        asked, most = sha256(json.dumps(question, sort_keys=True).encode()), self.description.get("most_answers")
        names = [f"{question['name']}/{index} {asked.hexdigest()[:32]}" for index in range(len(values))]
        parts = zip(names, question["parts"], values, strict=True)
        return [memory.response(name, part, value, draw, most) for name, part, value in parts]

    # a dictionary: JSON as the server sent it
    def submit(self, answers: dict[str, Any], memory: Memory | None = None, ticket: str = "") -> dict[str, Any]:
        """Randomize here, send only that (with a ticket taken before, if given), and return the server's receipt."""
        sent = self.responses(answers, memory := memory or Memory())
        ticket = ticket or (self.take_ticket(memory) if self.description.get("key") else os.urandom(32).hex())
        body = {"format": FORMAT, "survey": self.description["survey"], "ticket": ticket, "responses": sent}
        answer = _exchange(f"{self.address}/responses", json.dumps(body).encode())
        receipt: dict[str, Any] = _read_object(answer, "the response was sent, but the answer is not a receipt")
        memory.forget_ticket(self.invitation, int((self.description.get("key") or {"modulus": "0"})["modulus"], 16))
        return receipt

    def take_ticket(self, memory: Memory) -> str:
        """A ticket for the invitation, signed without being seen; take it long before, and no time joins the two."""
        modulus, exponent = int(self.description["key"]["modulus"], 16), self.description["key"]["exponent"]
        serial, secret = memory.ticket(self.invitation, modulus)
        blinded = blind(serial, secret, modulus, exponent)
        body = {"survey": self.description["survey"], "invitation": self.invitation, "blinded": f"{blinded:x}"}
        try:
            signed = int(json.loads(_exchange(f"{self.address}/ticket", json.dumps(body).encode()))["signed"], 16)
        except (KeyError, TypeError, ValueError, RecursionError):
            raise Refused("the server's answer is not a signature of a ticket") from None
        return f"{serial.hex()}.{unblind(serial, secret, signed, modulus, exponent):x}"


# a dictionary: the questions of the survey's JSON, by their names
def check_survey(description: dict[str, Any]) -> dict[str, Any]:
    """The questions by name; all are refused where one is broken, before an answer is seen: a refusal tells none."""
    try:
        known = {question["name"]: question for question in description["questions"]}
        most, key = description.get("most_answers"), description.get("key")
        if key and (int(key["modulus"], 16) < 1 << 2047 or key["exponent"] != 65537):
            raise Refused("the survey's key is not one for tickets")
        if not (most is None or (type(most) is int and most >= 1)) or len(known) != len(description["questions"]):
            raise ValueError("survey")
        for name, question in known.items():
            if not isinstance(name, str) or not _covers_answers(question):
                raise ValueError("question")
            check_stated(question)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise Refused("the survey is broken, or a recipe does not cover exactly the answers that are shown") from None
    return known


def _covers_answers(question: dict[str, Any]) -> bool:
    """Whether the recipes of a question randomize exactly the answers that it shows."""
    sizes, kind = [count_answers(part) for part in question["parts"]], question["type"]
    hides = question.get("unanswered") == "randomized"
    if kind == "word":
        return sizes == [None]
    if kind == "number":
        low, high = question["lower"], question["upper"]
        real = all(type(end) in (int, float) and math.isfinite(end) for end in (low, high, high - low))
        return real and low < high and sizes == [_read_whole(question, "steps", 1, 1 << 30) + 1] + [2] * hides
    options = question["options"]
    named = type(options) is list and all(type(o) is str for o in options) and (not hides or NO_ANSWER in options)
    expected = [2] * len(options) if kind == "several" else [len(options)]
    return named and kind in ("yes-no", "choice", "several") and len({*options}) == len(options) and sizes == expected


def check_stated(question: dict[str, Any]) -> float:
    """The epsilon of a question by its recipes; refused where that is more than the survey says."""
    loss = sum(privacy_loss(part) for part in question["parts"])
    if type(question["epsilon"]) not in (int, float) or not math.isfinite(question["epsilon"]):
        raise Refused("the survey does not say an epsilon that is a number")
    if loss > question["epsilon"] + 1e-9:
        raise Refused(f"'{question['name']}' says epsilon {question['epsilon']:.3g}, but its recipe tells {loss:.3g}")
    return loss


def encode_serial(serial: bytes, bits: int) -> int:
    """A serial as the number to be signed: EMSA-PSS (RFC 8017), SHA-384, no salt; PSSZERO-Deterministic of RFC 9474."""
    length = (bits + 6) // 8
    digest = sha384(bytes(8) + sha384(serial).digest()).digest()
    padding = bytes(length - 50) + b"\x01"
    mask = b"".join(sha384(digest + turn.to_bytes(4, "big")).digest() for turn in range(-(-len(padding) // 48)))
    masked = bytearray(left ^ right for left, right in zip(padding, mask, strict=False))
    masked[0] &= 0xFF >> (8 * length - bits + 1)
    return int.from_bytes(bytes(masked) + digest + b"\xbc", "big")


def blind(serial: bytes, secret: int, modulus: int, exponent: int) -> int:
    """A serial hidden behind a random secret; a factor shared with the modulus would mark it (RFC 9474): refused."""
    encoded = encode_serial(serial, modulus.bit_length()) if modulus.bit_length() >= 2048 else 0
    if modulus % 2 == 0 or exponent != 65537 or math.gcd(encoded * secret, modulus) != 1:
        raise Refused("the survey's key is not one for tickets")
    return encoded * pow(secret, exponent, modulus) % modulus


def unblind(serial: bytes, secret: int, signed: int, modulus: int, exponent: int) -> int:
    """The signature of a serial from that of its blinded form; checked."""
    signature = signed * pow(secret, -1, modulus) % modulus
    if pow(signature, exponent, modulus) != encode_serial(serial, modulus.bit_length()):
        raise Refused("the server's signature is not one of the survey's key")
    return signature


SPACES = re.compile("[\\s\\x1c-\\x1f\\x85\\ufeff]+")
DIGITS = re.compile(" *[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)? *")  # a number as both clients read it


def normalize(word: str) -> str:
    """A word as it is looked up: one form of each character (NFKC), lower case, single spaces."""
    whole = re.sub("[\\ud800-\\udfff]", "\ufffd", word)
    lower = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", whole).lower())
    return SPACES.sub(" ", lower).strip(" ")


def encode(question: dict[str, Any], answer: Any) -> list[Any]:
    """An answer, or None for a question left out, as the numbers or strings that the question's parts randomize."""
    hides = question.get("unanswered") == "randomized"
    if answer is None and hides and question["type"] != "number":
        answer = "" if question["type"] == "word" else NO_ANSWER
    if question["type"] == "number":
        low, high, steps = question["lower"], question["upper"], question["steps"]
        if answer is None and hides:
            return [steps // 2, 0]
        number = float(answer) if isinstance(answer, str) and DIGITS.fullmatch(answer) else answer
        if isinstance(answer, bool) or not isinstance(number, Real) or number != number:
            raise Refused(f"an answer to '{question['name']}' is a number")
        place = math.floor((float(min(max(number, low), high)) - low) / (high - low) * steps + 0.5)
        return [place, 1] if hides else [place]
    if question["type"] == "word":
        if not isinstance(answer, str):
            raise Refused(f"an answer to '{question['name']}' is a text")
        return [normalize(answer)]
    options, several = question["options"], question["type"] == "several"
    chosen = list(answer) if isinstance(answer, list | tuple | set) else [answer]
    if any(choice not in options for choice in chosen) or (not several and len(chosen) != 1):
        raise Refused(f"an answer to '{question['name']}' is one of {', '.join(options)}")
    return [int(option in chosen) for option in options] if several else [options.index(chosen[0])]


def _read_object(text: str | bytes, otherwise: str) -> Any:
    """What a server or a file says, refused in words where it is no JSON object: a page, half of one, a list."""
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict):
        raise Refused(otherwise)
    return told


def _exchange(address: str, body: bytes | None = None) -> bytes:
    if not address.startswith(("http://", "https://")):
        raise Refused("the survey's address does not begin with http:// or https://")
    request = urllib.request.Request(address, body, {"Content-Type": "application/json"})  # noqa: S310  checked above
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
            return bytes(answer.read())
    except (OSError, ValueError, urllib.request.http.client.HTTPException) as failure:  # type: ignore[attr-defined]
        said = f"answered with HTTP status {failure.code}" if hasattr(failure, "code") else "cannot be reached"
        raise Refused(f"the server {said} at {address}: check the link, or try again later") from None
