"""Mechanisms, audited: the distinguishing game and the lower bound on epsilon, on the worst neighbors found.

A subject is anything that can be run on a world: a mechanism of ours, a question under a policy, a function, a program,
or outputs that are at hand. Its neighbors are worlds that differ in one person: the counts 0 and 1, the answers yes and
no, two tables. Our own mechanisms and questions are run on made-up people: nobody's data is touched, and nothing is
charged.

Training and synthesis are too slow to be run thousands of times, so many canaries share one run. A canary is a person
with a value of their own, put into the table or left out by a coin. The intruder sees what was learned, scores every
canary by what was learned of its value, and calls the highest in and the lowest out. Epsilon limits how many of these
calls are right (Steinke, Nasr and Jagielski 2023)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date, datetime
from fractions import Fraction
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.assess.outputs import Subject
from deniable.attacks.dp_audit import (
    AuditOutcome,
    Game,
    OneRunOutcome,
    Run,
    audit_one_run,
    audit_outputs,
    bound_one_run,
    find_worst_neighbors,
    play_with_outputs,
)
from deniable.attacks.outcome import Progress, Rate, tell
from deniable.dp.mechanisms import ExponentialMechanism, GaussianMechanism, LaplaceMechanism
from deniable.errors import ParameterError, nearest
from deniable.geography.grids import Box, Counted, MapPlan, Reach, measure_map
from deniable.graphs.network import Network, make_complete
from deniable.graphs.statistics import EDGE, NODE, Shape, plan_network
from deniable.graphs.statistics import measure as measure_network
from deniable.localdp.frequency.hashing import LocalHashing, bucket_of
from deniable.localdp.frequency.sketch import HadamardSketch
from deniable.localdp.heavy_hitters import PrefixTree
from deniable.localdp.protocol_choice import CANDIDATES
from deniable.policy.budget import ApproxDP, budget
from deniable.policy.schema import Bounds, Column, ColumnType, Neighboring, PrivacyUnit, TableSchema
from deniable.release.record import Record
from deniable.streams.factorization import choose_factorization, choose_tree
from deniable.streams.mechanism import Part as StreamPart
from deniable.streams.mechanism import StreamMechanism
from deniable.streams.workload import Totals, Workload

if TYPE_CHECKING:
    from deniable.policy.budget import Budget
    from deniable.query.plan import QueryPlan

MOST_POINTS = 40
TRAINERS = ("linear", "boosted", "multinomial")
SYNTHESIZERS = ("independent", "correlated", "mst", "mwem", "auto")
SCREENED = 16
"""Neighbors are compared by so small a part of the runs."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What is audited: a mechanism, the epsilon and delta (or the mu) claimed of it, and what it really spends."""

    mechanism: str
    epsilon: Fraction
    delta: Fraction = Fraction(0)
    spends: Fraction | None = None
    runs: int = 20_000
    confidence: float = 0.999
    mu: Fraction | None = None


def _laplace(epsilon: Fraction, _: Fraction) -> Subject:
    made = LaplaceMechanism.within(budget(epsilon))
    return Subject("", lambda count, runs: made.release(np.full(runs, count, np.int64)), ((0, 1),))


def _gaussian(epsilon: Fraction, delta: Fraction) -> Subject:
    # A sensitivity of 20 steps: the grid on which the noise is drawn is then fine beside the noise.
    made = GaussianMechanism.within(budget(epsilon, delta), 20)
    return Subject("", lambda count, runs: made.release(np.full(runs, count, np.int64)), ((0, 20),))


def _exponential(epsilon: Fraction, _: Fraction) -> Subject:
    made = ExponentialMechanism(epsilon)
    # One person who moves every score, each by one, against the first.
    pair = ([1, 0, 0, 0], [0, 1, 1, 1])
    return Subject("", lambda scores, runs: np.array([made.release(scores) for _ in range(runs)]), (pair,))


ANSWERS = 4
"""A local randomizer is audited over so many answers."""


def _randomize(place: int, epsilon: Fraction, _: Fraction) -> Subject:
    made = CANDIDATES[place][2](ANSWERS, epsilon)
    pairs = tuple(combinations(range(made.domain), 2))

    def run(answer: int, runs: int) -> NDArray[Any]:
        parts = made.randomize(np.full(runs, answer))
        if isinstance(made, LocalHashing):  # a seed hardly comes twice; what it says of each answer can be seen
            told = (bucket_of(np.full(runs, each), parts[0], made.buckets) for each in range(ANSWERS))
            parts = (*parts, *(bucket == parts[1] for bucket in told))
        return np.column_stack([np.asarray(part, np.int64).reshape(runs, -1) for part in parts])

    return Subject("", run, pairs, tuple(f"answer {one} or {other}" for one, other in pairs))


def _respond(epsilon: Fraction, _: Fraction) -> Subject:
    made = CANDIDATES[0][2](2, epsilon)
    return Subject("", lambda answer, runs: made.randomize(np.full(runs, answer))[0], ((0, 1),))


def _tell_word(epsilon: Fraction, _: Fraction) -> Subject:
    # A small sketch: what one response tells of a word is the same, and each response is seen more often.
    made = PrefixTree("ab", 2, 1, 1, HadamardSketch.calibrate(epsilon, 1, 4))
    pairs = (("ab", "ba"), ("", "ab"), ("a", "aa"))

    def run(word: str, runs: int) -> NDArray[Any]:
        return np.column_stack(made.randomize([word] * runs))

    return Subject("", run, pairs, tuple(f"'{one}' or '{other}'" for one, other in pairs))


STREAMED, OFTEN = 8, 3
"""A stream is audited over so many periods, with a person in so many of them."""


def _stream(epsilon: Fraction, delta: Fraction) -> Subject:
    """All rows of a stream with its noise, of nobody and of one person in the first or the last periods she may be."""
    whole = Workload(Totals.RANGES, STREAMED)
    factorization = (choose_factorization if delta else choose_tree)(whole, OFTEN)
    made = StreamMechanism.within(budget(epsilon, delta), factorization, OFTEN, [StreamPart(1, Fraction(1), 1)])
    first, last = (tuple(int(t in places) for t in range(STREAMED)) for places in
                   (range(OFTEN), range(STREAMED - OFTEN, STREAMED)))  # fmt: skip

    def run(people: tuple[int, ...], runs: int) -> NDArray[Any]:
        exact = np.tile(factorization.rows @ np.array(people), runs)
        return made.noises[0].release(exact).reshape(runs, STREAMED)

    nobody = (0,) * STREAMED
    return Subject("", run, ((nobody, first), (nobody, last)), ("her first periods", "her last periods"))


IN_CORNER, OFTEN_THERE, AT_ONCE = 41, 2, 250
"""A map is audited with so many people in one place: there one more decides, by exact counts, how finely it is cut.

So many runs are measured at once, each as a slot of time of its own."""


def _map(epsilon: Fraction, _: Fraction) -> Subject:
    """All counts about one place on an adaptive grid, and how finely it was cut, with and without one person's rows."""
    reach = Reach.of(OFTEN_THERE, False)
    made = MapPlan.within(budget(epsilon), Box(0.0, 0.0, 1.0, 1.0), AT_ONCE, reach, adaptive=True, pure=True)
    pair = (IN_CORNER - OFTEN_THERE, IN_CORNER)
    return Subject("", lambda points, runs: run_corner(made, measure_map, points, runs), (pair,))


def run_corner(plan: MapPlan, measure: Callable[..., Counted], points: int, runs: int) -> NDArray[Any]:
    """What an intruder sees of a corner with so many points, in so many runs: the counts there, and how it was cut."""
    found = []
    slot = np.repeat(np.arange(plan.slots), points)
    corner = np.zeros(len(slot))
    for _ in range(-(-runs // plan.slots)):
        each = measure(plan, corner, corner, slot)
        first = np.cumsum(each.sides**2) - each.sides**2
        part = (np.cumsum(each.divided**2) - each.divided**2)[first]
        found.append(np.column_stack([each.totals, each.cells[first], each.divided[first], each.parts[part]]))
    return np.concatenate(found)[:runs]


NETWORKS = ("edges", "degrees", "triangles", "stars")
"""Statistics of networks that are audited, for both units."""


def _measure_network(statistic: str, epsilon: Fraction, _: Fraction) -> Subject:
    whole, fewer = make_complete(5), make_complete(4)
    plans = {unit: plan_network(statistic, Shape(unit, listed=True), epsilon, 2) for unit in (EDGE, NODE)}
    pairs = (((EDGE, whole), (EDGE, whole.keep(np.arange(whole.size) > 0))), ((NODE, whole), (NODE, fewer)))

    def run(world: tuple[str, Network], runs: int) -> NDArray[Any]:
        return np.array([measure_network(plans[world[0]], world[1])[statistic] for _ in range(runs)])

    return Subject("", run, pairs, ("one edge", "one node"))


_JOINED = "a statistic of five nodes that are all joined, with and without one edge, or one node"
_ANSWERED = f"one person's response to a question with {ANSWERS} answers"
MECHANISMS: dict[str, tuple[Callable[[Fraction, Fraction], Subject], str]] = {
    "laplace": (_laplace, "a count with Laplace noise, of 0 and of 1 people"),
    "gaussian": (_gaussian, "a sum with Gaussian noise, with and without one person; needs delta"),
    "exponential": (_exponential, "a choice of four by scores that one person moves"),
    "response": (_respond, "one person's randomized response, who would say no and who would say yes"),
    **{
        f"local:{name.replace(' ', '-')}": (partial(_randomize, place), _ANSWERED)
        for place, (name, _, _) in enumerate(CANDIDATES)
    },
    "stream": (_stream, f"all {STREAMED} periods of a stream, of nobody and of a person in {OFTEN}; needs delta"),
    "map": (_map, f"a place on an adaptive grid, with and without {OFTEN_THERE} rows of one person"),
    **{f"network:{name}": (partial(_measure_network, name), _JOINED) for name in NETWORKS},
    "local:prefix-tree": (_tell_word, "one person's response about a word that nobody listed"),
}
"""Every mechanism of ours that is audited by many runs, with its neighbors in words."""


TRAINED, LEARNED = 400, 4000
"""Canaries of a training, in which each has an entry of its own, and of a synthesis."""
SURE = 10
"""One canary in so many is called: those whose scores stand out most."""


def _train(method: str, epsilon: Fraction, delta: Fraction) -> Run:
    """A model of illness (a linear one of pay) by who one is.

    The intruder sees releases of its training: all of a linear one, the first turn of a boosted one, the first turn and
    the Newton step of a multinomial one. A canary's score is what they have in the direction in which it moves them,
    by their noise.
    """
    from deniable.learn.boosting import BoostedPlan, sum_residuals
    from deniable.learn.features import STEPS, encode_codes, encode_rows, encode_target
    from deniable.learn.linear import LinearPlan, sum_class_step, sum_moments
    from deniable.learn.logistic import MultinomialPlan, sum_class_gradients
    from deniable.learn.training import Task, plan_training

    linear, unit = method == "linear", PrivacyUnit()
    who = Column("who", ColumnType.INTEGER, categories=tuple(range(TRAINED)), nullable=False)
    ill = Column("ill", ColumnType.BOOLEAN, nullable=False)
    pay = Column("pay", ColumnType.DECIMAL, bounds=Bounds(Fraction(0), Fraction(1)), nullable=False)
    schema = TableSchema("canaries", "", (who, pay if linear else ill), unit)
    task = Task("pay") if linear else Task("ill", None, method, turns=1)
    what = plan_training(schema, unit, task, ApproxDP(epsilon, delta))
    plan: Any = what.plan
    rows = pa.table({"who": np.arange(TRAINED), "pay": np.ones(TRAINED), "ill": np.ones(TRAINED, np.bool_)})
    steps = plan.steps if isinstance(plan, LinearPlan) else STEPS
    truth = encode_target(what.target, rows, steps)[0]
    entries: NDArray[Any] = encode_rows(what.design, rows)
    seen: list[tuple[GaussianMechanism, Callable[[Any, Any], Any]]] = [
        (plan.mechanism, lambda held, own: sum_moments(held, own, steps=steps))
    ]
    if isinstance(plan, BoostedPlan):
        entries, loss = encode_codes(what.design, rows)[:, 1], plan.loss
        seen = [(plan.mechanism, lambda codes, own: sum_residuals(loss, 0 * own, own, codes, TRAINED))]
    elif isinstance(plan, MultinomialPlan):
        assert plan.last is not None
        start = np.zeros((2, what.design.width))
        seen = [(plan.mechanism, lambda held, own: sum_class_gradients(held, own, start).ravel()),
                (plan.last, lambda held, own: sum_class_step(held, own, start, plan.fine))]  # fmt: skip

    def run(inside: Any) -> Any:
        scores = np.zeros(TRAINED)
        for mechanism, sums in seen:
            released = np.asarray(mechanism.release(sums(entries[inside], truth[inside])), np.float64)
            for canary in range(TRAINED):
                alone = sums(entries[canary : canary + 1], truth[canary : canary + 1])
                moved = np.flatnonzero(alone)
                scores[canary] += float(released[moved] @ alone[moved]) / float(mechanism.variance)
        return scores

    return run


def _synthesize(method: str, epsilon: Fraction, delta: Fraction) -> Run:
    """A description of one column in which each canary has a value of its own: its score is the value's noisy count."""
    from deniable.synth.domain import Domain
    from deniable.synth.marginal import convert_budget
    from deniable.synth.methods import METHODS, run_method

    domain, spend = Domain(("who",), (LEARNED,)), convert_budget(ApproxDP(epsilon, delta), 1)

    def run(inside: Any) -> Any:
        codes = np.flatnonzero(inside).astype(np.int32)[None, :]
        return run_method(codes, domain, METHODS[method], spend).one_way[0].counts.ravel()

    return run


_TRAINED = f"which of {TRAINED} people a model was trained on; needs delta"
_LEARNED = f"which of {LEARNED} people a synthetic model was learned from; needs delta"
ONE_RUN: dict[str, tuple[Callable[[Fraction, Fraction], Run], int, str]] = {
    "training": (partial(_train, "linear"), TRAINED, _TRAINED),
    **{f"training:{name}": (partial(_train, name), TRAINED, _TRAINED) for name in TRAINERS},
    "synthesis": (partial(_synthesize, "independent"), LEARNED, _LEARNED),
    **{f"synthesis:{name}": (partial(_synthesize, name), LEARNED, _LEARNED) for name in SYNTHESIZERS},
}
"""What is audited by one run: how it is run, how many canaries it has, and the question in words."""


def audit_canaries(run: Run, canaries: int, claim: Claim, words: str, guesses: int | None = None) -> AuditReport:
    """The audit in one run; a game is one call about one canary."""
    if claim.mu is not None:
        raise ParameterError(
            "One run bounds an epsilon, and not a mu",
            expected="A claim of epsilon, with delta where there is one",
            remedy="State --epsilon and --delta instead of --mu",
        )
    epsilon, delta = float(claim.epsilon), float(claim.delta)
    called = guesses or _choose_guesses(canaries, epsilon, delta, claim.confidence)
    found = audit_one_run(run, canaries, epsilon=epsilon, delta=delta, guesses=called, confidence=claim.confidence)
    most = 1 / (1 + math.exp(-epsilon))
    game = {"wins": Rate(found.correct, found.guesses).as_dict(), "most": most, "points": []}
    proof = asdict(found) | {"sentence": str(found)}
    return AuditReport(
        claim.mechanism, words, epsilon, delta, None, 1, game, proof, _list_blind_spots_of_one_run(found),
        found.violated, _describe_claim(epsilon, delta, None),
    )  # fmt: skip


def _choose_guesses(canaries: int, epsilon: float, delta: float, confidence: float) -> int:
    """As few calls, about those that stand out most, as can refute the claim if all are right."""
    shares = (canaries // SURE, canaries // 5, canaries // 3, canaries // 2, canaries)
    able = (each for each in shares if bound_one_run(canaries, each, each, delta, 1 - confidence) > epsilon)
    return max(2, next(able, shares[0]))


def make_subject(name: str, epsilon: Fraction, delta: Fraction) -> Subject:
    """One of our own mechanisms."""
    if name not in MECHANISMS:
        names = [*MECHANISMS, *ONE_RUN]
        expected = f"One of {', '.join(names)}; or module:function, a question (SELECT ...), a program with {{world}}"
        raise ParameterError(f"There is no mechanism '{name}' to audit", expected=expected, remedy=nearest(name, names))
    make, words = MECHANISMS[name]
    made = make(epsilon, delta)
    return Subject(words, made.run, made.pairs, made.labels)


@dataclass(frozen=True, slots=True, eq=False)
class AuditReport(Record):
    """The distinguishing game against a mechanism: the best attacker's wins, and proven lower bounds.

    `blind` says what this audit could not have seen.
    """

    mechanism: str
    neighbors: str
    epsilon: float
    delta: float
    mu: float | None
    runs: int
    game: dict[str, Any]
    audit: dict[str, Any]
    blind: list[str]
    failed: bool
    claimed: str
    """What is claimed, in words: `epsilon 1 and delta 1e-05`, or `mu 0.5`."""


def audit_claim(claim: Claim, progress: Progress | None = None) -> AuditReport:
    """Audit one of our own mechanisms; plain values for the page and for JSON."""
    if claim.mechanism in ("gaussian", *ONE_RUN) and not 0 < claim.delta < 1:
        raise ParameterError("Gaussian noise has no epsilon without a delta", remedy="Say --delta 1e-5")
    spent = claim.epsilon if claim.spends is None else claim.spends
    if claim.mechanism in ONE_RUN:
        make, canaries, words = ONE_RUN[claim.mechanism]
        return audit_canaries(make(spent, claim.delta), canaries, claim, words)
    return audit_subject(make_subject(claim.mechanism, spent, claim.delta), claim, progress)


def audit_subject(subject: Subject, claim: Claim, progress: Progress | None = None) -> AuditReport:
    """Find the worst neighbors, run them anew, play the game and bound epsilon, delta and mu from below."""
    epsilon, delta, pairs = float(claim.epsilon), float(claim.delta), len(subject.pairs)
    worst = 0
    if pairs > 1:
        few = max(200, claim.runs // SCREENED)
        worst = find_worst_neighbors(
            lambda place, runs: subject.sample(place, runs, True)[0][:2], pairs, epsilon=epsilon, delta=delta, runs=few,
            progress=lambda share: tell(progress, share / 2),
        )  # fmt: skip
    tell(progress, 0.5)
    (left, right, names, inside, unread, batches), refusal = subject.sample(worst, claim.runs)
    tell(progress, 0.8)
    mu = None if claim.mu is None else float(claim.mu)
    told: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "mu": mu, "inside": inside, "batches": batches}
    found = audit_outputs(left, right, confidence=claim.confidence, names=names, **told)
    if refusal is not None and not found.violated:
        raise refusal
    game = play_with_outputs(left, right, points=MOST_POINTS, **told)
    tell(progress, 1.0)
    label = subject.labels[worst] if worst < len(subject.labels) else ""
    words = f"{subject.words}; the worst of {pairs} pairs: {label or worst + 1}" if pairs > 1 else subject.words
    proof = asdict(found) | {"sentence": str(found)}
    return AuditReport(
        claim.mechanism, words, epsilon, delta, mu, min(len(left), len(right)), _plain(game), proof,
        [*_list_blind_spots(found, pairs, batches), *unread], found.violated, _describe_claim(epsilon, delta, mu),
    )  # fmt: skip


def _describe_claim(epsilon: float, delta: float, mu: float | None) -> str:
    if mu is not None:
        return f"mu {mu:g}"
    return f"epsilon {epsilon:g}" + (f" and delta {delta:g}" if delta else "")


def _plain(game: Game) -> dict[str, Any]:
    return {"wins": game.wins.as_dict(), "most": game.bound, "points": [asdict(point) for point in game.points]}


def _list_blind_spots(found: AuditOutcome, pairs: int, batches: int = 0) -> list[str]:
    """What an audit that refutes nothing leaves open."""
    tried = "the pair that was tried" if pairs == 1 else f"the {pairs} pairs that were tried"
    power = found.power
    name, least = ("epsilon", power.epsilon) if power.mu is None else ("mu", power.mu)
    event = "" if math.isinf(power.leak) else f", and an event rarer than {power.leak:.2g} a run"
    return [
        "anything: even if every output had told the neighbors apart, the claim would stand; more runs are needed"
        if math.isinf(least)
        else f"a true {name} below {least:.3f}{event}: so many runs do not find that with an even chance",
        f"neighbors other than {tried}",
        "what is not in the output: time, memory, files, messages",
        f"what happens to whole batches, in fewer than one of {batches // 2}: runs came in batches, and "
        f"{found.counted_as_one:.2g} of them count as one, since runs of a batch may depend on each other"
        if batches
        else "what outputs tell together: every run is taken as the first one, and as independent of the others",
    ]


def _bound_best(found: OneRunOutcome) -> float:
    """The bound if every call had been right."""
    return bound_one_run(found.canaries, found.guesses, found.guesses, found.delta, 1 - found.confidence)


def _list_blind_spots_of_one_run(found: OneRunOutcome) -> list[str]:
    useless = "anything: even if every call had been right, the claim would stand; more canaries are needed"
    return [
        *([useless] if _bound_best(found) <= found.epsilon else []),
        f"anything about other people than the {found.canaries} canaries",
        f"a true epsilon above {_bound_best(found):.3f}: more cannot be proven by {found.guesses} calls in one run",
    ]


# Questions under a policy, asked of made-up people.

CROWD, MANY_ROWS = 12, 8
SALT, SALTS = re.compile(r"CAST\((\d+) AS UBIGINT\)"), 5
UNKNOWN = "stranger"


def make_question_subject(sql: str, tables: Sequence[TableSchema], asked: Budget | None, **options: Any) -> Subject:
    """A question as it would be measured, over made-up rows: the policy's private tables with and without one person.

    The person is as hostile as the declared columns allow: extreme values, values beyond them, missing ones, many rows,
    every key and unknown ones.
    """
    from deniable.query.compile import compile_query

    plan = compile_query(sql, tuple(tables), asked, **options)
    pairs, labels = make_hostile_pairs([table for table in tables if not table.public])
    public = [table for table in tables if table.public]

    def run(world: Mapping[str, pa.Table], runs: int) -> list[Any]:
        return _measure_many(plan, world, public, tables, runs)

    return Subject("a question over made-up rows, with and without one person", run, pairs, labels)


def _measure_many(
    plan: QueryPlan,
    world: Mapping[str, pa.Table],
    public: Sequence[TableSchema],
    tables: Sequence[TableSchema],
    runs: int,
) -> list[Any]:
    from deniable.engines.duckdb import DuckDBEngine
    from deniable.query.execute import measure

    schemas = {table.name: table for table in tables}
    with DuckDBEngine(threads=1) as engine:
        for name, rows in world.items():
            engine.attach(name, rows, schemas[name])
        for table in public:
            engine.attach(table.name, table.source, csv=table.csv)
        replaying = _Replaying(engine)
        return [_list_noisy(measure(plan, replaying)) for _ in range(runs)]


class _Replaying:
    """An engine that runs each statement once for each of a few salts, and remembers the exact answer.

    The noise is drawn anew for every run. Bounds hold for every salt, so a sound plan is as sound with few of them.
    """

    def __init__(self, engine: Any) -> None:
        self._engine, self._known = engine, dict[str, pa.Table]()

    def run(self, sql: str, parameters: Any = None, **options: Any) -> pa.Table:
        """Run a statement, or repeat its answer; what is computed from noisy numbers is never repeated."""
        few = SALT.sub(lambda found: f"CAST({int(found[1]) % SALTS} AS UBIGINT)", sql)
        if options.get("frames"):
            return self._engine.run(few, parameters, **options)
        if few not in self._known:
            self._known[few] = self._engine.run(few, parameters, **options)
        return self._known[few]


def _list_noisy(found: Any) -> dict[str, int]:
    """The noisy numbers of an execution by node, key and measurement; a key that is not shown has none."""
    told: dict[str, int] = {}
    for node, parts in found.items():
        for step, part in enumerate(parts):
            keys = ["/".join(map(str, row.values())) for row in part.keys.to_pylist()] or [""]
            for number, values in enumerate(part.values):
                told |= {f"{node}.{step}.{key}.{number}": int(v) for key, v in zip(keys, values, strict=False)}
    return dict(sorted(told.items()))  # in which order they were measured is not shown to anybody


def make_hostile_pairs(
    tables: Sequence[TableSchema],
) -> tuple[tuple[tuple[dict[str, pa.Table], dict[str, pa.Table]], ...], tuple[str, ...]]:
    """Made-up worlds with and without one hostile person (or with another in their place), and what the person is."""
    pairs, labels = [], []
    for label, choose, rows in HOSTILE:
        worlds = []
        for present in (True, False):
            world = {}
            for table in tables:
                replaced = table.unit is not None and table.unit.neighboring is Neighboring.REPLACE
                crowd = [_make_row(table, person, place) for place, person in enumerate([*range(CROWD), 0, 1])]
                worst = [_make_row(table, CROWD, place, choose) for place in range(rows)]
                other = [_make_row(table, CROWD, 0)] if replaced else []
                world[table.name] = _build_rows(table, crowd + (worst if present else other))
            worlds.append(world)
        pairs.append((worlds[0], worlds[1]))
        labels.append(label)
    return tuple(pairs), tuple(labels)


def _make_row(table: TableSchema, person: int, place: int, choose: str = "usual") -> dict[str, Any]:
    unit = table.unit.column if table.unit else None
    return {
        column.name: _make_id(column, person) if column.name == unit else _make_value(column, place, choose)
        for column in table.columns
    }


def _make_id(column: Column, person: int) -> Any:
    return person if column.type.numeric else f"p{person}"


def _make_value(column: Column, place: int, choose: str) -> Any:
    """A value of a column: within what is declared for the crowd, at its ends, beyond or missing for the hostile."""
    if choose == "missing" and column.nullable:
        return None
    if column.categories is not None:
        known = column.categories[place % len(column.categories)]
        return UNKNOWN if choose == "beyond" and isinstance(known, str) else known
    if column.bounds is not None:
        return _make_number(column, place, choose)
    plain = {"text": f"{UNKNOWN}{place}" if choose != "usual" else "town", "boolean": place % 2 == 0,
             "date": date(2020, 1, 1 + place % 28), "datetime": datetime(2020, 1, 1 + place % 28),
             "integer": place, "decimal": float(place)}  # fmt: skip
    return plain[column.type.value]


def _make_number(column: Column, place: int, choose: str) -> Any:
    assert column.bounds is not None
    low, high = column.bounds.lower, column.bounds.upper
    if isinstance(low, date):
        return {"least": low, "greatest": high}.get(choose, (low, high)[place % 2])
    lower, upper = Fraction(low), Fraction(high)  # type: ignore[arg-type]
    far = 1000 * (abs(lower) + abs(upper) + 1)
    ends = {"least": lower, "greatest": upper, "beyond": far if place % 2 else -far}
    value = ends.get(choose, lower + (upper - lower) * Fraction(place % 5, 4))
    return int(value) if column.type is ColumnType.INTEGER else float(value)


HOSTILE: tuple[tuple[str, str, int], ...] = (
    ("one row with the greatest values", "greatest", 1),
    ("one row with the least values", "least", 1),
    ("many rows with the greatest values", "greatest", MANY_ROWS),
    ("many rows over all keys", "every", MANY_ROWS),
    ("many rows beyond all limits", "beyond", MANY_ROWS),
    ("rows with missing values", "missing", 2),
)
_ARROW = {"integer": pa.int64(), "decimal": pa.float64(), "text": pa.string(), "boolean": pa.bool_(),
          "date": pa.date32(), "datetime": pa.timestamp("us")}  # fmt: skip


def _build_rows(table: TableSchema, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    columns = {}
    for column in table.columns:
        values = [row[column.name] for row in rows]
        columns[column.name] = pa.array(values, _ARROW[column.type.value])
    return pa.table(columns)
