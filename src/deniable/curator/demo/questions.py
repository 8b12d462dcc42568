"""Asking the curator instead: what a question costs, what it answers, and why asking again gains nothing."""

from __future__ import annotations

from deniable.curator.demo.story import Chapter, Row, Stage
from deniable.errors import QueryRefused

QUESTION = "SELECT sex, COUNT(*) AS visits FROM visits WHERE diagnosis = 'I10' GROUP BY sex"


def price(stage: Stage) -> Chapter:
    """Explain first: no data is touched."""
    told = stage.curator.explain(QUESTION, epsilon="0.5")
    part = told["aggregates"][0]["measurements"][0]
    try:
        stage.curator.explain("SELECT patient_id, diagnosis FROM visits", epsilon="0.5")
        refusal = ""
    except QueryRefused as refused:
        refusal = refused.message
    row: Row = {
        "measures": part["measures"],
        "sensitivity": part["sensitivity"],
        "mechanism": part["mechanism"],
        "scale": f"{part['scale']:.3g}",
        "error (95%)": f"{part['error']:.3g}",
        "epsilon": told["cost"]["epsilon"],
    }
    return Chapter(
        "What a question costs",
        (
            f"An analyst asks: {QUESTION}",
            f"It protects {told['unit']}; one person can move a count by {part['sensitivity']}, and noise hides that.",
            f"Asking for rows instead is refused: {refusal}",
        ),
        (row,),
        commands=(f'deniable query "{QUESTION}" -p town/policy.yaml --epsilon 0.5 --explain',),
    )


def answer(stage: Stage) -> Chapter:
    """The noisy answer, with its error and what is left."""
    answered = stage.curator.query(QUESTION, epsilon="0.5")
    rows = tuple(
        {"sex": row["sex"], "visits": row["visits"], "at least": row["visits_low"], "at most": row["visits_high"]}
        for row in answered.to_pylist()
    )
    left = answered.release.details["remaining"]
    assert isinstance(left, dict)
    told = ", ".join(f"{k} {v}" for k, v in left.items())
    more = stage.curator.explain(QUESTION, epsilon="0.5")["more_like_this"]
    return Chapter(
        "The answer",
        (
            "Every number says between what the truth lies, in 95 of 100 answers.",
            f"And it says what is left of the budget: {told}, enough for about {more} more like it.",
        ),
        rows,
        bars=("sex", "visits", "at least", "at most"),
        commands=(f'deniable query "{QUESTION}" -p town/policy.yaml --epsilon 0.5',),
    )


def averaging(stage: Stage) -> Chapter:
    """The same question again: the stored answer, at no cost."""
    first = stage.curator.query(QUESTION, epsilon="0.5")
    again = [stage.curator.query(QUESTION, epsilon="0.5") for _ in range(20)]
    same = all(answer.rows.equals(first.rows) for answer in again)
    return Chapter(
        "Asking again",
        (
            f"Asked 20 times more, the question has {'the same answer' if same else 'other answers'}, at no further "
            "cost: averaging gains nothing.",
        ),
    )
