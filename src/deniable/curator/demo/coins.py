"""Noise before it leaves the person: a sensitive question asked with two coins."""

from __future__ import annotations

from deniable.curator.demo.story import Chapter, Stage


def coins(stage: Stage) -> Chapter:
    """Two coins: each answer can be denied, and the share is still found."""
    import numpy as np

    from deniable import world
    from deniable.localdp.coins import two_coins

    table = world.make("survey", min(stage.people, 20_000))["survey"]
    truth = np.array([answer == "yes" for answer in table["evaded_taxes"].to_pylist()])
    design = two_coins()
    answers = design.randomize(truth.astype(np.int64))
    tally = design.tally(answers)
    told = design.estimate(tally, truth.size)
    low, high = (float(end[1]) / truth.size for end in told.interval(0.95))
    return Chapter(
        "A question that nobody need answer truly",
        (
            f"{truth.size:,} people are asked whether they evaded taxes. Each tosses a coin: tails, they tell the "
            "truth; heads, a second coin answers. Whatever they said, they can deny it: epsilon is ln 3.",
            f"{tally[1] / truth.size:.1%} said yes; from that follows {told.counts[1] / truth.size:.1%}, between "
            f"{low:.1%} and {high:.1%}. In truth it is {truth.mean():.1%}.",
        ),
        commands=("deniable survey serve survey.yaml",),
    )
