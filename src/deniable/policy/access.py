"""Who may ask, for what purpose, how much, and until when: the budget tree, and how it is read."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from deniable.policy.budget import ZCDP, Budget, PureDP, budget, format_number
from deniable.policy.schema import Anonymize, Frozen, Spec, drop_unseen, normalize_spelling

if TYPE_CHECKING:
    from deniable.policy.check.tree_checker import Section
    from deniable.policy.yaml_tree import Mistakes


class Accounting(StrEnum):
    """How the dataset's total is composed."""

    PURE = "pure"
    ZCDP = "zcdp"
    PLD = "pld"


class Period(StrEnum):
    """How often a purpose's allowance is renewed."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    QUARTER = "quarter"
    YEAR = "year"


@dataclass(frozen=True, slots=True)
class Purpose:
    """Why somebody asks; an allowance inside the dataset's, renewed each period if one is given.

    `approvals` is how many different stewards approve a release of rows, `justify` whether its request says what it is
    needed for, `terms` what an analyst acknowledges before asking.
    """

    name: str
    allowance: Budget
    every: Period | None = None
    approvals: int = 1
    justify: bool = False
    terms: str = ""


RESERVED_NAMES = ("steward", "auditor", "analyst", "respondent")
"""Roles: entries of the ledger tell the steward by that name, so no asker may have it."""


@lru_cache(maxsize=4096)
def find_name_fault(name: str) -> str:
    """Why a text cannot be the name of somebody who asks, decides or belongs to a group; empty where it can.

    A name has letters of one script and digits, and single signs of `SIGNS` between them. Every place where such a name
    enters asks this: policies, tokens, commands, issuers of identities, requests.

    >>> [find_name_fault(each) for each in ("ana", "Zo\u00eb O'Brien-7", "\u0410\u043d\u043d\u0430", "li@x.org")]
    ['', '', '', '']
    >>> find_name_fault("Ste\u0301ward"), find_name_fault("s\u0430m")
    ('is the name of a role, or looks like it', 'mixes letters of several alphabets')
    """
    looks = (_drop_marks(each).translate(LIKE_LETTERS) for each in list_looks(name))
    if any(BETWEEN.sub("", each) in _ROLE_LOOKS for each in looks):
        return "is the name of a role, or looks like it"
    plain = unicodedata.normalize("NFC", name)
    if not plain.strip():
        return "is empty"
    if drop_unseen(plain) != plain or not plain.isprintable():
        return "has characters that nobody sees, or spaces around it"
    if unicodedata.normalize("NFKC", name) != plain or UNUSUAL.search(plain):
        return "has characters that only look like plain ones"
    if not _is_written_plainly(plain):
        return f"has other characters than letters, digits, and single signs ({SIGNS}) or spaces between them"
    scripts = {_find_script(each) for each in plain if each.isalpha()}
    if len(scripts) > 1 and not any(scripts <= together for together in WRITTEN_TOGETHER):
        return "mixes letters of several alphabets"
    return ""


NAME_EXPECTED = "The name of a person or a program, in letters of one alphabet, and no role's"
SIGNS = "-_.@+'"
BETWEEN = re.compile("[-_.@+' ]+")
UNUSUAL = re.compile(
    "[\u0180-\u0185\u018d\u01a6-\u01a8\u01bb-\u01c3\u0250-\u02ff\u1100-\u11ff\u1d00-\u1dbf\u2c60-\u2c7f\ua720-\ua7ff"
    "\ua960-\ua97f\ud7b0-\ud7ff\U00010000-\U00010fff\U00016a00-\U00016fff]"
)
"""Letters of phonetic alphabets, clicks, tones, small capitals, parts of Korean syllables, and scripts of the past:
hardly anybody is called by them."""
VOWEL = re.compile(
    "(DEVANAGARI|BENGALI|GURMUKHI|GUJARATI|ORIYA|TAMIL|TELUGU|KANNADA|MALAYALAM|SINHALA) LETTER "
    "((SHORT |CANDRA )?[AEIOU]{1,2}|VOCALIC .*)"
)
"""The name of a vowel of an Indian script that stands by itself: a vowel sign after it would draw another vowel."""
WRITTEN_TOGETHER = (
    frozenset({"CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "IDEOGRAPHIC"}),
    frozenset({"HANGUL", "CJK"}),
)
"""Scripts that one language writes in one word."""


def _is_written_plainly(name: str) -> bool:
    """Whether a name has letters and digits with single signs between them, or a dot and a space after an initial."""
    words = BETWEEN.split(name)
    joined = all(words) and all(len(each) == 1 or each == ". " for each in BETWEEN.findall(name))
    plain = all(each.isalpha() or each in DIGITS or _belongs_to_letter(each) for each in "".join(words))
    return joined and plain and not any(_draws_other_vowel(*each) for each in pairwise(name))


def _draws_other_vowel(letter: str, mark: str) -> bool:
    vowel = VOWEL.fullmatch(unicodedata.name(letter, "")) is not None
    return vowel and re.search("VOWEL SIGN|LENGTH MARK", unicodedata.name(mark, "")) is not None


DIGITS = "0123456789"


def _belongs_to_letter(mark: str) -> bool:
    """Whether a mark is a part of writing: an accent above or below, or a sign of a script that is no accent."""
    if unicodedata.category(mark) not in ("Mn", "Mc"):
        return False
    return "\u0300" <= mark <= "\u0333" or not unicodedata.name(mark, "COMBINING").startswith("COMBINING")


def _find_script(letter: str) -> str:
    """The script of a letter, by the first word of its name."""
    return unicodedata.name(letter, "").split(" ")[0]


def list_looks(name: str) -> frozenset[str]:
    """What a name looks like: in the form that tells people apart, and by the Latin letters that it resembles.

    Two names that share one look alike; they are refused as two people. The resemblance is that of Unicode's table
    of confusable characters (UTS #39, confusables.txt), for the scripts whose letters look like Latin ones, and for
    letters of Arabic, Hebrew, Japanese and Indian scripts that look like others of their own.

    >>> [bool(list_looks("Ian") & list_looks(each)) for each in ("lan", "1an", "IAN", "\u0399\u0391\u039d", "jan")]
    [True, True, True, True, False]
    >>> [bool(list_looks(each) & list_looks("\u0401\u0412\u0410")) for each in ("\u00cbBA", "EBA", "EVA")]
    [True, True, False]
    """
    drawn = unicodedata.normalize("NFKD", name).translate(CAPITALS)  # a letter with a mark as the letter and the mark
    folded = unicodedata.normalize("NFD", normalize_spelling(drawn)).replace(" ", "")
    shape, bare = folded.translate(SMALL), _drop_marks(folded).translate(SMALL)
    same = {normalize_spelling(name).replace(" ", ""), _join_pairs(shape)}
    # A name of another script that is all Latin by its looks is told by no mark; two Latin ones are.
    return frozenset(same | {_join_pairs(bare)} if bare.isascii() and not _drop_marks(folded).isascii() else same)


def _join_pairs(shape: str) -> str:
    return shape.replace("vv", "w").replace("rn", "m")


def _drop_marks(text: str) -> str:
    return "".join(each for each in unicodedata.normalize("NFD", text) if not unicodedata.combining(each))


def _pair(*rows: str) -> dict[int, str]:
    """A table from rows of letters of another script, a space, and the Latin ones that they look like."""
    return {ord(sign): plain for row in rows for sign, plain in zip(*row.split(" "), strict=True)}


CAPITALS = _pair(
    "\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7\u03f9 ABEZHIKMNOPTYXC",
    "\u054d\u054f\u0555 USO",
    "\ua4d0\ua4d1\ua4d3\ua4d4\ua4d6\ua4d7\ua4d9\ua4da\ua4dc\ua4dd BPDTGKJCZF",
    "\ua4df\ua4e0\ua4e1\ua4e2\ua4e3\ua4e6\ua4e7 MNLSRVH",
    "\ua4ea\ua4eb\ua4ec\ua4ee\ua4f0\ua4f2\ua4f3\ua4f4 WXYAEIOU",
    *(  # Cherokee, whose small letters have the forms of the large ones
        f"{letters} DRTIYAJEWMHYGhZ4bRWSVSLCPKd6B"
        for letters in (
            "\u13a0\u13a1\u13a2\u13a5\u13a9\u13aa\u13ab\u13ac\u13b3\u13b7\u13bb\u13bd\u13c0\u13c2\u13c3\u13ce\u13cf\u13d2\u13d4"
            "\u13d5\u13d9\u13da\u13de\u13df\u13e2\u13e6\u13e7\u13ee\u13f4",
            "\uab70\uab71\uab72\uab75\uab79\uab7a\uab7b\uab7c\uab83\uab87\uab8b\uab8d\uab90\uab92\uab93\uab9e\uab9f\uaba2\uaba4"
            "\uaba5\uaba9\uabaa\uabae\uabaf\uabb2\uabb6\uabb7\uabbe\u13fc",
        )
    ),
)
"""Capitals of Greek, Armenian, Lisu and Cherokee, each with the Latin letter that it looks like."""
SMALL = _pair(
    "\u0430\u0432\u0435\u0437\u043a\u043c\u043d\u043e\u0440\u0441\u0442\u0443\u0445 abe3kmhopctyx",
    "\u0455\u0456\u0457\u0458\u04bb\u04cf\u0501\u051b\u051d\u04af\u0461 slljhldqwyw",
    "\u03b1\u03b2\u03b3\u03b5\u03b6\u03b7\u03b9\u03ba\u03bc\u03bd\u03bf abyeznlkuvo",
    "\u03c1\u03c3\u03c4\u03c5\u03c7\u03c9 potuxw",
    "\u0570\u0578\u057d\u0581\u0585\u0566 hnugoq",
    "\u2c9f\u2ca3\u2ca5\u2c81\u2c93\u2c95\u2c99\u2c9b opcalkmn",
    "01i oll",
    "\u0627\u0647\u05d5\u05df\u05e1\u4e28\u0d20\u101d lolloloo",
    "\u0671\u06cc\u0649\u06a9\u06aa\u06c1\u06be\u06d5 l\u064a\u064a\u0643\u0643ooo",
    "\u3078\u308a\u4e8c\u53e3\u5de5\u529b\u535c\u5915\u516b\u4e00\u4e3f\u5315\u53b6 "
    "\u30d8\u30ea\u30cb\u30ed\u30a8\u30ab\u30c8\u30bf\u30cf\u30fc\u30ce\u30d2\u30e0",
    "\u0bd7\u00f0\u0326\u030c \u0bb3\u0111\u0327\u0306",
) | {0x04AB: "c\u0327", 0x0499: "3\u0327", 0x05F0: "ll", 0x05F1: "l\u05d9", 0x05F2: "\u05d9\u05d9"}
"""Letters of Cyrillic, Greek, Armenian, Coptic, Hebrew and Arabic, and 0, 1 and i, each with the Latin letter that it
looks like; letters of Arabic, Japanese and Tamil, and marks, each with another that it looks like."""
LIKE_LETTERS = str.maketrans("345", "eas")
"""Digits that stand for letters in names of roles."""
_ROLE_LOOKS = frozenset(look for role in RESERVED_NAMES for look in list_looks(role))


@dataclass(frozen=True, slots=True)
class Analyst:
    """Somebody who asks: the purposes granted, the allowance inside each, and what may be seen.

    `columns` may be named; of tables that have a column of `rows`, only rows with one of its values are counted.
    `until` is the last day of the grant. A group has `members`, who ask by their own names and share all of this.
    """

    name: str
    purposes: tuple[str, ...]
    allowance: Budget
    columns: tuple[str, ...] | None = None
    rows: Mapping[str, tuple[str, ...]] = field(default_factory=Frozen)
    until: date | None = None
    members: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Budgets:
    """The tree: the dataset contains its purposes, which contain their analysts."""

    dataset: Budget
    accounting: Accounting = Accounting.PURE
    purposes: tuple[Purpose, ...] = ()
    analysts: tuple[Analyst, ...] = ()
    _named: Mapping[str, Analyst] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        named: dict[str, Analyst] = {}
        for each in self.analysts:
            for name in (each.name, *each.members):
                named.setdefault(name, each)
        object.__setattr__(self, "_named", named)  # looked up for every charge, and there may be thousands

    def find_analyst(self, name: str) -> Analyst | None:
        """The entry of somebody: their own, or that of their group."""
        return self._named.get(name)

    def find_purpose(self, name: str) -> Purpose | None:
        """The purpose of that name."""
        return next((each for each in self.purposes if each.name == name), None)


@dataclass(frozen=True, slots=True)
class Epochs:
    """What begins a new epoch of the data, beside the steward's word: the calendar, or the text of a public file.

    `copies` is a folder for the private files as they were when the epoch began.
    """

    every: Period | None = None
    manifest: str | None = None
    copies: str | None = None


@dataclass(frozen=True, slots=True)
class Minimize:
    """What a record-level release is cut down to before anything else: a sample of units, and named columns."""

    sample: Fraction = Fraction(1)
    columns: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class AttackLimits:
    """What the intruder is taken to know, the share of people each attack may expose, and who stands for more."""

    knows: tuple[str, ...] | None = None
    most: Mapping[str, Fraction] = field(default_factory=Frozen)
    accepted_by: str | None = None


@dataclass(frozen=True, slots=True)
class JointLimit:
    """The share of people that all released columns together may single out, and who stands for more than that."""

    most: Fraction
    accepted_by: str | None = None


@dataclass(frozen=True, slots=True)
class Synthesize:
    """What synthetic rows are for: lists of columns of one table that they should get right together."""

    workload: tuple[tuple[str, ...], ...] = ()

    def select_workload(self, columns: Iterable[str]) -> tuple[tuple[str, ...], ...]:
        """The lists whose columns are all among these.

        >>> Synthesize((("age", "sex"), ("sex", "ward"))).select_workload(["age", "sex"])
        (('age', 'sex'),)
        """
        known = set(columns)
        return tuple(names for names in self.workload if known.issuperset(names))


@dataclass(frozen=True, slots=True)
class ReleaseSettings:
    """Defaults for releases that the command line or a request may tighten.

    `truths` are public facts that synthetic rows keep: Specs of kind determines, impossible, order or sum.
    """

    anonymize: Anonymize | None = None
    minimize: Minimize | None = None
    attack: AttackLimits | None = None
    truths: tuple[Spec, ...] = ()
    synthesize: Synthesize = Synthesize()
    joint: JointLimit | None = None


@dataclass(frozen=True, slots=True)
class KeyPlace:
    """Where a masking key is kept: `kind` is file, env or command; the key itself is never in a policy."""

    name: str
    kind: str
    at: tuple[str, ...]


def build_budgets(entry: Section, mistakes: Mistakes) -> Budgets | None:
    """The tree, or None if the dataset's own budget is absent or refused."""
    total = entry.section("dataset")
    if not _has_amount(total):
        return None
    dataset = _allowance(total, PureDP(Fraction(0)))
    accounting = _choose_accounting(total, dataset, mistakes)
    purposes = {
        name: _purpose(name, s, dataset, mistakes) for name, s in _sections(entry, "purposes") if _has_amount(s)
    }
    analysts = [_analyst(name, s, dataset, purposes, mistakes) for name, s in _sections(entry, "analysts")]
    _check_members(entry, analysts, mistakes)
    return Budgets(dataset, accounting, tuple(purposes.values()), tuple(analysts))


def check_stewards(entry: Section, budgets: Budgets | None, mistakes: Mistakes) -> tuple[str, ...]:
    """The people who decide; refuses a role, a purpose or a group as one, and two names that look alike."""
    names: tuple[str, ...] = entry.get("stewards", ())
    listed = budgets or Budgets(PureDP(Fraction(0)))
    others = {look: "a role" for role in RESERVED_NAMES for look in list_looks(role)}
    others |= {look: "a purpose" for each in listed.purposes for look in list_looks(each.name)}
    others |= {look: "a group" for each in listed.analysts if each.members for look in list_looks(each.name)}
    people = [each for analyst in listed.analysts for each in (analyst.members or (analyst.name,))]
    for name in names:
        looks = list_looks(name)
        other = next((others[look] for look in sorted(looks) if look in others), "")
        alike = [each for each in people if looks & list_looks(each)]
        if other:
            happened = f"'{name}' is the name of {other}, or looks like it, and of no steward"
            mistakes.add(entry.place_of("stewards"), happened, "The name of a person, unlike all others")
        elif fault := find_name_fault(name):
            mistakes.add(entry.place_of("stewards"), f"'{name}' {fault}", NAME_EXPECTED)
        elif alike and all(normalize_spelling(each) != normalize_spelling(name) for each in alike):
            happened = f"'{name}' looks like '{alike[0]}', who is an analyst"
            mistakes.add(entry.place_of("stewards"), happened, "Names that nobody takes for others")
        others |= dict.fromkeys(looks, f"the steward '{name}'")
    return names


def build_epochs(entry: Section, mistakes: Mistakes) -> Epochs | None:
    """What the policy says of epochs, if it says anything."""
    every, manifest, copies = (entry.get(name, None) for name in ("every", "manifest", "copies"))
    if every is not None and manifest is not None:
        mistakes.add(entry.place_of("manifest"), "both a calendar and a manifest", "Expected: one of the two")
    if every is None and manifest is None and copies is None:
        return None
    return Epochs(None if every is None else Period(every), manifest, copies)


def _sections(entry: Section, name: str) -> list[tuple[str, Section]]:
    inner = entry.section(name)
    return [(each, inner.section(each)) for each in inner]


def _has_amount(entry: Section) -> bool:
    return "epsilon" in entry or "rho" in entry


def _allowance(entry: Section, whole: Budget) -> Budget:
    """The amount that an entry states; delta is the containing budget's if left out."""
    delta = entry.get("delta", whole.delta)
    if "rho" in entry and "epsilon" not in entry:
        return budget(rho=entry.get("rho", 0), delta=delta)
    return budget(epsilon=entry.get("epsilon", 0), delta=delta)


def _choose_accounting(entry: Section, dataset: Budget, mistakes: Mistakes) -> Accounting:
    zero_concentrated = isinstance(dataset, ZCDP)
    default = Accounting.ZCDP if zero_concentrated else Accounting.PURE
    chosen = Accounting(entry.get("accounting", default))
    if zero_concentrated and chosen is not Accounting.ZCDP:
        place = entry.place_of("accounting")
        mistakes.add(place, f"a budget in rho with {chosen} accounting", "Expected: accounting: zcdp, or epsilon")
    if not zero_concentrated and chosen is not Accounting.PURE and dataset.delta == 0 and not entry.was_given("delta"):
        place, expected = entry.place_of("accounting"), "A small delta, such as delta: 1e-6"
        mistakes.add(place, f"{chosen} accounting of an epsilon needs a delta", expected)
    return chosen


def _purpose(name: str, entry: Section, dataset: Budget, mistakes: Mistakes) -> Purpose:
    allowance = _allowance(entry, dataset)
    _check_inside(f"purpose '{name}'", allowance, entry, "the dataset", dataset, mistakes)
    every = entry.get("every", None)
    demands = (entry.get("approvals", 1), entry.get("justify", False), entry.get("terms", ""))
    return Purpose(name, allowance, None if every is None else Period(every), *demands)


def _analyst(name: str, entry: Section, dataset: Budget, purposes: dict[str, Purpose], mistakes: Mistakes) -> Analyst:
    granted: tuple[str, ...] = entry.get("purposes", ())
    if fault := find_name_fault(name):
        mistakes.add(entry.place, f"'{name}' {fault}", NAME_EXPECTED)
    allowance = _allowance(entry, dataset) if _has_amount(entry) else dataset
    if _has_amount(entry):
        _check_inside(f"analyst '{name}'", allowance, entry, "the dataset", dataset, mistakes)
        for purpose in (purposes[p] for p in granted if p in purposes):
            _check_inside(
                f"analyst '{name}'", allowance, entry, f"purpose '{purpose.name}'", purpose.allowance, mistakes
            )
    if "epsilon" in entry and "rho" in entry:
        mistakes.add(entry.place_of("rho"), f"analyst '{name}' has epsilon and rho", "Expected: one of the two")
    seen = (entry.get("columns", None), entry.get("rows", Frozen()))
    return Analyst(name, granted, allowance, *seen, entry.get("until", None), entry.get("members", ()))


def _check_members(entry: Section, analysts: Iterable[Analyst], mistakes: Mistakes) -> None:
    """Refuse somebody who stands twice, or looks like another: the limits would be unclear; and roles as members."""
    listed, taken = entry.section("analysts"), dict[str, str]()
    own = [(listed.section(each.name).place, each.name) for each in analysts]
    members = [(listed.section(group.name).place_of("members"), each) for group in analysts for each in group.members]
    for number, (place, name) in enumerate([*own, *members]):
        looks = list_looks(name)
        before = next((taken[look] for look in sorted(looks) if look in taken), "")
        if before == name:
            mistakes.add(place, f"'{name}' stands twice among the analysts and the members of groups", "Once")
        elif before:
            mistakes.add(
                place, f"'{name}' looks like '{before}', who is listed too", "Names that nobody takes for others"
            )
        if number >= len(own) and (fault := find_name_fault(name)):
            mistakes.add(place, f"'{name}' {fault}", NAME_EXPECTED)
        taken = dict.fromkeys(looks, name) | taken


def _check_inside(what: str, part: Budget, entry: Section, container: str, whole: Budget, mistakes: Mistakes) -> None:
    """No component of a part is larger than that of the whole which contains it."""
    if isinstance(part, ZCDP) != isinstance(whole, ZCDP):
        place = entry.place_of("rho" if "rho" in entry else "epsilon")
        mistakes.add(
            place, f"{what} and {container} state different kinds of budget", "Epsilon in both, or rho in both"
        )
        return
    amounts = [("rho", part.rho, whole.rho)] if isinstance(part, ZCDP) and isinstance(whole, ZCDP) else []
    if not isinstance(part, ZCDP) and not isinstance(whole, ZCDP):
        amounts = [("epsilon", part.epsilon, whole.epsilon)]
    for name, asked, allowed in [*amounts, ("delta", part.delta, whole.delta)]:
        if asked > allowed:
            place = entry.place_of(name) if name in entry else entry.place
            happened = f"{what} has {name} {format_number(asked)}, more than {container} that contains it"
            mistakes.add(place, happened, f"At most {format_number(allowed)}")
