"""The six types of a policy in DuckDB: which of its types is which, how a value is read, and which values do not fit.

Text is read strictly, since leniency loses information: '01234' is a ZIP code and not a number, '1.7' is not an
integer (DuckDB alone would round it), a number of 16 digits or more is an account and not a float, and 03/04/2020 is
no date, since nobody can say which. Every expression is total: it yields null where a value does not fit.
"""

from __future__ import annotations

from deniable.policy.schema import ColumnType

NATIVE = {
    ColumnType.INTEGER: "BIGINT",
    ColumnType.DECIMAL: "DOUBLE",
    ColumnType.TEXT: "VARCHAR",
    ColumnType.BOOLEAN: "BOOLEAN",
    ColumnType.DATE: "DATE",
    ColumnType.DATETIME: "TIMESTAMP",
}
_INTEGERS = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"}
_DATETIMES = {"TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMP WITH TIME ZONE"}

# What a text of each type looks like when nothing was declared. No plus sign and no leading zero: those are phone
# numbers and codes. A float without point or exponent has at most 15 digits, which a double holds exactly.
INFERRED = {
    ColumnType.BOOLEAN: "^(true|false|TRUE|FALSE|True|False)$",
    ColumnType.INTEGER: "^(0|-?[1-9][0-9]{0,18})$",
    ColumnType.DECIMAL: (
        r"^-?((0|[1-9][0-9]{0,14})|(0|[1-9][0-9]*)\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]+)?[eE][-+]?[0-9]{1,3})$"
    ),
    ColumnType.DATE: "^[0-9]{4}-[0-9]{2}-[0-9]{2}$",
    ColumnType.DATETIME: r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?$",
}
# What is taken where the policy declares the type: leading zeros and signs are fine then, and so is '12.0', which is
# how spreadsheets write integers that had gaps.
_DECLARED_INTEGER = r"^[-+]?[0-9]+(\.0*)?$"


def type_of(native: str) -> ColumnType:
    """The policy's type for one of DuckDB's; whatever has no counterpart is shown as text.

    >>> type_of("DECIMAL(18,2)"), type_of("INTEGER[]")
    (<ColumnType.DECIMAL: 'decimal'>, <ColumnType.TEXT: 'text'>)
    """
    if native in _INTEGERS:
        return ColumnType.INTEGER
    if native in ("FLOAT", "DOUBLE") or (native.startswith("DECIMAL(") and native.endswith(")")):
        return ColumnType.DECIMAL
    if native in _DATETIMES:
        return ColumnType.DATETIME
    return ColumnType(native.lower()) if native in ("BOOLEAN", "DATE") else ColumnType.TEXT


def choose_native(native: str) -> str:
    """The DuckDB type under which a column of a native type is shown when nothing else was declared."""
    return native if type_of(native) is not ColumnType.TEXT else "VARCHAR"


def render_value(column: str, native: str, declared: ColumnType | None) -> str:
    """The expression that reads a column of a native type, as declared or as it is."""
    if declared is None or (declared is type_of(native) and native != "VARCHAR"):
        return _render_as_is(column, native)
    if native == "VARCHAR":
        return render_text(column, declared)
    if declared is ColumnType.TEXT:
        return f"CAST({column} AS VARCHAR)"
    if declared is ColumnType.INTEGER and type_of(native) is ColumnType.DECIMAL:
        return f"CASE WHEN {column} = trunc({column}) THEN TRY_CAST({column} AS BIGINT) END"
    return f"TRY_CAST({column} AS {NATIVE[declared]})"


def render_text(column: str, declared: ColumnType) -> str:
    """The expression that reads a text column as a type; blanks are null, whatever does not fit is null."""
    if declared is ColumnType.TEXT:
        return column
    text = f"NULLIF(trim({column}), '')"
    if declared is ColumnType.INTEGER:
        whole = f"regexp_replace({text}, '\\.0*$', '')"
        return f"CASE WHEN regexp_matches({text}, '{_DECLARED_INTEGER}') THEN TRY_CAST({whole} AS BIGINT) END"
    cast = f"TRY_CAST({text} AS {NATIVE[declared]})"
    return _replace_nan(cast) if declared is ColumnType.DECIMAL else cast


def render_misfit(column: str, native: str, declared: ColumnType) -> str:
    """The condition under which a column holds a value that is not of the declared type."""
    present = f"NULLIF(trim({column}), '') IS NOT NULL" if native == "VARCHAR" else f"{column} IS NOT NULL"
    return f"{present} AND {render_value(column, native, declared)} IS NULL"


def _render_as_is(column: str, native: str) -> str:
    if native in ("FLOAT", "DOUBLE"):
        return _replace_nan(column)
    return column if choose_native(native) == native else f"CAST({column} AS VARCHAR)"


def _replace_nan(expression: str) -> str:
    # A missing number is null: NaN would count as present, and as larger than every bound. (In DuckDB NaN = NaN.)
    return f"NULLIF({expression}, CAST('NaN' AS DOUBLE))"
