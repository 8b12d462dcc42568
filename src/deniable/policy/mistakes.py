"""A list of mistakes that grows while a policy is read, so that all of them are reported in one go."""

from __future__ import annotations

from deniable.errors import Place, PolicyError

MOST_SHOWN = 200


class Mistakes:
    """Collects mistakes; `check` raises them together, in the order of their lines."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.found: list[PolicyError] = []
        self._seen: set[tuple[str, int, int, str]] = set()

    def add(self, place: Place, happened: str, expected: str = "", remedy: str = "") -> None:
        """Note one mistake."""
        self.take(PolicyError(happened, expected=expected, remedy=remedy, place=place))

    def take(self, mistake: PolicyError) -> None:
        """Note a mistake that is already made into words; what stands behind an alias is noted once."""
        place = mistake.place or Place(self.source, 1)
        identity = (place.source, place.line, place.column, mistake.happened)
        if identity not in self._seen:
            self._seen.add(identity)
            self.found.append(mistake)

    def check(self) -> None:
        """Raise one PolicyError with all mistakes, if there are any."""
        if not self.found:
            return
        ordered = sorted(self.found, key=_position)
        count = len(ordered)
        more = f"; the first {MOST_SHOWN} follow" if count > MOST_SHOWN else ""
        happened = f"{self.source} has {count} mistakes{more}" if count > 1 else f"{self.source} has one mistake"
        refusal = PolicyError(happened + ":", mistakes=tuple(ordered[:MOST_SHOWN]))
        for mistake in refusal.mistakes:
            refusal.add_note(f"  {mistake.message}")  # so that a Python traceback shows them too
        raise refusal


def _position(mistake: PolicyError) -> tuple[int, int]:
    return (mistake.place.line, mistake.place.column) if mistake.place else (0, 0)
