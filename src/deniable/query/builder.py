"""Questions by methods, for those who do not write SQL: each call adds to a statement, and `sql` is what will be asked.

    from deniable import col, count, mean

    visits = curator.table("visits")
    visits.filter(col("charge") > 100, sex="F").group_by("ward").agg(count(), mean("charge")).ask(epsilon=0.5)

Nothing is decided here: the text goes to the same compiler as any other question, which refuses what it does not know.
Values are written as literals and names are quoted where they have to be, so neither becomes a part of the statement.
Conditions may also be given as text, which is taken as it is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

from deniable.errors import MissingExtra, ParameterError, as_list, check_keywords, guard_arguments

Ask = Callable[..., Any]
Value = str | int | float | Decimal | Fraction | bool | date | datetime | None
PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?")
RESERVED = frozenset(
    re.findall(
        r"\w+",
        "all alter and any as asc between by case cast connect_by_root create cross cube current_catalog "
        "current_date current_time current_timestamp current_user desc describe distinct drop else end except "
        "exists extract false fetch for force from full glob grant group having if ilike in inner insert install "
        "intersect interval into is join lambda lateral left like limit localtime localtimestamp lock map natural "
        "not notnull null offset on only or order outer over partition partitioned_by positional qualify regexp "
        "returning revoke right rlike rollback rollup select session_user set summarize table tablesample then to "
        "true uncache union unique using values when where window with xor",
    )
)
"""Words that are not taken for names unless they are quoted."""


@dataclass(frozen=True, slots=True, eq=False)
class Expression:
    """A column, or what is computed from columns and values; `text` is how SQL writes it.

    >>> ((col("age") >= 18) & col("sex").is_in(["F", "M"])).text
    "((age >= 18) AND (sex IN ('F', 'M')))"
    >>> (col("name") == "O'Hara").text
    "(name = 'O''Hara')"
    """

    text: str

    def __eq__(self, other: object) -> Expression:  # type: ignore[override]
        return self.is_null() if other is None else self._join("=", other)

    def __ne__(self, other: object) -> Expression:  # type: ignore[override]
        return self.is_not_null() if other is None else self._join("<>", other)

    __hash__ = None  # type: ignore[assignment]

    def __lt__(self, other: Value | Expression) -> Expression:
        return self._join("<", other)

    def __le__(self, other: Value | Expression) -> Expression:
        return self._join("<=", other)

    def __gt__(self, other: Value | Expression) -> Expression:
        return self._join(">", other)

    def __ge__(self, other: Value | Expression) -> Expression:
        return self._join(">=", other)

    def __add__(self, other: Value | Expression) -> Expression:
        return self._join("+", other)

    def __sub__(self, other: Value | Expression) -> Expression:
        return self._join("-", other)

    def __mul__(self, other: Value | Expression) -> Expression:
        return self._join("*", other)

    def __truediv__(self, other: Value | Expression) -> Expression:
        return self._join("/", other)

    def __mod__(self, other: Value | Expression) -> Expression:
        return self._join("%", other)

    def __radd__(self, other: Value) -> Expression:
        return Expression(write_value(other))._join("+", self)

    def __rsub__(self, other: Value) -> Expression:
        return Expression(write_value(other))._join("-", self)

    def __rmul__(self, other: Value) -> Expression:
        return Expression(write_value(other))._join("*", self)

    def __rtruediv__(self, other: Value) -> Expression:
        return Expression(write_value(other))._join("/", self)

    def __neg__(self) -> Expression:
        return 0 - self

    def __and__(self, other: Expression) -> Expression:
        return self._join("AND", other)

    def __or__(self, other: Expression) -> Expression:
        return self._join("OR", other)

    def __invert__(self) -> Expression:
        return Expression(f"(NOT {self.text})")

    def __bool__(self) -> bool:
        raise ParameterError(
            "Python's and, or, not and chains such as 1 < x < 3 do not work on columns",
            expected="& for and, | for or, ~ for not, with each side in parentheses",
        )

    def is_in(self, values: Sequence[Value]) -> Expression:
        """Whether a value is one of a list."""
        values = as_list(values)
        if isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise ParameterError("is_in takes a list of one or more values", expected='col("sex").is_in(["F", "M"])')
        return Expression(f"({self.text} IN ({', '.join(write_value(each) for each in values)}))")

    def is_between(self, low: Value, high: Value) -> Expression:
        """Whether a value lies between two others, both included."""
        return Expression(f"({self.text} BETWEEN {write_value(low)} AND {write_value(high)})")

    def is_null(self) -> Expression:
        """Whether there is no value."""
        return Expression(f"({self.text} IS NULL)")

    def is_not_null(self) -> Expression:
        """Whether there is a value."""
        return Expression(f"({self.text} IS NOT NULL)")

    def clamp(self, low: Value, high: Value) -> Expression:
        """The value, or the nearer bound where it lies outside: so a column without declared bounds can be summed."""
        return Expression(f"CLAMP({self.text}, {write_value(low)}, {write_value(high)})")

    def _join(self, sign: str, other: object) -> Expression:
        return Expression(f"({self.text} {sign} {write_value(other)})")

    def __repr__(self) -> str:
        return f"<expression {self.text}>"


@dataclass(frozen=True, slots=True)
class Aggregate:
    """What is computed of each group, under a name."""

    text: str
    name: str

    def alias(self, name: str) -> Aggregate:
        """The same under another name."""
        return Aggregate(self.text, name)


Column = str | Expression


def col(name: str) -> Expression:
    """A column by its name; in a join, `table.column`.

    >>> col("age"), col("date of birth")
    (<expression age>, <expression "date of birth">)
    """
    return Expression(quote_name(name))


def count(column: Column = "*", *, name: str = "") -> Aggregate:
    """How many rows there are, or how many have a value in a column."""
    return _aggregate("COUNT", "count", column, name)


def count_distinct(column: Column, *, name: str = "") -> Aggregate:
    """How many different values there are, or how many units."""
    return Aggregate(f"COUNT(DISTINCT {_argument(column)})", name or _default_name("distinct", column))


def sum(column: Column, *, name: str = "") -> Aggregate:
    """The sum of a column with bounds."""
    return _aggregate("SUM", "sum", column, name)


def mean(column: Column, *, name: str = "") -> Aggregate:
    """The mean of a column with bounds."""
    return _aggregate("AVG", "mean", column, name)


def median(column: Column, *, name: str = "") -> Aggregate:
    """The median of a column with bounds."""
    return _aggregate("MEDIAN", "median", column, name)


def quantile(column: Column, share: float, *, name: str = "") -> Aggregate:
    """The value below which a share of the rows lies."""
    return Aggregate(f"QUANTILE({_argument(column)}, {write_value(share)})", name or _default_name("quantile", column))


@dataclass(frozen=True, slots=True, repr=False)
class Question:
    """A statement under construction; every method gives a new one.

    >>> Question("visits").filter(col("age") > 30).group_by("sex").agg(count(), sum("charge")).sql
    'SELECT sex, COUNT(*) AS count, SUM(charge) AS sum_charge FROM visits WHERE (age > 30) GROUP BY sex'
    """

    table: str
    asker: Ask | None = None
    explainer: Ask | None = None
    keys: tuple[str, ...] = ()
    aggregates: tuple[tuple[str, str], ...] = ()
    conditions: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    first: int | None = None
    rolled: bool = False
    joins: tuple[str, ...] = ()

    def filter(self, *conditions: Expression | str, **equal: Value | Sequence[Value]) -> Question:
        """Keep rows that satisfy all conditions; `sex="F"` is short for `col("sex") == "F"`, a list for `is_in`.

        A condition that is a text is SQL, and is taken as it is.
        """
        stated = (*conditions, *(_equate(col(name), value) for name, value in equal.items()))
        return replace(self, conditions=(*self.conditions, *(_condition(each) for each in stated)))

    def where(self, *conditions: Expression | str, **equal: Value | Sequence[Value]) -> Question:
        """The same as `filter`."""
        return self.filter(*conditions, **equal)

    def join(self, table: str, on: Expression | str) -> Question:
        """Join another table of the policy."""
        written = on.text if isinstance(on, Expression) else on
        return replace(self, joins=(*self.joins, f"JOIN {quote_name(table)} ON {written}"))

    def group_by(self, *keys: Column | Sequence[Column], rollup: bool = False) -> Question:
        """One row for each combination of keys; with `rollup` also for the shorter ones."""
        each = [key for given in map(as_list, keys) for key in (given if isinstance(given, list | tuple) else (given,))]
        return replace(self, keys=(*self.keys, *map(_argument, each)), rolled=rollup or self.rolled)

    def agg(self, *aggregates: Aggregate | Sequence[Aggregate], **named: Aggregate) -> Question:
        """What to compute of each group: `agg(count(), average=mean("charge"))`, or a list of them."""
        given = [a for each in map(as_list, aggregates) for a in (each if isinstance(each, list | tuple) else [each])]
        listed = (*given, *(each.alias(name) for name, each in named.items() if isinstance(each, Aggregate)))
        if len(listed) < len(given) + len(named) or not all(isinstance(each, Aggregate) for each in listed):
            raise ParameterError("agg takes aggregates", expected='Such as agg(count(), mean("charge"))')
        return replace(self, aggregates=(*self.aggregates, *((each.text, each.name) for each in listed)))

    def aggregate(self, expression: str, name: str) -> Question:
        """Any aggregate that SQL knows here, as text, under a name."""
        return self.agg(Aggregate(expression, name))

    def count(self, column: Column = "*", name: str = "") -> Question:
        """How many rows (with a value in the column)."""
        return self.agg(count(column, name=name))

    def count_distinct(self, column: Column, name: str = "") -> Question:
        """How many different values, or units."""
        return self.agg(count_distinct(column, name=name))

    def sum(self, column: Column, name: str = "") -> Question:
        """The sum of a column with bounds."""
        return self.agg(sum(column, name=name))

    def mean(self, column: Column, name: str = "") -> Question:
        """The mean of a column with bounds."""
        return self.agg(mean(column, name=name))

    def average(self, column: Column, name: str = "") -> Question:
        """The mean of a column with bounds, under a name that says average."""
        return self.agg(mean(column, name=name or _default_name("average", column)))

    def median(self, column: Column, name: str = "") -> Question:
        """The median of a column with bounds."""
        return self.agg(median(column, name=name))

    def quantile(self, column: Column, share: float, name: str = "") -> Question:
        """The value below which a share of the rows lies."""
        return self.agg(quantile(column, share, name=name))

    def having(self, *conditions: Expression | str) -> Question:
        """Keep noisy rows that satisfy all conditions."""
        return replace(self, kept=(*self.kept, *(_condition(each) for each in conditions)))

    def order_by(self, *expressions: Column, descending: bool = False) -> Question:
        """Sort the noisy rows."""
        listed = (_argument(each) + (" DESC" if descending else "") for each in expressions)
        return replace(self, order=(*self.order, *listed))

    def sort(self, *expressions: Column, descending: bool = False) -> Question:
        """The same as `order_by`."""
        return self.order_by(*expressions, descending=descending)

    def limit(self, rows: int) -> Question:
        """Only the first noisy rows."""
        rows = _read_scalar(rows)
        if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1:
            raise ParameterError("limit takes a number of rows", expected="A whole number such as 10")
        return replace(self, first=rows)

    @property
    def sql(self) -> str:
        """The statement."""
        if not self.aggregates:
            raise ParameterError("the question has no aggregate yet", expected='agg(count(), sum("charge")), ...')
        named = (f"{expression} AS {quote_name(name)}" for expression, name in self.aggregates)
        source = [quote_name(self.table), *self.joins]
        return " ".join(["SELECT", ", ".join([*self.keys, *named]), "FROM", *source, *self._clauses()])

    def _clauses(self) -> list[str]:
        keys = ", ".join(self.keys)
        parts = [
            ("WHERE", " AND ".join(self.conditions)),
            ("GROUP BY", f"ROLLUP ({keys})" if self.rolled and keys else keys),
            ("HAVING", " AND ".join(self.kept)),
            ("ORDER BY", ", ".join(self.order)),
            ("LIMIT", "" if self.first is None else str(self.first)),
        ]
        return [f"{word} {text}" for word, text in parts if text]

    def __dir__(self) -> list[str]:
        """What a caller may use: the steps and the statement, not the parts it is made of."""
        parts = {part.name for part in fields(self)} - {"table"}
        return [name for name in object.__dir__(self) if name not in parts]

    def __repr__(self) -> str:
        """The statement, as far as it goes."""
        try:
            return f"<question: {self.sql}>"
        except ParameterError as unfinished:
            return f"<question about {self.table}: {unfinished.happened}>"

    def ask(self, **budget: Any) -> Any:
        """Ask it: `epsilon`, `delta`, `rho` and whatever else `Curator.query` takes."""
        ask = _require_curator(self.asker)
        check_keywords(ask, budget, "ask")
        return ask(self.sql, **budget)

    def explain(self, **budget: Any) -> Any:
        """What it would measure and cost, without touching data."""
        explain = _require_curator(self.explainer)
        check_keywords(explain, budget, "explain")
        return explain(self.sql, **budget)

    def to_pandas(self, **budget: Any) -> Any:
        """Ask it, and give a pandas DataFrame; that pandas is there is looked at before anything is charged."""
        require_package("pandas")
        return self.ask(**budget).to_pandas()

    def to_polars(self, **budget: Any) -> Any:
        """Ask it, and give a Polars DataFrame; that Polars is there is looked at before anything is charged."""
        require_package("polars")
        return self.ask(**budget).to_polars()


guard_arguments(Question)


def require_package(name: str, charge: str | None = None) -> None:
    """Refuse where a package is not installed; nothing is imported to find out."""
    from importlib.util import find_spec

    try:
        found = find_spec(name)
    except ModuleNotFoundError:
        found = None
    if found is None:
        raise MissingExtra(
            f"'{name}' is not installed", remedy=f"Install it: pip install {name}", charge=charge, extra=name
        )


def write_value(value: object) -> str:
    """A value as a literal of SQL; an expression as it is.

    >>> write_value("it's"), write_value(Decimal("1.50")), write_value(date(2026, 1, 31)), write_value(True)
    ("'it''s'", '1.50', "DATE '2026-01-31'", 'TRUE')
    """
    if isinstance(value, Expression):
        return value.text
    value = _read_scalar(value)
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, datetime):
        return f"TIMESTAMP '{drop_zone(value).isoformat(sep=' ')}'"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, str):
        return _write_text(value)
    if isinstance(value, int | float | Decimal | Fraction):
        return _write_number(value)
    raise ParameterError(
        f"a {type(value).__name__} is not a value of a question", expected="A text, a number, a date, True, False, None"
    )


def drop_zone(value: datetime) -> datetime:
    """A moment as columns have it, without a time zone: in UTC where it has one.

    >>> drop_zone(datetime.fromisoformat("2026-01-31 14:30+02:00"))
    datetime.datetime(2026, 1, 31, 12, 30)
    """
    try:
        return value.astimezone(UTC).replace(tzinfo=None) if value.utcoffset() is not None else value
    except OverflowError:
        raise ParameterError("a moment with a time zone is outside of the years 1 to 9999 in UTC") from None


def _read_scalar(value: Any) -> Any:
    """A scalar of NumPy as the value of Python that it holds; moments are read to the microsecond."""
    if type(value).__module__ != "numpy" or not hasattr(value, "item"):
        return value
    plain = value.item()
    return (
        value.astype("datetime64[us]").item() if type(value).__name__ == "datetime64" and type(plain) is int else plain
    )


def _write_text(value: str) -> str:
    if "\0" in value:
        raise ParameterError("a text has a zero character", expected="Text without it")
    doubled = value.replace("'", "''")
    return f"'{doubled}'"


def _write_number(value: float | Decimal | Fraction) -> str:
    if not math.isfinite(value):
        raise ParameterError("a number of the question is not finite", expected="A number such as 0.5")
    if isinstance(value, Fraction):
        return str(value.numerator) if value.denominator == 1 else repr(float(value))
    return format(value, "f") if isinstance(value, Decimal) else repr(value)


def quote_name(name: str) -> str:
    """A name as SQL writes it: plain where nothing can be misread, else in double quotes."""
    if not isinstance(name, str) or not name or "\0" in name:
        raise ParameterError("a column or table is named by a text", expected="Such as 'age'")
    if PLAIN.fullmatch(name):
        return ".".join(f'"{part}"' if part.lower() in RESERVED else part for part in name.split("."))
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def _argument(column: Column) -> str:
    if isinstance(column, Expression):
        return column.text.removeprefix("(").removesuffix(")") if column.text.startswith("(") else column.text
    return "*" if column == "*" else quote_name(column)


def _condition(condition: Expression | str) -> str:
    if isinstance(condition, Expression):
        return condition.text if condition.text.startswith("(") else f"({condition.text})"
    if not isinstance(condition, str):
        raise ParameterError(
            "a filter needs a condition on columns", expected='Such as col("age") > 30, or the text of one'
        )
    return f"({condition})"


def _aggregate(function: str, what: str, column: Column, name: str) -> Aggregate:
    return Aggregate(f"{function}({_argument(column)})", name or _default_name(what, column))


def _equate(column: Expression, value: Any) -> Expression:
    return column.is_in(value) if isinstance(value, list | tuple) else column == value


def _require_curator(deed: Ask | None) -> Ask:
    if deed is None:
        raise ParameterError("this question belongs to no curator", remedy="Start from curator.table('visits')")
    return deed


def _default_name(what: str, column: Column) -> str:
    text = column.text if isinstance(column, Expression) else column
    words = "_".join(re.findall(r"[A-Za-z0-9]+", text)).lower()
    return f"{what}_{words}" if words else what
