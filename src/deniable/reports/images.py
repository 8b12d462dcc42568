"""Plots as pictures: SVG and PNG for papers and slides, through vl-convert (the extra `plots`), without a network."""

from __future__ import annotations

import json
from typing import Any

from deniable.errors import MissingExtra, ParameterError

WIDTH = 640  # pixels, where a plot would otherwise fill whatever holds it


def svg(spec: dict[str, Any], *, width: int = WIDTH) -> str:
    """The plot as one SVG text."""
    return str(_converter().vegalite_to_svg(_sized(spec, width), allowed_base_urls=[]))


def png(spec: dict[str, Any], *, width: int = WIDTH, scale: float = 2.0) -> bytes:
    """The plot as PNG on white; `scale` 2 suits screens and print."""
    if not 0 < scale <= 10:
        raise ParameterError(f"A scale of {scale} for a picture", expected="a number above 0, at most 10")
    filled = json.loads(_sized(spec, width))
    filled["config"] = filled.get("config", {}) | {"background": "white"}
    return bytes(_converter().vegalite_to_png(json.dumps(filled), scale=scale, allowed_base_urls=[]))


def _sized(spec: dict[str, Any], width: int) -> str:
    """A picture has no container: it gets a width of its own."""
    fixed = (
        {"width": width, "autosize": {"type": "fit", "contains": "padding"}}
        if "layer" not in spec
        else {"width": width}
    )
    return json.dumps({key: part for key, part in spec.items() if key != "autosize"} | fixed)


def _converter() -> Any:
    try:
        import vl_convert
    except ModuleNotFoundError as missing:
        raise MissingExtra(
            "Drawing a plot as a picture needs vl-convert-python, which is not installed",
            remedy="Install it with: pip install 'deniable[plots]'",
            charge="",
        ) from missing
    return vl_convert
