"""Contracts of engines run on every engine that can be opened here, with the same rows in each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import ENGINES
from deniable.engines import Engine

IN_DATABASES = ("postgresql", "adbc")


@pytest.fixture(params=[*sorted(ENGINES), *IN_DATABASES])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """An open engine whose relative paths start at the test's own folder; what is attached is put where it reads."""
    if request.param in ENGINES:
        opened: Any = ENGINES[request.param](tmp_path)
    else:
        from engines_elsewhere import UploadingAdbc, UploadingPostgreSQL

        kind = {"postgresql": UploadingPostgreSQL, "adbc": UploadingAdbc}[request.param]
        opened = kind(request.getfixturevalue("postgres_address"), tmp_path)
    with opened:
        yield opened
