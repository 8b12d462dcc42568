"""Inspecting a synthetic model: the public view from the model alone, and the steward's against the real rows."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.errors import ParameterError, nearest

if TYPE_CHECKING:
    from deniable.curator.hall import Curator
    from deniable.synth.marginal import Codes
    from deniable.synth.model import SynthModel

View = dict[str, Any]


def public(path: Path) -> View:
    """What a model file tells anyone."""
    from deniable.synth.model import load

    return _public(load(path))


def steward(curator: Curator, path: Path, table: str, target: str | None = None, seed: int = 0) -> View:
    """The public view with the real rows beside it: not to be released. Nothing is charged, because nothing leaves."""
    from deniable.synth.generate import generate
    from deniable.synth.model import load

    model = load(path)
    real, made = _real(curator, model, table), _coded(model, generate(model, seed=seed))
    view = _beside(_public(model), model, real, made)
    return {**view, "utility": _utility(model, real, made, target)}


def utility(curator: Curator, path: Path, table: str, target: str | None = None, seed: int = 0) -> View:
    """The steward's comparison alone."""
    found: View = steward(curator, path, table, target, seed)["utility"]
    return found


def _public(model: SynthModel) -> View:
    from deniable.curator.synthesizing import told
    from deniable.synth import inspect

    return {
        **told(model),
        "tables": [asdict(entry) for entry in inspect.measured(model)],
        "histograms": [asdict(histogram) for histogram in inspect.histograms(model)],
        "associations": [asdict(association) for association in inspect.associations(model)],
    }


def _real(curator: Curator, model: SynthModel, name: str) -> Codes:
    """The table's rows as the model sees them."""
    from deniable.curator.parity import everything

    table = curator.policy.table(name)
    for column in model.description.domain.names:
        if column not in table.names:
            raise ParameterError(
                f"the table '{name}' has no column '{column}', which the model has",
                remedy="Inspect the model against the table that it describes",
            )
    return _coded(model, curator.tables.attach(table.name).run(everything(table)))


def _coded(model: SynthModel, rows: Any) -> Codes:
    import numpy as np

    from deniable.synth.attributes import Made
    from deniable.synth.coding import encode

    coded = [attribute for attribute in model.attributes if not isinstance(attribute, Made)]
    codes = np.stack([encode(attribute, rows.column(attribute.name)) for attribute in coded])
    return model.description.collapsed.apply(codes)


def _beside(view: View, model: SynthModel, real: Codes, made: Codes) -> View:
    """Each bar with its share of the real and of the drawn rows, each association with the real one."""
    from deniable.synth.inspect import strength
    from deniable.synth.marginal import count

    domain = model.description.collapsed.domain
    for place, histogram in enumerate(view["histograms"]):
        for name, codes in (("real", real), ("synthetic", made)):
            shares = count(codes, domain, (place,)) / max(codes.shape[1], 1)
            histogram["bars"] = [{**bar, name: float(s)} for bar, s in zip(histogram["bars"], shares, strict=True)]
    for entry in view["associations"]:
        pair = (domain.names.index(entry["first"]), domain.names.index(entry["second"]))
        entry["real"] = strength(count(real, domain, pair).astype(float))
    return view


def _utility(model: SynthModel, real: Codes, made: Codes, target: str | None) -> View:
    from deniable.assess.utility import classified, default_target, variation

    domain = model.description.collapsed.domain
    wanted = target or default_target(domain)
    if wanted is not None and wanted not in domain.names:
        raise ParameterError(f"the model has no column '{wanted}'", remedy=nearest(wanted, domain.names))
    found = [v for way in (1, 2, 3) if (v := variation(real, made, domain, way)) is not None]
    rates = classified(real, made, domain, wanted) if wanted is not None else None
    return {
        "variation": [{**asdict(entry), "score": entry.score} for entry in found],
        "classifier": asdict(rates) if rates is not None else None,
    }
