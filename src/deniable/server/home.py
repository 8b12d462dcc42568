"""The home of a served policy: its file and its ledger, from which releases are made and where they are kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from deniable.curator import fulfilling
from deniable.errors import DeniableError
from deniable.server.logging import Log, places

if TYPE_CHECKING:
    from deniable.curator.hall import Curator


@dataclass(frozen=True, slots=True)
class Home:
    """Where a policy and its ledger are; a server without one makes no releases of rows itself."""

    policy: Path
    ledger: str

    def making(self, identity: str, log: Log) -> Callable[[], None]:
        """Work that makes an approved release; what fails is told to the log, and the steward may do it by hand."""

        def make() -> None:
            try:
                made = fulfilling.fulfill_once(self.policy, self.ledger, identity)
            except Exception as failure:
                reason = failure.message if isinstance(failure, DeniableError) else places(failure)
                log(f"request {identity} was approved and could not be fulfilled: {reason}"
                    f" Try by hand: deniable fulfill {identity}")  # fmt: skip
            else:
                log(f"request {identity} was fulfilled" if made else f"request {identity} is fulfilled elsewhere")

        return make

    def file(self, curator: Curator, analyst: str, identity: str, table: str) -> Path | None:
        """The file of a release, for the one who requested it."""
        return fulfilling.made_file(curator, self.policy, analyst, identity, table)

    def forget(self) -> int:
        """Remove the releases that are kept here."""
        return fulfilling.forget_releases(self.policy)
