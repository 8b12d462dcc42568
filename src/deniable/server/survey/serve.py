"""Serve one survey until told to stop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deniable.curator.surveying import open_desk
from deniable.errors import MissingExtra, StorageError


def serve(
    file: Path, store: str | None, host: str, port: int, certificate: Path | None = None, key: Path | None = None
) -> None:
    """Listen on a port. No access log is written: who answered when is nobody's business."""
    try:
        import uvicorn

        from deniable.server.survey.app import application
    except ImportError:
        raise MissingExtra(
            "serving a survey needs the server extra", remedy="Install it with: pip install 'deniable[server]'"
        ) from None
    options: dict[str, Any] = {"access_log": False, "server_header": False, "log_level": "warning"}
    if certificate is not None:
        options |= {"ssl_certfile": str(certificate), "ssl_keyfile": str(key) if key else None}
    config = uvicorn.Config(application(open_desk(file, store)), host=host, port=port, **options)
    try:
        uvicorn.Server(config).run()
    except SystemExit:
        raise StorageError(
            f"port {port} of {host} cannot be used",
            remedy="Choose another --port",
            charge="",
        ) from None
