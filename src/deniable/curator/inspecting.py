"""Inspecting a synthetic model: the public view from the model alone, and the steward's against the real rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.errors import ParameterError, nearest

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.curator.hall import Curator
    from deniable.synth.marginal import Codes
    from deniable.synth.model import SynthModel

View = dict[str, Any]
MOST_SHOWN = 400
"""Measured tables with more cells are listed only if they are asked for by name."""


@dataclass(frozen=True, slots=True)
class Question:
    """What to look at: marginals by their columns, the column a classifier guesses, a regression and its columns."""

    marginals: tuple[tuple[str, ...], ...] = ()
    target: str | None = None
    regression: tuple[str, tuple[str, ...]] | None = None


def public(path: Path, question: Question | None = None) -> View:
    """What a model file tells anyone."""
    from deniable.curator.inspecting_linked import public as public_linked
    from deniable.synth.linked_file import is_linked_file
    from deniable.synth.model import load

    if is_linked_file(path):
        return public_linked(path, question or Question())
    return public_view(load(path), question or Question())


def steward(curator: Curator, path: Path, table: str, question: Question | None = None, seed: int = 0) -> View:
    """The public view with the real rows beside it: not to be released. Nothing is charged, because nothing leaves."""
    from deniable.curator.inspecting_linked import steward as steward_linked
    from deniable.synth.generate import generate
    from deniable.synth.linked_file import is_linked_file
    from deniable.synth.model import load

    if is_linked_file(path):
        return steward_linked(curator, path, table, question or Question(), seed)
    model = load(path)
    asked = _with_workload(question or Question(), curator, model)
    return compared(public_view(model, asked), model, asked, _real(curator, model, table), generate(model, seed=seed))


def compared(view: View, model: SynthModel, asked: Question, rows: pa.Table, drawn: pa.Table) -> View:
    """A public view with real rows, and rows drawn from the model, beside it."""
    real, made = _coded(model, rows), _coded(model, drawn)
    joined = model.description.collapsed
    view = _beside(view, model, joined.apply(real), joined.apply(made))
    found = _utility(model, real, made, asked) | {"regression": _regression(model, rows, drawn, asked)}
    return {**view, "utility": found}


def _with_workload(question: Question, curator: Curator, model: SynthModel) -> Question:
    """The question with the tables that the policy says matter, as far as the model has their columns."""
    matter = curator.policy.release.synthesize.concerning(model.description.domain.names)
    return replace(question, marginals=tuple(dict.fromkeys((*question.marginals, *matter))))


def public_view(model: SynthModel, question: Question, drawn: Callable[[], pa.Table] | None = None) -> View:
    """What a model tells anyone; `drawn` gives its rows where they are drawn by a larger model."""
    from deniable.curator.synthesizing import told
    from deniable.synth import inspect
    from deniable.synth.cells import cells

    measured = inspect.measured(model)
    joint = [entry.columns for entry in measured if len(entry.columns) > 1 and entry.cells <= MOST_SHOWN]
    wanted = dict.fromkeys((*question.marginals, *joint))
    return {
        **told(model),
        "tables": [asdict(entry) for entry in measured],
        "histograms": [asdict(histogram) for histogram in inspect.histograms(model)],
        "associations": [asdict(association) for association in inspect.associations(model)],
        "marginals": [asdict(cells(model, columns, drawn)) for columns in wanted],
        "asked_marginals": len(question.marginals),
    }


def _real(curator: Curator, model: SynthModel, name: str) -> pa.Table:
    """The table's rows."""
    from deniable.curator.parity import everything

    table = curator.policy.table(name)
    for column in model.description.domain.names:
        if column not in table.names:
            raise ParameterError(
                f"the table '{name}' has no column '{column}', which the model has",
                remedy="Inspect the model against the table that it describes",
            )
    return curator.tables.attach(table.name).run(everything(table))


def _coded(model: SynthModel, rows: Any) -> Codes:
    import numpy as np

    from deniable.synth.attributes import Made
    from deniable.synth.coding import encode

    coded = [attribute for attribute in model.attributes if not isinstance(attribute, Made)]
    return np.stack([encode(attribute, rows.column(attribute.name)) for attribute in coded])


def _beside(view: View, model: SynthModel, real: Codes, made: Codes) -> View:
    """Each bar and cell with its share of the real and of the drawn rows, each association with the real one."""
    from deniable.synth.cells import places
    from deniable.synth.coarse import summed
    from deniable.synth.inspect import strength
    from deniable.synth.marginal import count

    domain = model.description.collapsed.domain
    listed: list[tuple[Any, tuple[int, ...], Any]] = [
        (histogram["bars"], (place,), ()) for place, histogram in enumerate(view["histograms"])
    ]
    listed += [(entry["cells"], places(model, entry["columns"]), entry["groups"]) for entry in view["marginals"]]
    for entries, clique, groups in listed:
        for name, codes in (("real", real), ("synthetic", made)):
            shares = summed(count(codes, domain, clique) / max(codes.shape[1], 1), groups)
            for entry, share in zip(entries, shares.ravel(), strict=True):
                entry[name] = float(share)
    for entry in view["associations"]:
        pair = (domain.names.index(entry["first"]), domain.names.index(entry["second"]))
        entry["real"] = strength(count(real, domain, pair).astype(float))
    return view


def _utility(model: SynthModel, real: Codes, made: Codes, question: Question) -> View:
    from deniable.assess.utility import classified, default_target, variation, workload, yardstick
    from deniable.synth.attributes import Labels, Made
    from deniable.synth.cells import places

    measure = yardstick([attribute for attribute in model.attributes if not isinstance(attribute, Made)])
    real, made, domain = measure.apply(real), measure.apply(made), measure.domain
    listed = [attribute.name for attribute in model.attributes if isinstance(attribute, Labels)]
    wanted = question.target or default_target(domain, listed)
    if wanted is not None and wanted not in domain.names:
        raise ParameterError(f"the model has no column '{wanted}'", remedy=nearest(wanted, domain.names))
    found = [v for way in (1, 2, 3) if (v := variation(real, made, domain, way)) is not None]
    rates = classified(real, made, domain, wanted) if wanted is not None else None
    asked = workload(real, made, domain, [places(model, columns) for columns in question.marginals])
    return {
        "variation": [{**asdict(entry), "score": entry.score} for entry in found],
        "classifier": asdict(rates) if rates is not None else None,
        "workload": asdict(asked) if asked is not None else None,
    }


def _regression(model: SynthModel, real: pa.Table, made: pa.Table, question: Question) -> View | None:
    """The regression asked for, or the usual one; none where the table has nothing to regress."""
    from deniable.assess.regression import regressed, usual

    chosen = question.regression or usual(model.attributes)
    if chosen is None:
        return None
    target, by = chosen
    _refuse_unfit(model, (target, *by))
    found = regressed(real, made, model.attributes, target, by)
    if found is None:
        return None
    terms = [{**asdict(term), "overlap": term.overlap, "covered": term.covered, "same_sign": term.same_sign}
             for term in found.terms]  # fmt: skip
    return {"target": found.target, "by": list(by), "terms": terms, "overlap": found.overlap, "covered": found.covered}


def _refuse_unfit(model: SynthModel, names: tuple[str, ...]) -> None:
    from deniable.synth.attributes import Bins, Labels

    fit = [attribute.name for attribute in model.attributes if isinstance(attribute, Bins | Labels)]
    for name in names:
        if name not in fit:
            raise ParameterError(
                f"column '{name}' cannot stand in a regression",
                expected=f"Columns with numbers, dates or categories: {', '.join(fit)}",
                remedy=nearest(name, fit),
            )
    wide = next(
        (a for a in model.attributes if a.name == names[0] and isinstance(a, Labels) and len(a.labels) != 2), None
    )
    if wide is not None:
        raise ParameterError(
            f"column '{wide.name}' cannot be explained by a regression",
            expected="A number, a date, or a column of two values",
        )
