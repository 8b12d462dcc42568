"""The end of the story: every release is attacked as the rows were, and the ledger says what was spent on it all."""

from __future__ import annotations

from typing import Any

from deniable.curator.demo.exposure import KNOWN
from deniable.curator.demo.story import Chapter, Row, Stage
from deniable.errors import BudgetExceeded

RELEASES = {
    "the visits as they are": "visits",
    "masked": "masked",
    "k-anonymous": "anonymous",
    "synthetic": "synthetic",
}


def attacked(stage: Stage) -> Chapter:
    """The intruder of the beginning comes back with the same voter roll, to what was released."""
    rows = tuple({"rows": told, "named of 1,000": _named(stage, file)} for told, file in RELEASES.items())
    return Chapter(
        "The intruder comes back",
        (
            "With the same voter roll the intruder tries every release before it leaves. Where one name alone fits a "
            "row, a person is named.",
        ),
        rows,
        bars=("rows", "named of 1,000"),
        commands=(
            f"deniable attack masked.parquet --knows {','.join(KNOWN)} --register town/voters.parquet",
            "deniable attack anonymous.parquet --policy town/policy.yaml --table visits --all --report report.html",
        ),
    )


def _named(stage: Stage, file: str) -> int:
    from deniable.curator.attacking import Order, attack

    found = attack(Order(str(stage.folder / f"{file}.parquet"), KNOWN, str(stage.folder / "voters.parquet")))
    share: float = found["exposed"]["linkage"]
    return round(1000 * share)


def ledger(stage: Stage) -> Chapter:
    """What was released, what was spent, and that it cannot be overspent."""
    from deniable.curator import offices, telling

    policy, place = stage.folder / "policy.yaml", str(stage.ledger)
    register = offices.register(policy, place)
    proven = telling.verify(stage.curator.ledger, None, None)
    releases = tuple(_entry(release) for release in register["releases"])
    return Chapter(
        "The ledger",
        (
            f"Each release stands in a ledger whose {proven['entries']} entries are chained: a change to any is found. "
            "Masked and k-anonymous rows have no formal guarantee, and it says so.",
            _refusal(stage),
            "Synthetic rows were made with Gaussian noise, which the ledger tells at delta 1e-9: "
            "epsilon 1 at delta 1e-7 is epsilon 1.2 at that.",
        ),
        releases,
        commands=(
            "deniable ledger verify -p town/policy.yaml",
            "deniable register -p town/policy.yaml -o register.html",
        ),
    )


def _entry(release: dict[str, Any]) -> Row:
    """A line of the register."""
    epsilon, delta = release["epsilon"], release["delta"]
    if epsilon is None:
        return {"technique": release["technique"], "epsilon": "no guarantee", "delta": ""}
    return {"technique": release["technique"], "epsilon": f"{epsilon:.3g}", "delta": f"{delta:g}"}


def _refusal(stage: Stage) -> str:
    """Ask for more than is left: refused, whatever the rows are."""
    try:
        stage.curator.query("SELECT COUNT(*) AS visits FROM visits", epsilon="100")
    except BudgetExceeded as refused:
        return f"A question for epsilon 100 is refused: {refused.message}"
    raise AssertionError("a question beyond the budget was answered")
