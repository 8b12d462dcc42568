"""The privacy plan as lines of text, in the place where PostgreSQL's EXPLAIN shows the plan of execution."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def plan_lines(told: Mapping[str, Any]) -> list[str]:
    """The plan from the tables up, then each measurement with its noise, then the price."""
    lines = [f"Protects {told['unit']}  (strategy: {told['strategy']})"]
    lines += [f"  -> {step['step']}  ({step['tag']})" for step in told["relations"]]
    for aggregate in told["aggregates"]:
        lines.append(f"Measure {aggregate['aggregate']} by {aggregate['keys']}")
        lines += list(_measurements(aggregate["measurements"]))
    lines.append(f"Cost: {figures(told['cost']) or 'nothing'}")
    if told.get("remaining"):
        lines.append(f"Left before this question: {figures(told['remaining'])}")
    if told.get("more_like_this") is not None:
        lines.append(f"About {told['more_like_this']:,} more questions like this fit")
    return lines + [f"Note: {note}" for note in told["notes"]]


def _measurements(parts: list[Mapping[str, Any]]) -> Iterator[str]:
    for part in parts:
        noise = part["mechanism"] if part["scale"] is None else f"{part['mechanism']}, scale {part['scale']:,.4g}"
        reach = f"{part['error']:,.4g} {'ranks ' if part['error_in'] == 'ranks' else ''}"
        yield f"  {part['measures']}: {noise}; error below {reach.strip()} with {part['confidence']:.0%} confidence"


def figures(cost: Mapping[str, str]) -> str:
    """A budget in words: epsilon 0.5, delta 1e-06."""
    return ", ".join(f"{name} {value}" for name, value in cost.items() if value != "0")
