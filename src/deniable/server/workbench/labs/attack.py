"""The attack laboratory: an intruder tries a table, or a file that was made of it, while the steward watches."""

from __future__ import annotations

import json
import shlex
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.requests import Request

from deniable.curator.attack import Order, attack
from deniable.errors import ParameterError
from deniable.policy.schema import Role
from deniable.reports.attacks import build_exposure_page
from deniable.server.workbench.guided_start import list_files
from deniable.server.workbench.labs import Form, Lab, Run, Values, read_number, render_report
from deniable.server.workbench.pages import Job

MOST_TARGETS = 5000
WHOLE = "the table as it stands"


class AttackLab(Lab):
    """Attacks on a table as it stands, or on a release of it."""

    name = "attack"
    title = "Attack"
    about = (
        "An intruder who knows some columns tries to single out, link and infer. See how many of 1,000 people are"
        " exposed."
    )
    template = "lab_attack_form.html"

    def describe_form(self, table: str, given: Form) -> Values:
        """What is attacked, and what the intruder knows: first what the policy says others may know."""
        schema = self.context.policy.table(table)
        known = {column.name for column in schema.with_role(Role.QUASI_IDENTIFIER)}
        asked = {name.removeprefix("knows.") for name in given if name.startswith("knows.")}
        own = Path(schema.source).name
        files = [name for name in (list_files(self.folder) if self.service.policy_file else []) if name != own]
        return {
            "columns": [column.name for column in schema.columns if column.role is not Role.IDENTIFIER],
            "knows": asked or known,
            "files": [WHOLE, *files],
            "chosen": given.get("file", WHOLE),
            "targets": given.get("targets", "200"),
            "everything": given.get("everything") == "yes",
        }

    def plan(self, table: str, given: Form) -> Callable[[Job], Any]:
        """Run every attack that applies."""
        schema, shown = self.context.policy.table(table), self.describe_form(table, given)
        knows = tuple(name for name in shown["columns"] if f"knows.{name}" in given)
        if not knows:
            raise ParameterError("the intruder knows nothing", remedy="Choose at least one column that others may know")
        if shown["chosen"] not in shown["files"]:
            raise ParameterError("there is no such file in the policy's folder", remedy="Choose one of the list")
        targets = int(read_number(given, "targets", "the number of people tried", 1, MOST_TARGETS) or 200)
        own = str(self.context.policy.path(schema.source))
        other = None if shown["chosen"] == WHOLE else str(self.folder / shown["chosen"])
        sensitive = tuple(column.name for column in schema.with_role(Role.SENSITIVE))
        order = Order(
            other or own, knows, original=own if other else None, table=table, attacks=targets,
            everything=shown["everything"], encoding=schema.csv.encoding, sensitive=() if other else sensitive,
        )  # fmt: skip
        return lambda job: self._watch(order, job)

    def _watch(self, order: Order, job: Job) -> Any:
        """Attack, and say of each attack how it ended as soon as it did."""
        from dataclasses import replace

        with tempfile.TemporaryDirectory(prefix="deniable-lab-") as folder:
            state = Path(folder) / "state.json"

            def tell(share: float) -> None:
                job.said = _list_sentences(state)
                job.tell(share)

            return order, attack(replace(order, state=state), tell, self.context)

    def show(self, run: Run, request: Request) -> tuple[str, Values]:  # noqa: ARG002  each lab is asked alike
        """The page of `deniable attack`."""
        order, found = run.found
        page = build_exposure_page(found.to_dict())
        words = ["deniable", "attack", order.source, "--policy", str(self.service.policy_file), "--knows",
                 ",".join(order.knows), "--table", run.table]  # fmt: skip
        return "lab_report.html", {
            "page": page,
            "report": render_report(page),
            "command": shlex.join(words),
            "kept": "",
        }


def _list_sentences(state: Path) -> list[str]:
    """What the finished attacks found; an attack that does not apply says nothing."""
    try:
        attempts = json.loads(state.read_text(encoding="utf-8"))["attempts"].values()
    except (OSError, ValueError, KeyError):
        return []
    return [str(one["sentence"]) for made in attempts for one in made["outcomes"]]
