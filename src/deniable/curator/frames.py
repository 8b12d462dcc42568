"""A curator for a table at hand, without a policy file: `Curator.from_frame`.

What a policy file would say is written here as the text of one, from what the caller states: who is a person, how much
may be spent, and the public bounds and categories of columns. Names and types of columns are read from the table, as
`deniable policy init` does; no value is. Charges go to a ledger in the user's state folder, which is found again by the
rows themselves: the same people have one budget, whichever library holds their rows.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.errors import AccessRefused, ParameterError, PolicyError, nearest
from deniable.policy.budget import (
    ZCDP,
    Amount,
    ApproxDP,
    Budget,
    PureDP,
    budget,
    covers,
    exact,
    format_number,
    say_budget,
)
from deniable.policy.schema import ColumnType, CsvDialect, Role, make_dialect
from deniable.storage import write_whole

if TYPE_CHECKING:
    from deniable.curator.policy.draft import Drafted
    from deniable.engines.base import Field
    from deniable.policy.document import Policy

ROW = "row"
"""The unit where each row is another person, as the policy's word for it."""
DATASET = "frame"
"""The dataset of every table at hand, so that rows are in one ledger whatever their table is called."""
FOLDER = "frames"
"""Where the ledgers of tables at hand are, in the user's state folder."""
BOUNDS = ("max_rows", "max_groups", "max_rows_per_group")
UNDECIDED = "not decided yet: withheld from releases of rows"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the caller states of a table: its people, its budget, and what is publicly known of its columns."""

    unit: str
    budget: Amount | Mapping[str, Amount] | Budget
    name: str = ""
    bounds: Mapping[str, tuple[Any, Any] | tuple[Any, Any, Any]] | None = None
    categories: Mapping[str, Sequence[Any]] | None = None
    max_rows: int | None = None
    max_groups: int | None = None
    max_rows_per_group: int | None = None
    encoding: str | None = None


@dataclass(frozen=True, slots=True)
class FramePolicy:
    """The policy of a table at hand, as text and read, and where its rows and its ledger are."""

    text: str
    policy: Policy
    sources: Mapping[str, Any]
    ledger: str | Path


def describe_frame(frame: Any, wanted: Wanted, ledger: str | Path | None = None) -> FramePolicy:
    """The policy of a table at hand, and the ledger that holds the budget of its people."""
    source, at_hand = _hold_rows(frame)
    name = wanted.name or ("data" if at_hand else _name_file(source))
    text = _write_policy(name, source, wanted, at_hand)
    policy = _parse_stated(text)
    sources = {name: source} if at_hand else {}
    _refuse_accepted(source)
    if ledger is None:
        ledger = _find_ledger(policy, sources)
        _refuse_more(ledger, policy)
    return FramePolicy(text, policy, sources, ledger)


def _parse_stated(text: str) -> Policy:
    """The policy of what was stated; a mistake is told without the place in a text that the caller never saw."""
    from deniable.policy.document import parse

    try:
        return parse(text, source="the arguments", folder=Path.cwd())
    except PolicyError as wrong:
        first = (wrong.mistakes or (wrong,))[0]
        raise ParameterError(
            f"the arguments cannot be used: {first.happened}", expected=first.expected, remedy=first.remedy
        ) from None


def _hold_rows(frame: Any) -> tuple[Any, bool]:
    """The rows as an Arrow table in common types, or a path; and whether it is the former."""
    import pyarrow as pa

    from deniable.engines.sources import as_arrow, is_frame

    if isinstance(frame, str | Path):
        return str(frame), False
    if not is_frame(frame):
        raise ParameterError(
            f"a value of type {type(frame).__name__} is not a table",
            expected="A pandas or Polars DataFrame, an Arrow table, an object with __arrow_c_stream__, or a path",
        )
    rows = as_arrow(frame)
    table = rows.read_all() if isinstance(rows, pa.RecordBatchReader) else rows
    return table.cast(pa.schema([(field.name, _choose_type(field.type)) for field in table.schema])), True


def _choose_type(kind: Any) -> Any:
    """One type for what libraries hold in several: the same rows have one name, whichever library they come from."""
    import pyarrow as pa

    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_large_string(plain) or pa.types.is_string_view(plain):
        return pa.string()
    if pa.types.is_integer(plain) and plain != pa.uint64():
        return pa.int64()
    return pa.float64() if pa.types.is_float32(plain) else plain


def _name_file(source: str) -> str:
    from deniable.curator.policy.draft import name_table

    return name_table(source)


def _write_policy(name: str, source: Any, wanted: Wanted, at_hand: bool) -> str:
    from deniable.curator.policy.draft import Draft, write_document

    fields, csv = _read_fields(source, wanted.encoding, at_hand)
    known = [field.name for field in fields]
    unit = _check_unit(wanted.unit, known)
    for word, stated in (("bounds", wanted.bounds), ("categories", wanted.categories)):
        if stated is not None and not isinstance(stated, Mapping):
            raise ParameterError(f"{word} is not a mapping of columns", expected=f'Such as {word}={{"age": (0, 120)}}')
        for column in stated or {}:
            _refuse_unknown(column, known)
    columns = tuple(_draft_column(field, unit, wanted) for field in fields)
    made = Draft(name, f"{name}.parquet" if at_hand else source, csv, unit, 0, columns)
    head = [f"# Made by Curator.from_frame{': name the file of the rows under source' if at_hand else ''}."]
    rest = ["release:", "  joint: {most: 0.05}", "budgets:", f"  dataset: {_write_budget(wanted.budget)}"]
    return write_document(made, [_write_unit(unit, wanted)], head, rest, dataset=DATASET)


def _warn_of_texts(rows: Any) -> None:
    """Tell of columns of text that hold numbers or dates: their values are texts in every question."""
    import pyarrow as pa

    from deniable.curator.policy.draft import SPELLED_ROWS
    from deniable.engines.duckdb.csv import list_spelled

    texts = [field.name for field in rows.schema if pa.types.is_string(field.type)]
    if spelled := list_spelled(rows.select(texts).slice(0, SPELLED_ROWS)):
        warnings.warn(
            f"{', '.join(map(repr, spelled))}: texts that look like numbers or dates, such as 12,50 or 03/04/2020, "
            "stay texts. Convert them first, such as pandas.to_datetime(frame['day'], dayfirst=True)",
            stacklevel=2,
        )


def _read_fields(source: Any, encoding: str | None, at_hand: bool) -> tuple[tuple[Field, ...], CsvDialect | None]:
    from deniable.curator.policy.draft import is_csv, read_as_spelled
    from deniable.engines.duckdb import DuckDBEngine

    csv = make_dialect(encoding)
    with DuckDBEngine() as engine:
        engine.attach("table", source, csv=csv)
        if is_csv(source):
            csv, doubts = read_as_spelled(engine, source, csv)
            for doubt in doubts:
                warnings.warn(f"{doubt}, in a policy file (save_policy)", stacklevel=2)
        elif at_hand:
            _warn_of_texts(source)
        return tuple(engine.describe("table")), csv


def _check_unit(unit: object, known: Sequence[str]) -> str | None:
    """The column that tells people apart; None where each row is another person."""
    if not isinstance(unit, str):
        raise ParameterError(
            "the unit is not the name of a column",
            expected='The column that tells people apart, such as unit="patient_id", or unit="row" if each row is '
            "another person",
        )
    if unit == ROW and unit not in known:
        return None
    _refuse_unknown(unit, known)
    return unit


def _refuse_unknown(column: str, known: Sequence[str]) -> None:
    if column not in known:
        raise ParameterError(
            f"the table has no column '{column}'",
            expected=f"Columns: {', '.join(known)}",
            remedy=_find_renamed(column, known) or nearest(column, known),
        )


def _find_renamed(column: str, known: Sequence[str]) -> str:
    """The name of a column that was numbered, since SQL knows no difference between upper and lower case."""
    found = [each for each in known if each.rpartition("_")[0] == column and each.rpartition("_")[2].isdigit()]
    is_twin = any(each != column and each.casefold() == column.casefold() for each in known)
    return (
        f"It is named '{found[0]}' here: in SQL, names differ in more than upper and lower case"
        if found and is_twin
        else ""
    )


def _draft_column(field: Field, unit: str | None, wanted: Wanted) -> Drafted:
    from deniable.curator.policy.draft import Drafted

    if field.name == unit:
        return Drafted(field.name, field.type, Role.IDENTIFIER, "it tells people apart")
    bounds, categories = (wanted.bounds or {}).get(field.name), (wanted.categories or {}).get(field.name)
    lines = [*_write_bounds(field, bounds), *_write_categories(field, categories)]
    return Drafted(field.name, field.type, Role.UNDECIDED, UNDECIDED, lines=tuple(lines))


def _write_bounds(field: Field, bounds: Any) -> list[str]:
    if bounds is None:
        return []
    if isinstance(bounds, str) or not isinstance(bounds, Sequence) or len(bounds) not in (2, 3):
        raise ParameterError(
            f"the bounds of '{field.name}' are not a pair",
            expected='Lowest and highest value, such as bounds={"age": (0, 120)}; for decimals also a step: '
            "(0, 1000, 0.01)",
        )
    if field.type in (ColumnType.TEXT, ColumnType.BOOLEAN):
        raise ParameterError(
            f"column '{field.name}' is {field.type}, which has no bounds",
            expected='Bounds of a column of numbers or dates; for others categories={"sex": ["F", "M"]}',
            remedy="If it holds numbers or dates in another spelling, such as 12,50 or 31.12.2024, convert it first",
        )
    if isinstance(bounds[0], int | float) and isinstance(bounds[1], int | float) and not bounds[0] < bounds[1]:
        raise ParameterError(f"the bounds of '{field.name}' are not lowest, then highest", expected="Such as (0, 120)")
    low, high, *step = (_write_end(value) for value in bounds)
    steps = step or (["0.01"] if field.type is ColumnType.DECIMAL else [])
    return [f"between: [{low}, {high}]", *(f"step: {each}" for each in steps)]


def _write_end(value: Any) -> str:
    """A bound as a policy writes it: numbers exactly, days and times in ISO 8601."""
    if isinstance(value, int | float | Decimal | Fraction) and not isinstance(value, bool):
        return format_number(exact(value, "bound"))
    shown = value.isoformat() if hasattr(value, "isoformat") else str(value)
    return shown.replace("T", " ") if len(shown) > len("2026-01-01") else shown


def _write_categories(field: Field, categories: Sequence[Any] | None) -> list[str]:
    from deniable.curator.policy.draft import yaml_word

    if categories is None:
        return []
    if isinstance(categories, str) or not isinstance(categories, Sequence) or not categories:
        raise ParameterError(
            f"the categories of '{field.name}' are not a list of one or more values",
            expected='Such as categories={"sex": ["F", "M"]}: what is publicly known, and not read from the rows',
        )
    if any(each is None or each != each for each in categories):  # nan is not itself
        raise ParameterError(
            f"the categories of '{field.name}' have a missing value among them",
            expected="Values; rows without one are counted by a condition: WHERE x IS NULL",
        )
    words = (yaml_word(each) if field.type is ColumnType.TEXT else str(each) for each in categories)
    return [f"categories: [{', '.join(words)}]"]


def _write_unit(unit: str | None, wanted: Wanted) -> str:
    """The policy's line on who is protected. Without a bound of the caller, one row of each person counts."""
    from deniable.curator.policy.draft import yaml_word

    if unit is None:
        return "    unit: row"
    stated = {name: getattr(wanted, name) for name in BOUNDS if getattr(wanted, name) is not None}
    for name, value in stated.items():
        if type(value) is not int or value < 1:
            raise ParameterError(f"{name} is not a whole number from 1 up", expected=f"Such as {name}=3")
    stated = stated or {"max_rows": 1}
    how = ", bounding: rows" if "max_rows" in stated else ""
    listed = ", ".join(f"{name}: {value}" for name, value in stated.items())
    return f"    unit: {{column: {yaml_word(unit)}, {listed}{how}}}"


def _write_budget(asked: Amount | Mapping[str, Amount] | Budget) -> str:
    """A budget as a policy writes it; a number alone is an epsilon."""
    if isinstance(asked, ZCDP):
        asked = {"rho": asked.rho, "delta": asked.delta}
    if isinstance(asked, PureDP | ApproxDP):
        asked = {"epsilon": asked.epsilon, "delta": asked.delta}
    if not isinstance(asked, Mapping):
        asked = {"epsilon": asked}
    for name in asked:
        if name not in ("epsilon", "delta", "rho"):
            raise ParameterError(f"a budget has no '{name}'", remedy=nearest(name, ("epsilon", "delta", "rho")))
    amounts = {name: exact(value, f"the {name} of the budget") for name, value in asked.items()}
    if (not amounts.get("epsilon") and not amounts.get("rho")) or any(amount < 0 for amount in amounts.values()):
        raise ParameterError(
            "the budget is not above 0", expected='An epsilon, such as budget=1, or {"epsilon": 1, "delta": 1e-6}'
        )
    return "{" + ", ".join(f"{name}: {format_number(value)}" for name, value in amounts.items() if value) + "}"


def _refuse_accepted(source: Any) -> None:
    from deniable.curator.policy.accepted_rows import find_policy_of

    accepted = find_policy_of(source)
    if accepted is not None:
        raise AccessRefused(
            f"a policy was accepted for these rows: {accepted}",
            expected="The policy that was accepted, for its rows and for copies of them",
            remedy=f"Open it: Curator.open({accepted!r})",
        )


def _find_ledger(policy: Policy, sources: Mapping[str, Any]) -> Path:
    """The ledger that holds the budget of these rows already, if it is one of tables at hand; else a new one."""
    from deniable.curator.context import open_context
    from deniable.ledger.witness import Witness, state_folder

    folder, witness = state_folder() / FOLDER, Witness()
    context = open_context(policy, sources=sources)
    try:
        (named,) = {stamp for _, stamp in context.scope.list_sources().values()} or {""}
        held = context.elsewhere
    finally:
        context.close()
    if held and Path(held).parent != folder.resolve():
        raise AccessRefused(
            f"these rows have a budget already, in the ledger {held}",
            expected="One budget for one set of people, whichever way their rows are opened",
            remedy="Open the policy of that ledger with Curator.open, and give the rows as sources= if they are here",
        )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return Path(held) if held else folder / f"{witness.name_frame(named).removeprefix('frame ')}.ledger.sqlite"


def _refuse_more(ledger: Path, policy: Policy) -> None:
    """Keep the budget that rows were first charged under: who asks for more later has no more by asking."""
    assert policy.budgets is not None
    stated, kept = policy.budgets.dataset, ledger.with_name(f"{ledger.name}.budget")
    if not ledger.exists() or not kept.exists():
        name, amount = ("rho", stated.rho) if isinstance(stated, ZCDP) else ("epsilon", stated.epsilon)
        write_whole(kept, json.dumps({name: str(amount), "delta": str(stated.delta)}).encode())
        return
    first = budget(**json.loads(kept.read_text("utf-8")))
    if isinstance(first, ZCDP) != isinstance(stated, ZCDP) or not covers(first, stated):
        raise AccessRefused(
            f"these rows have a budget already: {say_budget(first)}",
            expected="The budget that was stated when their first answer was charged, or less",
            remedy="State that budget. To allow more, write a policy with save_policy, raise the budget there, and "
            "open it with Curator.open(policy, ledger=...)",
        )


def write_policy(text: str, ledger: str, path: Path) -> Path:
    """Write the policy of a table at hand to a new file, with a note on the ledger that its charges are in.

    A source is looked for beside the policy: in another folder than this one it is named from there.
    """
    from deniable.curator.policy.draft import save

    begin = '    source: "'
    lines = text.split("\n")
    for place, line in enumerate(lines):
        source = line.removeprefix(begin).removesuffix('"')
        if line.startswith(begin) and path.parent.resolve() != Path.cwd() and Path(source).exists():
            lines[place] = f'{begin}{Path(source).resolve().as_posix()}"'
    told = f"# What was spent is in the ledger {ledger}: use it with --ledger, or Curator.open(ledger=...).\n"
    save(told + "\n".join(lines), path)
    return path
