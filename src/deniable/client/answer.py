"""An answer from a server: rows with their errors, what they cost, and the receipt. Looks well in notebooks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from deniable.errors import MissingExtra
from deniable.policy.budget import say_cost
from deniable.release.display import ShownBatch, ShownNumbers


@dataclass(frozen=True, slots=True, repr=False)
class Answer(ShownNumbers):
    """The noisy rows of a question. `name_low` and `name_high` enclose `name` with the stated confidence."""

    rows: tuple[Mapping[str, Any], ...]
    columns: tuple[str, ...]
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def repeated(self) -> bool:
        """Whether it is the stored answer of an equal question, at no further cost."""
        return bool(self.details.get("repeated"))

    @property
    def cost(self) -> Mapping[str, str]:
        """What the question cost."""
        return dict(self.details.get("cost") or {})

    @property
    def receipt(self) -> Mapping[str, Any] | None:
        """The place of the charge in the ledger; keep it to prove later that nothing was changed."""
        return self.details.get("receipt")

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return iter(self.rows)

    def to_pylist(self) -> list[Mapping[str, Any]]:
        """A list of rows, as an answer of `Curator.query` has it."""
        return [dict(row) for row in self.rows]

    def to_pandas(self) -> Any:
        """A pandas DataFrame."""
        _require("pandas")
        import pandas

        return pandas.DataFrame([dict(row) for row in self.rows], columns=list(self.columns))

    def to_polars(self) -> Any:
        """A Polars DataFrame."""
        _require("polars")
        import polars

        return polars.DataFrame([dict(row) for row in self.rows], schema=list(self.columns))

    def to_arrow(self) -> Any:
        """An Arrow table."""
        _require("pyarrow")
        import pyarrow

        return pyarrow.table({name: [row[name] for row in self.rows] for name in self.columns})

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows for any library that speaks Arrow (its PyCapsule interface)."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def describe_cost(self) -> str:
        """What it cost and what is left, in words."""
        return say_cost(self.details, self.repeated)


@dataclass(frozen=True, slots=True, repr=False)
class BatchAnswer(ShownBatch[Answer]):
    """The answers to several questions that were asked together, in their order; a sequence of `Answer`."""

    answers: tuple[Answer, ...]
    repeated: bool = False
    """Whether they are the stored answers of an earlier equal batch, at no further cost."""

    @property
    def cost(self) -> Mapping[str, str]:
        """What all questions cost together."""
        return self.paid.cost

    @property
    def receipt(self) -> Mapping[str, Any] | None:
        """The place of their one charge in the ledger; None where nothing was charged."""
        return self.paid.receipt

    def list_questions(self) -> list[str]:
        """The questions, in their order."""
        return [str(answer.details.get("sql", "")) for answer in self.answers]


def _require(package: str) -> None:
    """Refuse where a package is not installed; the answer is at hand, and can be shown without it."""
    from importlib.util import find_spec

    if find_spec(package) is None:
        raise MissingExtra(f"'{package}' is not installed", remedy=f"Install it: pip install {package}", extra=package)
