"""Random tables through every method and format: how many were released, and whether a file breaks its own claim.

    python bench/certified.py [TABLES] [--every] [--from NUMBER]

The tables, the orders and the checker are those of tests/contracts/test_certified_releases.py; the checker reads files
with a reader of its own, counts with dictionaries, and shares nothing with the product. Each table is drawn with one
method and one format; with `--every` it goes through all methods and formats, 18 orders a table, a few CPU seconds:
`--from` lets a thousand tables be done in parts. How many orders were released by each method in each format is
printed. The bar: no broken claim, no lost row, no failure of our own.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "contracts"))

from test_certified_releases import ENDINGS, METHODS, find_broken, order_of, table_of  # noqa: E402

from deniable.curator.anonymize.request import Order  # noqa: E402
from deniable.curator.anonymize.run import anonymize  # noqa: E402
from deniable.errors import DeniableError, InternalError  # noqa: E402

FIRST = 1_000
"""The seed of the first table, as in the slow tests."""


def list_orders(order: Order, every: bool) -> Iterator[Order]:
    """The order as it was drawn, or one for each method and format."""
    if not every:
        yield order
        return
    for method in METHODS:
        for ending in ENDINGS:
            assert order.out is not None
            yield replace(order, method=method, out=order.out.with_name(f"{order.out.stem}-{method}{ending}"))


def main() -> None:
    """Draw, release and check."""
    parser = argparse.ArgumentParser()
    parser.add_argument("tables", type=int, nargs="?", default=1_000)
    parser.add_argument("--every", action="store_true")
    parser.add_argument("--from", dest="first", type=int, default=FIRST, help="the number of the first table")
    said = parser.parse_args()
    counts, released, broken = Counter[str](), Counter[str](), list[str]()
    for seed in range(said.first, said.first + said.tables):
        if (seed - said.first) % 50 == 0 and sys.stderr.isatty():
            print(f"\rtable {seed}", end="", file=sys.stderr)
        dice = random.Random(seed)
        table, known = table_of(dice)
        with tempfile.TemporaryDirectory() as folder:
            for order in list_orders(
                order_of(dice, table, known, Path(folder) / f"{seed}{dice.choice(ENDINGS)}"), said.every
            ):
                assert order.out is not None
                counts["orders"] += 1
                try:
                    told = anonymize(order)
                except InternalError as fault:
                    broken.append(f"table {seed}, {order.method}, {order.out.suffix}: {fault}")
                    continue
                except DeniableError:
                    counts["refused"] += 1
                    continue
                released[f"{order.method} {order.out.suffix}"] += 1
                counts["rows"] += told.rows
                broken += [f"table {seed}, {order.method}, {order.out.suffix}: {each}"
                           for each in find_broken(table, order, told)]  # fmt: skip
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(f"certified {said.tables:,} tables from number {said.first}, {counts['orders']:,} orders: "
          f"{released.total():,} released with "
          f"{counts['rows']:,} rows read, {counts['refused']:,} refused; "
          f"{len(broken)} broken claims or lost rows (bar 0); {used.ru_utime + used.ru_stime:.0f} CPU s")  # fmt: skip
    for way, count in sorted(released.items()):
        print(f"certified   {way}: {count:,}")
    for each in broken:
        print(f"certified   BROKEN {each}")
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
