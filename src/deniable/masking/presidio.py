"""Presidio as a second searcher of free text, for those who have it: its model knows names, our patterns do not.

Presidio is never needed and never fetched here; where it is installed with a spaCy model, `--presidio` adds what it
finds to what our own patterns find. It is slow beside them, and it runs on this machine alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from deniable.errors import MissingExtra
from deniable.masking.finders import Span

SURE_ENOUGH = 0.5


def searcher(engine: Any = None, language: str = "en") -> Callable[[Sequence[str]], list[list[Span]]]:
    """A function that finds spans in texts with a Presidio analyzer: the one given, or the one it makes by default."""
    analyzer = engine if engine is not None else _analyzer()

    def search(texts: Sequence[str]) -> list[list[Span]]:
        return [
            [
                Span(found.start, found.end, str(found.entity_type).lower())
                for found in analyzer.analyze(text, language=language, score_threshold=SURE_ENOUGH)
            ]
            for text in texts
        ]

    return search


def _analyzer() -> Any:
    try:
        models = import_module("spacy.util").get_installed_models()
        analyzer = import_module("presidio_analyzer").AnalyzerEngine
    except ImportError:
        raise MissingExtra(
            "Presidio is not installed", remedy="Install it with: pip install presidio-analyzer", extra="presidio"
        ) from None
    if not any(name.startswith("en_core_web") for name in models):
        # Presidio would try to download one, and nothing here uses the network.
        raise MissingExtra(
            "Presidio has no language model to work with",
            remedy="Install one with: python -m spacy download en_core_web_lg",
            extra="presidio",
        )
    return analyzer()
