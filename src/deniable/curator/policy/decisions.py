"""What a steward decides before a first release: one question after another, each with a recommended answer and why.

Everything here follows from a draft (names, types, counts; no value) and from the decisions so far: the next question,
what an answer means, the policy, and the commands that do the same by hand. Nothing here reads data."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import date, datetime
from typing import Any

from deniable.curator.policy.draft import Draft, Drafted
from deniable.errors import ParameterError, nearest, pluralize
from deniable.policy.schema import ColumnType, Role

RECIPIENTS = {
    "public": "anybody: a file on a website, or a recipient you cannot name yet",
    "researchers": "researchers who signed a contract and keep the file to themselves",
    "analysts": "analysts who ask questions and never hold the rows",
    "developers": "developers who need rows that look real, to build and test with",
}
SYNTHETIC, K_ANONYMITY, MASKED, QUERIES = "synthetic", "k-anonymity", "masked", "queries"
TRUE_ROWS = (K_ANONYMITY, MASKED)
"""What leaves are rows of people, changed, and nothing is spent."""
TECHNIQUES = {
    SYNTHETIC: "rows of nobody, drawn from noisy counts: differentially private, whatever an intruder knows",
    K_ANONYMITY: "the true rows, made coarser until k of them look alike; no promise against other knowledge",
    MASKED: "the true rows with names and numbers made up, and ages, dates and amounts coarser; no formal promise",
    QUERIES: "answers with noise, within a budget: differentially private; no row leaves",
}
NAMES = {SYNTHETIC: "synthetic rows", K_ANONYMITY: "k-anonymous rows", MASKED: "masked rows",
         QUERIES: "answers with noise"}  # fmt: skip
"""What leaves by each technique, in words."""
SUITED = {
    "public": (SYNTHETIC, K_ANONYMITY),
    "researchers": (K_ANONYMITY, SYNTHETIC),
    "analysts": (QUERIES,),
    "developers": (SYNTHETIC, MASKED),
}
ROLES = {
    "undecided": "withhold it: nobody has decided yet",
    "quasi-identifier": "others may know it of a person: it leaves coarser, or made anew",
    "sensitive": "what an intruder wants to learn: it leaves, and is watched",
    "insensitive": "neither: it leaves",
    "identifier": "it names a person: it is removed",
}
MOST_EXPOSED = 0.05
"""The share of people that an intruder who knows the quasi-identifiers may find in k-anonymous rows, at most."""
LEARN, NOTHING, REST = "learn", "none", "rest"
_DATES = (ColumnType.DATE, ColumnType.DATETIME)
ROW = "row"
FEW_ROWS = 5_000
"""With fewer rows the noise of a synthetic table is larger than most of its counts."""
MANY_ALIKE = 0.9
"""Where so many rows have one value of a secret, or none, whole classes do, and l distinct values cannot be asked."""
COMMON, UNEVEN = 0.12, 1.5
"""A secret is skewed where its commonest value has so large a share of the rows, and so many times an even share.

Where no value is common, groups of a few rows cannot resemble the table, and l values are asked alone."""
FARTHEST = 0.2
"""By so much the shares of a skewed secret's values may always differ between those who look alike and the table."""


PARTS = ("roles", "values", "left_out")
"""What is decided of each column."""


@dataclass(frozen=True, slots=True)
class Decisions:
    """What was decided so far; None, or a column that is missing, is still open.

    `values` says of each column which values are public: learned with noise, declared by the steward, or none.
    `left_out` says why a column does not leave, whatever its role: with it too many people would be singled out.
    """

    recipient: str | None = None
    technique: str | None = None
    unit: str | None = None
    rows_per_person: int | None = None
    roles: Mapping[str, str] = field(default_factory=dict)
    k: int | None = None
    l: int | None = None  # noqa: E741  the field's own letter
    suppress: float | None = None
    epsilon: float | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    risk: float | None = None
    left_out: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """What is decided, as the file of answers has it."""
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in plain.items() if value not in (None, {})}


@dataclass(frozen=True, slots=True)
class Question:
    """One decision: what it is about, the words that may be answered, and what is recommended, with the reason."""

    key: str
    title: str
    about: tuple[str, ...]
    choices: Mapping[str, str]
    recommended: str
    reason: str
    expected: str = ""


def next_question(made: Draft, decided: Decisions) -> Question | None:
    """The first decision that is still open; None when all are made."""
    return next((question for ask in _ORDER for question in ask(made, decided)), None)


def recommend_all(made: Draft, decided: Decisions) -> Decisions:
    """The decisions with the recommended answer to every question that is open."""
    while (question := next_question(made, decided)) is not None:
        decided = take_answer(made, decided, question, "")
    return decided


def take_answer(made: Draft, decided: Decisions, question: Question, text: str) -> Decisions:
    """The decisions with an answer: nothing typed is what is recommended, and what is wrong is refused."""
    said = text.strip() or question.recommended
    kind, _, column = question.key.partition(".")
    if kind in ("roles", "values") and said == REST:
        return _take_rest(made, decided, kind)
    if kind == "unit":
        _refuse_word_of(said, [ROW, *(each.name for each in made.columns)], "column")
    elif question.choices and kind != "values" and said not in question.choices:
        _refuse_word(said, question.choices)
    if kind == "roles":
        changed = {column: said} if column else _read_roles(made, decided, said)
        return replace(decided, roles={**decided.roles, **changed})
    if kind == "values":
        found = _find_column(made, column)
        return replace(decided, values={**decided.values, column: read_values(found, said)})
    return _settle(replace(decided, **{kind: _READ.get(kind, str)(said)}))


def _settle(decided: Decisions) -> Decisions:
    """The decisions with the technique, where only one suits the recipient."""
    suited = SUITED[decided.recipient] if decided.recipient else ()
    return replace(decided, technique=suited[0]) if decided.technique is None and len(suited) == 1 else decided


def _take_rest(made: Draft, decided: Decisions, kind: str) -> Decisions:
    """What is recommended for this column and all that follow."""
    while (question := next_question(made, decided)) is not None and question.key.partition(".")[0] == kind:
        decided = take_answer(made, decided, question, question.recommended)
    return decided


def _refuse_word(said: str, known: Mapping[str, str]) -> None:
    listed = ", ".join(known)
    raise ParameterError(f"'{said}' is none of the answers", expected=f"One of {listed}", remedy=nearest(said, known))


def _read_roles(made: Draft, decided: Decisions, said: str) -> dict[str, str]:
    """The roles as found, of columns that are open, with changes such as age=sensitive, zip=identifier."""
    roles = {column.name: str(column.role) for column in _list_found(made) if column.name not in decided.roles}
    for pair in [] if said == "yes" else re.split(r",\s*(?=[^,]*=)", said):
        name, equals, role = pair.rpartition("=")
        if not equals:
            raise ParameterError(f"'{said}' is not an answer", expected="yes, or COLUMN=ROLE, separated by commas")
        _refuse_word_of(name.strip(), [column.name for column in made.columns], "column")
        _refuse_word_of(role.strip(), list(ROLES), "role")
        roles[name.strip()] = role.strip()
    return roles


def _refuse_word_of(said: str, known: Sequence[str], what: str) -> None:
    if said not in known:
        expected = f"One of {', '.join(known[:12])}" + (" and others" if len(known) > 12 else "")
        raise ParameterError(f"there is no {what} '{said}'", expected=expected, remedy=nearest(said, known))


def read_values(column: Drafted, said: object) -> Any:
    """Which values of a column are public: learn, none, {between: [low, high]} or {categories: [...]}.

    Typed as `0 to 120`, or as `F, M`.
    """
    if said == LEARN and column.type in _DATES:
        raise ParameterError(f"'{column.name}' holds dates, which are not learned", expected="LOW to HIGH, or none")
    if said in (LEARN, NOTHING):
        return said
    if isinstance(said, str):
        ends = re.fullmatch(r"\s*(\S+)\s+to\s+(\S+)\s*", said)
        said = {"between": list(ends.groups())} if ends else {"categories": [word.strip() for word in said.split(",")]}
    if not isinstance(said, Mapping) or len(said) != 1 or not set(said) <= {"between", "categories"}:
        raise ParameterError(
            f"the values of '{column.name}' are given wrongly",
            expected="learn, none, {between: [LOW, HIGH]} or {categories: [A, B]}",
        )
    ((word, listed),) = said.items()
    read = _read_end if word == "between" else _read_category
    found = [read(column, str(each)) for each in listed]
    _refuse_bad_values(column, word, found)
    return {word: found}


def _refuse_bad_values(column: Drafted, word: str, found: Sequence[Any]) -> None:
    if word == "between" and (column.type in (ColumnType.TEXT, ColumnType.BOOLEAN) or len(found) != 2):
        raise ParameterError(f"'{column.name}' holds {column.type}", expected="Its values: A, B, C; or learn, or none")
    if word == "between" and found[0] >= found[1]:
        raise ParameterError(f"the bounds of '{column.name}' do not rise", expected="LOW to HIGH, such as 0 to 120")
    if word == "categories" and (column.type not in (ColumnType.TEXT, ColumnType.INTEGER) or len(found) < 2):
        expected = "LOW to HIGH, learn, or none" if column.type is not ColumnType.TEXT else "Two values or more"
        raise ParameterError(f"'{column.name}' holds {column.type}", expected=expected)


def _read_end(column: Drafted, text: str) -> Any:
    try:
        if column.type is ColumnType.DATE:
            return date.fromisoformat(text).isoformat()
        if column.type is ColumnType.DATETIME:
            return datetime.fromisoformat(text).isoformat(sep=" ")
        return int(text) if column.type is ColumnType.INTEGER else float(text)
    except ValueError:
        raise ParameterError(f"'{column.name}' holds {column.type}", expected="LOW to HIGH of that type") from None


def _read_category(column: Drafted, text: str) -> Any:
    return _read_end(column, text) if column.type is ColumnType.INTEGER else text


def _read_share(text: str) -> float:
    number = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    if not 0 <= number <= 1:
        raise ValueError
    return number


def _read_count(least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if int(text) < least:
            raise ValueError
        return int(text)

    return read


def _read_epsilon(text: str) -> float:
    if not 0 < float(text) <= 10:
        raise ValueError
    return float(text)


def _guard(read: Callable[[str], Any], expected: str) -> Callable[[str], Any]:
    def guarded(text: str) -> Any:
        try:
            return read(text)
        except ValueError:
            raise ParameterError(f"'{text}' is not an answer", expected=expected) from None

    return guarded


EXPECTED = {
    "k": "A whole number, 2 or more",
    "l": "A whole number, 1 (nothing is asked of secrets) or more",
    "rows_per_person": "A whole number, 1 or more",
    "suppress": "A share such as 0.05 or 5%",
    "risk": "A share such as 0.05 or 5%",
    "epsilon": "A number above 0, at most 10",
}
_READ: dict[str, Callable[[str], Any]] = {
    "k": _guard(_read_count(2), EXPECTED["k"]),
    "l": _guard(_read_count(1), EXPECTED["l"]),
    "rows_per_person": _guard(_read_count(1), EXPECTED["rows_per_person"]),
    "suppress": _guard(_read_share, EXPECTED["suppress"]),
    "risk": _guard(_read_share, EXPECTED["risk"]),
    "epsilon": _guard(_read_epsilon, EXPECTED["epsilon"]),
}


def read_answers(made: Draft, given: Mapping[str, Any]) -> Decisions:
    """Decisions from a file of answers; a key, column or word that does not exist is refused with the nearest."""
    known = [each.name for each in fields(Decisions)]
    for name in given:
        _refuse_word_of(str(name), known, "decision")
    decided = Decisions()
    for name, words in (("recipient", RECIPIENTS), ("technique", TECHNIQUES)):
        if given.get(name) is not None and given[name] not in words:
            _refuse_word(str(given[name]), words)
    columns = [column.name for column in made.columns]
    if given.get("unit") not in (None, ROW):
        _refuse_word_of(str(given["unit"]), columns, "column")
    plain = {name: given[name] for name in ("recipient", "technique", "unit") if given.get(name) is not None}
    numbers = {name: _READ[name](str(given[name])) for name in _READ if given.get(name) is not None}
    roles, values, left = (_require_mapping(given.get(name) or {}, name) for name in PARTS)
    for name in (*roles, *values, *left):
        _refuse_word_of(name, columns, "column")
    for role in roles.values():
        _refuse_word_of(str(role), list(ROLES), "role")
    public = {name: read_values(_find_column(made, name), said) for name, said in values.items()}
    worded, why = ({name: str(said) for name, said in part.items()} for part in (roles, left))
    decided = replace(decided, **plain, **numbers, roles=worded, values=public, left_out=why)
    _refuse_unsuited(decided)
    return _settle(decided)


def merge_decisions(kept: Decisions, given: Decisions) -> Decisions:
    """The decisions that were kept, with those that are given in their place."""
    said = given.to_dict()
    said |= {part: {**getattr(kept, part), **said.get(part, {})} for part in PARTS}
    merged = replace(kept, **said)
    unsuited = merged.recipient and merged.technique and merged.technique not in SUITED[merged.recipient]
    return _settle(replace(merged, technique=None) if unsuited else merged)


def doubt_roles(made: Draft, kept: Decisions) -> Decisions:
    """The decisions without the roles that the evidence gave: the table was changed, and they are asked again."""
    found = {column.name for column in _list_found(made)}
    return replace(kept, roles={name: role for name, role in kept.roles.items() if name not in found})


def _require_mapping(given: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise ParameterError(f"'{name}' is not a list of columns", expected=f"{name}: {{COLUMN: ...}}")
    return given


def _refuse_unsuited(decided: Decisions) -> None:
    if decided.recipient and decided.technique and decided.technique not in SUITED[decided.recipient]:
        _refuse_word(decided.technique, dict.fromkeys(SUITED[decided.recipient], ""))


def _find_column(made: Draft, name: str) -> Drafted:
    return next(column for column in made.columns if column.name == name)


def _list_found(made: Draft) -> list[Drafted]:
    """The columns whose role the evidence decides."""
    return [column for column in made.columns if column.role is not Role.UNDECIDED]


# The questions, in the order in which they are asked


def _ask_recipient(_made: Draft, decided: Decisions) -> Iterator[Question]:
    if decided.recipient is None:
        reason = "If you name no recipient, the release has to be safe for everybody."
        yield Question("recipient", "Who will receive it?", (), RECIPIENTS, "public", reason)


def _ask_technique(made: Draft, decided: Decisions) -> Iterator[Question]:
    if decided.technique is None:
        suited = SUITED[str(decided.recipient)]
        chosen, reason = suited[0], _WHY[str(decided.recipient)]
        if chosen == SYNTHETIC and K_ANONYMITY in suited and made.rows < FEW_ROWS:
            chosen, reason = (
                K_ANONYMITY,
                f"With {pluralize(made.rows, 'row')} the noise would be larger than most counts of synthetic rows.",
            )
        yield Question("technique", "In which form?", (), {name: TECHNIQUES[name] for name in suited}, chosen, reason)


_WHY = {
    "public": "A public file cannot be taken back, so the promise must hold whatever anybody knows, now or later.",
    "researchers": "A contract limits what they may look up, and true rows serve research best.",
    "analysts": "They need answers, not rows. The ledger keeps what all answers together may tell.",
    "developers": "Software needs rows of the right form, and nobody's own. Masked rows look real, and are people's.",
}


def _ask_unit(made: Draft, decided: Decisions) -> Iterator[Question]:
    if decided.unit is None:
        named = [column.name for column in made.columns if column.role is Role.IDENTIFIER]
        choices = {ROW: "each row is another person"} | dict.fromkeys(named, "all rows with one value are one person")
        chosen = made.unit or ROW
        reason = "No column was found that names people and repeats. If people have several rows, name the column."
        if made.unit is not None:
            choices |= {made.unit: "all rows with one value are one person"}
            reason = f"Of {made.unit}: {made.unit_reason or 'values repeat, and its name says that they name people'}."
        if not made.unit_sure:
            reason += (
                f" It is safer to count each value of {made.unit} as one person. If another column numbers people, "
                f"name it; if each row is another person, say {ROW} (or --unit {ROW})."
            )
        yield Question("unit", "Who is a person?", (), choices, chosen, reason, "row, or the name of any column")


def _ask_roles(made: Draft, decided: Decisions) -> Iterator[Question]:
    open_ones = [column for column in _list_found(made) if column.name not in decided.roles]
    if open_ones:
        about = tuple(f"{column.name}: {column.role} ({column.reason.split('; with ')[0]})" for column in open_ones)
        reason = "Names or values say it clearly. Nothing that was found is called insensitive: only you can say that."
        yield Question("roles", "Are these roles right?", about, {}, "yes", reason, "yes, or COLUMN=ROLE, ...")


def _ask_undecided(made: Draft, decided: Decisions) -> Iterator[Question]:
    left = [column for column in made.columns if column.role is Role.UNDECIDED and column.name not in decided.roles]
    for place, column in enumerate(left):
        about = (f"It holds {column.reason}.", f"Undecided after it: {len(left) - place - 1}.")
        reason = "What nobody has decided does not leave. You can decide later and release again."
        words = f"a role, or {REST} to withhold this and all that follow"
        title = f"What is {column.name} to an intruder?"
        yield Question(f"roles.{column.name}", title, about, {**ROLES, REST: "withhold all that are left"}, "undecided",
                       reason, words)  # fmt: skip


def _ask_k(made: Draft, decided: Decisions) -> Iterator[Question]:
    if decided.technique == K_ANONYMITY and decided.k is None:
        chosen = "10" if decided.recipient == "public" else "5"
        reason = "5 is usual under a contract, 10 or more for the public: one person is hidden among so many."
        about = () if list_diverse(made, decided) else tuple(map(_explain_skew, list_skewed(made, decided)))
        yield Question("k", "How many rows must look alike?", about, {}, chosen, reason, EXPECTED["k"])


def _ask_l(made: Draft, decided: Decisions) -> Iterator[Question]:
    if decided.technique == K_ANONYMITY and decided.l is None and list_diverse(made, decided):
        about = tuple(map(_explain_skew, list_skewed(made, decided)))
        reason = "Where all who look alike share a secret, it is known without finding the person. 1 asks nothing."
        title = "How many values of a secret must be among those who look alike?"
        yield Question("l", title, about, {}, "2", reason, EXPECTED["l"])


def _explain_skew(column: Drafted) -> str:
    """Why the shares of a secret's values are bounded too, or instead."""
    told = f"{column.name} is skewed: {column.commonest:.0%} of the rows have one of its {column.distinct} values"
    why = (
        "so that few groups could have several. Instead"
        if column.commonest > MANY_ALIKE
        else "and a group of several values can still be nearly all of one. Beside that"
    )
    return (
        f"{told}, {why} the shares of its values in a group may differ from the whole table by "
        f"{bound_distance(column):.0%} at most (t-closeness): nobody is in a group where a rare value is common."
    )


def _ask_suppress(_made: Draft, decided: Decisions) -> Iterator[Question]:
    if decided.technique == K_ANONYMITY and decided.suppress is None:
        reason = "A few rare rows left out let all others keep finer values."
        yield Question("suppress", "Which share of rows may be left out?", (), {}, "5%", reason, EXPECTED["suppress"])


def _ask_rows(_made: Draft, decided: Decisions) -> Iterator[Question]:
    if decided.technique not in TRUE_ROWS and decided.unit != ROW and decided.rows_per_person is None:
        reason = "Each further row of a person costs noise for everybody; rows beyond are left out, chosen by lot."
        title = "How many rows of one person may count?"
        yield Question("rows_per_person", title, (), {}, "2", reason, EXPECTED["rows_per_person"])


def _ask_epsilon(_made: Draft, decided: Decisions) -> Iterator[Question]:
    if decided.technique not in TRUE_ROWS and decided.epsilon is None:
        chosen = "1" if decided.recipient == "developers" else "2"
        about = (
            "Epsilon bounds how much anybody can learn from one person's presence, over all releases together.",
            "The first release spends about half of it; the ledger keeps the rest.",
        )
        reason = "Up to 1 is strong, up to 3 is usual; beyond 10 little is promised."
        yield Question(
            "epsilon", "How much may be spent in all (epsilon)?", about, {}, chosen, reason, EXPECTED["epsilon"]
        )


def _ask_values(made: Draft, decided: Decisions) -> Iterator[Question]:
    left = [column for column in list_valued(made, decided) if column.name not in decided.values]
    for column in left:
        chosen, reason = recommend_values(column, decided)
        about = (
            f"It holds {column.shape} ({column.type}).",
            "Values that are not public are learned with noise, or not used.",
        )
        learn = {} if column.type in _DATES else {LEARN: "from the data, with noise, for a part of epsilon"}
        choices = {
            **learn,
            NOTHING: "declare nothing",
            REST: "take what is recommended for this and all that follow",
        }
        how = "A, B, C" if column.type is ColumnType.TEXT else "LOW to HIGH"
        yield Question(f"values.{column.name}", f"Which values of {column.name} are public?", about, choices, chosen,
                       reason, f"{how}, from what you know of the subject; or one of the words above")  # fmt: skip


def _ask_risk(_made: Draft, decided: Decisions) -> Iterator[Question]:
    if decided.technique != QUERIES and decided.risk is None:
        synthetic = decided.technique == SYNTHETIC
        title = (
            "Which share of people may an attack expose?"
            if synthetic
            else "Which share of people may all released columns together single out?"
        )
        about = (
            "The rows are attacked before they leave, beside people who were held out; beyond this share they do not."
            if synthetic
            else f"By quasi-identifiers alone an attack may expose so many, and never more than {MOST_EXPOSED:.0%}."
        )
        chosen, reason = _RISKS[str(decided.technique if decided.technique in _RISKS else decided.recipient)]
        yield Question("risk", title, (about,), {}, chosen, reason, EXPECTED["risk"])


_RISKS = {
    SYNTHETIC: ("10%", "Chance alone gives an attack a few percent."),
    MASKED: ("5%", "Software is written by many hands, and copies of test data go far."),
    "public": ("5%", "Assume that some reader knows each fact. 5% is also what new policies say."),
    "researchers": ("20%", "Under a contract few know a secret already, and all who sign may not look people up."),
}


_ORDER: tuple[Callable[[Draft, Decisions], Iterator[Question]], ...] = (
    _ask_recipient, _ask_technique, _ask_unit, _ask_roles, _ask_undecided, _ask_k, _ask_l, _ask_suppress, _ask_rows,
    _ask_epsilon, _ask_values, _ask_risk,
)  # fmt: skip


# What follows from the decisions


def role_of(column: Drafted, decided: Decisions) -> Role:
    """The role that was decided; a column that nobody decided on is undecided, and one that tells people apart names
    them, whatever its values look like; one that was left out is withheld as if nobody had."""
    if column.name in decided.left_out:
        return Role.UNDECIDED
    role = Role(decided.roles.get(column.name, "undecided"))
    return Role.IDENTIFIER if column.name == decided.unit and role is not Role.UNDECIDED else role


def list_role(made: Draft, decided: Decisions, *roles: Role) -> list[str]:
    """The columns of some roles, in the table's order; the column that tells people apart is none of them."""
    return [c.name for c in made.columns if role_of(c, decided) in roles and c.name != decided.unit]


def list_released(made: Draft, decided: Decisions) -> list[str]:
    """The columns that leave, or that may be asked about."""
    kept = list_role(made, decided, Role.QUASI_IDENTIFIER, Role.SENSITIVE, Role.INSENSITIVE)
    if decided.technique in TRUE_ROWS:
        return kept
    # A command names columns in a list that is separated by commas.
    return [name for name in kept if "," not in name]


def list_diverse(made: Draft, decided: Decisions) -> list[Drafted]:
    """The sensitive columns of which several values can be asked for in each class."""
    named = list_role(made, decided, Role.SENSITIVE)
    alike = {column.name: column.commonest + column.missing for column in made.columns if column.commonest}
    return [column for column in made.columns if column.name in named and alike.get(column.name, 1) <= MANY_ALIKE]


def list_skewed(made: Draft, decided: Decisions) -> list[Drafted]:
    """The sensitive columns of which one value is much commoner than others: no group may have far more of any."""
    named = list_role(made, decided, Role.SENSITIVE)
    return [column for column in made.columns if column.name in named and _is_skewed(column)]


def _is_skewed(column: Drafted) -> bool:
    return COMMON <= column.commonest < 1 and column.commonest * column.distinct >= UNEVEN


def bound_distance(column: Drafted) -> float:
    """How far the shares of a skewed secret may be from the table's: halfway from its commonest value to certainty."""
    return max(FARTHEST, round((1 - column.commonest) / 2, 2))


def list_valued(made: Draft, decided: Decisions) -> list[Drafted]:
    """The columns of which it must be said which values are public: they are measured with noise."""
    if decided.technique in TRUE_ROWS:
        return []
    released = list_released(made, decided)
    return [c for c in made.columns if c.name in released and c.type is not ColumnType.BOOLEAN]


_PUBLIC_BOUNDS = (
    (r"(.+ )?(ages?|agep)", 0, 120, "Nobody is older than about 120."),
    (r"(.+ )?(percent|percentage|pct)", 0, 100, "A percentage."),
    (r"(.+ )?year", 1900, 2100, "Years of living memory."),
    (r"(.+ )?month", 1, 12, "Months of a year."),
    (r"(.+ )?hours? per week", 0, 168, "Hours of a week."),
    (r"lat(itude)?", -90, 90, "Degrees on the globe."),
    (r"(lon(gitude)?|lng)", -180, 180, "Degrees on the globe."),
)


def recommend_values(column: Drafted, decided: Decisions) -> tuple[str, str]:
    """Which values of a column to declare, and why: public knowledge where there is some, else learned with noise."""
    words = re.sub(r"[^a-z0-9]+", " ", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", column.name).lower()).strip()
    if column.type in _DATES:
        hours = "T00:00:00" if column.type is ColumnType.DATETIME else ""
        return f"1900-01-01{hours} to {date.today().year}-12-31{hours}", "Dates of living memory, up to this year."
    for pattern, low, high, reason in _PUBLIC_BOUNDS:
        if column.type.numeric and re.fullmatch(pattern, words):
            return f"{low} to {high}", reason
    if decided.technique == QUERIES:
        return NOTHING, "Questions can state bounds of their own, and groups appear where enough people are in them."
    return LEARN, "You may know them better. Learned with noise, a value that few people have never appears."
