"""Provenance: from which policy, data and code a release came, when, and with which parameters.

Everything here is public. Parameters are plain values that were chosen before the data was seen or that the guarantee
pays for: texts, numbers, yes or no, and lists and mappings of these. Anything that could hold rows is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from functools import cache
from importlib.metadata import version

from deniable.errors import ParameterError

Plain = str | int | float | bool | None | list["Plain"] | dict[str, "Plain"]


@cache
def _read_version() -> str:
    # Read from the installed package: the root module imports the curator, which no foundation may import.
    return version("deniable")


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a release came from; `data_versions` has one version for each table that was read."""

    policy_hash: str | None
    data_versions: Mapping[str, str]
    parameters: Mapping[str, object] = field(default_factory=dict)
    code_version: str = field(default_factory=lambda: f"deniable {_read_version()}")
    time: datetime = field(default_factory=_now)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", to_plain(self.parameters))
        object.__setattr__(self, "data_versions", dict(self.data_versions))
        if self.time.tzinfo is None:
            raise ParameterError("the time of a release has no time zone", remedy="Use datetime.now(UTC)")


def to_plain(value: object, name: str = "parameters") -> Plain:
    """A value as JSON holds it; exact numbers become texts, and whatever is not plain is refused by its type.

    >>> to_plain({"epsilon": Fraction(1, 2), "columns": ("zip", "sex")})
    {'epsilon': '0.5', 'columns': ['zip', 'sex']}
    """
    match value:
        case None | bool() | int() | str():
            return str(value) if isinstance(value, str) else value
        case float():
            return _require_finite(value, name)
        case Fraction() | Decimal():
            return to_text(Fraction(value))
        case datetime():
            return value.isoformat()
        case list() | tuple():
            return [to_plain(item, name) for item in value]
        case Mapping():
            return {str(key): to_plain(item, f"{name}.{key}") for key, item in value.items()}
        case _:
            raise ParameterError(
                f"{name} is a {type(value).__name__}, which could hold rows",
                expected="A release is described by texts, numbers, lists and mappings only",
            )


def to_text(amount: Fraction) -> str:
    """An exact number as text: as a decimal where that ends, else as a quotient.

    >>> to_text(Fraction(1, 8)), to_text(Fraction(1, 3)), to_text(Fraction("1e-9")), to_text(Fraction(5))
    ('0.125', '1/3', '0.000000001', '5')
    """
    rest, places = amount.denominator, 0
    for prime in (2, 5):
        count = 0
        while rest % prime == 0:
            rest, count = rest // prime, count + 1
        places = max(places, count)
    if rest != 1 or places > 30:
        return str(amount)
    return (
        f"{Decimal(amount.numerator * 10**places // amount.denominator).scaleb(-places):f}" if places else str(amount)
    )


def _require_finite(value: float, name: str) -> float:
    if value != value or value in (float("inf"), float("-inf")):
        raise ParameterError(f"{name} is not a finite number")
    return value
