"""The laboratories of k-anonymity: the lattice with its nodes, and what stricter models and other techniques cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

from starlette.requests import Request

from deniable.curator.anonymize import explore
from deniable.curator.anonymize.request import Asked
from deniable.errors import ParameterError
from deniable.kanonymity.recoding import name_level
from deniable.reports import tradeoffs
from deniable.reports.blocks import Page, Section
from deniable.server.workbench.labs import Form, Lab, Run, Values, read_number, render_report
from deniable.server.workbench.pages import Job


class LatticeLab(Lab):
    """Every combination of levels, and one of them in detail."""

    name = "lattice"
    title = "k-anonymity lattice"
    about = (
        "Every way to generalize the columns that others may know: what each loses, whom it leaves at risk, and which"
        " model fails."
    )
    template = "lab_lattice_form.html"

    def describe_form(self, table: str, given: Form) -> Values:
        """What is asked, first as the policy asks it."""
        asked = explore.state_demands(self.context)
        sensitive = explore.list_sensitive(self.context, table)
        values = {"k": str(asked.k), "suppress": f"{float(asked.suppress or 0) * 100:g}"}
        values |= {f"l.{name}": f"{float(asked.l[name]):g}" for name in sensitive if name in asked.l}
        values |= {f"t.{name}": f"{float(asked.t[name]):g}" for name in sensitive if name in asked.t}
        return {"values": values | dict(given), "sensitive": sensitive}

    def plan(self, table: str, given: Form) -> Callable[[Job], Any]:
        """Check every node."""
        asked = self._read(table, given)
        return lambda job: (asked, explore.explore_lattice(self.context, table, asked, job.tell))

    def show(self, run: Run, request: Request) -> tuple[str, Values]:
        """The lattice, and the node that was clicked: first the one that a release would take."""
        asked, view = run.found
        first = view.chosen or view.nodes[-1]
        levels = _read_levels(request.query_params.get("levels", "")) or first.levels
        node = explore.explore_node(self.context, run.table, asked, levels)
        named = [
            (column, at, name_level(at, {"levels": column.levels, "hierarchy": column.hierarchy}))
            for column, at in zip(view.columns, node.levels, strict=True)
        ]
        plots = []
        if node.sizes:
            plots.append(Section("How large the classes are", (tradeoffs.draw_sizes(node.sizes),)))
        points = [_describe_point(each, view) for each in view.nodes if each.risk is not None]
        if len(points) >= tradeoffs.FEWEST_POINTS:
            plots.append(Section("All combinations", (tradeoffs.draw_lattice(points, view.rows),)))
        report = render_report(Page("", tuple(plots)))
        return "lab_lattice.html", {"view": view, "node": node, "named": named, "report": report,
                                    "emptied": _list_emptied(view), "sample": self._read_sample()}  # fmt: skip

    def _read_sample(self) -> float:
        """The share of the rows that the policy lets leave."""
        minimize = self.context.policy.release.minimize
        return 1.0 if minimize is None else float(minimize.sample)

    def _read(self, table: str, given: Form) -> Asked:
        """What is asked of the models; it may be looser than the policy, since nothing leaves."""
        asked = explore.state_demands(self.context)
        k = read_number(given, "k", "k", 1, 1e6)
        suppress = read_number(given, "suppress", "the share of rows left out, in percent,", 0, 100)
        sensitive = explore.list_sensitive(self.context, table)
        values, distances = {}, {}
        for name in sensitive:
            if (least := read_number(given, f"l.{name}", f"l of '{name}'", 1, 1e6)) is not None:
                values[name] = Fraction(str(least))
            if (most := read_number(given, f"t.{name}", f"t of '{name}'", 0, 1)) is not None:
                distances[name] = Fraction(str(most))
        share = asked.suppress if suppress is None else Fraction(str(suppress)) / 100
        read = replace(asked, k=int(k) if k else asked.k, l=values, t=distances, suppress=share)
        if read.k is not None and read.k < 2 and not (values or distances or read.models):
            raise ParameterError("nothing is asked", expected="k is at least 2, or another model is asked")
        return read


def _list_emptied(view: explore.LatticeView) -> set[tuple[int, ...]]:
    """The nodes that fail because most rows would have to be left out."""
    failing = (each for each in view.nodes if not each.acceptable)
    return {each.levels for each in failing if tradeoffs.leaves_most_out(each.suppressed, view.rows)}


def _read_levels(text: str) -> tuple[int, ...]:
    parts = text.split("-")[:64]
    return tuple(map(int, parts)) if all(part.isascii() and part.isdigit() and len(part) < 4 for part in parts) else ()


# a dictionary: a point of a plot
def _describe_point(node: explore.LatticeNode, view: explore.LatticeView) -> dict[str, Any]:
    levels = {column.name: at for column, at in zip(view.columns, node.levels, strict=True)}
    return {"cost": node.loss, "base": node.loss, "risk": node.risk, "levels": levels, "chosen": node.chosen,
            "acceptable": node.acceptable, "suppressed": node.suppressed}  # fmt: skip


class TradeoffLab(LatticeLab):
    """Risk against utility: stricter models, and other techniques."""

    name = "tradeoff"
    title = "Risk against utility"
    about = "What each k, l and t costs this table, and how it fares as it is, k-anonymous, and synthetic."

    def describe_form(self, table: str, given: Form) -> Values:
        """The same form, with another button."""
        return {**LatticeLab.describe_form(self, table, given), "button": "Try them all"}

    def plan(self, table: str, given: Form) -> Callable[[Job], Any]:
        """Find the optimum for each k, l and t; then make the table in several ways."""
        asked = self._read(table, given)

        def work(job: Job) -> Any:
            job.said.append("The optimum for each k, l and t")
            points = explore.explore_strictness(self.context, table, asked, lambda share: job.tell(share * 0.7))
            job.said.append("The table as it is, k-anonymous, and synthetic")
            found = explore.compare_techniques(self.context, table, asked, lambda share: job.tell(0.7 + share * 0.3))
            return points, found

        return work

    def show(self, run: Run, request: Request) -> tuple[str, Values]:  # noqa: ARG002  each lab is asked alike
        """One page of both."""
        points, found = run.found
        page = tradeoffs.build_tradeoff_page([each.to_dict() for each in points], found)
        return "lab_report.html", {"page": page, "report": render_report(page)}
