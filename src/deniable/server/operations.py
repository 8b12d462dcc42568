"""Operations: what the HTTP API can do, each described once, for routing and for the OpenAPI document."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from deniable.governance.grants import Grant
    from deniable.server.desk import Desk


@dataclass(frozen=True, slots=True)
class Call:
    """A request that was let in: who it is from (None on public operations), its body, its path, its query."""

    desk: Desk
    grant: Grant | None
    body: Any
    path: Mapping[str, str]
    request: Request
    request_id: str

    @property
    def who(self) -> Grant:
        """The grant of the asker."""
        assert self.grant is not None
        return self.grant


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path."""

    method: str
    path: str
    name: str
    summary: str
    act: Callable[[Call], Awaitable[Response]] = field(compare=False)
    body: type[Any] | None = None
    public: bool = False
    query: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    forms: tuple[str, ...] = ("application/json",)
    charges: bool = False
    """Whether it may charge: its answers leave at whole quanta, and it takes a request id."""
    status: int = 200
