"""Which column tells people apart: by its name, or by what rows with one of its values have in common.

An identifier need not look like one: member 1 to 400 is a person, whatever the column is called and in which language.
But all rows of a person have one sex, one birth and mostly one place, and rows of different people do not. So pairs of
rows with an equal value are laid beside each other: a column in which they agree, and rows at large do not, is a *fact*
of whoever the value stands for: whatever the values look like, and however few they are. Where no column numbers
people, but rows with one birth date agree in place and sex, the facts themselves show that people have several rows,
under whichever names the columns stand.
Where nothing tells, a column whose many values repeat is suspected: to count rows where people have several would let
a class of one person pass for many."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deniable.masking.detectors import Profile
from deniable.masking.identifiers import is_measurement, says_kind
from deniable.policy.schema import Role

FEWEST_VALUES, FEWEST_NAMED, FEWEST_PAIRS = 4, 10, 3
"""Columns with fewer values, or fewer pairs of rows with one of them, are not looked at; by its name one needs more.

Two values are enough where rows with one of them agree in what people have once."""
MOST_PAIRS, MOST_COLUMNS = 2_000, 100
"""So many pairs are compared, for so many columns, in so many others."""
AGREED, TELLING = 0.9, 0.8
"""A fact agrees in so large a share of the pairs, and in at most so large a share of all rows."""
NESTED = 0.99
"""Values of one column lie within those of another where so many pairs of rows agree in the other."""
SURE = 6.0
"""How unlikely it must be that pairs agree so often by chance: less than exp(-6)."""
MANY_VALUES, MANY_CODES = 0.05, 20
"""With fewer values for each row a column that nobody knows more of is taken for a code of something; codes of one form
and values whose rows are alike need only so many in all."""
ENOUGH_FACTS = 2
OWN_KINDS = ("birth date", "age", "demographic")
"""What one person has once, or nearly so; ages and marriages change slowly."""
_ONE_FACT = {
    "birth date": "birth", "age": "birth", "city": "place", "postal code": "place", "county or district": "place",
    "coordinate": "place",
}  # fmt: skip
_PLACES = re.compile(
    r"(.+ )?(zip( ?code)?|post(al)? ?code|plz|city|town|village|county|district|state|region|country|place)"
)
_AGES = re.compile(r"(.+ )?(birth.*|dob|ages?|jahrgang|generation|cohort)( (group|band|class|range|bracket))?")
"""Columns that tell one and the same of a person: a town follows from its postal code, an age from a birth."""
MOST_ANCHORS, LIFTED, LIFTED_LITTLE = 8, 5.0, 2.0
"""Of so many quasi-identifiers, those with the most values, pairs are looked at; two of them repeat together too often
where they do so many times more often than they would by chance: fewer where rows agree in more."""
ENOUGH_PAIRS, SOME = 20, 0.3
"""With so many pairs that agree there little more often than rows at large, a value does not stand for one person.

Where they agree in something by as much more often as `SOME` of what is left to agree in, their rows are alike."""
_PEOPLE = (
    r"user|person|people|cust|pers|emp|pat|patient|customer|consumer|member|client|subject|participant|respondent|employee|worker|staff"
    r"|student|pupil|resident|citizen|donor|guest|passenger|subscriber|insured|beneficiary|enrollee|policyholder"
    r"|account ?holder|individual|case|wearer|owner|holder|driver|rider|tenant|voter|player|reviewer|buyer|visitor"
    r"|traveller|traveler|applicant|borrower|claimant|taxpayer|inmate|veteran|runner|caller|learner|volunteer|kund(e|in|en)?|mitglied|mitarbeiter(in)?|patientin|versicherte[rn]?|schuler(in)?"
    r"|patienten|kunden|mitglieder|mitglieds|personen|personal|schueler|trager|halter|nutzer|benutzer|teilnehmer|einwohner|client[ei]|paciente|usuario|socio|empleado|alumno|asegurado|persona"
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
    birth: bool
    facts: tuple[str, ...]
    apart: int
    about: int
    own: int
    shared: int
    pairs: int
    gained: float
    alike: bool

    @property
    def sure(self) -> bool:
        return self.named or self.known or self.about >= ENOUGH_FACTS or (self.many and self.apart >= ENOUGH_FACTS)

    @property
    def stands_for_people(self) -> bool:
        """Whether enough rows agree in enough of what people are known by, whatever the values look like."""
        return self.about >= ENOUGH_FACTS and self.pairs >= ENOUGH_PAIRS

    @property
    def repeats_people(self) -> bool:
        """Whether rows of one person repeat here: they agree in what people have once, and in any further column.

        What a column is called does not matter then: a place is a fact of a person under whichever name. Few are born
        on one day, so that rows with one birth date need to agree in a sex only, or in any two columns.
        """
        if self.pairs < ENOUGH_PAIRS:
            return False
        if self.birth:
            return self.own > 0 or self.shared >= ENOUGH_FACTS
        return self.own > 0 and self.shared >= ENOUGH_FACTS

    @property
    def many(self) -> bool:
        return self.profile.ratio >= MANY_VALUES

    @property
    def coded(self) -> bool:
        """Whether the values are texts of one form with digits in it, as numbers that were given out are."""
        shape, share = self.profile.shape_share
        return self.profile.textual and "9" in shape and share >= AGREED / 2

    @property
    def suspected(self) -> bool:
        """Whether values may stand for people though nothing says so: many values, or codes of one form, or alike."""
        enough = self.many or ((self.coded or self.alike) and self.profile.distinct >= MANY_CODES)
        return enough and not is_measurement(self.profile)


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
    facts = _Facts(codes, others, roles, {p.name: _name_fact(p, kinds[p.name]) for p in profiles})
    found = facts.compare_all(listed[:MOST_COLUMNS])
    sure = [each for each in found if each.sure]
    if not any(each.about >= ENOUGH_FACTS for each in sure):
        seen = {each.name for each in listed}
        rest = [p for p in profiles if p.name not in seen and 1 < p.distinct < p.filled]
        numbered = facts.compare_all([p for p in rest if _may_be_misread(p, roles[p.name], kinds[p.name])])
        sure += [each for each in numbered if each.stands_for_people]
        found += [each for each in numbered if each.profile.distinct >= FEWEST_VALUES and _is_code(each.profile)]
    if sure:
        best = _take_coarsest(max(sure, key=_rank), sure, codes)
        return PersonColumn(best.profile.name, True, _tell_evidence(best), best.facts)
    if repeated := _find_repeated_facts(facts, profiles, kinds):
        return repeated
    left = [each for each in found if each.suspected]
    own = [name for name in others if kinds[name] in OWN_KINDS]
    left = [each for each in left if not _mixes_people(codes, each.profile.name, own)]
    if not left:
        return None
    best = max(left, key=lambda c: (c.alike, c.coded, c.gained, -c.profile.distinct))
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
    return role is Role.UNDECIDED and _is_code(p)


def _is_code(p: Profile) -> bool:
    return p.whole or (p.textual and p.mean_words < 2)


def _is_category(p: Profile) -> bool:
    """Whether values are words or codes of which many rows have one, as places are, and no amounts."""
    return (p.textual or p.whole) and p.ratio < AGREED / 2 and not is_measurement(p)


def _may_be_misread(p: Profile, role: Role, kind: str) -> bool:
    """Whether nothing but values gave a kind or none: S12 may be a diagnosis or a subject, 1.001 a weight or a person.

    What a column's name says it to be is no number of a person.
    """
    return role is Role.UNDECIDED or (bool(kind) and kind not in OWN_KINDS and not says_kind(p, kind))


def _name_fact(p: Profile, kind: str) -> str:
    """What a column tells of a person: of several that tell the same, one counts."""
    if named := _ONE_FACT.get(kind):
        return named
    if _PLACES.fullmatch(p.words):
        return "place"
    return "birth" if _AGES.fullmatch(p.words) else p.name


def _rank(found: _Candidate) -> tuple[int, bool, bool, int, int]:
    return found.about, found.named, found.known, found.apart, -found.profile.distinct


def _take_coarsest(best: _Candidate, sure: Sequence[_Candidate], codes: _Codes) -> _Candidate:
    """Of columns that lie within each other the one with the fewest values: a visit is of one person, who has many."""
    wider = [each for each in sure if each.stands_for_people and each.profile.distinct < best.profile.distinct]
    pairs = codes.pair_rows(best.profile.name)
    within = [each for each in wider if codes.measure_agreement(each.profile.name, pairs) >= NESTED]
    return min(within, key=lambda each: each.profile.distinct, default=best)


def _find_repeated_facts(facts: _Facts, profiles: Sequence[Profile], kinds: Mapping[str, str]) -> PersonColumn | None:
    """What people have once, where rows repeat it so that people have several: counted, it never counts too many.

    All rows of a person have one birth; so k births are at least k people, whichever column numbers them or none.
    """
    own = [p for p in profiles if facts.roles[p.name] is Role.QUASI_IDENTIFIER and 1 < p.distinct < p.filled]
    own.sort(key=lambda p: (kinds[p.name] != "birth date", kinds[p.name] == "age", -p.distinct))  # ages change
    for candidate in facts.compare_all(own[:MOST_ANCHORS]):
        if candidate.repeats_people:
            return PersonColumn(candidate.profile.name, False, _tell_repeated(candidate.facts), candidate.facts)
    births = [p for p in own[:MOST_ANCHORS] if facts.tells_birth(p.name)]
    unknown = [p for p in profiles if facts.roles[p.name] is Role.UNDECIDED and 1 < p.distinct < p.filled]
    unknown = [p for p in unknown if _is_category(p)][:MOST_ANCHORS]
    for one, other in (*combinations(own[:MOST_ANCHORS], 2), *product(births, unknown)):
        if agreed := facts.compare_two(one.name, other.name):
            return PersonColumn(one.name, False, _tell_repeated((other.name, *agreed)), (other.name, *agreed))
    for p in profiles:
        if kinds[p.name] == "birth date" and p.distinct == 1 and p.filled > 1:
            return PersonColumn(p.name, False, "all rows have one birth date, as the rows of one person do")
    return None


def _tell_repeated(facts: Sequence[str]) -> str:
    listed = ", ".join(facts[:3]) + (" and others" if len(facts) > 3 else "")
    return (
        f"rows with one of its values agree in {listed} far more often than chance, so people seem to have several "
        "rows, and no column was found that numbers them"
    )


class _Facts:
    """What rows with one value of a column have in common with each other, and rows at large do not."""

    def __init__(
        self, codes: _Codes, others: Sequence[str], roles: Mapping[str, Role], named: Mapping[str, str]
    ) -> None:
        self._codes, self._others, self.roles, self._named = codes, others, roles, named

    def compare_all(self, profiles: Sequence[Profile]) -> list[_Candidate]:
        """Those columns of which several rows have one value, with what these rows agree in."""
        return [found for each in profiles[:MOST_COLUMNS] if (found := self._compare_rows(each)) is not None]

    def _compare_rows(self, profile: Profile) -> _Candidate | None:
        pairs = self._codes.pair_rows(profile.name)
        if len(pairs[0]) < FEWEST_PAIRS:
            return None
        facts, gained, alike = {}, 0.0, False
        for name, chance, agreed, surprising in self._list_agreements(pairs, (profile.name,)):
            gained += max(0.0, agreed - chance)
            alike = alike or (surprising and agreed - chance >= SOME * (1 - chance))
            if surprising and agreed >= AGREED:
                facts[name] = chance
        birth = self._named[profile.name] == "birth" and profile.dated
        ordered = sorted(facts, key=lambda name: facts[name])  # those with the most values first
        ordered = [name for name in ordered if not birth or not self._follows_in_time(name, profile.name)]
        about = self._list_about(profile.name, ordered, (Role.QUASI_IDENTIFIER,))
        shared = self._list_about(profile.name, ordered, (Role.QUASI_IDENTIFIER, Role.UNDECIDED, Role.SENSITIVE))
        known = self.roles[profile.name] is Role.IDENTIFIER
        own = sum(not self._is_place(name) for name in about)
        apart = len(_list_independent(self._codes, ordered))
        return _Candidate(profile, names_people(profile), known, birth, tuple(ordered), apart, len(about),
                          own, len(shared), len(pairs[0]), gained, alike)  # fmt: skip

    def _list_agreements(self, pairs: Pairs, known: Sequence[str]) -> Iterator[tuple[str, float, float, bool]]:
        """The other columns: how often two rows agree in each by chance, how often these do, and if that surprises."""
        for name in self._others:
            chance = self._codes.measure_chance(name)
            if name in known or chance > TELLING:
                continue
            agreed = self._codes.measure_agreement(name, pairs)
            yield name, chance, agreed, _is_surprising(agreed, chance, len(pairs[0]))

    def tells_birth(self, name: str) -> bool:
        """Whether a column tells when people were born, or how old they are."""
        return self._named[name] == "birth"

    def _is_place(self, name: str) -> bool:
        return self._named[name] == "place"

    def _list_about(self, name: str, facts: Sequence[str], roles: Sequence[Role]) -> list[str]:
        """The facts of these roles: of those that tell the same one, and none that follows from another.

        Whether one follows from another is seen on one row of each value: all rows of a person agree in everything.
        """
        chosen: list[str] = []
        used = {self._named[name]}
        for fact in (fact for fact in facts if self.roles[fact] in roles):
            if self._named[fact] not in used and not any(self._follows(fact, other, name) for other in chosen):
                chosen.append(fact)
                used.add(self._named[fact])
        return chosen

    def _follows(self, fact: str, other: str, name: str) -> bool:
        pairs = self._codes.pair_rows(other, name)
        if len(pairs[0]) < FEWEST_PAIRS:
            return False
        agreed = self._codes.measure_agreement(fact, pairs)
        return agreed >= AGREED and _is_surprising(agreed, self._codes.measure_chance(fact), len(pairs[0]))

    def _follows_in_time(self, fact: str, births: str) -> bool:
        """Whether a column follows from births, as ages and their groups do: people born near each other agree."""
        pairs = self._codes.pair_neighbors(births)
        if len(pairs[0]) < FEWEST_PAIRS:
            return False
        chance, agreed = self._codes.measure_chance(fact), self._codes.measure_agreement(fact, pairs)
        return agreed - chance >= SOME * (1 - chance) and _is_surprising(agreed, chance, len(pairs[0]))

    def compare_two(self, one: str, other: str) -> tuple[str, ...]:
        """What rows agree in that have one value of both columns, and by neither alone; empty where it may be chance.

        They must tell different things, a birth or a place among them, and repeat together too often. Without a birth
        rows must agree in two more facts: a job and a town may leave one sex by themselves. Where they agree in two
        columns of any name, they need not repeat as often.
        """
        codes = self._codes
        told = {self._named[one], self._named[other]}
        if len(told) < 2 or not told & {"birth", "place"}:
            return ()
        pairs = codes.pair_both(one, other)
        chance = codes.measure_chance(one) * codes.measure_chance(other)
        lift = codes.share_both(one, other) / max(chance, 1e-12)
        if len(pairs[0]) < ENOUGH_PAIRS or lift < LIFTED_LITTLE:
            return ()
        agreements = self._list_agreements(pairs, (one, other))
        lifted = {
            name: agreed / chance
            for name, chance, agreed, surprising in agreements
            if surprising and agreed >= AGREED and self._named[name] not in told
            if self.roles[name] is not Role.IDENTIFIER
            if all(codes.measure_agreement(name, codes.pair_rows(each)) < AGREED for each in (one, other))
        }
        agreed_in = tuple(lifted)
        known = {self._named[name] for name in agreed_in if self.roles[name] is Role.QUASI_IDENTIFIER}
        if "birth" in told and known and len({self._named[name] for name in agreed_in}) >= ENOUGH_FACTS:
            return agreed_in
        if "birth" in told:  # an age and a place repeat less often than a birth: with the best fact, all three do
            lift *= max((lifted[name] for name in agreed_in if self.roles[name] is Role.QUASI_IDENTIFIER), default=1.0)
        return agreed_in if lift >= LIFTED and len(known) >= (1 if "birth" in told else ENOUGH_FACTS) else ()


def _is_surprising(agreed: float, chance: float, pairs: int) -> bool:
    return agreed > chance and pairs * _measure_surprise(agreed, chance) >= SURE


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
        self._pairs: dict[tuple[str, str], Pairs] = {}
        self._chances: dict[str, float] = {}

    def read(self, name: str) -> NDArray[np.int64]:
        """The numbers of a column's values."""
        if name not in self._codes:
            column = self._rows[name].combine_chunks()
            column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
            coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
            self._codes[name] = pc.fill_null(coded.indices.cast(pa.int64()), -1).to_numpy(zero_copy_only=False)
        return self._codes[name]

    def pair_rows(self, name: str, once: str = "") -> Pairs:
        """Rows that have one value of a column, in pairs drawn from anywhere: neighbors in a file are alike.

        With `once`, one row of each value of that column is looked at.
        """
        if (name, once) not in self._pairs:
            rows = np.unique(self.read(once), return_index=True)[1] if once else None
            self._pairs[name, once] = _pair_equal(self.read(name), rows)
        return self._pairs[name, once]

    def pair_neighbors(self, name: str) -> Pairs:
        """One row of each value of a column, and one of the next value in order."""
        codes = self.read(name)
        values, rows = np.unique(codes, return_index=True)
        rows = rows[values >= 0]
        order = rows[pc.sort_indices(self._rows[name].take(pa.array(rows))).to_numpy()]
        chosen = np.linspace(0, len(order) - 2, min(len(order) - 1, MOST_PAIRS)).astype(np.int64)
        return order[chosen], order[chosen + 1]

    def pair_both(self, one: str, other: str) -> Pairs:
        """Rows that have one value of two columns, in pairs."""
        return _pair_equal(self._join(one, other))

    def share_both(self, one: str, other: str) -> float:
        """How often two rows at random have one value of both columns."""
        return _measure_chance(self._join(one, other))

    def _join(self, one: str, other: str) -> NDArray[np.int64]:
        first, second = self.read(one), self.read(other)
        joined = np.where((first < 0) | (second < 0), -1, first * (second.max(initial=0) + 1) + second)
        return np.where(joined < 0, -1, np.unique(joined, return_inverse=True)[1])

    def measure_agreement(self, name: str, pairs: Pairs) -> float:
        """The share of pairs that agree in a column, of those that have a value of it; 0 where few have."""
        one, other = (self.read(name)[side] for side in pairs)
        told = (one >= 0) & (other >= 0)
        return float((one == other)[told].mean()) if told.sum() >= max(FEWEST_PAIRS, len(one) / 10) else 0.0

    def measure_chance(self, name: str) -> float:
        """How often two rows at random have one value of a column."""
        if name not in self._chances:
            self._chances[name] = _measure_chance(self.read(name))
        return self._chances[name]


def _measure_chance(codes: NDArray[np.int64]) -> float:
    counts = np.bincount(codes[codes >= 0]).astype(np.float64)
    total = counts.sum()
    return float((counts * (counts - 1)).sum() / (total * (total - 1))) if total > 1 else 1.0


def _pair_equal(codes: NDArray[np.int64], rows: NDArray[np.int64] | None = None) -> Pairs:
    """Pairs of rows with an equal number, of all rows or of some."""
    drawn = np.random.default_rng(1).permutation(len(codes) if rows is None else rows)
    order = drawn[np.argsort(codes[drawn], kind="stable")]
    told = codes[order]
    same = np.flatnonzero((told[1:] == told[:-1]) & (told[1:] >= 0))
    chosen = same[np.linspace(0, len(same) - 1, min(len(same), MOST_PAIRS)).astype(np.int64)]
    return order[chosen], order[chosen + 1]
