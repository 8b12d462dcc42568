"""The curator's releases as methods: mask, anonymize, synthesize, train, randomize, and what measures or reads them.

Each method states a request in plain values and passes it to one workflow. What needs no policy is a static method."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.policy.budget import Amount, exact

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.assess.mechanism_audit import AuditReport
    from deniable.curator.anonymize.check import CheckReport
    from deniable.curator.attack import AttackReport
    from deniable.curator.context import Context
    from deniable.curator.federate import Joined
    from deniable.curator.governance.reports import FileProof, Register
    from deniable.curator.policy.scan import ScanReport
    from deniable.curator.query.places import PlacesAnswer, PlacesExplanation
    from deniable.curator.query.stream.plan import StreamPlanReport
    from deniable.curator.query.stream.rows import StreamRow
    from deniable.curator.query.stream.run import StreamReport
    from deniable.curator.survey import EstimateReport, RandomizeReport, SurveyReport
    from deniable.curator.synthesize.inspect import FamilyView, LinkedView, ModelView
    from deniable.curator.synthesize.parity import Compared
    from deniable.curator.train import Trained
    from deniable.geography.published import TabulationPlanReport, TabulationReport
    from deniable.governance.grants import Asker
    from deniable.learn.federated import Round
    from deniable.policy.schema import Spec
    from deniable.policy.tabulation import Tabulation
    from deniable.release import Release
    from deniable.synth.linked import FamilyModel, LinkedModel
    from deniable.synth.model import SynthModel

EPSILONS: tuple[Amount, ...] = ("0.5", "1", "2", "4", "10")


class ReleaseVerbs:
    """The methods of a curator that make, measure and read releases."""

    context: Context

    def _for(self, who: Asker | None) -> Context:
        raise NotImplementedError  # a curator says for whom it speaks

    def mask(
        self,
        table: str,
        *,
        mode: str = "pseudonymize",
        keys: Sequence[str] = (),
        columns: Sequence[str] | None = None,
        keep_order: bool = False,
        who: Asker | None = None,
    ) -> Release:
        """Mask one table as the policy says, in memory. `keys` are masking keys, `mode` pseudonymize or safe-harbor."""
        from deniable.curator.mask.run import mask_rows

        return mask_rows(self._for(who), table, mode=mode, keys=keys, columns=columns, keep_order=keep_order)

    def anonymize(
        self,
        table: str,
        out: str | Path | None = None,
        *,
        k: int | None = None,
        l: Mapping[str, Amount] | None = None,  # noqa: E741  the field's own letter
        t: Mapping[str, Amount] | None = None,
        suppress: Amount | None = None,
        models: Sequence[Spec] | None = None,
        quasi_identifiers: Sequence[str] | None = None,
        sensitive: Sequence[str] | None = None,
        identifiers: Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
        hierarchies: Mapping[str, Spec] | None = None,
        method: str | None = None,
        measure: str | None = None,
        weights: Mapping[str, float] | None = None,
        form: str | None = None,
        suppressed_rows: str | None = None,
        population: Any = None,
        seconds: float | None = None,
        earlier: str | Path | None = None,
        refuse_composition: bool | None = None,
        target: str | None = None,
        tails: Mapping[str, Mapping[str, float]] | None = None,
        person: str | None = None,
        count_rows: bool | None = None,
        keep_order: bool | None = None,
        encoding: str | None = None,
        who: Asker | None = None,
    ) -> Release:
        """Make one table k-anonymous, in memory or into a file; the policy fills what is not said.

        `l` and `t` are by sensitive column, `suppress` is the largest share of rows to leave out, `method` optimal,
        local or another that `deniable anonymize --help` lists.
        """
        from deniable.curator.anonymize.run import anonymize_rows

        asked = _stated(
            k=k, l=l, t=t, suppress=suppress, models=models, quasi_identifiers=_listed(quasi_identifiers),
            sensitive=_listed(sensitive), identifiers=_listed(identifiers), columns=_listed(columns),
            hierarchies=hierarchies, method=method, measure=measure, weights=weights, form=form, person=person,
            suppressed_rows=suppressed_rows, population=population, seconds=seconds, tails=tails, target=target,
            earlier=None if earlier is None else Path(earlier), refuse_composition=refuse_composition,
            count_rows=count_rows, keep_order=keep_order, encoding=encoding,
        )  # fmt: skip
        return anonymize_rows(self._for(who), table, out, **asked)

    def check(
        self,
        table: str,
        quasi_identifiers: Sequence[str] = (),
        sensitive: Sequence[str] = (),
        *,
        who: Asker | None = None,
    ) -> CheckReport:
        """Measure k, l, t and the risks of a table as it is; for the steward's eyes."""
        from deniable.curator.anonymize.check import check_rows

        return check_rows(self._for(who), table, quasi_identifiers, sensitive)

    def describe(
        self,
        table: str,
        out: str | Path | None = None,
        *,
        epsilon: Amount | None = None,
        delta: Amount = 0,
        rho: Amount | None = None,
        method: str = "auto",
        columns: Sequence[str] | None = None,
        workload: Iterable[Sequence[str]] = (),
        areas: str | None = None,
        linked: bool = False,
        memory: int = 1,
        who: Asker | None = None,
    ) -> SynthModel | LinkedModel | FamilyModel:
        """Learn a table's synthetic model within a budget, and keep it in a file if one is named.

        Charged before rows are read, which are bounded to what one unit may add. `workload` lists columns whose joint
        counts matter, `areas` is one whose areas add up. `linked` learns people with their rows; in a sequence, each
        depends on `memory` rows before it.
        """
        from deniable.curator.synthesize.run import learn_and_keep, place_order

        order: Any = {"method": method, "columns": columns, "workload": workload, "areas": areas}
        wanted = place_order(table, epsilon, delta, rho, **order, linked=linked, memory=memory)
        return learn_and_keep(self._for(who), wanted, None if out is None else Path(out))

    def synthesize(
        self,
        table: str,
        out: str | Path,
        *,
        rows: int | None = None,
        seed: int = 0,
        epsilon: Amount | None = None,
        delta: Amount = 0,
        rho: Amount | None = None,
        method: str = "auto",
        columns: Sequence[str] | None = None,
        workload: Iterable[Sequence[str]] = (),
        areas: str | None = None,
        linked: bool = False,
        memory: int = 1,
        who: Asker | None = None,
    ) -> Release:
        """Write synthetic rows of a table, with their model and their statement; options are those of `describe`."""
        from deniable.curator.synthesize.run import place_order, synthesize

        order: Any = {"method": method, "columns": columns, "workload": workload, "areas": areas}
        wanted = place_order(table, epsilon, delta, rho, **order, linked=linked, memory=memory)
        return synthesize(self._for(who), wanted, Path(out), rows=rows, seed=seed)

    @staticmethod
    def generate(
        model: SynthModel | LinkedModel | FamilyModel | str | Path,
        rows: int | None = None,
        *,
        seed: int = 0,
        where: Mapping[str, str] | str | None = None,
    ) -> pa.Table | dict[str, pa.Table]:
        """Rows of a model, or of a model file: no data is touched, nothing is charged.

        Of people with their rows, so many people are drawn, and their rows come out; of several tables, all by name.
        """
        from deniable.curator.synthesize.run import draw_rows

        return draw_rows(model, rows, seed=seed, where=where)

    def inspect(
        self,
        model: SynthModel | LinkedModel | FamilyModel | str | Path,
        against: str | None = None,
        *,
        marginals: Iterable[Sequence[str]] = (),
        target: str | None = None,
        regression: tuple[str, Sequence[str]] | None = None,
        scores: bool = False,
        findings: str | Path | Sequence[str | Path] = (),
        who: Asker | None = None,
    ) -> ModelView | LinkedView | FamilyView:
        """What a model tells anyone; `against` a table, beside its real rows, for the steward alone.

        `marginals` are columns to compare together, `target` a column to predict, `regression` a column with those
        that explain it. `scores` adds SDMetrics' quality and diagnostic scores, SDNist's k-marginal, and TSTR;
        `findings` are files as `parity` takes them, to see which conclusions these rows keep.
        """
        from deniable.curator.synthesize.inspect import Question, public, steward

        files = [findings] if isinstance(findings, str | Path) else findings
        explained = None if regression is None else (regression[0], tuple(regression[1]))
        asked = Question(tuple(map(tuple, marginals)), target, explained, scores, tuple(map(Path, files)))
        return public(model, asked) if against is None else steward(self._for(who), model, against, asked)

    def parity(
        self,
        findings: str | Path | Sequence[str | Path],
        table: str | None = None,
        *,
        methods: Sequence[str] = ("all",),
        epsilons: Sequence[Amount] = EPSILONS,
        delta: Amount = "1e-9",
        runs: int = 20,
        journal: str | Path | None = None,
        workers: int = 1,
        progress: Callable[[float], None] | None = None,
    ) -> Compared:
        """Try findings (files of functions or SQL) on synthetic rows many times: which hold; for the steward."""
        from deniable.curator.synthesize.parity import Comparison, compare

        files = [findings] if isinstance(findings, str | Path) else findings
        kept = None if journal is None else Path(journal)
        amounts = tuple(str(each) for each in epsilons)
        wanted = Comparison(
            table, tuple(Path(each) for each in files), tuple(methods), amounts, str(delta), runs, kept, workers
        )
        return compare(self.context, wanted, progress)

    def publish(
        self, stream: str, *, until: date | None = None, out: str | Path | None = None, who: Asker | None = None
    ) -> StreamReport:
        """Publish a declared stream: every period that ended is measured once; the first call charges all of them.

        `until` stops after the periods of a day in the past; `out` is a file for all that was published so far.
        """
        from deniable.curator.query.stream.run import publish

        return publish(self._for(who), stream, until=until, out=out)

    def tabulate(
        self,
        plan: str | Path | Tabulation,
        *,
        out: str | Path | None = None,
        totals: str | Path | None = None,
        shares: str | Path | None = None,
        of: Mapping[str, str] | None = None,
        progress: Callable[[float], None] | None = None,
        who: Asker | None = None,
    ) -> TabulationReport:
        """Count people by area and cell: whole numbers that add up, for one charge.

        `plan` is the name of a tabulation of the policy, a file, or a `Tabulation`; `out` gets the cells, `totals` the
        total of every area with its interval, `shares` the smoothed share of people `of` some values of the cells.
        """
        from deniable.curator.query.tabulate import tabulate

        return tabulate(self._for(who), plan, out=out, totals=totals, shares=shares, of=of, progress=progress)

    def explain_tabulate(self, plan: str | Path | Tabulation, *, who: Asker | None = None) -> TabulationPlanReport:
        """What each operator of a tabulation would cost, and its errors, without touching private rows."""
        from deniable.curator.query.tabulate import explain

        return explain(self._for(who), plan)

    def explain_publish(self, stream: str, *, who: Asker | None = None) -> StreamPlanReport:
        """What a stream would cost, whom it would protect and how accurate it would be, without touching data."""
        from deniable.curator.query.stream.plan import explain

        return explain(self._for(who), stream)

    def total_between(self, stream: str, first: date, last: date, *, who: Asker | None = None) -> tuple[StreamRow, ...]:
        """Totals of a stream from the period of one day to that of another, from what was published: free."""
        from deniable.curator.query.stream.run import total_between

        return total_between(self._for(who), stream, first, last)

    def places(
        self,
        table: str,
        at: Sequence[str],
        to: Sequence[str] | None = None,
        *,
        epsilon: Amount | None = None,
        delta: Amount = 0,
        rho: Amount | None = None,
        time: str | None = None,
        slots: str | None = None,
        box: Sequence[float] | None = None,
        per_person: int | None = None,
        grid: str = "adaptive",
        confidence: float = 0.95,
        nonnegative: bool = False,
        out: str | Path | None = None,
        who: Asker | None = None,
    ) -> PlacesAnswer:
        """A noisy map of places on an adaptive grid; with `to`, the flows between regions, each number with its error.

        `at` and `to` name columns of latitude and longitude, `box` is south, west, north, east (the columns' bounds, if
        not said), `slots` counts by hour, part (of a day), weekday or month of `time`, `per_person` rows of each count.
        """
        from deniable.curator.query.places import answer_places, order_places

        order = order_places(table, at, to, epsilon, delta, rho, time, slots, box, per_person, grid)
        place = None if out is None else Path(out)
        return answer_places(self._for(who), order, confidence=confidence, nonnegative=nonnegative, out=place)

    def explain_places(
        self, table: str, at: Sequence[str], to: Sequence[str] | None = None, *, epsilon: Amount | None = None,
        delta: Amount = 0, rho: Amount | None = None, time: str | None = None, slots: str | None = None,
        box: Sequence[float] | None = None, per_person: int | None = None, grid: str = "adaptive",
        longest: int | None = None, who: Asker | None = None,
    ) -> PlacesExplanation:  # fmt: skip
        """What a map, flows, or (with `longest`) a model of traces would measure and cost, without touching data."""
        from deniable.curator.query.places import explain, order_places

        order = order_places(table, at, to, epsilon, delta, rho, time, slots, box, per_person, grid, longest)
        return explain(self._for(who), order)

    def traces(
        self, table: str, at: Sequence[str], time: str, *, longest: int = 20, epsilon: Amount | None = None,
        delta: Amount = 0, rho: Amount | None = None, box: Sequence[float] | None = None, people: int | None = None,
        seed: int = 0, out: str | Path | None = None, who: Asker | None = None,
    ) -> PlacesAnswer:  # fmt: skip
        """New traces of people who do not exist, from a model of the first `longest` points of each person.

        The model is charged once; other traces of it (`people`, `seed`) cost nothing.
        """
        from deniable.curator.query.places import draw_people, order_places

        order = order_places(table, at, None, epsilon, delta, rho, time, None, box, longest=longest)
        place = None if out is None else Path(out)
        return draw_people(self._for(who), order, people=people, seed=seed, out=place)

    def train(
        self,
        table: str,
        target: str | None = None,
        *,
        features: Sequence[str] | None = None,
        epsilon: Amount | None = None,
        delta: Amount | None = None,
        rho: Amount | None = None,
        method: str = "auto",
        positive: str | None = None,
        penalty: float | None = None,
        turns: int | None = None,
        clip: Amount | None = None,
        count: int | None = None,
        hidden: int | None = None,
        rate: Amount | None = None,
        learning_rate: float | None = None,
        module: Any = None,
        choose: Mapping[str, Sequence[Any]] | None = None,
        evaluate: bool = False,
        out: str | Path | None = None,
        progress: Callable[[float], None] | None = None,
        who: Asker | None = None,
    ) -> Trained:
        """Learn a model of a column within a budget: linear, logistic, poisson, boosted, multinomial, bayes, mlp.

        Without a target: `count` groups of rows (kmeans), or components of their columns (pca). `choose` lists values
        of settings; the best combination is chosen privately, within the same budget. `positive` is told from all other
        values. `module`: a module of torch, or a function that makes one of its inputs and outputs. `evaluate`: a test.
        """
        from deniable.curator.train import train_model

        return train_model(
            self._for(who), table, target, features=features, epsilon=epsilon, delta=delta, rho=rho, method=method,
            positive=positive, penalty=penalty, turns=turns, clip=clip, count=count, hidden=hidden, rate=rate,
            learning_rate=learning_rate, module=module, choose=choose, evaluate=evaluate, out=out, progress=progress,
        )  # fmt: skip

    def plan_round(
        self,
        table: str,
        method: str = "means",
        *,
        clients: int,
        least: int | None = None,
        features: Sequence[str] | None = None,
        target: str | None = None,
        epsilon: Amount | None = None,
        delta: Amount | None = None,
        rho: Amount | None = None,
        colluding: int = 0,
        count: int | None = None,
        who: Asker | None = None,
    ) -> Round:
        """A federated round over tables declared as this one: means, histogram, linear, bayes or pca.

        `least` is the fewest clients in a sum, for which the noise is; nothing is charged and no row is read.
        """
        from deniable.curator.federate import plan_round

        return plan_round(
            self._for(who), table, method, clients=clients, least=least, features=features, target=target,
            epsilon=epsilon, delta=delta, rho=rho, colluding=colluding, count=count,
        )  # fmt: skip

    def join_round(self, table: str, server: str, *, patience: float = 120.0, who: Asker | None = None) -> Joined:
        """Take part in the federated round of a server with one table: charged before its rows are read."""
        from deniable.curator.federate import join_round

        return join_round(self._for(who), table, server, patience=patience)

    @staticmethod
    def predict(model: str | Path, rows: Any, out: str | Path) -> int:
        """Write rows (a path or a frame) with a prediction of a model file beside each; how many there are.

        Nothing is charged, and the rows stay as private as they were.
        """
        from deniable.curator.train import predict

        return predict(Path(model), rows, Path(out))

    def randomize(
        self,
        table: str,
        out: str | Path,
        *,
        epsilon: Amount,
        columns: Sequence[str] | None = None,
        column_epsilons: Mapping[str, Amount] | None = None,
        who: Asker | None = None,
    ) -> RandomizeReport:
        """Randomize a table record by record (local differential privacy) and write it with its statement.

        `epsilon` is for one whole record; `column_epsilons` are the parts of single columns.
        """
        from deniable.curator.survey import randomize_rows

        return randomize_rows(self._for(who), table, Path(out), epsilon, columns, column_epsilons)

    @staticmethod
    def estimate(
        file: str | Path,
        *,
        mean: str | None = None,
        by: str | None = None,
        regress: str | None = None,
        on: Sequence[str] = (),
        confidence: float = 0.95,
    ) -> EstimateReport:
        """Counts and means that a randomized table still tells, with intervals that account for the noise."""
        from deniable.curator.survey import estimate_released

        return estimate_released(Path(file), confidence, mean, by, regress, on)

    @staticmethod
    def survey(
        file: str | Path,
        *,
        store: str | None = None,
        confidence: float = 0.95,
        by: str | None = None,
        of: str | None = None,
        before: str | None = None,
        joint: Sequence[str] = (),
        totals: Sequence[float] = (),
    ) -> SurveyReport:
        """Estimates from a survey's stored responses, which were randomized on each respondent's own device.

        `of` is compared between the groups that `by` forms, or with the store of an earlier round, `before`.
        """
        from deniable.curator.survey import read_results

        return read_results(Path(file), store, confidence, by, of, before, joint, totals)

    @staticmethod
    def scan(table: Any, unit: str | None = None, *, encoding: str | None = None) -> ScanReport:
        """Find identifiers in a table (a path or a frame): names, counts and shares, and no value of it."""
        from deniable.curator.policy.scan import scan

        return scan(str(table) if isinstance(table, Path) else table, unit, encoding=encoding)

    def attack(
        self,
        release: str | Path,
        *,
        table: str | None = None,
        original: str | Path | None = None,
        knows: Sequence[str] = (),
        sensitive: Sequence[str] = (),
        register: str | Path | None = None,
        control: str | Path | None = None,
        truth: str | None = None,
        unit: str | None = None,
        ratings: Sequence[str] = (),
        others: Sequence[str | Path] = (),
        limits: Mapping[str, Amount] | None = None,
        everything: bool = False,
        attacks: int = 500,
        seed: int = 0,
        seconds: float | None = None,
        encoding: str | None = None,
        counts: str | None = None,
        suppressed: str | None = None,
        absent: bool = False,
        synthetic: bool = False,
        generator: str | None = None,
        tables: int = 16,
        trace: Sequence[str] = (),
        resolutions: Sequence[tuple[int, str]] = (),
        edges: Sequence[str] = (),
        progress: Callable[[float], None] | None = None,
    ) -> AttackReport:
        """Attack a released file, a log or statistics: how many people it exposes; for the steward.

        `knows` are columns that the intruder knows, `original` the real rows to score by, `register` a table with
        names, `limits` the largest share that each attack may expose. `trace` names person, latitude, longitude and
        time, `resolutions` how well points are known: decimals of a degree, and minute, hour, day, week or never.
        `edges` names the two columns of a table of edges.
        """
        from deniable.curator.attack import Order, attack

        largest: dict[str, Fraction] = {name: exact(share, name) for name, share in (limits or {}).items()}
        order = Order(
            str(release), tuple(knows), _path(register), _path(original), _path(control), truth, tuple(sensitive),
            unit, tuple(ratings), tuple(str(each) for each in others), None, table, largest, everything, attacks, seed,
            seconds, None, encoding, None, counts, suppressed, absent, synthetic, generator, tables,
            tuple(trace), tuple((digits, time) for digits, time in resolutions), tuple(edges),
        )  # fmt: skip
        return attack(order, progress, self.context)

    def audit(
        self,
        subject: str | Callable[..., Any],
        *,
        epsilon: Amount | None = None,
        delta: Amount | None = None,
        worlds: Sequence[Any] = (),
        neighbors: str | None = None,
        tries: int | None = None,
        mu: Amount | None = None,
        spends: Amount | None = None,
        canaries: int | None = None,
        timed: bool = False,
        runs: int | None = None,
        confidence: float = 0.999,
        progress: Callable[[float], None] | None = None,
    ) -> AuditReport:
        """Test a claimed epsilon: of a function of two worlds, of a question in SQL, or of a mechanism by its name."""
        from deniable.curator.audit import AuditOrder, audit

        named = subject if isinstance(subject, str) else getattr(subject, "__name__", "function")
        function = None if isinstance(subject, str) else subject
        order = AuditOrder(
            named, _text(epsilon), _text(delta), _text(mu), _text(spends), tuple(worlds), neighbors, tries,
            self.context.policy, canaries, timed, runs, confidence, function,
        )  # fmt: skip
        return audit(order, progress)

    def release(self, file: str | Path, *, key: str = "") -> FileProof:
        """Check a released file and its statement against this curator's ledger: what is promised and proven."""
        from deniable.curator.governance.reports import verify_file

        return verify_file(Path(file), key, self.context.ledger)

    def register(self) -> Register:
        """The public register: every release with its technique, epsilon, delta, unit and date."""
        from deniable.curator.governance.reports import register

        return register(self.context.ledger)


def _stated(**given: Any) -> dict[str, Any]:
    """What was said; the rest is left to the workflow's own defaults."""
    return {name: value for name, value in given.items() if value is not None}


def _listed(names: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(names)


def _path(place: str | Path | None) -> str | None:
    return None if place is None else str(place)


def _text(amount: Amount | None) -> str | None:
    return None if amount is None else str(amount)
