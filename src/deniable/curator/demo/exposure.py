"""How exposed people are: the governor is found again, and he is no exception."""

# ruff: noqa: S608  (statements here are made of our own words; no user text)

from __future__ import annotations

from deniable.curator.demo.story import Chapter, Stage

KNOWN = ("zip", "birth_date", "sex")


def linkage(stage: Stage) -> Chapter:
    """The voter roll is joined to the nameless visits on what both have."""
    from deniable.world.governor import GOVERNOR

    engine = stage.curator.tables.attach("voters", "visits")
    matched = ", ".join(f"v.{name} = h.{name}" for name in KNOWN).replace(", ", " AND ")
    found = engine.run(
        f"SELECT DISTINCT v.name AS name, h.diagnosis AS diagnosis FROM voters v JOIN visits h ON {matched} "
        "WHERE v.birth_date = ? AND v.zip = ? AND v.sex = 'M'",
        [GOVERNOR.birth_date, GOVERNOR.zip],
    ).to_pylist()
    count = "SELECT count(*) AS n FROM voters WHERE birth_date = ?"
    same_day = engine.run(count, [GOVERNOR.birth_date])["n"][0].as_py()
    men = engine.run(count + " AND sex = 'M'", [GOVERNOR.birth_date])["n"][0].as_py()
    named = ", ".join(sorted({row["name"] for row in found})) or "nobody"
    ills = ", ".join(sorted({row["diagnosis"] for row in found})) or "nothing"
    return Chapter(
        "An intruder with the voter roll",
        (
            "The newspaper wrote that the governor collapsed. His birthday is public.",
            f"{same_day} voters share it, {men} of them are men, and one of those lives in his ZIP code: {named}.",
            f"The nameless visits give away his diagnoses: {ills}. Removing names was not enough.",
        ),
    )


def uniqueness(stage: Stage) -> Chapter:
    """How many others could be found the same way."""
    from deniable.assess.uniqueness import uniqueness as measured

    engine = stage.curator.tables.attach("voters")
    sets = (("birth_date",), ("zip", "sex"), ("birth_date", "sex"), KNOWN)
    found = [measured(engine, "voters", columns) for columns in sets]
    rows = tuple({"who knows": " + ".join(u.columns), "finds of 1,000": u.per_thousand} for u in found)
    last = found[-1]
    return Chapter(
        "He is no exception",
        (f"ZIP code, birth date and sex single out {last.alone:,} of {last.rows:,} people of the town.",),
        rows,
        (last.per_thousand, "of 1,000 people can be found by ZIP code, birth date and sex"),
    )
