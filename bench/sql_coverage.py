"""How much of what people and tools ask is answered: suites of questions, compiled against policies, without any data.

Each suite is a file of questions and a policy in `bench/sql_questions`: the business questions of TPC-H over its
schema, web analytics of ClickBench's kind, and questions as tools phrase them. All are written anew; those of
SQLAlchemy are captured from the library where it is installed, those of ibis and Superset were captured from ibis 12
and Superset 6.1 (`sql_questions/capture_*.py`), and the others are written in the manner of their tool.
A question marked `rows` asks for rows of single people, so that its refusal is the right answer.

    python bench/sql_coverage.py [--json] [--suite NAME]
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path

from deniable.errors import DeniableError
from deniable.policy.budget import ApproxDP
from deniable.policy.document import parse
from deniable.policy.schema import TableSchema
from deniable.query.compile import compile_query

FOLDER = Path(__file__).parent / "sql_questions"
SUITES = ("tpch", "web", "tools")
BARS = {"tpch": Fraction(18, 19), "web": Fraction(1), "tools": Fraction(95, 100)}
"""The share of questions that do not ask for rows of people which is to be answered (18 of TPC-H's 22)."""
BUDGET = ApproxDP(Fraction(1), Fraction(1, 10**6))
HEAD = re.compile(r"^-- ((?:\w+ )?\d+)( rows)?: (.*)$")


@dataclass(frozen=True, slots=True)
class Question:
    """One question of a suite; `rows` says that it asks for rows of single people."""

    suite: str
    name: str
    wants: str
    rows: bool
    sql: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the compiler says to a question: nothing where it is answered, else the refusal."""

    suite: str
    name: str
    wants: str
    rows: bool
    answered: bool
    refusal: str


def read_questions(suite: str) -> Iterator[Question]:
    """The questions of a suite's file, and those that a library writes."""
    head, lines = None, list[str]()
    for line in [*(FOLDER / f"{suite}.sql").read_text(encoding="utf-8").splitlines(), "-- end 0: "]:
        found = HEAD.match(line)
        if found is None:
            lines.append(line)
            continue
        if head is not None:
            yield Question(suite, head[1], head[3], bool(head[2]), "\n".join(lines))
        head, lines = found, []
    if suite == "tools":
        yield from capture_sqlalchemy()


def capture_sqlalchemy() -> Iterator[Question]:
    """What SQLAlchemy writes for PostgreSQL; nothing where it is not installed."""
    try:
        import sqlalchemy as sa
        from sqlalchemy.dialects import postgresql
    except ImportError:
        return
    numbers = ("customer_id", "order_id", "amount", "quantity", "discount")
    words = ("region", "category", "status", "product")
    sales = sa.table(
        "sales",
        *(sa.column(name, sa.Numeric) for name in numbers),
        *(sa.column(name, sa.String) for name in words),
        sa.column("order_date", sa.Date),
        sa.column("is_gift", sa.Boolean),
    )
    people = sa.table("customers", sa.column("customer_id"), sa.column("segment", sa.String))
    c, month = sales.c, sa.func.date_trunc("month", sales.c.order_date)
    each = sa.select(c.region, sa.func.sum(c.amount).label("total")).group_by(c.region).subquery()
    written = {
        "grouped": sa.select(c.region, sa.func.count().label("n")).group_by(c.region).order_by(sa.desc("n")),
        "a list and a range": sa.select(sa.func.sum(c.amount)).where(c.region.in_(["north", "east"]),
                                                                       c.amount.between(1, 100)),
        "months": sa.select(month.label("m"), sa.func.avg(c.amount)).group_by(month).order_by(month),
        "a case": sa.select(sa.func.sum(sa.case((c.status == "paid", c.amount), else_=0)).label("paid")),
        "a filter": sa.select(sa.func.count().filter(c.is_gift.is_(True)), sa.func.count(sa.distinct(c.customer_id))),
        "a join": sa.select(people.c.segment, sa.func.count()).select_from(
            sales.join(people, c.customer_id == people.c.customer_id)).group_by(people.c.segment),
        "exists": sa.select(sa.func.count()).select_from(people).where(
            sa.exists().where(c.customer_id == people.c.customer_id, c.amount > 400)),
        "a window over a summary": sa.select(each.c.region, sa.func.rank().over(order_by=each.c.total.desc())),
        "a part of a date": sa.select(sa.extract("year", c.order_date), sa.func.count()).group_by(
            sa.extract("year", c.order_date)),
        "a cast, a text and a limit": sa.select(sa.func.lower(sa.func.substr(c.product, 1, 3)).label("p"),
                                                 sa.cast(sa.func.sum(c.quantity), sa.Integer)).group_by("p").limit(5),
    }  # fmt: skip
    for place, (wants, statement) in enumerate(written.items(), 1):
        text = statement.compile(dialect=postgresql.dialect(), compile_kwargs={"literal_binds": True})
        yield Question("tools", f"sqlalchemy {place}", wants, False, str(text))


def read_tables(suite: str) -> tuple[TableSchema, ...]:
    """The tables of a suite's policy."""
    return parse((FOLDER / f"{suite}.yaml").read_text(encoding="utf-8"), f"{suite}.yaml", FOLDER).tables


def try_question(question: Question, tables: tuple[TableSchema, ...]) -> Outcome:
    """Compile a question; nothing is read and nothing is charged."""
    refusal = ""
    try:
        compile_query(question.sql, tables, BUDGET)
    except DeniableError as refused:
        refusal = refused.message
    return Outcome(question.suite, question.name, question.wants, question.rows, not refusal, refusal)


def try_suite(suite: str) -> list[Outcome]:
    """What is said to each question of a suite."""
    tables = read_tables(suite)
    return [try_question(question, tables) for question in read_questions(suite)]


def show(suite: str, outcomes: list[Outcome]) -> bool:
    """Print a suite's coverage and refusals; whether its bar is met."""
    answered = sum(each.answered for each in outcomes)
    asked = [each for each in outcomes if not each.rows]
    right = sum(each.answered for each in asked)
    met = Fraction(right, len(asked)) >= BARS[suite] and not any(each.answered for each in outcomes if each.rows)
    print(f"{suite}: {answered} of {len(outcomes)} answered; {right} of the {len(asked)} that do not ask for rows of "
          f"people, bar {float(BARS[suite]):.0%}: {'met' if met else 'MISSED'}")  # fmt: skip
    for each in outcomes:
        if each.answered is each.rows:
            print(f"    {each.name} ({each.wants}): {each.refusal or 'ANSWERED, and asks for rows of people'}")
    for each in outcomes:
        if each.rows and not each.answered:
            print(f"    {each.name} asks for rows of people ({each.wants}): {each.refusal}")
    return met


def main() -> int:
    """Try all suites; 1 where a bar is missed."""
    options = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    options.add_argument("--json", action="store_true", help="print every outcome as JSON")
    options.add_argument("--suite", choices=SUITES, action="append", help="only this suite")
    given = options.parse_args()
    outcomes = {suite: try_suite(suite) for suite in given.suite or SUITES}
    if given.json:
        print(json.dumps([asdict(each) for found in outcomes.values() for each in found], indent=1))
        return 0
    met = [show(suite, found) for suite, found in outcomes.items()]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
