"""Which column tells people apart: by its name, or by what rows with one of its values have in common.

An identifier need not look like one: member 1 to 400 is a person, whatever the column is called and in which language.
But all rows of a person have one sex, one birth and mostly one place, and rows of different people do not. So pairs of
rows with an equal value are laid beside each other: a column in which they agree, and rows at large do not, is a *fact*
of whoever the value stands for. Where nothing tells, a column whose many values repeat is suspected: to count rows
where people have several would let a class of one person pass for many."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deniable.masking.detectors import Profile
from deniable.masking.identifiers import is_measurement
from deniable.policy.schema import Role

FEWEST_VALUES, FEWEST_NAMED, FEWEST_PAIRS = 4, 10, 3
"""Columns with fewer values, or fewer pairs of rows with one of them, are not looked at; by its name one needs more."""
MOST_PAIRS, MOST_COLUMNS = 2_000, 100
"""So many pairs are compared, for so many columns, in so many others."""
AGREED, TELLING = 0.9, 0.8
"""A fact agrees in so large a share of the pairs, and in at most so large a share of all rows."""
SURE = 6.0
"""How unlikely it must be that pairs agree so often by chance: less than exp(-6)."""
MANY_VALUES = 0.05
"""With fewer values for each row a column that nobody knows more of is taken for a code of something."""
ENOUGH_FACTS = 2
OWN_KINDS = ("birth date", "age", "demographic")
"""What one person has once, or nearly so; ages and marriages change slowly."""
ENOUGH_PAIRS, SOME = 20, 0.3
"""With so many pairs that agree there little more often than rows at large, a value does not stand for one person."""
_PEOPLE = (
    r"user|person|people|cust|pers|emp|pat|patient|customer|consumer|member|client|subject|participant|respondent|employee|worker|staff"
    r"|student|pupil|resident|citizen|donor|guest|passenger|subscriber|insured|beneficiary|enrollee|policyholder"
    r"|account ?holder|individual|case|kund(e|in|en)?|mitglied|mitarbeiter(in)?|patientin|versicherte[rn]?|schuler(in)?"
    r"|nutzer|benutzer|teilnehmer|einwohner|client[ei]|paciente|usuario|socio|empleado|alumno|asegurado|persona"
    r"|membre|adherent|abonne|assure|salarie|eleve|utilisateur|personne|utente|paziente|dipendente|assicurato"
    r"|klant|lid|gebruiker|medewerker|medlem|anvandare|bruger|bruker|potilas|asiakas|pacjent|klient|osoba|pracownik"
    r"|pessoa|funcionario|beneficiario|hasta|musteri|kisi"
)
_NUMBERED = r" ?(id|ids|uid|no|nr|nbr|num|number|numero|nummer|key|code|ref|kennung|schlussel)"
_NAMED = re.compile(rf"({_PEOPLE})|(.+ )?({_PEOPLE}){_NUMBERED}|(id|numero|num|no|nr)( de| del| du)? ({_PEOPLE})")


@dataclass(frozen=True, slots=True)
class PersonColumn:
    """A column whose values seem to stand for people, and why; `sure` where its name or facts say so.

    `facts` are the other columns in which rows with one value agree.
    """

    name: str
    sure: bool
    reason: str
    facts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Candidate:
    profile: Profile
    named: bool
    known: bool
    facts: tuple[str, ...]
    apart: int
    about: int
    gained: float

    @property
    def sure(self) -> bool:
        return self.named or self.known or self.about >= ENOUGH_FACTS or (self.many and self.apart >= ENOUGH_FACTS)

    @property
    def many(self) -> bool:
        return self.profile.ratio >= MANY_VALUES


def names_people(profile: Profile) -> bool:
    """Whether a column's name is a word for people, or for their numbers."""
    return profile.distinct >= FEWEST_NAMED and _NAMED.fullmatch(profile.words) is not None


def find_person_column(
    rows: pa.Table, profiles: Sequence[Profile], roles: Mapping[str, Role], kinds: Mapping[str, str]
) -> PersonColumn | None:
    """The column that tells people apart, where people have several rows; None where no value of one repeats.

    `roles` and `kinds` are what the columns are as far as is known.
    """
    codes = _Codes(rows)
    listed = [p for p in profiles if _can_name_people(p, roles[p.name])]
    listed.sort(key=lambda p: (not names_people(p), roles[p.name] is not Role.IDENTIFIER, -p.distinct))
    others = [p.name for p in profiles if p.distinct > 1][:MOST_COLUMNS]
    found = [_compare_rows(p, codes, others, roles) for p in listed[:MOST_COLUMNS]]
    sure = [each for each in found if each is not None and each.sure]
    if sure:
        best = max(sure, key=lambda c: (c.about, c.named, c.known, c.apart, -c.profile.distinct))
        return PersonColumn(best.profile.name, True, _tell_evidence(best), best.facts)
    left = [each for each in found if each is not None and each.many and not is_measurement(each.profile)]
    own = [name for name in others if kinds[name] in OWN_KINDS]
    left = [each for each in left if not _mixes_people(codes, each.profile.name, own)]
    if not left:
        return None
    best = max(left, key=lambda c: (c.gained, -c.profile.distinct))
    why = "it has many values, which repeat: it may stand for people, and nothing says that it does not"
    if others := [each.profile.name for each in left if each is not best]:
        why += f" (so may {', '.join(others[:3])})"
    return PersonColumn(best.profile.name, False, why, best.facts)


def _mixes_people(codes: _Codes, name: str, own: Sequence[str]) -> bool:
    """Whether rows with one value differ in what one person has once, such as a sex: as rows at large do."""
    pairs = codes.pair_rows(name)
    if len(pairs[0]) < ENOUGH_PAIRS:
        return False
    chances = {each: codes.measure_chance(each) for each in own if each != name}
    return any(
        codes.measure_agreement(each, pairs) - chance < SOME * (1 - chance)
        for each, chance in chances.items()
        if chance <= TELLING
    )


def _tell_evidence(found: _Candidate) -> str:
    if found.facts:
        shown = ", ".join(found.facts[:3]) + (" and others" if len(found.facts) > 3 else "")
        return f"rows with one of its values agree in {shown}, as the rows of one person do"
    return "its name or values say that they stand for people, and values repeat"


def _can_name_people(p: Profile, role: Role) -> bool:
    """Whether values may stand for people: whole numbers or single words of which some repeat."""
    if not FEWEST_VALUES <= p.distinct < p.filled:
        return False
    if role is Role.IDENTIFIER or names_people(p):
        return True
    return role is Role.UNDECIDED and (p.whole or (p.textual and p.mean_words < 2))


def _compare_rows(
    profile: Profile, codes: _Codes, others: Sequence[str], roles: Mapping[str, Role]
) -> _Candidate | None:
    """What rows with one value of a column have in common; None where too few rows have one."""
    pairs = codes.pair_rows(profile.name)
    if len(pairs[0]) < FEWEST_PAIRS:
        return None
    facts, gained = {}, 0.0
    for name in others:
        chance = codes.measure_chance(name)
        if name == profile.name or chance > TELLING:
            continue
        agreed = codes.measure_agreement(name, pairs)
        gained += max(0.0, agreed - chance)
        if agreed >= AGREED and len(pairs[0]) * _measure_surprise(agreed, chance) >= SURE:
            facts[name] = chance
    ordered = sorted(facts, key=lambda name: facts[name])  # those with the most values first
    apart = _list_independent(codes, ordered)
    about = sum(roles[name] is Role.QUASI_IDENTIFIER for name in apart)
    known = roles[profile.name] is Role.IDENTIFIER
    return _Candidate(profile, names_people(profile), known, tuple(ordered), len(apart), about, gained)


def _list_independent(codes: _Codes, facts: Sequence[str]) -> list[str]:
    """The facts that do not follow from one before: a town follows from its postal code, a sex does not."""
    chosen: list[str] = []
    for name in facts[: 4 * ENOUGH_FACTS]:
        pairs = (codes.pair_rows(other) for other in chosen)
        if not any(len(p[0]) >= FEWEST_PAIRS and codes.measure_agreement(name, p) >= AGREED for p in pairs):
            chosen.append(name)
    return chosen


def _measure_surprise(agreed: float, chance: float) -> float:
    """How unlikely so much agreement is by chance, for each pair: Chernoff's bound."""
    chance = min(max(chance, 1e-6), 1 - 1e-6)
    terms = ((agreed, chance), (1 - agreed, 1 - chance))
    return float(sum(share * np.log(share / by_chance) for share, by_chance in terms if share > 0))


Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]


class _Codes:
    """The columns of a table as numbers of their values, each made when it is first asked for; -1 is no value."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows
        self._codes: dict[str, NDArray[np.int64]] = {}
        self._pairs: dict[str, Pairs] = {}

    def read(self, name: str) -> NDArray[np.int64]:
        """The numbers of a column's values."""
        if name not in self._codes:
            column = self._rows[name].combine_chunks()
            column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
            coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
            self._codes[name] = pc.fill_null(coded.indices.cast(pa.int64()), -1).to_numpy(zero_copy_only=False)
        return self._codes[name]

    def pair_rows(self, name: str) -> Pairs:
        """Rows that have one value of a column, in pairs drawn from anywhere: neighbors in a file are alike."""
        if name not in self._pairs:
            codes = self.read(name)
            drawn = np.random.default_rng(1).permutation(len(codes))
            order = drawn[np.argsort(codes[drawn], kind="stable")]
            told = codes[order]
            same = np.flatnonzero((told[1:] == told[:-1]) & (told[1:] >= 0))
            chosen = same[np.linspace(0, len(same) - 1, min(len(same), MOST_PAIRS)).astype(np.int64)]
            self._pairs[name] = order[chosen], order[chosen + 1]
        return self._pairs[name]

    def measure_agreement(self, name: str, pairs: Pairs) -> float:
        """The share of pairs that agree in a column, of those that have a value of it; 0 where few have."""
        one, other = (self.read(name)[side] for side in pairs)
        told = (one >= 0) & (other >= 0)
        return float((one == other)[told].mean()) if told.sum() >= max(FEWEST_PAIRS, len(one) / 10) else 0.0

    def measure_chance(self, name: str) -> float:
        """How often two rows at random have one value of a column."""
        codes = self.read(name)
        counts = np.bincount(codes[codes >= 0]).astype(np.float64)
        total = counts.sum()
        return float((counts * (counts - 1)).sum() / (total * (total - 1))) if total > 1 else 1.0
