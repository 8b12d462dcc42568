"""The journeys of checking: a table anybody hands in, and two releases against each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.errors import Infeasible

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from deniable.curator.hall import Curator
    from deniable.kanonymity.recoding import Recoding

TABLE = "table"


def check(
    source: Any,
    quasi_identifiers: tuple[str, ...],
    sensitive: tuple[str, ...] = (),
    *,
    fraction: float | None = None,
    encoding: str | None = None,
) -> dict[str, Any]:
    """Measure a table as it stands: k, l, t and risks."""
    from deniable.kanonymity.examine import examine

    table = _table(source, (*quasi_identifiers, *sensitive), encoding)
    return asdict(examine(table, quasi_identifiers, sensitive, fraction=fraction))


def check_rows(
    curator: Curator, table: str, quasi_identifiers: Sequence[str] = (), sensitive: Sequence[str] = ()
) -> dict[str, Any]:
    """Measure a table of a curator, for its steward; columns that are not named are those of the policy's roles."""
    from deniable.engines.base import quote
    from deniable.kanonymity.examine import examine
    from deniable.policy.roles import Role

    schema = curator.policy.table(table)
    known = tuple(quasi_identifiers) or tuple(c.name for c in schema.with_role(Role.QUASI_IDENTIFIER))
    secret = tuple(sensitive) or tuple(c.name for c in schema.with_role(Role.SENSITIVE))
    listed = ", ".join(map(quote, dict.fromkeys((*known, *secret)))) or "*"
    rows = curator.tables.attach(table).run(f"SELECT {listed} FROM {quote(table)}")  # noqa: S608  quoted names
    return asdict(examine(rows, known, secret))


def unmet(findings: dict[str, Any], k: int | None, l: dict[str, float], t: dict[str, float]) -> list[str]:  # noqa: E741
    """Which thresholds a table does not meet, each in a sentence."""
    failed = []
    if k is not None and findings["k"] < k:
        failed.append(f"k is {findings['k']}, asked was {k}")
    held = {found["column"]: found for found in findings["sensitive"]}
    for column, least in l.items():
        if held[column]["distinct_l"] < least:
            failed.append(f"l of {column} is {held[column]['distinct_l']}, asked was {least:g}")
    for column, most in t.items():
        measured = held[column]["ordered_t"] if held[column]["ordered_t"] is not None else held[column]["t"]
        if measured > most + 1e-12:
            failed.append(f"t of {column} is {measured:.4f}, asked was {most:g}")
    return failed


def check_together(source: Any, first: Path, second: Path) -> dict[str, Any]:
    """What an intruder learns who holds two releases of the same table."""
    from deniable.kanonymity.recoding import read

    one, two = read(first), read(second)
    sensitive = tuple(dict.fromkeys((*one.sensitive, *two.sensitive)))
    table = _table(source, tuple(dict.fromkeys((*one.names, *two.names, *sensitive))))
    return composition(table, one, two, sensitive)


def composition(
    table: pa.Table, first: Recoding, second: Recoding, sensitive: tuple[str, ...], counts: str | None = None
) -> dict[str, Any]:
    """Class intersections of two recodings of one table."""
    from deniable.kanonymity.composition import compose
    from deniable.kanonymity.encode import distinct

    weights = table[counts].to_numpy() if counts else None
    classes = [_expanded(_classes(table, recoding), weights) for recoding in (first, second)]
    values = {name: _expanded(distinct(table[name])[1] + 1, weights) for name in sensitive}
    least = min(int(spec.options["k"]) for r in (first, second) for spec in r.models if spec.kind == "k_anonymity")  # type: ignore[call-overload]
    return {"asked_k": least} | asdict(compose(classes[0], classes[1], least, values))


def refuse_composition(together: dict[str, Any]) -> None:
    """Refuse a release that, with an earlier one, shows groups smaller than asked."""
    if together["exposed"]:
        raise Infeasible(
            f"With the earlier release, {together['exposed']} rows are in groups under k = {together['asked_k']}",
            expected=f"The smallest group both releases leave has {together['k']} rows",
            remedy="Release with the levels of the earlier recoding (deniable anonymize --update), or a larger k",
        )


def _table(source: Any, columns: tuple[str, ...] = (), encoding: str | None = None) -> pa.Table:
    from deniable.engines.base import quote
    from deniable.engines.duckdb import DuckDBEngine
    from deniable.engines.naming import require_columns
    from deniable.policy.dialect import written_in

    with DuckDBEngine(root=Path.cwd()) as engine:
        engine.attach(TABLE, source, csv=written_in(encoding))
        require_columns([f.name for f in engine.describe(TABLE)], columns, str(source))
        listed = ", ".join(map(quote, dict.fromkeys(columns))) or "*"
        return engine.run(f"SELECT {listed} FROM {quote(TABLE)}")  # noqa: S608  our own words and quoted names


def _classes(table: pa.Table, recoding: Recoding) -> NDArray[np.int64]:
    from deniable.kanonymity.recode import Recoder

    recoder = Recoder(recoding)
    return recoder.index.find([c.codes(table[c.column.name])[0] for c in recoder.columns])


def _expanded(values: Any, weights: Any) -> Any:
    import numpy as np

    return values.astype(np.int64) if weights is None else np.repeat(values.astype(np.int64), weights)
