"""The laboratories of models: a synthetic model beside the real rows, and a learned model with its effects.

Making a model is charged; the form says how much is left before it is. Looking at a model that lies in the policy's
folder is free."""

from __future__ import annotations

import re
import secrets
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.requests import Request

from deniable.curator.governance.reports import state_plainly
from deniable.curator.query.sql import is_pure
from deniable.curator.synthesize import inspect, run
from deniable.curator.train import describe_model, train_model
from deniable.errors import ParameterError
from deniable.policy.schema import Role
from deniable.reports.synthesis import build_model_page
from deniable.reports.tradeoffs import build_training_page
from deniable.server.workbench.labs import Form, Lab, Run, Values, render_report
from deniable.server.workbench.pages import Job

ENDING = ".model.json"
LEARNED = ".learned.json"
FINDINGS = ".sql"
"""Findings that are statements. Those in Python run on the steward's own machine alone: a page starts no program."""
MOST_MODELS = 100
METHODS = {"auto": "a number, or one of two values", "multinomial": "one of several values",
           "bayes": "one of several values, from counts", "boosted": "shapes of each column",
           "mlp": "a small neural network"}  # fmt: skip


class ModelMaker(Lab):
    """What both have: models in the policy's folder, made with Gaussian noise, which pure epsilon cannot price."""

    def list_files(self, ending: str) -> list[str]:
        """The files of the policy's folder with this ending."""
        if self.service.policy_file is None:
            return []
        return sorted(each.name for each in self.folder.glob(f"*{ending}"))[:MOST_MODELS]

    def find_file(self, name: str, ending: str) -> Path:
        """One of these files."""
        if name not in self.list_files(ending):
            raise ParameterError("there is no such file in the policy's folder", remedy="Choose one of the list")
        return self.folder / name

    def charges(self, given: Form) -> bool:
        """All but looking."""
        return given.get("deed") != "look"

    @property
    def pure(self) -> bool:
        """Whether none can be made."""
        return is_pure(self.context)


class SyntheticLab(ModelMaker):
    """A synthetic model: histograms, associations, what the noise did, effects that are kept."""

    name = "synthetic"
    title = "Synthetic data"
    about = (
        "A synthetic model beside the real rows: histograms, associations, what the noise did, and whether findings"
        " are kept."
    )
    price = "Looking at a model is free. Making one is charged to the budget of the dataset."
    template = "lab_synthetic_form.html"

    def describe_form(self, table: str, given: Form) -> Values:  # noqa: ARG002  each lab is asked alike
        """The models that are there, and what is left to make another."""
        balance = state_plainly(self.context.ledger.balance())
        return {"files": self.list_files(ENDING), "findings": self.list_files(FINDINGS), "balance": balance,
                "epsilon": given.get("epsilon", "1"), "delta": given.get("delta", "1e-6")}  # fmt: skip

    def plan(self, table: str, given: Form) -> Callable[[Job], Any]:
        """Look at a model that is there, or make one first."""
        if given.get("deed") == "look":
            path, asked = self.find_file(given.get("file", ""), ENDING), self._read_question(given)
            return lambda job: self._look(job, table, path, asked)
        order = run.place_order(table, given.get("epsilon", ""), given.get("delta", "").strip() or 0)
        run.plan_description(self.context, order)  # what cannot be made is refused here, and nothing is charged
        return lambda job: self._make(job, table, order)

    def _read_question(self, given: Form) -> inspect.Question:
        regression, findings = inspect.read_formula(given.get("regress", "").strip() or None), given.get("findings", "")
        files = (self.find_file(findings, FINDINGS),) if findings else ()
        return inspect.Question(regression=regression, scores=given.get("scores") == "yes", findings=files)

    def _make(self, job: Job, table: str, order: run.Order) -> Any:
        job.tell(0.1)
        job.said.append("The budget is charged, then the tables are measured with noise")
        path = self.folder / f"{_write_name(table)}-{secrets.token_hex(3)}{ENDING}"
        run.learn_and_keep(self.context, order, path)
        job.said.append(f"The model is kept in the policy's folder: {path.name}")
        job.done = 0.7
        return self._look(job, table, path)

    def _look(self, job: Job, table: str, path: Path, asked: inspect.Question | None = None) -> Any:
        job.said.append("Rows are drawn and compared with the real ones")
        job.done = max(job.done, 0.5)
        return path, inspect.steward(self.context, path, table, asked)

    def show(self, run: Run, request: Request) -> tuple[str, Values]:  # noqa: ARG002  each lab is asked alike
        """The page of `deniable inspect`."""
        path, view = run.found
        page = build_model_page(view.to_dict())
        words = ["deniable", "inspect", str(path), "--against", run.table, "--policy", str(self.service.policy_file)]
        if run.given.get("deed") == "look":
            words += ["--regress", run.given["regress"]] if run.given.get("regress", "").strip() else []
            words += ["--findings", str(self.folder / run.given["findings"])] if run.given.get("findings") else []
            words += ["--scores"] if run.given.get("scores") == "yes" else []
        return "lab_report.html", {
            "page": page,
            "report": render_report(page),
            "command": shlex.join(words),
            "kept": "",
        }


class ModelLab(ModelMaker):
    """A model that predicts a column, learned within a budget."""

    name = "model"
    title = "Learned model"
    about = (
        "A model that predicts one column, learned with noise: what each value adds, and how well it does on people it"
        " has not seen."
    )
    price = "Training is charged to the budget of the dataset. One person in five is held out to test on."
    template = "lab_model_form.html"

    def describe_form(self, table: str, given: Form) -> Values:
        """The columns to predict, and what is left."""
        schema, balance = self.context.policy.table(table), state_plainly(self.context.ledger.balance())
        columns = [column.name for column in schema.columns if column.role is not Role.IDENTIFIER]
        return {"files": self.list_files(LEARNED), "columns": columns,
                "methods": METHODS, "method": given.get("method", "auto"), "balance": balance,
                "target": given.get("target", ""),
                "epsilon": given.get("epsilon", "1"), "delta": given.get("delta", "1e-6")}  # fmt: skip

    def plan(self, table: str, given: Form) -> Callable[[Job], Any]:
        """Look at a model that is there, or train one: what cannot be planned is refused before it is charged."""
        if given.get("deed") == "look":
            path = self.find_file(given.get("file", ""), LEARNED)
            return lambda job: self._look(job, path)
        target, epsilon = given.get("target", ""), given.get("epsilon", "")
        if target not in self.context.policy.table(table).names:
            raise ParameterError("there is no such column", remedy="Choose the column to predict")

        method = given.get("method", "auto")
        if method not in METHODS:
            raise ParameterError("there is no such method here", remedy="Choose one of the list")

        def work(job: Job) -> Any:
            job.tell(0.05)
            job.said.append("The budget is charged, then the model is learned")
            path = self.folder / f"{_write_name(table)}-{_write_name(target)}-{secrets.token_hex(3)}{LEARNED}"
            trained = train_model(
                self.context, table, target, epsilon=epsilon, delta=given.get("delta", "").strip() or None,
                method=method, evaluate=True, out=path,
                progress=lambda share: setattr(job, "done", max(job.done, share)),
            )  # fmt: skip
            return path, describe_model(trained)

        return work

    @staticmethod
    def _look(job: Job, path: Path) -> Any:
        job.tell(0.5)
        return path, describe_model(path)

    def show(self, run: Run, request: Request) -> tuple[str, Values]:  # noqa: ARG002  each lab is asked alike
        """The page of `deniable train --report`."""
        path, view = run.found
        page = build_training_page(view.to_dict())
        words = f"The model is kept in the policy's folder: {path.name}" if run.given.get("deed") != "look" else ""
        return "lab_report.html", {"page": page, "report": render_report(page), "kept": words}


def _write_name(text: str) -> str:
    return re.sub(r"[^\w-]+", "-", text).strip("-") or "table"
