"""Random statements of DP SQL over the clinic, for tests that need many questions which nobody thought of."""

from __future__ import annotations

import random


class Grammar:
    """Random statements: mostly sensible, of every construct there is."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw

    def one(self, *choices: str) -> str:
        return self.draw.choice(choices)

    def number(self, depth: int) -> str:
        if depth <= 0 or self.draw.random() < 0.3:
            return self.one("age", "delta", "charge", "score", "score", "ratio", "1", "0", "-3", "2.5", "1e9", "NULL",
                            "0.001", "2147483647", "-2147483648", "9223372036854775807", "1e308")  # fmt: skip
        x, y, text, day = self.number(depth - 1), self.number(depth - 1), self.text(depth - 1), self.day(depth - 1)
        op = self.one("+", "-", "*", "/", "%")
        return self.one(
            f"({x} {op} {y})",
            f"({x} {op} {y})",
            f"ABS({x})",
            f"-{x}",
            f"FLOOR({x})",
            f"CEIL({x})",
            f"ROUND({x})",
            f"ROUND({x}, 1)",
            f"SQRT({x})",
            f"EXP({x})",
            f"LN({x})",
            f"LEAST({x}, {y})",
            f"GREATEST({x}, {y})",
            f"CLAMP({x}, -5, 50)",
            f"COALESCE({x}, {y})",
            f"NULLIF({x}, {y})",
            f"LENGTH({text})",
            f"YEAR({day})",
            f"EXTRACT({self.one('month', 'dow', 'week', 'doy', 'hour', 'second')} FROM {day})",
            f"DATE_DIFF('day', {day}, day)",
            f"CAST({self.any(depth - 1)} AS {self.one('INTEGER', 'DOUBLE', 'BIGINT')})",
            f"CASE WHEN {self.condition(depth - 1)} THEN {x} ELSE {y} END",
            f"(day - {day})",
        )

    def text(self, depth: int) -> str:
        if depth <= 0 or self.draw.random() < 0.4:
            return self.one("sex", "city", "note", "'F'", "'it''s'", "''", "NULL")
        x, n = self.text(depth - 1), self.number(depth - 1)
        return self.one(
            f"LOWER({x})",
            f"UPPER({x})",
            f"TRIM({x})",
            f"SUBSTRING({x}, {n}, {self.number(depth - 1)})",
            f"LEFT({x}, {n})",
            f"RIGHT({x}, {n})",
            f"REPLACE({x}, 'A', {x})",
            f"CONCAT({x}, '-', city)",
            f"{x} || note",
            f"CAST({self.any(depth - 1)} AS TEXT)",
            f"COALESCE({x}, 'none')",
            f"CASE sex WHEN 'F' THEN {x} END",
        )

    def day(self, depth: int) -> str:
        if depth <= 0 or self.draw.random() < 0.5:
            return self.one("day", "day", "seen", "DATE '2020-02-29'", "NULL", "CAST(seen AS DATE)")
        x = self.day(depth - 1)
        unit = self.one("year", "quarter", "month", "week", "day", "hour", "minute")
        return self.one(
            f"DATE_TRUNC('{unit}', {x})",
            f"({x} + 30)",
            f"({x} - delta)",
            f"CAST({x} AS TIMESTAMP)",
            f"CAST({self.text(depth - 1)} AS DATE)",
            f"COALESCE({x}, day)",
        )

    def condition(self, depth: int) -> str:
        if depth <= 0 or self.draw.random() < 0.2:
            return self.one("insured", "age > 30", "sex = 'F'", "TRUE", "note IS NULL", "city LIKE 'C%'")
        x, c, t = self.number(depth - 1), self.condition(depth - 1), self.text(depth - 1)
        return self.one(
            f"{x} {self.one('<', '<=', '=', '<>', '>')} {self.number(depth - 1)}",
            f"NOT {c}",
            f"({c} OR insured)",
            f"({c} AND {self.condition(depth - 1)})",
            f"{x} IN (1, 2, {x})",
            f"{x} BETWEEN 0 AND {x}",
            f"{t} LIKE '%a_'",
            f"{t} ILIKE {t}",
            f"{t} IS NOT NULL",
            f"STARTS_WITH({t}, 'C')",
            f"CONTAINS({t}, {t})",
            f"({c}) IS TRUE",
            f"{self.day(depth - 1)} > DATE '2020-03-01'",
            "day >= '2020-01-01'",
            f"{t} = {t}",
        )

    def any(self, depth: int) -> str:
        return self.draw.choice([self.number, self.text, self.day, self.condition])(depth)

    def aggregate(self) -> str:
        x, y, filtered = self.number(2), self.any(2), ""
        if self.draw.random() < 0.15:
            filtered = f" FILTER (WHERE {self.condition(1)})"
        clamped = f"CLAMP({x}, 0, 100)"
        return filtered.join(
            (
                self.one(
                    "COUNT(*)",
                    "COUNT(*)",
                    f"COUNT({y})",
                    f"COUNT(DISTINCT {y})",
                    "COUNT(DISTINCT pid)",
                    f"SUM({clamped})",
                    f"SUM({x})",
                    f"AVG({clamped})",
                    f"VARIANCE({clamped})",
                    f"STDDEV({x})",
                    f"VAR_POP({clamped})",
                    f"MIN({clamped})",
                    f"MAX({self.day(1)})",
                    f"MEDIAN({clamped})",
                    f"QUANTILE({clamped}, 0.25)",
                    f"QUANTILE({clamped}, [0.1, 0.9])",
                    "PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY age)",
                    f"SUM({self.condition(1)})",
                    f"COUNT_IF({self.condition(1)})",
                    f"SUM({x}, contribution_bounds_per_group => (0, 10))",
                ),
                "",
            )
        )

    def workload(self) -> str:
        """Several aggregates whose conditions have to do with each other: pivots, prefixes, ranges, shared columns."""
        x = self.one("age", "delta", "charge", "score", "CLAMP(age, 0, 9)")
        low, step = self.draw.choice((-3, 0, 10)), self.draw.choice((1, 7, 30))
        cuts = [low + step * i for i in range(self.draw.randint(2, 9))]
        word = self.one("sex", "city")
        values = ("F", "M", "X") if word == "sex" else ("Ada", "Brin", "Cole")
        pivots = [f"{word} = '{value}'" for value in values]
        tests = self.draw.choice(
            [
                pivots,
                [f"{x} <= {cut}" for cut in cuts],
                [f"{x} >= {cut} AND {x} < {cut + step}" for cut in cuts],
                [f"{x} BETWEEN {cut} AND {cut + 2 * step}" for cut in cuts],
                [*pivots, *(f"{x} > {cut}" for cut in cuts[:3])],
                [f"{word} IN ('F', 'Ada')", f"NOT ({word} = 'M')", f"{word} IS NULL", "insured", "NOT insured"],
                [self.condition(1) for _ in range(3)],
            ]
        )
        y = self.one("1", "1", x, "delta")
        form = self.one(
            "COUNT(*) FILTER (WHERE {c})",
            "SUM(CASE WHEN {c} THEN {y} ELSE 0 END)",
            "COUNT(CASE WHEN {c} THEN {y} END)",
            "AVG({y}) FILTER (WHERE {c})",
            "SUM({y}) FILTER (WHERE {c})",
            "VAR_POP(CASE WHEN {c} THEN {y} END)",
        )
        return ", ".join([form.format(c=test, y=y) for test in tests] + self.draw.choice([[], [], ["COUNT(*)"]]))

    def source(self) -> str:
        return self.one(
            "visits",
            "visits",
            "visits",
            "answers",
            "visits v",
            "(SELECT * FROM visits WHERE age > 1) s",
            "visits JOIN regions ON visits.city = regions.city",
            "visits v LEFT JOIN stays s ON v.pid = s.pid",
            "(SELECT pid, sex, city, day, seen, note, insured, COUNT(*) AS age, SUM(delta) AS delta, AVG(charge) "
            "AS charge, MAX(score) AS score, MIN(ratio) AS ratio FROM visits "
            "GROUP BY pid, sex, city, day, seen, note, insured) p",
            "(SELECT * FROM visits UNION ALL SELECT * FROM stays) u",
            "regions",
            f"(SELECT *, {self.number(1)} AS extra FROM answers) e",
        )

    def statement(self) -> str:
        items = [self.aggregate() for _ in range(self.draw.randint(1, 3))]
        items += [self.workload()] if self.draw.random() < 0.05 else []
        keys = [self.any(1) for _ in range(self.draw.choice([0, 0, 1, 1, 2]))]
        grouping = ", ".join(keys)
        if len(keys) == 2 and self.draw.random() < 0.4:
            grouping = f"{self.one('ROLLUP', 'CUBE')}({grouping})"
        text = f"SELECT {', '.join([*keys, *items])} FROM {self.source()}"
        text += f" WHERE {self.condition(2)}" if self.draw.random() < 0.4 else ""
        text += f" GROUP BY {grouping}" if keys else ""
        text += self.one("", "", "", " HAVING COUNT(*) > 3", " ORDER BY 1", " LIMIT 3", " ORDER BY 1 DESC LIMIT 2")
        if self.draw.random() < 0.05:
            text = f"WITH w AS ({text}) SELECT COUNT(*) AS n FROM w"
        if self.draw.random() < 0.03:
            text += " WITHIN 100 CONFIDENCE 0.9"
        return text

    def mutated(self, text: str) -> str:
        words = text.replace("(", " ( ").replace(")", " ) ").replace(",", " , ").split()
        for _ in range(self.draw.randint(1, 3)):
            at = self.draw.randrange(len(words))
            match self.draw.randrange(5):
                case 0:
                    del words[at]
                case 1:
                    words.insert(at, self.draw.choice(words))
                case 2:
                    words[at] = self.draw.choice(words)
                case 3:
                    words[at] = self.one(
                        "SELECT",
                        "*",
                        ")",
                        "(",
                        "NULL",
                        "OVER ()",
                        "random()",
                        "'",
                        "read_csv('x')",
                        ";",
                        "DISTINCT",
                        "JOIN",
                        "--",
                        "1e400",
                        "\u00e9",
                        "LIMIT -1",
                        "now()",
                        "x.y.z",
                        "?",
                    )
                case _:
                    words[at] = words[at][:-1] or ","
            words = words or ["SELECT"]
        return " ".join(words)
