"""Names of people and places in running text: word lists, the words around, and a small model that weighs both.

Every word that begins with a capital and is no ordinary word is a candidate. What speaks for it and against it (lists
of names, cities and ordinary words, the words beside it, its form and its last letters) are *features*; the model has a
weight for each, for "name" and for "place", and the larger sum above zero wins. Weights were learned by an averaged
perceptron from made-up sentences (`bench/train_names.py`), are shipped as `lexicon/name_weights.txt`, and come from no
text of a real person. Scripts without capitals have no candidates: there, titles and words such as
"patient" tell where a name stands.

A model finds most names and never all. This module imports neither numpy nor Arrow."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from itertools import pairwise

from deniable.masking import lexicon

KINDS = ("name", "place")
_TOKEN = re.compile(r"[^\W\d_]+(?:['-](?!s\b)[^\W\d_]+)*|\d+|[\1\2]+|[^\w\s]|[\0\n]|_")
_FAMILY = "王李张刘陈杨黄赵吴周徐孙马朱胡郭何林罗高梁郑谢宋唐许韩冯邓曹彭曾萧田董袁潘蒋蔡余杜叶程苏魏吕丁"
_KOREAN = "김이박최정강조윤장임한오서신권황안송전홍유고문양손배백허남심노하곽성차주우구나진지"
CUED = tuple(
    re.compile(pattern)
    for pattern in (
        "(?:患者|病人|姓名[:\uff1a]?|我叫|名叫) ?([\u4e00-\u9fff]{2,3})(?=[^\u4e00-\u9fff]|$|于|在|因|说|来|的|是|主)",
        f"([{_FAMILY}][\u4e00-\u9fff]{{1,2}}?)(?=先生|女士|小姐|医生|教授|老师)",
        "([\u4e00-\u9fff]{2,4}|[\u30a0-\u30ff]{2,8})(?=さん|様|氏|くん|ちゃん)",
        f"([{_KOREAN}][\uac00-\ud7af]{{1,2}})(?= ?(?:씨|님|환자|선생|교수|박사|의사))",
        f"환자 ([{_KOREAN}][\uac00-\ud7af]{{2}})",
        "(?:السيدة?|الدكتورة?|المريضة?|الأستاذة?|اسمها?|اسمي) ([\u0621-\u064a]{2,15}(?: [\u0621-\u064a]{2,15})?)",
        "(?:מר|גב'|גברת|ד\"ר|ד״ר|המטופלת?|החולה|פרופ') ([\u05d0-\u05ea]{2,12}(?: [\u05d0-\u05ea]{2,12})?)",
        "(?:श्री|श्रीमती|डॉ\\.?|कुमारी|मरीज|रोगी) ([\u0900-\u097f]{2,15}(?: [\u0900-\u097f]{2,15})?)",
        "(?:นาย|นางสาว|คุณ) ?([\u0e00-\u0e7f]{2,15})",
    )
)
"""Names in scripts without capitals, by the word before or after them."""
_UNCASED = re.compile("[\u0590-\u0e7f\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]")
_END = "¶"  # stands for the end of a line or of a text
_STOPS = frozenset((".", "!", "?", ":", ";", '"', _END))
PARTICLES = frozenset(
    ("van", "von", "der", "den", "de", "da", "di", "du", "dos", "del", "della", "la", "le", "el", "al", "bin", "ibn",
     "ben", "ter", "ten", "zu", "y", "e", "of", "upon", "on", "sur", "am", "an")
)  # fmt: skip
TITLES = frozenset(
    ("mr", "mrs", "ms", "miss", "mx", "dr", "prof", "professor", "doctor", "nurse", "sir", "madam", "lady", "lord",
     "judge", "captain", "herr", "frau", "monsieur", "madame", "mme", "señor", "señora", "sr", "sra", "signor",
     "signora", "pan", "pani", "rev", "lt", "col", "sgt", "gen", "maj", "hon", "father", "sister", "brother", "uncle",
     "aunt", "patient", "widow", "доктор", "пациент", "пациентка")
)  # fmt: skip
NEVER = frozenset(
    ("i", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday", "january", "february", "march",
     "july", "september", "october", "november", "december")
)  # fmt: skip
EPONYMS = frozenset(
    ("addison", "alzheimer", "apgar", "baker", "barrett", "becker", "bell", "bennett", "bishop", "braden", "child",
     "clark", "conn", "coombs", "cushing", "doppler", "down", "dukes", "edwards", "ewing", "fisher", "foley",
     "glasgow", "gleason", "graves", "hamilton", "hickman", "homan", "homans", "huntington", "kaplan", "kawasaki",
     "lambert", "murphy", "newton", "norton", "paget", "parkinson", "pick", "rankin", "smith", "student", "swan",
     "thomas", "turner", "wagner", "waterlow", "weber", "wells", "wilson", "zimmer")
)  # fmt: skip
THINGS = frozenset(
    ("anaemia", "angina", "bands", "catheter", "chorea", "coma", "contracture", "criteria", "cyst", "dementia",
     "disease", "effect", "encephalopathy", "fracture", "frame", "gait", "index", "law", "laws", "line", "lymphoma",
     "manoeuvre", "oesophagus", "palsy", "phenomenon", "reflex", "sarcoma", "scale", "score", "sign", "stain",
     "syndrome", "t", "test", "thyroiditis", "triad", "tube", "tumour", "ulcer")
)  # fmt: skip
"""What is called after somebody: a word of the first set before one of the second is no name in a text."""
HEADS = frozenset(
    ("academy", "airport", "arms", "association", "avenue", "bank", "bridge", "building", "castle", "cathedral",
     "centre", "center", "chapel", "church", "clinic", "club", "college", "council", "court", "estate", "estates",
     "farm", "foundation", "gardens", "general", "gmbh", "group", "hall", "hospice", "hospital", "hotel", "house",
     "inc", "infirmary", "institute", "lane", "library", "llc", "lodge", "ltd", "museum", "nursing", "office",
     "park", "pharmacy", "plc", "primary", "road", "school", "society", "square", "station", "street", "surgery",
     "theatre", "tower", "trust", "union", "university", "unit", "ward", "wing")
)  # fmt: skip
"""What houses, streets, companies and institutions are: the word before one is a name of no person."""
ARTICLES = frozenset(
    ("an", "the", "this", "that", "my", "our", "your", "die", "das", "dem", "ein", "eine", "im", "zum")
)
_INNER_CAPITAL = re.compile(r"(?!Ma?c[A-Z]|[A-Z][aei][A-Z]|Fitz|Van|Von)[^-']*[a-z][A-Z]")
ENDINGS = (("s", 4), ("es", 4), ("ed", 5), ("d", 5), ("ing", 5), ("ly", 5))
"""Endings of ordinary words, and how much must stand before each."""
LISTS = (("given_names", "g"), ("surnames", "s"), ("cities", "c"), ("countries", "n"), ("states", "t"), ("common", "x"))
DOUBT = -110
"""The sum above which a word is taken for a name: below zero, since a name left in does more harm than a word lost."""
ORDINARY_DOUBT = 200
"""The same for words that are ordinary ones too, such as Hope and Mark: the words around must speak for a name."""
_PASSED_OVER = NEVER | TITLES


@cache
def load_classes() -> dict[str, str]:
    """For each word of the lists, in lower case, a letter for each list that has it; m for a part of a longer place."""
    classes: dict[str, str] = {}
    for name, letter in LISTS:
        for entry in lexicon.fold_words(name) | (lexicon.fold_world(letter) if letter in "gsc" else frozenset()):
            for part in entry.split() if letter in "cnt" and " " in entry else [entry]:
                mark = "m" if " " in entry and letter in "cnt" else letter
                if mark not in classes.get(part, ""):
                    classes[part] = classes.get(part, "") + mark
    return {word: "".join(sorted(letters)) for word, letters in classes.items()}


@cache
def load_pairs() -> frozenset[tuple[str, str]]:
    """Two words that stand side by side in the name of a place."""
    entries = [entry.split() for name in ("cities", "countries", "states") for entry in lexicon.fold_words(name)]
    return frozenset(pair for words in entries for pair in pairwise(words))


Weights = dict[str, tuple[int, int]]


@cache
def load_weights() -> Weights:
    """The weights of each feature for a name and for a place, in hundredths."""
    lines = (line.split("\t") for line in lexicon.load_words("name_weights"))
    return {feature: (int(name), int(place)) for feature, name, place in lines}


def is_candidate(words: Sequence[str], lowered: Sequence[str], at: int, before: str) -> bool:
    """Whether a capitalized word can be a name at all: no ordinary word, no title, no abbreviation, no lone letter.

    A letter is an initial where a dot and a capital follow it, or a name stands before it.
    """
    word, low = words[at], lowered[at]
    if low in _PASSED_OVER or _is_ordinary(low) or _is_part_of_thing(words, lowered, at, before):
        return False
    if len(word) > 4 or before:
        return True
    if len(word) == 1:
        return words[at + 1] == "." and words[at + 2][0].isupper()
    return not word.isupper() or words[at - 1].isupper() or words[at + 1].isupper()


@lru_cache(maxsize=50_000)
def _is_ordinary(low: str) -> bool:
    """Whether a word is on the list of ordinary ones and on no other, as it stands or without its ending."""
    classes = load_classes()
    if low in classes:
        return classes[low] == "x"
    stems = (low.removesuffix(ending) for ending, least in ENDINGS if low.endswith(ending) and len(low) > least)
    return any(classes.get(stem) == "x" or (len(stem) > 3 and classes.get(stem + "e") == "x") for stem in stems)


def _is_part_of_thing(words: Sequence[str], lowered: Sequence[str], at: int, before: str) -> bool:
    """Whether a disease, a house, a company or a product is called by the word; no title stands before it."""
    last = lowered[at - 1]
    if before or last in TITLES or (last == "." and lowered[at - 2] in TITLES):
        return False
    owned = words[at + 1] == "'" and lowered[at + 2] == "s"
    after = at + 3 if owned else at + 1
    if lowered[at] in EPONYMS and lowered[after] in THINGS:
        return True
    known = load_classes().get(lowered[at], "")
    if lowered[after] in HEADS and words[after][0].isupper():
        return owned or known in ("", "s", "sx")
    if known in ("", "s") and (last in ARTICLES or (words[after].isdigit() and len(words[after]) < 4)):
        return True
    return not known and (lowered[at] in HEADS or _INNER_CAPITAL.match(words[at]) is not None)


def list_features(words: Sequence[str], lowered: Sequence[str], at: int, before: str) -> list[str]:
    """What can be said about the word at a place; `before` is what the word before it was taken for."""
    classes = load_classes()
    word, low = words[at], lowered[at]
    last, nearby = lowered[at - 1], lowered[at + 1]
    kind = classes.get(low) or (classes.get(low.split("-")[0], "") if "-" in low else "")
    left = classes.get(last, "") if words[at - 1][:1].isupper() else "_"
    right = classes.get(nearby, "") if words[at + 1][:1].isupper() else "_"
    starts = "^" if last in _STOPS else ""
    pairs = load_pairs()
    pair = ((low, nearby) in pairs and right != "_") or ((last, low) in pairs and left != "_")
    form = "1" if len(word) == 1 else "A" if word.isupper() else "M" if not word[1:].islower() else "a"
    seen = ("l=" + last) if left == "_" else "L=" + left
    ahead = ("r=" + nearby) if right == "_" else "R=" + right
    return [
        "k=" + kind + starts,
        "f=" + form + starts,
        "s3=" + low[-3:],
        "s2=" + low[-2:],
        seen,
        ahead,
        "kl=" + kind + "|" + seen,
        "kr=" + kind + "|" + ahead,
        "ll=" + lowered[at - 2] + "|" + last,
        "rr=" + ahead + "|" + lowered[at + 2],
        "y=" + before + "|" + kind,
        "t=" + ("1" if last in TITLES or (last == "." and lowered[at - 2] in TITLES) else "0") + starts,
        "p=1" if pair else "p=0",
        "w=" + low if "x" in kind else "w=",
    ]


def find_names(text: str) -> Iterator[tuple[int, int, str]]:
    """Start, end and kind of each name and place in a text, in order."""
    words, starts = _split_words(text)
    lowered = [word.lower() for word in words]
    labels = _label_words(words, lowered)
    at = 2
    while at < len(words) - 2:
        kind = labels[at]
        if not kind:
            at += 1
            continue
        last = _find_last(text, words, starts, lowered, labels, at)
        yield starts[at], starts[last] + len(words[last]), kind
        at = last + 1


def find_cued(text: str) -> Iterator[tuple[int, int, str]]:
    """Start, end and kind of names in scripts without capitals."""
    for pattern in CUED if _UNCASED.search(text) else ():
        for found in pattern.finditer(text):
            yield (*found.span(1), "name")


def _split_words(text: str) -> tuple[list[str], list[int]]:
    """Words and signs with their places, and two empty sentences around them so that every word has neighbors."""
    words, starts = [_END, _END], [0, 0]
    for found in _TOKEN.finditer(text):
        word = found[0]
        if word == "\0":  # twice, so that no word sees the text beside its own
            words.append(_END)
            starts.append(found.start())
        words.append(_END if word in "\0\n" else word)
        starts.append(found.start())
    return [*words, _END, _END, _END], [*starts, len(text), len(text), len(text)]


def _label_words(words: Sequence[str], lowered: Sequence[str]) -> list[str]:
    """For each word the kind it is taken for, or nothing."""
    weights, classes, nothing = load_weights(), load_classes(), (0, 0)
    labels = [""] * len(words)
    for at, word in enumerate(words):
        if word[0].isupper() and is_candidate(words, lowered, at, labels[at - 1]):
            name = place = 0
            for feature in list_features(words, lowered, at, labels[at - 1]):
                one, two = weights.get(feature, nothing)
                name += one
                place += two
            if max(name, place) > (DOUBT if "x" not in classes.get(lowered[at], "") else ORDINARY_DOUBT):
                labels[at] = "name" if name >= place else "place"
    return labels


def _find_last(
    text: str, words: Sequence[str], starts: Sequence[int], lowered: Sequence[str], labels: Sequence[str], at: int
) -> int:
    """The last word of the name that begins here: names run over spaces, initials' dots and small words between."""
    last = at
    while True:
        ahead = last + 1
        while ahead - last <= 3 and (lowered[ahead] in PARTICLES or (words[ahead] == "." and len(words[last]) == 1)):
            ahead += 1
        between = text[starts[last] + len(words[last]) : starts[ahead]]
        if labels[ahead] != labels[at] or len(between) > 12 or "\n" in between or "\0" in between or "," in between:
            return last
        last = ahead
