"""Look at a table before anything is released: the lattice of generalizations, what each k costs, other techniques.

For the steward alone. Rows are read without noise; nothing leaves, so nothing is recorded and nothing is charged. The
search, the models and the measures are those of a release."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.curator.anonymize.request import (
    COUNT,
    TABLE,
    Asked,
    Order,
    demands,
    open_order,
    open_table,
    request_for,
    roles_of,
    statement,
)
from deniable.engines.base import PERSON
from deniable.errors import AccessRefused, DeniableError, Infeasible, ParameterError
from deniable.policy.schema import Role
from deniable.release.record import Record

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from deniable.curator.context import Context
    from deniable.engines.base import Engine
    from deniable.kanonymity.request import Prepared
    from deniable.kanonymity.search.check import Checker, Grouped
    from deniable.kanonymity.search.problem import Levels

Progress = Callable[[float], None]
MOST_NODES = 1000
"""Larger lattices are not listed whole: the nodes that a search checks stand for them."""
SHOWN_ROWS, APART = 8, 25
"""So many rows are shown, not one after the other, since rows of one person often are."""
STRICTER = {"k": (2, 3, 5, 10, 20, 50), "l": (1, 2, 3, 4, 5), "t": (1.0, 0.5, 0.3, 0.2, 0.1)}
"""What is tried of each model; 1 and 1.0 ask nothing."""


@dataclass(frozen=True, slots=True)
class ExploredColumn:
    """A column with how its values are generalized: the words of its hierarchy, and one value at every level."""

    name: str
    hierarchy: Mapping[str, Any]
    examples: tuple[str, ...]

    @property
    def levels(self) -> int:
        """How many levels it has."""
        return len(self.examples)


@dataclass(frozen=True, slots=True, eq=False)
class LatticeNode(Record):
    """One combination of levels: what it loses, the mean risk of its rows, and whether every model holds."""

    levels: tuple[int, ...]
    loss: float
    risk: float | None
    """None where every row would be left out: nobody is there to be found, and nothing to be used."""
    suppressed: int
    classes: int
    acceptable: bool
    chosen: bool

    @property
    def height(self) -> int:
        """How general it is."""
        return sum(self.levels)


@dataclass(frozen=True, slots=True)
class LatticeView:
    """The lattice of a table: its columns with their levels, what is asked, and the nodes."""

    table: str
    rows: int
    columns: tuple[ExploredColumn, ...]
    models: tuple[str, ...]
    limit: int
    """How many rows may be left out."""
    nodes: tuple[LatticeNode, ...]
    total: int
    """How many nodes there are, listed or not."""

    @property
    def chosen(self) -> LatticeNode | None:
        """The node that loses least of those that are acceptable."""
        return next((node for node in self.nodes if node.chosen), None)

    @property
    def heights(self) -> dict[int, list[LatticeNode]]:
        """The nodes by how general they are."""
        layers: dict[int, list[LatticeNode]] = {}
        for node in self.nodes:
            layers.setdefault(node.height, []).append(node)
        return layers


@dataclass(frozen=True, slots=True)
class ModelVerdict:
    """Whether a model holds at a node: how many classes break it, and how many rows stand in them."""

    model: str
    failing_classes: int
    failing_rows: int


@dataclass(frozen=True, slots=True)
class ShownRow:
    """A row before and after, how many rows are like it then, and whether it would be released."""

    before: tuple[str, ...]
    after: tuple[str, ...]
    alike: int
    released: bool


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node in detail. It holds rows, for the steward's eyes: it is no record, and never leaves."""

    levels: tuple[int, ...]
    loss: float
    acceptable: bool
    suppressed: int
    limit: int
    sizes: tuple[int, ...]
    """How many rows each class has that would be released."""
    highest_risk: float
    mean_risk: float
    at_risk: float
    verdicts: tuple[ModelVerdict, ...]
    columns: tuple[str, ...]
    rows: tuple[ShownRow, ...]
    above: tuple[tuple[int, ...], ...]
    below: tuple[tuple[int, ...], ...]
    attacks: tuple[str, ...] = ()
    """What an intruder could do to the rows that would leave, where they were attacked."""

    @property
    def failing(self) -> list[ModelVerdict]:
        """The models that more rows break than may be left out."""
        return [each for each in self.verdicts if each.failing_rows > self.limit]


@dataclass(frozen=True, slots=True, eq=False)
class StrictnessPoint(Record):
    """What a stricter model costs: the optimum's loss, its risks and rows left out; or why there is none."""

    model: str
    column: str
    value: float
    loss: float | None = None
    mean_risk: float | None = None
    at_risk: float | None = None
    suppressed: int | None = None
    classes: int | None = None
    refusal: str = ""


def state_demands(context: Context, asked: Asked = Asked()) -> Asked:  # noqa: B008  it is frozen
    """What the policy demands of a release, or more where more is asked: as what is explored first."""
    least = demands(context.policy, asked)
    return Asked(least.k, least.l, least.t, least.models, least.suppress)


def list_sensitive(context: Context, table: str) -> tuple[str, ...]:
    """The sensitive columns of a table, of which l and t may be asked."""
    return tuple(column.name for column in context.policy.table(table).with_role(Role.SENSITIVE))


def explore_lattice(context: Context, table: str, asked: Asked, progress: Progress | None = None) -> LatticeView:
    """Every node with its verdict; of a large lattice, those that the search for the optimum checks."""
    from deniable.kanonymity.anonymize import solve
    from deniable.kanonymity.search.check import Checker

    with _prepare(context, table, asked) as (_engine, prepared):
        checker, lattice = Checker(prepared.problem), prepared.problem.lattice
        if lattice.nodes <= MOST_NODES:
            for place, node in enumerate(lattice.all()):
                checker.check(tuple(int(level) for level in node))
                if progress is not None:
                    progress((place + 1) / lattice.nodes)
        else:
            try:
                solve(checker, None, progress)
            except Infeasible:
                checker.check(lattice.top)  # what was checked is shown, and that none holds
        return _view_lattice(table, prepared, checker)


def explore_node(context: Context, table: str, asked: Asked, levels: Sequence[int]) -> NodeView:
    """One node: loss, risks, which model fails, classes, and some rows before and after."""
    from deniable.kanonymity.search.check import Checker

    with _prepare(context, table, asked) as (engine, prepared):
        checker, lattice, node = Checker(prepared.problem), prepared.problem.lattice, tuple(levels)
        if len(node) != len(lattice.heights) or not all(
            0 <= level < height for level, height in zip(node, lattice.heights, strict=True)
        ):
            raise ParameterError("there is no such combination of levels", remedy="Choose one on the page")
        return _view_node(engine, prepared, checker, node)


def preview_release(context: Context, table: str, asked: Asked, columns: tuple[str, ...] | None = None) -> NodeView:
    """The node that a release would take, with rows before and after; for the steward, who decides on a request.

    What is asked counts beside what the policy demands, and `columns` are those that are asked for. The rows that would
    leave are made and attacked.
    """
    from deniable.kanonymity.anonymize import solve
    from deniable.kanonymity.search.check import Checker

    with _prepare(context, table, state_demands(context, asked), columns=columns) as (engine, prepared):
        known, secret = prepared.request.quasi_identifiers, prepared.request.sensitive
        checker = Checker(prepared.problem)
        found = solve(checker, None, None)
        unit = context.policy.table(table).unit
        people = [unit.column] if unit and unit.column in [field.name for field in engine.describe(TABLE)] else []
        rows = engine.run(statement("SELECT {} FROM {}", tuple(dict.fromkeys((*known, *secret, *people))), TABLE))
        leaving = _recode(prepared, checker, found, rows, people[0] if people else None)
        view = _view_node(engine, prepared, checker, tuple(int(level) for level in found.levels))
        return replace(view, attacks=_attack_leaving(leaving, known, secret))


@dataclass(frozen=True, slots=True)
class MaskedView:
    """What masking would let out. It holds rows, for the steward's eyes: it is no record, and never leaves."""

    columns: tuple[str, ...]
    rows: tuple[ShownRow, ...]
    attacks: tuple[str, ...]


def preview_masked(context: Context, table: str, mode: str, columns: Sequence[str] | None = None) -> MaskedView:
    """Some rows before and after masking, and what an intruder could do to all of them; for the steward who decides."""
    from deniable.curator.mask.run import draft_rows

    if context.asker is not None:
        raise AccessRefused("real rows are looked at without noise", remedy="Only the steward may do that")
    before, after = draft_rows(context, table, mode, columns)
    schema, names = context.policy.table(table), tuple(name for name in after.column_names if name != PERSON)
    known, secret = ([each.name for each in schema.with_role(role) if each.name in names]
                     for role in (Role.QUASI_IDENTIFIER, Role.SENSITIVE))  # fmt: skip
    places = range(0, after.num_rows, max(1, min(after.num_rows // SHOWN_ROWS, APART)))[:SHOWN_ROWS]
    alike = Counter(zip(*(after[name].to_pylist() for name in known), strict=True)) if known else Counter()
    shown = [(before.slice(at, 1).to_pylist()[0], after.slice(at, 1).to_pylist()[0]) for at in places]
    rows = tuple(
        ShownRow(
            tuple(_write_cell(one.get(name)) for name in names), tuple(_write_cell(two[name]) for name in names),
            alike.get(tuple(two[name] for name in known), after.num_rows), released=True,
        )
        for one, two in shown
    )  # fmt: skip
    return MaskedView(names, rows, _attack_leaving(after, tuple(known), tuple(secret)))


TRIED = 200
"""So many people are attacked where a steward wants to know before deciding."""


def _attack_leaving(rows: pa.Table, knows: tuple[str, ...], secret: tuple[str, ...]) -> tuple[str, ...]:
    """What an intruder who knows some columns could do to rows that would leave, in sentences.

    People are counted where a further column PERSON, which does not leave, says whose the rows are.
    """
    from deniable.assess.evidence import Evidence, Settings, run_trials
    from deniable.assess.trials import TRIALS

    if not rows.num_rows:
        return ("No row would leave: there is nothing to attack.",)
    unit = PERSON if PERSON in rows.column_names else None
    made = run_trials(Evidence(rows, knows, secret, unit), Settings(TRIED), ("uniqueness", "inference"), trials=TRIALS)
    told = tuple(outcome.as_dict()["sentence"] for each in made for outcome in each.outcomes)
    return told or ("No attack applies: no column leaves that others may know.",)


def _view_node(engine: Engine, prepared: Prepared, checker: Checker, node: Levels) -> NodeView:
    from deniable.kanonymity.risk import measure_risks

    lattice, verdict = prepared.problem.lattice, checker.check(node)
    grouped, released = checker.release_classes(node)
    kept = grouped.sizes[released & (grouped.sizes > 0)]
    risks = measure_risks(kept).prosecutor
    columns, rows = _show_rows(engine, prepared, node, grouped, released)
    return NodeView(
        node, _read_loss(verdict), verdict.acceptable, int(grouped.sizes[~released].sum()), prepared.problem.limit,
        tuple(kept.tolist()), risks.highest, risks.mean, risks.at_risk, _judge_models(checker, grouped), columns,
        rows, tuple(lattice.above(node)), tuple(lattice.below(node)),
    )  # fmt: skip


def explore_strictness(
    context: Context, table: str, asked: Asked, progress: Progress | None = None
) -> list[StrictnessPoint]:
    """The optimum for each k, and for each l and t of every sensitive column: loss against risk."""
    tried = list(_list_strictness(asked, list_sensitive(context, table)))
    points = []
    for place, (model, column, value, stricter) in enumerate(tried):
        told = None if progress is None else (lambda share, at=place: progress((at + share) / len(tried)))
        points.append(_find_optimum(context, table, stricter, StrictnessPoint(model, column, float(value)), told))
        if told is not None:
            told(1.0)
    return points


def _list_strictness(asked: Asked, sensitive: Sequence[str]) -> Iterator[tuple[str, str, float, Asked]]:
    """Each k alone, then each l and each t of every sensitive column beside the k that is asked."""
    for k in STRICTER["k"]:
        yield "k", "", k, Asked(int(k), suppress=asked.suppress)
    for column in sensitive:
        for least in STRICTER["l"]:
            yield "l", column, least, replace(asked, l={column: Fraction(str(least))}, t={}, models=())
        for most in STRICTER["t"]:
            yield "t", column, most, replace(asked, l={}, t={column: Fraction(str(most))}, models=())


def _find_optimum(
    context: Context, table: str, asked: Asked, point: StrictnessPoint, progress: Progress | None
) -> StrictnessPoint:
    from deniable.kanonymity.anonymize import solve
    from deniable.kanonymity.risk import measure_risks
    from deniable.kanonymity.search.check import Checker

    try:
        with _prepare(context, table, asked) as (_engine, prepared):
            checker = Checker(prepared.problem)
            found = solve(checker, None, progress)
            grouped, released = checker.release_classes(found.levels)
            sizes = grouped.sizes[released & (grouped.sizes > 0)]
            risks = measure_risks(sizes).prosecutor
            return replace(
                point, loss=float(found.cost), mean_risk=risks.mean, at_risk=risks.at_risk,
                suppressed=found.suppressed, classes=len(sizes),
            )  # fmt: skip
    except Infeasible as refusal:
        return replace(point, refusal=refusal.happened)


@contextmanager
def _prepare(
    context: Context, table: str, asked: Asked, *, whole: bool = False, columns: tuple[str, ...] | None = None
) -> Iterator[tuple[Engine, Prepared]]:
    """The table counted and coded, as a release would have it; what is asked may be looser than the policy.

    `whole` codes it row by row, for what changes rows each in its own way.
    """
    from deniable.kanonymity.request import prepare

    if context.asker is not None:
        raise AccessRefused("real rows are looked at without noise", remedy="Only the steward may do that")
    context.refuse_expired()
    order = Order(None, None, context.policy, table, asked=asked, columns=columns)
    with open_table(context, order) as (engine, schema):
        roles = roles_of(engine, context, schema, order)
        if not roles.quasi_identifiers:
            raise ParameterError(
                f"no column of '{table}' is declared a quasi-identifier",
                remedy="Declare the columns that others may know in the policy: role: quasi-identifier",
            )
        request = request_for(engine, None, order, roles)
        people = () if request.person is None else (request.person,)
        named = tuple(dict.fromkeys((*request.quasi_identifiers, *request.sensitive, *people)))
        if whole:
            yield engine, prepare(engine.run(statement("SELECT {} FROM {}", named, TABLE)), request, roles.hierarchies)
            return
        counted = engine.run(statement("SELECT {}, COUNT(*) AS {} FROM {} GROUP BY ALL", named, COUNT, TABLE))
        yield engine, prepare(counted, request, roles.hierarchies, counts=COUNT)


def _view_lattice(table: str, prepared: Prepared, checker: Checker) -> LatticeView:
    problem, verdicts = prepared.problem, list(checker.verdicts.values())
    rows = problem.tuples.rows
    best = min((each for each in verdicts if each.acceptable), key=lambda each: each.cost, default=None)
    if len(verdicts) > MOST_NODES:
        verdicts = sorted(verdicts, key=lambda each: (each is not best, not each.acceptable, each.cost))[:MOST_NODES]
    nodes = [
        LatticeNode(
            each.levels, _read_loss(each),
            each.classes / (rows - each.suppressed) if rows > each.suppressed else None,
            each.suppressed, each.classes, each.acceptable, each is best,
        )
        for each in verdicts
    ]  # fmt: skip
    nodes.sort(key=lambda node: (node.height, node.levels))
    models = tuple(str(model) for model in prepared.request.models)
    return LatticeView(
        table, rows, tuple(map(_explain_column, prepared.columns)), models, problem.limit, tuple(nodes),
        problem.lattice.nodes,
    )  # fmt: skip


def _read_loss(verdict: Any) -> float:
    """The loss with what is left out; of a node that fails, of its generalization alone."""
    return float(verdict.cost if verdict.acceptable else verdict.base)


def _explain_column(coded: Any) -> ExploredColumn:
    built = coded.hierarchy
    middle = built.size // 2
    examples = tuple(_write_cell(level.labels[level.groups[middle]]) if built.size else "" for level in built.levels)
    words = {} if coded.spec is None else {coded.spec.kind: dict(coded.spec.options)}
    return ExploredColumn(built.column, words, examples)


def _judge_models(checker: Checker, grouped: Grouped) -> tuple[ModelVerdict, ...]:
    """What each model says of the classes, by itself."""
    from deniable.kanonymity.models import holds

    classes, there, told = checker.classes(grouped), grouped.sizes > 0, []
    for model in checker.problem.models:
        broken = ~holds(model, classes) & there
        told.append(ModelVerdict(str(model), int(broken.sum()), int(grouped.sizes[broken].sum())))
    for risk in checker.problem.risks:
        broken = there & ~risk.release(grouped.sizes, there)
        told.append(ModelVerdict(str(risk), int(broken.sum()), int(grouped.sizes[broken].sum())))
    return tuple(told)


def _show_rows(
    engine: Engine, prepared: Prepared, node: Levels, grouped: Grouped, released: NDArray[np.bool_]
) -> tuple[tuple[str, ...], tuple[ShownRow, ...]]:
    """Some rows as they are and as they would be, each with the size of its class."""
    from deniable.kanonymity.encoding import encode_table

    known, about = prepared.request.quasi_identifiers, prepared.request.sensitive
    table = _take_some(engine, (*known, *about))
    built = {coded.hierarchy.column: coded.hierarchy for coded in prepared.columns}
    codes = [coded.codes for coded in encode_table(table.select(known), known, built)]
    levels = [coded.hierarchy.levels[at] for coded, at in zip(prepared.columns, prepared.absolute(node), strict=True)]
    classes = grouped.take_codes(slice(None))
    groups = zip(*(level.groups[classes[:, place]].tolist() for place, level in enumerate(levels)), strict=True)
    found = {key: (int(size), bool(kept)) for key, size, kept in zip(groups, grouped.sizes, released, strict=True)}
    rows = []
    for place, row in enumerate(table.to_pylist()):
        key = tuple(int(level.groups[column[place]]) for level, column in zip(levels, codes, strict=True))
        size, kept = found.get(key, (0, False))
        after = [level.labels[group] for level, group in zip(levels, key, strict=True)]
        secret = [row[name] for name in about]
        shown = tuple(map(_write_cell, (*after, *secret)))
        rows.append(ShownRow(tuple(_write_cell(row[name]) for name in (*known, *about)), shown, size, kept))
    return (*known, *about), tuple(rows)


def show_released(order: Order, out: Path) -> tuple[tuple[str, ...], tuple[ShownRow, ...]]:
    """Some rows of a table before and after its release, quasi-identifiers alone; for the steward's own report.

    They are told by the recoding beside the release: empty where there is none, as of rows that were each generalized
    in the way of their class.
    """
    from deniable.kanonymity.recoding import Recoder, path_of_recoding, read_recoding

    if not (path := path_of_recoding(out)).exists():
        return (), ()
    recoding = read_recoding(path)
    recoder, names = Recoder(recoding), recoding.names
    with open_order(order) as context, open_table(context, order) as (engine, _schema):
        for column in recoder.columns:  # labels of some hierarchies depend on all values
            column.codes(engine.run(statement("SELECT DISTINCT {} FROM {}", (column.column.name,), TABLE)).column(0))
        table = _take_some(engine, names)
    coded = [column.codes(table[column.column.name])[0] for column in recoder.columns]
    rows = []
    for place, found in enumerate(recoder.index.find(coded).tolist()):
        after = [column.labels[codes[place]] for column, codes in zip(recoder.columns, coded, strict=True)]
        size = recoding.classes.sizes[found] if found >= 0 else 0
        before = tuple(_write_cell(table[name][place].as_py()) for name in names)
        rows.append(ShownRow(before, tuple(map(_write_cell, after)), size, found >= 0))
    return names, tuple(rows)


def _take_some(engine: Engine, names: tuple[str, ...]) -> pa.Table:
    """Some rows of the table, not one after the other."""
    some = f" LIMIT {SHOWN_ROWS * APART}"
    first = engine.run(statement("SELECT {} FROM {}", names, TABLE) + some)
    return first.take(list(range(0, first.num_rows, max(1, first.num_rows // SHOWN_ROWS)))[:SHOWN_ROWS])


def _write_cell(value: object) -> str:
    return "none" if value is None else str(value)


@dataclass(frozen=True, slots=True, eq=False)
class TechniquePoint(Record):
    """What one technique would do to a table: who is still found by values that nobody else has, and what is predicted.

    `found` is the share of rows whose combination of quasi-identifiers nobody else has in the table, and which a row of
    the release shows exactly. `accuracy` is how often the target is predicted from the quasi-identifiers within it.
    """

    technique: str
    rows: int = 0
    found: float | None = None
    accuracy: float | None = None
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class Techniques:
    """The techniques side by side, for predicting one column; `guessing` always names its commonest value."""

    target: str
    guessing: float
    points: tuple[TechniquePoint, ...]


def compare_techniques(context: Context, table: str, asked: Asked, progress: Progress | None = None) -> Techniques:
    """The same table as it is, k-anonymous in two ways, and synthetic at two epsilons: who is found, what is kept."""
    with _prepare(context, table, asked, whole=True) as (engine, prepared):
        known, secret = prepared.request.quasi_identifiers, prepared.request.sensitive
        rows = engine.run(statement("SELECT {} FROM {}", (*known, *secret), TABLE))
        target = secret[0] if secret else known[-1]
        makers: list[tuple[str, Callable[[], pa.Table]]] = [
            ("as it is", lambda: rows),
            ("k-anonymous, one level for a column", lambda: _recode_globally(prepared, rows)),
            ("k-anonymous, each class in its own way", lambda: _recode_locally(prepared, rows)),
            ("synthetic, epsilon 1", lambda: _draw_synthetic(context, table, (*known, *secret), "1")),
            ("synthetic, epsilon 4", lambda: _draw_synthetic(context, table, (*known, *secret), "4")),
        ]
        points = []
        for place, (name, make) in enumerate(makers):
            points.append(_measure_technique(name, make, rows, target, known))
            if progress is not None:
                progress((place + 1) / len(makers))
    commonest = max(Counter(rows[target].to_pylist()).values(), default=0) / max(rows.num_rows, 1)
    return Techniques(target, commonest, tuple(points))


def _measure_technique(
    name: str, make: Callable[[], pa.Table], rows: pa.Table, target: str, known: tuple[str, ...]
) -> TechniquePoint:
    from deniable.kanonymity.quality import measure_utility

    try:
        made = make()
        accuracy = measure_utility(rows, made, target, known).released
        return TechniquePoint(name, made.num_rows, _count_found(rows, made, known), accuracy)
    except DeniableError as refusal:
        return TechniquePoint(name, refusal=refusal.happened)


def _count_found(rows: pa.Table, made: pa.Table, known: tuple[str, ...]) -> float:
    """The share of rows whose values nobody else has, and which the release shows as they are."""
    shown = {tuple(map(_write_cell, row)) for row in zip(*(made[name].to_pylist() for name in known), strict=True)}
    told = Counter(tuple(map(_write_cell, row)) for row in zip(*(rows[n].to_pylist() for n in known), strict=True))
    found = sum(1 for values, count in told.items() if count == 1 and values in shown)
    return found / max(len(rows), 1)


def _recode_globally(prepared: Prepared, rows: pa.Table) -> pa.Table:
    from deniable.kanonymity.anonymize import solve
    from deniable.kanonymity.search.check import Checker

    checker = Checker(prepared.problem)
    return _recode(prepared, checker, solve(checker), rows)


def _recode(prepared: Prepared, checker: Checker, found: Any, rows: pa.Table, people: str | None = None) -> pa.Table:
    """The rows as they would leave; with a further column PERSON where a column says whose they are."""
    import pyarrow as pa

    from deniable.kanonymity.anonymize import describe_recoding
    from deniable.kanonymity.recoding import Recoder

    recoder = Recoder(describe_recoding(prepared, checker, found), tuple(c.hierarchy for c in prepared.columns))
    made = recoder.recode(rows if people is None else rows.append_column(PERSON, rows[people]))
    if people is None or PERSON in made.column_names:
        return made
    whose = rows[people] if made.num_rows == rows.num_rows else rows[people].filter(pa.array(recoder.is_released(rows)))
    return made.append_column(PERSON, whose)


def _recode_locally(prepared: Prepared, rows: pa.Table) -> pa.Table:
    from deniable.kanonymity.local_recoding import write_local
    from deniable.kanonymity.search.mondrian import mondrian

    return write_local(rows, prepared, mondrian(prepared))


def _draw_synthetic(context: Context, table: str, columns: tuple[str, ...], epsilon: str) -> pa.Table:
    """Rows of a model that is learned, looked at and forgotten: nothing of it leaves."""
    from deniable.curator.synthesize.run import draw_rows, find_source, learn_model, place_order, read_bounded

    order = place_order(table, epsilon, "1e-6", columns=columns)
    return draw_rows(learn_model(context, order, find_source(context, table), read_bounded(context, table, columns)))
