"""Release gate of synthetic rows: they are attacked before they leave, and leave only if every limit is met.

People are held out of the description, or given by the steward, so that the attacks have a control. What is found is
for the steward; no part of it is written to the release. People with their rows are held out whole, and both tables
leave or none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from deniable.curator.attack import attempt_as_dict, columns_known, columns_with_role, judge_limits, table_at
from deniable.curator.charge import Job, run_job, still_charged
from deniable.curator.context import Context
from deniable.curator.sources import refuse_rows_here
from deniable.curator.synthesize.run import (
    Linked,
    LinkedSource,
    Order,
    Progress,
    Source,
    bound_linked_rows,
    bound_rows,
    learn_linked,
    learn_model,
    name_order_files,
    plan_description,
    plan_linked,
    synthesize,
    write_linked,
    write_release,
)
from deniable.errors import AccessRefused, DataError, ParameterError
from deniable.outputs import claim_outputs
from deniable.release.record import Record

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.engines.base import Engine
    from deniable.policy.document import Policy
    from deniable.policy.schema import TableSchema
    from deniable.release import Release
    from deniable.synth.domain import Attribute
    from deniable.synth.linked.link import Link
    from deniable.synth.model import SynthModel

FEWEST = 20
"""With fewer people on either side of the comparison nothing can be concluded, and nothing is tried."""
NOT_PRIVATE = (
    "These rates and the verdict compare with real rows, without noise: they are not differentially private. They are "
    "for the steward alone, and no part of them is in the released files."
)


@dataclass(frozen=True, slots=True)
class Proof:
    """How a synthetic table is attacked: the share of people held out or a file of other people, targets, limits."""

    held_out: float = 0.1
    control: str | None = None
    attacks: int = 1000
    limits: Mapping[str, Fraction] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.control is None and not 0 < self.held_out <= 0.5:
            raise ParameterError(
                "the share of people held out is not above 0 and at most a half", expected="Such as 0.1"
            )

    @property
    def described(self) -> float:
        """The share of people that the description sees."""
        return 1.0 if self.control is not None else 1.0 - self.held_out


@dataclass(frozen=True, slots=True, eq=False)
class GateFindings(Record):
    """What attacks on synthetic rows gained: each attempt, the share of people it exposes, and how many were tried."""

    knows: list[str]
    attacks: list[dict[str, Any]]
    exposed: dict[str, float]
    rows: int
    people_seen: int
    people_held_out: int


@dataclass(frozen=True, slots=True, eq=False)
class GateVerdict(GateFindings):
    """The findings with the limits and whether they are met; for the steward alone."""

    limits: dict[str, float]
    verdicts: list[dict[str, Any]]
    measured: bool
    failed: bool
    subject: str
    control: str
    charged: str
    remark: str
    untried: list[str]
    inapplicable: dict[str, str]


def synthesize_checked(
    context: Context, order: Order, out: Path, proof: Proof | None = None, *, rows: int | None = None, seed: int = 0,
    progress: Progress | None = None,
) -> tuple[Release | None, GateVerdict | None]:  # fmt: skip
    """Describe, draw, attack; write the release if every limit is met. The charge stands either way.

    Without a proof nothing is attacked. The findings hold no row; without a release they say why there is none.
    """
    if proof is None:
        return synthesize(context, order, out, rows=rows, seed=seed, progress=progress), None
    if context.asker is not None:
        raise AccessRefused("attacks compare with real rows, without noise", remedy="Only the steward may run them")
    with claim_outputs(out, rows=True):
        return _describe_and_attack(context, order, out, proof, rows=rows, seed=seed, progress=progress)


def _describe_and_attack(
    context: Context, order: Order, out: Path, proof: Proof, *, rows: int | None, seed: int, progress: Progress | None
) -> tuple[Release | None, GateVerdict | None]:
    from deniable.synth.domain import Bins, Labels

    judge_limits({"exposed": {}, "attacks": []}, context.policy, proof.limits)
    if order.linked:
        return _synthesize_linked(context, order, out, proof, rows=rows, seed=seed, progress=progress)
    others = table_at(proof.control) if proof.control is not None else None
    order, source, job = plan_description(context, order)
    refuse_rows_here(source.table, context.scope.sources)

    def measure(engine: Engine) -> tuple[SynthModel, pa.Table, GateFindings | DataError]:
        seen, control = _split_sides(bound_rows(engine, source, _columns(order, source)), source, proof, others)
        model = learn_model(context, order, source, seen)
        drawn = _draw(model, proof, rows, seed)
        shown = drawn.select([a.name for a in model.attributes if isinstance(a, Bins | Labels)])
        if others is not None and (shared := _find_shared_people(seen, others, shown, source.unit.column)):
            return model, drawn, shared
        return model, drawn, attack_release(context.policy, (source.table,), shown, seen, control, proof, progress)

    result = run_job(context, replace(cast("Job[Any]", job), measure=measure))
    model, drawn, found = result.measured
    if isinstance(found, DataError):
        with still_charged():
            raise found
    verdict = describe_verdict(judge_limits(found.to_dict(), context.policy, proof.limits), out, order, proof)
    if verdict.failed and verdict.limits:  # without limits nothing is judged
        return None, verdict
    share, learned = round(1.0 - proof.described, 6), replace(result, measured=model)
    return write_release(context, order, learned, out, seed=seed, drawn=drawn, held_out=share), verdict


def _columns(order: Order, source: Source) -> tuple[str, ...] | None:
    """The columns that are described, with the one that tells people apart: whole people are held out."""
    unit = source.unit.column
    return order.columns if order.columns is None or unit is None else (*order.columns, unit)


def _split_sides(rows: pa.Table, source: Source, proof: Proof, others: pa.Table | None) -> tuple[pa.Table, pa.Table]:
    """The rows that are described, and those of other people."""
    from deniable.synth.describe import split_rows

    return (rows, others) if others is not None else split_rows(rows, source.unit.column, proof.held_out)


def _find_shared_people(seen: pa.Table, others: pa.Table, shown: pa.Table, unit: str | None) -> DataError | None:
    """The refusal of a control that holds people of the table: told after the charge, since it is read off the rows."""
    from deniable.assess.evidence import refuse_shared_people

    try:
        refuse_shared_people(seen, others, shown.column_names, unit)
    except DataError as refusal:
        return refusal
    return None


def _draw(model: SynthModel, proof: Proof, rows: int | None, seed: int) -> pa.Table:
    """As many rows as asked for, or as the whole table is estimated to have: the model saw a share of it."""
    from deniable.synth.generate import generate

    return generate(model, round(model.description.estimates.total / proof.described) if rows is None else rows, seed)


def attack_release(
    policy: Policy, tables: tuple[TableSchema, ...], release: pa.Table, seen: pa.Table, control: pa.Table,
    proof: Proof, progress: Progress | None,
) -> GateFindings:  # fmt: skip
    """All attacks, on columns that say something about people; what is made anew would only blunt them."""
    from deniable.assess.evidence import Evidence, Settings, equalize_sides, run_trials
    from deniable.assess.trials import CONTROLLED

    knows = tuple(dict.fromkeys(name for table in tables for name in columns_known(policy, table, release)))
    secrets = tuple(dict.fromkeys(name for table in tables for name in columns_with_role(table, release, "sensitive")))
    original, others = equalize_sides(seen, control, release.column_names)
    enough = original.num_rows >= FEWEST
    sides = {"original": original, "control": others} if enough else {}
    evidence = Evidence(release, knows, secrets, **sides)
    made = run_trials(evidence, Settings(proof.attacks), trials=CONTROLLED, progress=progress)
    attempts = [attempt_as_dict(one) for one in made]
    exposed = {one["attack"]: one["exposed"] for one in attempts if one["outcomes"]}
    return GateFindings(list(knows), attempts, exposed, release.num_rows, original.num_rows, others.num_rows)


def describe_verdict(found: Mapping[str, Any], out: Path, order: Order, proof: Proof) -> GateVerdict:
    """The findings with where the control came from, and what was charged."""
    from deniable.query.explain import describe_budget

    source = (
        "rows of other people that the steward gave"
        if proof.control is not None
        else f"{proof.held_out:.0%} of the people, drawn at random and held out of the description"
    )
    charged = " and ".join(f"{name} {amount}" for name, amount in describe_budget(order.budget).items())
    about = {"subject": out.name, "control": source, "charged": charged, "remark": NOT_PRIVATE}
    return GateVerdict(**{**found, **about})


Tables = tuple["pa.Table | None", "Sequence[pa.Table]"]
"""People, where they have a table, and their rows in each table."""


def _synthesize_linked(
    context: Context, order: Order, out: Path, proof: Proof, *, rows: int | None, seed: int, progress: Progress | None
) -> tuple[Release | None, GateVerdict]:
    """Describe, draw, attack; write the release if every limit is met. The charge stands either way."""
    from deniable.synth.describe import split_people

    source, job = plan_linked(context, order)
    others = _read_linked_control(source, proof)

    key = source.links[0].key

    def measure(engine: Engine) -> tuple[Linked, tuple[pa.Table, Sequence[pa.Table]], GateFindings | DataError]:
        whole = bound_linked_rows(engine, source)
        seen, control = split_people(*whole, key, proof.held_out) if others is None else (whole, others)
        model = learn_linked(context, order, source, *seen)
        drawn = _draw_linked(model, proof, rows, seed)
        if others is not None and (shared := _find_shared_linked(seen, others, drawn, key)):
            return model, drawn, shared
        return model, drawn, _attack_both(context, source, drawn, seen, control, proof, progress)

    with claim_outputs(*name_order_files(order, source.links, out), rows=True):
        result = run_job(context, replace(cast("Job[Any]", job), measure=measure))
        model, drawn, found = result.measured
        if isinstance(found, DataError):
            with still_charged():
                raise found
        verdict = describe_verdict(judge_limits(found.to_dict(), context.policy, proof.limits), out, order, proof)
        if verdict.failed and verdict.limits:  # without limits nothing is judged
            return None, verdict
        share, learned = round(1.0 - proof.described, 6), replace(result, measured=model)
        return write_linked(context, order, learned, out, *drawn, seed=seed, held_out=share), verdict


def _read_linked_control(source: LinkedSource, proof: Proof) -> Tables | None:
    """Rows of other people with their columns; where people have a table of their own, a folder with all tables."""
    if proof.control is None:
        return None
    parent = source.links[0].parent
    if parent is None:
        return None, [_read_control(proof.control, (*source.links[0].people, *source.links[0].rows))]
    folder = Path(proof.control)
    if not folder.is_dir():
        raise ParameterError(
            f"people of '{source.links[0].child}' stand in a table of their own, '{parent}', and a control of both is "
            "more than one file",
            expected=f"A folder with {_name_control(parent)} and "
            f"{', '.join(_name_control(link.child) for link in source.links)}",
            remedy="Name that folder, or leave out --control: people are held out with their rows",
        )
    people = _read_control(_find_control(folder, parent), source.links[0].people)
    keyed = [(link, {each.name: each for each in link.people if each.name in link.keys}) for link in source.links]
    rows = [_read_control(_find_control(folder, link.child), (*own.values(), *link.rows)) for link, own in keyed]
    return people, rows


def _name_control(table: str) -> str:
    return f"{table}.parquet or {table}.csv"


def _find_control(folder: Path, table: str) -> str:
    found = [folder / f"{table}{suffix}" for suffix in (".parquet", ".csv") if (folder / f"{table}{suffix}").exists()]
    if not found:
        raise ParameterError(
            f"the control has no table '{table}'", expected=f"{_name_control(table)} in the folder that --control names"
        )
    return str(found[0])


def _read_control(path: str, columns: Sequence[Attribute]) -> pa.Table:
    others = table_at(path)
    missing = [each.name for each in columns if each.name not in others.column_names]
    if missing:
        raise ParameterError(
            f"the control has no column '{missing[0]}'", expected="Rows of other people with the columns of the table"
        )
    return others


def _find_shared_linked(
    seen: Tables, others: Tables, drawn: tuple[pa.Table, Sequence[pa.Table]], key: str
) -> DataError | None:
    """The refusal of a control that holds people of the tables: found in that of people, or in that of rows."""
    if seen[0] is not None and others[0] is not None:
        return _find_shared_people(seen[0], others[0], drawn[0], key)
    return _find_shared_people(seen[1][0], others[1][0], drawn[1][0], key)


def _draw_linked(model: Linked, proof: Proof, people: int | None, seed: int) -> tuple[pa.Table, tuple[pa.Table, ...]]:
    """As many people as asked for, or as there are estimated to be in all: the model saw a share of them."""
    from deniable.synth.linked.generate import generate_family

    estimated = round(model.people.description.estimates.total / proof.described)
    return generate_family(model, estimated if people is None else people, seed)


def _attack_both(
    context: Context, source: LinkedSource, drawn: Tables, seen: Tables, control: Tables, proof: Proof,
    progress: Progress | None,
) -> GateFindings:  # fmt: skip
    """The attacks on people and on their rows in each table; an attack exposes what it exposes of any."""
    from deniable.synth.linked.link import build_intruder_tables

    found: list[GateFindings] = []
    names: list[str] = []
    for place, link in enumerate(source.links):
        parents = [None if link.parent is None else _find_parent(source, side, link) for side in (drawn, seen, control)]
        tables = [side[1][place] for side in (drawn, seen, control)]
        shown = [build_intruder_tables(link, *pair) for pair in zip(parents, tables, strict=True)]
        both = [each.table for each in source.sources if each.table.name in (link.parent, link.child)]
        schemas = tuple(sorted(both, key=lambda table: table.name == link.child))
        # Parents with their number of rows are attacked once for each child, rows once.
        found += [
            attack_release(context.policy, schemas, made, real, other, proof, progress)
            for made, real, other in zip(*shown, strict=True)
        ]
        names += [link.parent or "people", link.child]
    told = [_label_attempt(one, name) for name, part in zip(names, found, strict=True) for one in part.attacks]
    exposed = {name: max(part.exposed.get(name, 0.0) for part in found) for part in found for name in part.exposed}
    knows = list(dict.fromkeys(name for part in found for name in part.knows))
    return replace(found[1], knows=knows, attacks=told, exposed=exposed)


def _find_parent(source: LinkedSource, side: Tables, link: Link) -> pa.Table | None:
    """The table that a child's rows belong to."""
    places = {each.child: place for place, each in enumerate(source.links)}
    return side[1][places[link.parent]] if link.parent in places else side[0]


def _label_attempt(made: dict[str, Any], table: str) -> dict[str, Any]:
    """An attempt whose outcomes say which table was attacked."""
    outcomes = [
        {**one, "attack": f"{one['attack']} ({table})", "sentence": f"{table}: {one['sentence']}"}
        for one in made["outcomes"]
    ]
    skipped = f"{table}: {made['skipped']}" if made["skipped"] else ""
    return {**made, "skipped": skipped, "outcomes": outcomes}
