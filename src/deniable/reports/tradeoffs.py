"""Pages that help to choose: error against epsilon, loss against risk, parity, a catalog, a learned model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from deniable.kanonymity.recoding import name_level
from deniable.reports import plots
from deniable.reports.blocks import Block, Callout, KeyFigure, KeyFigures, Page, Paragraph, Plot, Section, Table, Tone
from deniable.reports.plots import PERCENT, draw_scatter


def build_error_page(sql: str, rows: Sequence[Mapping[str, Any]]) -> Page:
    """The page of one question."""
    lead = "What the noise would do to each number, by the epsilon spent on it. No data was read for this page."
    if not rows:
        free = Callout("This question measures nothing about anybody: it is free, and exact.")
        return Page("Expected errors", (Section("The question", (Paragraph(sql), free)),), lead)
    return Page("Expected errors", (Section("The question", (Paragraph(sql), *_plot_errors(rows))),), lead)


def _plot_errors(rows: Sequence[Mapping[str, Any]]) -> tuple[Block, ...]:
    """One plot for each unit of error: numbers that are counted in ranks do not belong beside sums."""
    units = dict.fromkeys(row["error_in"] for row in rows)
    return tuple(_plot_unit([row for row in rows if row["error_in"] == unit], unit) for unit in units)


def _plot_unit(rows: list[Mapping[str, Any]], unit: str) -> Plot:
    kept = [{key: row[key] for key in ("epsilon", "measurement", "error")} for row in rows]
    count = len({row["measurement"] for row in rows})
    alt = f"Expected error, in {unit}, of {count} measurements against epsilon: it falls as epsilon grows."
    spec = plots.draw_lines(
        kept, x="epsilon", y="error", series="measurement", alt=alt, title=f"error ({unit})", log_x=True, log_y=True
    )
    return Plot(spec, caption="With 95% confidence the noise of one number is at most this.")


Spec = dict[str, Any]

CHOSEN, ACCEPTABLE, FAILING = "chosen", "acceptable", "fails a model"
EMPTIED = "fails, and most rows would be left out"


def leaves_most_out(suppressed: int, rows: int) -> bool:
    """Whether a node leaves out more than half of the rows: what it says of loss and risk is about few people."""
    return 2 * suppressed > rows


def _name_node(point: Mapping[str, Any], rows: int) -> str:
    if point["chosen"] or point["acceptable"]:
        return CHOSEN if point["chosen"] else ACCEPTABLE
    return EMPTIED if leaves_most_out(point["suppressed"], rows) else FAILING


def plot_lattice(points: Sequence[Mapping[str, Any]], count: int, measure: str = "loss") -> Spec:
    """Loss against risk, one point a node of `count` rows that was checked; those that fail stand by their loss."""
    lost, risk = "detail lost" if measure == "loss" else measure, "mean chance to find a person"
    rows = [
        {
            lost: point["cost"] if point["cost"] is not None else point["base"],
            risk: point["risk"],
            "node": _name_node(point, count),
            "levels": ", ".join(f"{name} {level}" for name, level in point["levels"].items()),
        }
        for point in points
    ]
    rows.sort(key=lambda row: (ACCEPTABLE, FAILING, EMPTIED, CHOSEN).index(str(row["node"])))
    alt = f"{len(rows)} generalizations by {lost} and by the mean chance to find a person; one is chosen."
    return draw_scatter(rows, x=lost, y=risk, series="node", alt=alt, form=PERCENT if measure == "loss" else "")


def build_lattice_page(
    report: Mapping[str, Any],
    measure: str = "loss",
    recoding: Mapping[str, Any] | None = None,
    shown: tuple[Sequence[str], Sequence[Any]] = ((), ()),
) -> Page:
    """A page about one anonymization: what was found, the columns, the classes, the proof, the lattice.

    `recoding` is the document beside the release, which knows the names of levels and the sizes of classes. `shown` are
    columns, and rows before and after.
    """
    recoding = recoding or {}
    sections = [Section("The release", (*_summarize_anonymity(report), Paragraph("\n\n".join(report["words"]))))]
    if report.get("levels"):
        rows = _list_levels(report["levels"], {one["name"]: one for one in recoding.get("columns", ())})
        sections.append(Section("What became of each column", (Table.of(rows),)))
    if shown[1]:
        sections.append(Section("Rows before and after", (_compare_rows(*shown),)))
    if sizes := (recoding.get("classes") or {}).get("sizes"):
        sections.append(Section("How large the classes are", (draw_sizes(sizes), _list_largest(recoding))))
    if report["lattice"]:
        sections.append(Section("The lattice", _describe_lattice(report, measure)))
    lead = f"{report['released']:,} of {report['rows']:,} rows released in {report['classes']:,} classes of rows alike."
    care = "It shows values of real rows: keep it as you keep the table." if shown[1] else "No row is shown."
    return Page("A k-anonymous release", tuple(sections), lead, f"For the steward. {care}")


def _compare_rows(names: Sequence[str], rows: Sequence[Any]) -> Table:
    """Some rows as they were and as they leave, by the columns that others may know."""
    listed = tuple(
        (*(one if one == two else f"{one} → {two}" for one, two in zip(row.before, row.after, strict=True)),
         row.alike, "yes" if row.released else "left out")
        for row in rows
    )  # fmt: skip
    return Table((*names, "rows alike", "leaves"), listed, "Some rows, by the columns that others may know")


def _summarize_anonymity(report: Mapping[str, Any]) -> tuple[Block, ...]:
    figures = [KeyFigure(f"{report['released']:,}", "rows released", f"{report['suppressed']:,} left out")]
    measured = report.get("measured") or {}
    if "k" in measured:
        figures.append(KeyFigure(f"{measured['k']:,}", "rows in the smallest class", ", ".join(report["models"])))
    if risk := report.get("risk"):
        before, after = (risk[when]["prosecutor"]["at_risk"] for when in ("before", "after"))
        figures.append(KeyFigure(f"{after:.1%}", "of rows at risk", f"{before:.1%} before: classes of fewer than 5"))
    if report.get("loss") is not None:
        figures.append(KeyFigure(f"{report['loss']:.1%}", "of the detail is lost", "0% is the table as it was"))
    joint = (Callout(report["joint"]["words"], Tone.WARNING, "All columns together"),) if report.get("joint") else ()
    return (KeyFigures(tuple(figures)), *joint)


# dictionaries: rows of a table
def _list_levels(levels: Mapping[str, int], columns: Mapping[str, Any]) -> list[dict[str, object]]:
    return [
        {"column": name, "shown": name_level(level, columns.get(name, {})), "level": level}
        for name, level in levels.items()
    ]


def draw_sizes(sizes: Sequence[int]) -> Plot:
    """How many rows stand in classes of each size, none between them left out; where sizes are far apart, in stretches
    that double."""
    spans = [(size, size) for size in range(min(sizes), max(sizes) + 1)]
    if len(spans) > MOST_SIZES:
        edges = [min(sizes)]
        while edges[-1] * 2 <= max(sizes):
            edges.append(edges[-1] * 2)
        spans = [(low, high - 1) for low, high in zip(edges, [*edges[1:], max(sizes) + 1], strict=True)]
    rows = [
        {"rows alike": f"{low:,}" if low == high else f"{low:,} to {high:,}",
         "rows": sum(size for size in sizes if low <= size <= high),
         "classes": sum(low <= size <= high for size in sizes)}
        for low, high in spans
    ]  # fmt: skip
    alt = f"Rows by the size of their class: the smallest class has {min(sizes):,} rows, the largest {max(sizes):,}."
    drawn = plots.draw_histogram(rows, bin="rows alike", count="rows", alt=alt)
    return Plot(drawn, "Rows by how many rows look like them", Table.of(rows))


def _list_largest(recoding: Mapping[str, Any]) -> Table:
    """What released rows look like: the largest classes."""
    classes = recoding["classes"]
    names = [one["name"] for one in recoding["columns"]]
    most = sorted(zip(classes["sizes"], classes["tuples"], strict=True), key=lambda one: -int(one[0]))[:MOST_CLASSES]
    columns = (*names, "rows alike")
    return Table(columns, tuple((*shown, size) for size, shown in most), "The largest classes, as they are released")


def _describe_lattice(report: Mapping[str, Any], measure: str) -> tuple[Block, ...]:
    proof = Paragraph(_describe_proof(report["proof"]))
    points = [point for point in report["lattice"] if point["risk"] is not None]
    if len(points) < FEWEST_POINTS:
        return (proof, Table.of(_list_points(report["lattice"], measure), "The combinations that were checked"))
    return (proof, draw_lattice(points, report["rows"], measure))


def draw_lattice(points: Sequence[Mapping[str, Any]], rows: int, measure: str = "loss") -> Plot:
    """Every node of a table of so many rows by what it loses and by its risk."""
    caption = "Utility against risk of the rows that leave: lower left is better"
    return Plot(plot_lattice(points, rows, measure), caption)


def build_tradeoff_page(points: Sequence[Mapping[str, Any]], techniques: Any) -> Page:
    """What stricter models cost a table, and how techniques compare on it."""
    sections = [_compare_strictness(model, column, rows) for (model, column), rows in _group_points(points).items()]
    lead = "Each point is the optimum for what is asked: no other generalization loses less."
    return Page("Risk against utility", (*sections, _compare_techniques(techniques)), lead, "For the steward.")


def _group_points(points: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], list[Mapping[str, Any]]]:
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for point in points:
        groups.setdefault((point["model"], point["column"]), []).append(point)
    return groups


MODELS = {
    "k": "k: so many people look alike",
    "l": "l of {}: different values in each class",
    "t": "t of {}: distance of each class from the whole table",
}


def _compare_strictness(model: str, column: str, points: Sequence[Mapping[str, Any]]) -> Section:
    """Two lines against what is asked: what is lost, and the mean chance to find a person; with a table of all."""
    rows = [
        {model: _shorten(point["value"]), "detail lost": point["loss"], "mean risk": point["mean_risk"],
         "rows left out": point["suppressed"], "classes": point["classes"], "remark": point["refusal"]}
        for point in points
    ]  # fmt: skip
    named = [row if any(each["remark"] for each in rows) else {k: v for k, v in row.items() if k != "remark"}
             for row in rows]  # fmt: skip
    told = Table.of([_write_shares(row) for row in named], "The optimum for each")
    drawn = [
        {model: point["value"] if model == "t" else _shorten(point["value"]), "share": point[part], "of": words}
        for point in points
        if point["loss"] is not None
        for part, words in (("loss", "detail lost"), ("mean_risk", "mean chance to find a person"))
    ]
    heading = MODELS[model].format(column)
    if len(drawn) < 2 * 2:
        return Section(heading, (Paragraph("Too few of them can be met to draw a line."), told))
    alt = f"Detail lost and the mean chance to find a person, against {model}"
    spec = plots.draw_lines(drawn, x=model, y="share", series="of", alt=alt, title="share", form=plots.PERCENT,
                            log_x=model == "k")  # fmt: skip
    return Section(heading, (Plot(spec, "What is lost, and who is found", told),))


def _shorten(value: float) -> float | int:
    return int(value) if value == int(value) else value


# a dictionary: a row of a table
def _write_shares(row: Mapping[str, Any]) -> dict[str, object]:
    shares = ("detail lost", "mean risk")
    return {name: f"{value:.1%}" if name in shares and value is not None else value for name, value in row.items()}


def _compare_techniques(found: Any) -> Section:
    made = [point for point in found.points if point.found is not None]
    rows = [
        {"technique": point.technique, "rows": point.rows,
         "found by values that nobody else has": None if point.found is None else f"{point.found:.1%}",
         f"{found.target} predicted": None if point.accuracy is None else f"{point.accuracy:.1%}",
         "remark": point.refusal}
        for point in found.points
    ]  # fmt: skip
    words = (
        f"An intruder knows the quasi-identifiers of everybody. A person counts as found when nobody else has her "
        f"values and the release shows them. How often {found.target} is predicted from the quasi-identifiers tells "
        f"what is still of use; always naming its commonest value is right in {found.guessing:.1%} of rows. "
        "Synthetic rows belong to nobody: such values appear there by chance, within what epsilon allows."
    )
    predicted, seen = f"rows whose {found.target} is predicted", "people found"
    points = [{seen: point.found, predicted: point.accuracy, "technique": point.technique} for point in made]
    alt = f"{len(points)} techniques by the share of people found and by how often {found.target} is predicted"
    blocks: list[Block] = [Paragraph(words)]
    if len(points) > 1:
        spec = draw_scatter(points, x=predicted, y=seen, series="technique", alt=alt, form=plots.PERCENT, rings=True)
        blocks.append(Plot(spec, "Techniques: lower right is better", Table.of(rows)))
    else:
        blocks.append(Table.of(rows))
    return Section("Techniques", tuple(blocks))


MOST_SIZES = 24
"""So many sizes have a bar each, those that no class has too: the axis counts."""
MOST_CLASSES = 6
FEWEST_POINTS = 4
"""Fewer points make no picture: they are listed."""


# dictionaries: rows of a table
def _list_points(points: Sequence[Mapping[str, Any]], measure: str) -> list[dict[str, object]]:
    return [
        {"levels": ", ".join(f"{name} {level}" for name, level in point["levels"].items()), "rows left out":
         point["suppressed"], measure: point["cost"], "mean risk": point["risk"], "node":
         CHOSEN if point["chosen"] else ACCEPTABLE if point["acceptable"] else FAILING}
        for point in points
    ]  # fmt: skip


def _describe_proof(proof: Mapping[str, Any]) -> str:
    counted = (
        f"Of {proof['nodes']} combinations of levels, {proof['checks']} were checked, {proof['excluded_as_failing']} "
        f"lie below one that fails, and {proof['excluded_as_costlier']} cost more than the best."
    )
    return counted + (" The release is optimal." if proof["optimal"] else f" The optimum is within {proof['gap']:.4g}.")


Row = Mapping[str, Any]
HOW_TO_READ = (
    "A finding is a conclusion that an analyst might publish. It is kept when the synthetic rows lead to the same yes "
    "or no, or to an effect of the same sign, as the real rows. 100% means that every synthetic table led to it; an "
    "effect that was lost altogether keeps its sign in half of the runs, by chance."
)
CAUTION = (
    "This compares with the real rows: it is for the steward, and is not to be released. Choose a method and an "
    "epsilon by it, then synthesize once. Statistical tests on synthetic rows find effects that are not there more "
    "often than they should at epsilon 1 and below (arXiv 2403.13612)."
)


def build_parity_page(told: Mapping[str, Any]) -> Page:
    """One plot of all methods, then a section for each of them."""
    kept = told["kept"]
    texts = {finding["finding"]: finding["text"] for finding in told["findings"]}
    methods = dict.fromkeys(str(row["method"]) for row in kept)
    sections = [_describe_methods(told["averages"], told["unsuited"]), _tabulate_findings(told["findings"])]
    sections += [
        _describe_method(method, [row for row in kept if row["method"] == method], texts) for method in methods
    ]
    lead = "Would the conclusions have been the same on synthetic rows?"
    return Page("Parity of findings", tuple(sections), lead, "For the steward: this page is made with real rows.")


def _describe_methods(rows: Sequence[Row], unsuited: Mapping[str, str]) -> Section:
    alt = "Share of findings kept, on average over findings and runs, by epsilon and method"
    drawn = plots.draw_lines(rows, x="epsilon", y="share", series="method", alt=alt, title="share kept", log_x=True,
                              form=plots.PERCENT)  # fmt: skip
    left = [{"method left out": method, "why": why} for method, why in unsuited.items()]
    blocks: list[Block] = [Paragraph(HOW_TO_READ), Plot(drawn, alt), Callout(CAUTION, Tone.WARNING)]
    return Section("Which method, which epsilon", (*blocks, *((Table.of(left),) if left else ())))


def _tabulate_findings(findings: Sequence[Row]) -> Section:
    rows = [{"finding": finding["text"], "on the real rows": _render_finding(finding["real"])} for finding in findings]
    return Section("The findings", (Table.of(rows),))


def _render_finding(real: bool | float) -> str:
    if isinstance(real, bool):
        return "holds" if real else "does not hold"
    return f"effect {real:+,.0f}" if abs(real) >= 1000 else f"effect {real:+.3g}"


def _describe_method(method: str, rows: list[Row], texts: Mapping[str, str]) -> Section:
    cells = [{"finding": row["finding"], "epsilon": f"{row['epsilon']:g}", "kept": row["share"]} for row in rows]
    alt = f"Share of runs of {method} in which each finding was kept, by epsilon"
    drawn = plots.draw_heatmap(cells, x="epsilon", y="finding", value="kept", alt=alt, form=".0%", limits=(0.0, 1.0))
    listed = [{"finding": texts[row["finding"]], "epsilon": row["epsilon"], "kept": f"{row['kept']} of {row['runs']}",
               "95% interval": f"{row['low']:.0%} to {row['high']:.0%}"} for row in rows]  # fmt: skip
    twin = Table.of(listed)
    return Section(f"Method {method}", (Plot(drawn, alt, twin),))


def build_catalog_page(found: Mapping[str, Any]) -> Page:
    """The catalog of a k-anonymous release, from the document that `deniable release catalog --json` prints."""
    k, known = found["k"], found["quasi_identifiers"]
    groups = [{**one["values"], "rows": one["rows"]} for one in found["groups"]]
    label = f"Search groups by words, such as a value of {known[0]}" if known else "Search groups"
    sections = [
        Section(
            "What is there", (Paragraph("\n\n".join(found["promises"])), Table.of(_list_columns(found["columns"])))
        ),
        Section(
            "Groups", (*_note_unlisted(found), Table.of(groups, f"Rows that are alike in {', '.join(known)}", label))
        ),
    ]
    sections += [_describe_column(one, k) for one in found["columns"] if one["values"]]
    lead = f"{found['rows']:,} rows in groups of at least {k}: what is there, not who."
    foot = f"{found['file']}, sha256 {found['sha256']}, made {found['made']}. Everything here is in the release itself."
    return Page(f"Catalog of {found['file']}", tuple(sections), lead, foot)


# dictionaries: rows of a table
def _list_columns(columns: Sequence[Row]) -> list[dict[str, object]]:
    return [
        {"column": one["column"], "groups rows": bool(one["quasi_identifier"]), "values listed": len(one["values"]),
         "left out": one["rarer"]}
        for one in columns
    ]  # fmt: skip


def _note_unlisted(found: Mapping[str, Any]) -> tuple[Block, ...]:
    rows = found["unlisted"]
    return (Callout(f"{rows:,} rows are in groups that are not listed."),) if rows else ()


def _describe_column(one: Row, k: int) -> Section:
    rare = f"{one['rarer']:,} values that fewer than {k} rows have, or beyond the list, are left out."
    values = Table.of(
        [{one["column"]: each["value"], "rows": each["rows"]} for each in one["values"]],
        f"Values of {one['column']} that at least {k} rows have",
        f"Search values of {one['column']}" if len(one["values"]) > 10 else "",
    )
    return Section(f"Column {one['column']}", (values, *((Paragraph(rare),) if one["rarer"] else ())))


WIDTH = 1.959964
"""Errors on either side of an interval of 95%."""
MOST_BARS = 40
TESTED_ON = "This compares with real rows, without noise: it is for the steward, and not to be released."
TESTS = {
    "error": ("typical error", "root of the mean square"),
    "mean_error": ("mean error", "above or below alike"),
    "r_squared": ("r squared", "1 is perfect; 0 is no better than always saying the mean"),
}
"""What measures of a test mean: their names, and how to read them."""
EFFECTS = {
    "linear": "Each bar is how much the prediction rises with one unit more, or with this value against the average.",
    "logistic": "Each bar is how much the log odds rise with one unit more, or with this value.",
    "boosted": "Each shape is what the values of one column add: to the prediction, or to the log odds of a value.",
    "bayes": "Each line is how much more frequent a value of the column is with a value of the target, in logarithms.",
    "multinomial": "Each line is what a value of the column adds to the logit of a value of the target.",
    "poisson": "Each bar is how much the logarithm of the expected number rises with this value against the average.",
    "mlp": "Each line is what a value adds for a row that is else the average: to the prediction, or to the log odds.",
    "kmeans": "Each bar is the mean of a column in a group, or the share of the group that has a value.",
    "pca": "Each bar is the loading of a column, scaled from -1 to 1 between its bounds, on a component.",
}


def build_training_page(view: Mapping[str, Any]) -> Page:
    """One page from the report of a model; with an evaluation it is marked as the steward's."""
    tested = "evaluation" in view
    columns = dict.fromkeys(effect["column"] for effect in view["effects"])
    sections = [_describe_price(view), *(_describe_test(view) if tested else ())]
    sections += [_draw_effects(name, [each for each in view["effects"] if each["column"] == name]) for name in columns]
    sections[1:1] = _describe_shares(view.get("shares"))
    foot = "For the steward: this page is made with real rows." if tested else "Made from the model alone."
    return Page(f"Model of {view['target']}", tuple(sections), f"Method {view['method']}.", foot)


def _describe_price(view: Mapping[str, Any]) -> Section:
    figures = (
        KeyFigure(view["epsilon"], "epsilon", f"delta {view['delta']}"),
        KeyFigure(f"{view['estimated_rows']:,}", "rows, estimated"),
        KeyFigure(str(len(view["features"])), "columns learned from"),
    )
    told = f"Within this epsilon and delta, it does not tell whether any one unit ({view['unit']}) was learned from. "
    return Section("What it cost", (KeyFigures(figures), Paragraph(told + EFFECTS[view["method"]])))


def _describe_shares(shares: Mapping[str, float] | None) -> tuple[Section, ...]:
    """Of a structure: how large each group is, or how much of the variance each component has."""
    if shares is None:
        return ()
    figures = tuple(KeyFigure(f"{share:.1%}", name) for name, share in shares.items())
    told = "The share of the rows in each group, or of the variance along each component; both with noise."
    return (Section("How large each is", (KeyFigures(figures), Paragraph(told))),)


def _draw_effects(column: str, effects: list[Mapping[str, Any]]) -> Section:
    """A line for ordered bins, bars for values; a table of what cannot be drawn: too many values, null, intervals."""
    rows = [_build_row(each) for each in effects]
    series = "of" if effects[0]["of"] else None
    told = effects[0]["error"] is not None
    low, high = ("low", "high") if told and series is None else (None, None)
    alt = f"Effects of the values of {column}" + (", with intervals of 95%" if told else "")
    if not effects[0]["ordered"] and len(rows) > MOST_BARS:
        return Section(column, (Table.of(rows, alt, "Search values"),))
    if effects[0]["ordered"]:
        placed = _number_places(rows)
        drawn = plots.draw_lines(placed, x="place", y="effect", series=series, alt=alt, low=low, high=high)
        seen = {row["value"] for row in placed}
    else:
        drawn = plots.draw_bars(rows, category="value", value="effect", series=series, alt=alt, low=low, high=high)
        seen = {row["value"] for row in rows}
    listed = [row for row in rows if (told and series) or row["value"] not in seen]
    return Section(column, (Plot(drawn, alt), *((Table.of(listed, alt, "Search values"),) if listed else ())))


def _build_row(each: Mapping[str, Any]) -> dict[str, object]:
    row: dict[str, object] = {"value": each["value"], "effect": each["effect"]}
    row |= {"of": each["of"]} if each["of"] else {}
    if each["error"] is None:
        return row
    return row | {"low": each["effect"] - WIDTH * each["error"], "high": each["effect"] + WIDTH * each["error"]}


def _number_places(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """Bins at the number, date or time with which they begin; null has no place on the axis."""
    begins = [_read_place(str(row["value"]).removeprefix("from ").split(" to ")[0]) for row in rows]
    return [row | {"place": begin} for row, begin in zip(rows, begins, strict=True) if begin is not None]


def _read_place(text: str) -> float | datetime | None:
    for read in (float, datetime.fromisoformat):
        with suppress(ValueError):
            return read(text)
    return None


def _describe_test(view: Mapping[str, Any]) -> tuple[Section, ...]:
    found: Mapping[str, Any] | None = view["evaluation"]
    caution = Callout(TESTED_ON, Tone.DANGER, "Do not pass this on")
    if found is None:
        return (Section("On people it has not seen", (Paragraph("No row was held out to test on."),)),)
    figures = [KeyFigure(_render_figure(value), *TESTS.get(name, (name.replace("_", " "), "")))
               for name, value in found.items()]  # fmt: skip
    worse = (found.get("r_squared") or 0) < 0
    useless = (Callout("The model predicts worse than always saying the mean: do not use it.", Tone.WARNING),)
    blocks: list[Block] = [caution, *(useless if worse else ()), KeyFigures(tuple(figures))]
    for curve, x, y, alt in (
        ("roc", "false alarms", "found", "Share of positives found against the share of false alarms"),
        (
            "calibration",
            "told",
            "true",
            "Share that is true against the probability that was told",
        ),
    ):
        points = [{x: each["x"], y: each["y"]} for each in view.get("curves") or () if each["curve"] == curve]
        if points:
            blocks.append(Plot(plots.draw_scatter(points, x=x, y=y, alt=alt, diagonal=True, form=plots.PERCENT), alt))
    return (Section("On people it has not seen", tuple(blocks)),)


def _render_figure(value: float | None) -> str:
    if value is None or isinstance(value, int):
        return "none" if value is None else f"{value:,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
