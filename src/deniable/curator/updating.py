"""The journey of rows added to a k-anonymous release: which may be shown, recoded as before, and which must wait."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.curator import earlier_releases
from deniable.curator.anonymize_order import TABLE, Order, policy_of, roles_of, rows_to_release
from deniable.curator.anonymize_outlet import books_of, claimed, recoding_path, record_release, restrict

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.engines.base import Engine
    from deniable.kanonymity.recoding import Recoding
    from deniable.policy.document import Policy


def update(release: Path, order: Order) -> dict[str, Any]:
    """Judge rows added to a release; write those that may be shown, with their statement and the grown recoding."""
    from deniable.engines.duckdb import DuckDBEngine
    from deniable.kanonymity.recoding import read
    from deniable.kanonymity.update import shown_rows
    from deniable.kanonymity.update import update as judge
    from deniable.kanonymity.words import condition

    recoding, policy = read(_recoding_file(release)), policy_of(order)
    with DuckDBEngine(root=policy.folder if policy else Path.cwd()) as engine, books_of(policy, order) as books:
        roles = roles_of(engine, policy, order)
        restrict(engine, policy, roles, books)
        if order.out is not None:
            record_release(roles, books, "update")
        added = engine.run(rows_to_release(roles))
        judged = judge(recoding, added, (condition(spec) for spec in recoding.models))  # type: ignore[misc]
        if order.out is not None:
            _write(engine, policy, order.out, shown_rows(recoding, added, judged), judged.recoding)
            earlier_releases.keep(books, roles.schema.name if roles.schema else TABLE, judged.recoding)
    counts = {name: getattr(judged, name) for name in ("rows", "shown", "waiting", "new_classes", "grown_classes")}
    output = str(order.out) if order.out else None
    return counts | {"broken": judged.broken, "search_again": judged.search_again, "output": output}


def _write(engine: Engine, policy: Policy | None, out: Path, rows: pa.Table, grown: Recoding) -> None:
    from deniable.kanonymity.recoding import write as write_recoding
    from deniable.release import Provenance, Release, write

    parameters = {"method": "update", "quasi_identifiers": list(grown.names), "form": str(grown.form)}
    provenance = Provenance(policy.hash if policy else None, {TABLE: engine.data_version(TABLE)}, parameters)
    write(Release(rows, claimed(grown.models), provenance), out, engine)
    write_recoding(grown, recoding_path(out))


def _recoding_file(path: Path) -> Path:
    """The recoding itself, or that beside a released file or its statement."""
    if path.name.endswith(".recoding.json"):
        return path
    return recoding_path(path.with_name(path.name.removesuffix(".release.json").removesuffix(".release")))
