"""`deniable anonymize` and `deniable check`: k-anonymous releases, and what a table at hand holds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deniable.cli.terminal import Encoding, JsonFlag, LedgerOption, emit_lines, show_progress, watch_stop
from deniable.errors import ParameterError, nearest, pluralize
from deniable.outputs import claim_outputs

if TYPE_CHECKING:
    from deniable.curator.anonymize.request import Asked, Order
    from deniable.policy.grammar import Shape
    from deniable.policy.schema import Spec

EXAMPLES = """\b
Examples:
  deniable anonymize visits.parquet -p clinic.yaml -o out.parquet
  deniable anonymize people.csv --qi zip,age,sex --sensitive diagnosis --k 5 --l diagnosis=3 --suppress 0.02 -o out.csv
  deniable anonymize people.csv --qi zip,age --draft
  deniable anonymize people.csv --qi zip,age,sex --method mondrian -o out.parquet
  deniable anonymize rides.parquet --grid latitude,longitude --digits 2 --k 10 -o map.csv
  deniable anonymize rides.parquet --grid latitude,longitude --digits 2 --time at --every hour --k 10 -o hours.csv
  deniable anonymize --update out.parquet new.parquet -o more.parquet
"""

CHECK_EXAMPLES = """\b
Examples:
  deniable check out.csv --qi zip,age,sex --sensitive diagnosis
  deniable check out.csv --qi zip,age,sex --k 5            # exit code 2 when k is lower
  deniable check out.csv --qi zip,age,sex --model entropy_diversity:column=diagnosis,l=2
  deniable check people.csv --releases a.parquet.recoding.json,b.parquet.recoding.json
"""

METHODS = "optimal, mondrian, mondrian-relaxed, local, cells or microaggregate."

Source = Annotated[str | None, typer.Argument(help="The table: a CSV, Parquet or Arrow file.", show_default=False)]
Qi = Annotated[str | None, typer.Option("--qi", help="Quasi-identifiers, separated by commas.")]
Sensitive = Annotated[str | None, typer.Option(help="Sensitive columns, separated by commas.")]


def anonymize(
    source: Source = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="A .parquet, .csv or .arrow file.")] = None,
    policy: Annotated[Path | None, typer.Option("--policy", "-p", help="The policy file.")] = None,
    table: Annotated[str | None, typer.Option(help="Which table of the policy the file is.")] = None,
    qi: Qi = None,
    sensitive: Sensitive = None,
    identifier: Annotated[str | None, typer.Option(help="Columns to remove, separated by commas.")] = None,
    keep: Annotated[str | None, typer.Option(help="Columns to release as they are, separated by commas.")] = None,
    k: Annotated[int | None, typer.Option(help="Rows that must look alike.")] = None,
    l: Annotated[list[str] | None, typer.Option("--l", help="COLUMN=NUMBER of distinct values.")] = None,  # noqa: E741
    t: Annotated[list[str] | None, typer.Option("--t", help="COLUMN=DISTANCE from the whole table.")] = None,
    model: Annotated[list[str] | None, typer.Option(help="KIND:NAME=VALUE,... such as average_risk:most=0.05")] = None,
    suppress: Annotated[float | None, typer.Option(help="Share of rows that may be suppressed.")] = None,
    hierarchy: Annotated[
        list[str] | None, typer.Option(help="COLUMN=FILE.csv (a tree), or COLUMN=intervals:5,10.")
    ] = None,
    method: Annotated[str, typer.Option(help=METHODS)] = "optimal",
    measure: Annotated[str, typer.Option(help="loss, precision, ncp, entropy, discernibility, ...")] = "loss",
    weight: Annotated[list[str] | None, typer.Option(help="COLUMN=WEIGHT in the measure.")] = None,
    form: Annotated[str, typer.Option(help="text, bounds (two columns of numbers), sets or json.")] = "text",
    suppressed: Annotated[str, typer.Option(help="drop suppressed rows, or star them.")] = "drop",
    person: Annotated[
        str | None, typer.Option(help="Count people instead of rows: the column that tells them apart.")
    ] = None,
    count_rows: Annotated[bool, typer.Option("--count-rows", help="Count k in rows, whatever the policy.")] = False,
    keep_order: Annotated[bool, typer.Option("--keep-order", help="Leave rows in the table's own order.")] = False,
    population: Annotated[str | None, typer.Option(help="The population's table, for k-map and presence.")] = None,
    seconds: Annotated[float | None, typer.Option(help="Stop searching after so long, with a certified gap.")] = None,
    earlier: Annotated[Path | None, typer.Option(help="Recoding of an earlier release, checked with this one.")] = None,
    refuse_composition: Annotated[bool, typer.Option(help="Refuse when both together fall below k.")] = False,
    target: Annotated[str | None, typer.Option(help="Tell how well this column is predicted from the release.")] = None,
    top: Annotated[list[str] | None, typer.Option(help="COLUMN=NUMBER: this and more is one value.")] = None,
    bottom: Annotated[list[str] | None, typer.Option(help="COLUMN=NUMBER: this and less is one value.")] = None,
    grid: Annotated[
        str | None, typer.Option(help="LATITUDE,LONGITUDE (of trips of both ends): a map of cells with k rows.")
    ] = None,
    digits: Annotated[int, typer.Option(help="Decimals of the grid; 2 is about a kilometer.")] = 2,
    time: Annotated[str | None, typer.Option(help="With --grid: a column of times, which --every cuts.")] = None,
    every: Annotated[str | None, typer.Option(help="With --time: minute, hour, day, week or month.")] = None,
    update: Annotated[Path | None, typer.Option(help="A release to which SOURCE adds rows.")] = None,
    draft: Annotated[bool, typer.Option("--draft", help="Print hierarchies to begin with, and stop.")] = False,
    report: Annotated[Path | None, typer.Option(help="Also write a page with the lattice.")] = None,
    ledger: LedgerOption = None,
    encoding: Encoding = None,
    as_json: JsonFlag = False,
) -> None:
    """Make a k-anonymous release with the least loss of information, or add rows to an earlier release."""
    if draft:
        return _draft_hierarchies(source, qi, as_json)
    from deniable.curator.anonymize import run
    from deniable.curator.anonymize.request import Order
    from deniable.curator.publish import RECORDED, tell_charge

    place = _find_ledger(policy, ledger) if policy else None
    order = Order(
        source,
        out,
        policy,
        table,
        _split_names(qi),
        _split_names(sensitive),
        _split_names(identifier),
        _read_demands(k, l, t, model, suppress),
        _read_hierarchies(hierarchy),
        method,
        measure,
        _read_numbers(weight, "--weight"),
        form,
        suppressed,
        population,
        seconds,
        earlier,
        refuse_composition,
        target,
        {"top": _read_numbers(top, "--top"), "bottom": _read_numbers(bottom, "--bottom")},
        place,
        encoding,
        _read_kept(keep, policy),
        keep_order=keep_order,
        person=person,
        count_rows=count_rows,
    )
    if update is not None:
        return _update_release(update, order, as_json)
    if out is None:
        raise ParameterError("No output is named", remedy="Say --out FILE")
    if grid is not None:
        return _release_map(order, _split_names(grid), digits, as_json, time, every)
    if time is not None or every is not None:
        raise ParameterError("--time and --every go with --grid", remedy="Leave them out, or say --grid")
    noted = RECORDED if policy is not None else ""
    with watch_stop(), claim_outputs(out, pages=[report], rows=True), show_progress("Anonymizing") as told:
        made = run.anonymize(order, told)
        with tell_charge(noted):
            _write_page(report, made, measure, order)
    return emit_lines(made, as_json, lambda: _describe_release(made))


def _find_ledger(policy: Path, ledger: str | None) -> str:
    from deniable.curator.context import ledger_of

    return ledger_of(policy, ledger)


def _read_kept(keep: str | None, policy: Path | None) -> tuple[str, ...] | None:
    """The columns that are released as they are; a policy says so by their roles."""
    if keep is not None and policy is not None:
        raise ParameterError("--keep goes without a policy", remedy="Declare role: insensitive in the policy instead")
    return _split_names(keep) or None


def check(
    source: Annotated[str, typer.Argument(help="The table to check.")],
    qi: Qi = None,
    sensitive: Sensitive = None,
    keep: Annotated[str | None, typer.Option(help="Columns that are neither, separated by commas.")] = None,
    k: Annotated[int | None, typer.Option(help="Fail when k is lower.")] = None,
    l: Annotated[list[str] | None, typer.Option("--l", help="COLUMN=NUMBER: fail when l is lower.")] = None,  # noqa: E741
    t: Annotated[list[str] | None, typer.Option("--t", help="COLUMN=DISTANCE: fail when t is higher.")] = None,
    model: Annotated[list[str] | None, typer.Option(help="KIND:NAME=VALUE,...: fail when it does not hold.")] = None,
    hierarchy: Annotated[list[str] | None, typer.Option(help="Of a sensitive COLUMN, for distances along it.")] = None,
    population: Annotated[str | None, typer.Option(help="People with cells as in the table, for k-map.")] = None,
    fraction: Annotated[float | None, typer.Option(help="The share of the population in the table.")] = None,
    person: Annotated[str | None, typer.Option(help="The column that tells people apart, to count people.")] = None,
    releases: Annotated[str | None, typer.Option(help="Two recodings of this table, to check together.")] = None,
    encoding: Encoding = None,
    as_json: JsonFlag = False,
) -> None:
    """Measure k, l, t and the risks of a table as it stands, or what two releases of it tell together."""
    from deniable.curator.anonymize import check as anonymize_check

    if releases is not None:
        both = [Path(name) for name in _split_names(releases)]
        if len(both) != 2:
            raise ParameterError(f"{len(both)} releases are named", expected="Two recodings, separated by a comma")
        together = anonymize_check.check_together(source, *both)
        return emit_lines(together, as_json, lambda: _describe_together(together))
    least, most = _read_numbers(l, "--l"), _read_numbers(t, "--t")
    named = tuple(dict.fromkeys((*_split_names(sensitive), *least, *most)))
    kept = _split_names(keep)
    models, trees = tuple(_read_model(text) for text in model or ()), _read_hierarchies(hierarchy)
    rest: Any = {"fraction": fraction, "encoding": encoding, "hierarchies": trees, "population": population}
    rest |= {"person": person, "asked": _read_demands(k, l, t, None, None)}
    found = anonymize_check.check(source, _split_names(qi), named, keep=kept, models=models, **rest)
    failed = anonymize_check.unmet(found, k, least, most)
    emit_lines(found, as_json, lambda: _describe_findings(found, failed), unmet=failed)
    if failed:
        raise typer.Exit(2)
    return None


def _draft_hierarchies(source: str | None, qi: str | None, as_json: bool) -> None:
    from deniable.curator.anonymize import run

    drafted = run.draft(_require_source(source), _split_names(qi))
    emit_lines(drafted, as_json, lambda: _describe_draft(drafted))


def _update_release(release: Path, order: Order, as_json: bool) -> None:
    from deniable.curator.anonymize import run

    _require_source(order.source)
    with watch_stop():
        found = run.update(release, order)
    emit_lines(found, as_json, lambda: _describe_update(found))


def _release_map(
    order: Order, columns: tuple[str, ...], digits: int, as_json: bool, time: str | None, every: str | None
) -> None:
    from deniable.curator.anonymize import run

    with watch_stop():
        made = run.release_map(order, columns, digits, time=time, every=every)
    told = f"{made['cells']} cells written to {made['output']}; {made['dropped']} of {made['rows']} rows dropped"
    emit_lines(made, as_json, lambda: [told, *(f"beware: {warning}" for warning in made["warnings"])])


def _require_source(source: str | None) -> str:
    if source is None:
        raise ParameterError("No table is named", remedy="Name a CSV, Parquet or Arrow file")
    return source


def _split_names(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip()) if text else ()


def _read_numbers(pairs: list[str] | None, option: str) -> dict[str, int | float]:
    try:
        read = {name: _read_number(value) for name, value in (pair.rsplit("=", 1) for pair in pairs or ())}
        if all(map(math.isfinite, read.values())):
            return read
    except ValueError:
        pass
    raise ParameterError(f"{option} was given wrongly", expected=f"{option} COLUMN=NUMBER")


def _read_demands(
    k: int | None,
    l: list[str] | None,  # noqa: E741
    t: list[str] | None,
    models: list[str] | None,
    suppress: float | None,
) -> Asked:
    """What the command line asks; what it does not say is left to the policy."""
    from deniable.curator.anonymize.request import Asked
    from deniable.policy.budget import exact

    return Asked(
        k,
        {name: exact(value) for name, value in _read_numbers(l, "--l").items()},
        {name: exact(value) for name, value in _read_numbers(t, "--t").items()},
        tuple(_read_model(text) for text in models or ()),
        None if suppress is None else exact(suppress),
    )


def _read_model(text: str) -> Spec:
    from deniable.policy.schema import Spec

    kind, _, rest = text.partition(":")
    try:
        return Spec(kind, dict(pair.split("=", 1) for pair in rest.split(",") if pair))
    except ValueError:
        raise ParameterError("--model was given wrongly", expected="--model KIND:NAME=VALUE,NAME=VALUE") from None


def _read_hierarchies(pairs: list[str] | None) -> dict[str, Spec]:
    """COLUMN=FILE.csv is a tree; COLUMN=KIND:A,B,C says a kind of hierarchy with its levels."""
    try:
        return {name: _read_hierarchy(words) for name, words in (pair.split("=", 1) for pair in pairs or ())}
    except ValueError:
        expected = "--hierarchy COLUMN=FILE.csv or COLUMN=KIND:LEVEL,LEVEL"
        raise ParameterError("--hierarchy was given wrongly", expected=expected) from None


def _read_hierarchy(words: str) -> Spec:
    from deniable.policy.schema import Spec

    kind, colon, rest = words.partition(":")
    if not colon or Path(words).exists():
        return Spec("tree", {"file": words})
    from deniable.policy.layout.hierarchies import HIERARCHIES

    known = HIERARCHIES.kind(kind)
    if known is None or not known.short:
        kinds = [each.name for each in HIERARCHIES.kinds if each.short]
        expected = f"A file with one line a leaf, or KIND:LEVEL,LEVEL with one of {', '.join(kinds)}"
        raise ParameterError(f"There is no hierarchy '{kind}'", expected=expected, remedy=nearest(kind, kinds))
    levels = tuple(_read_level(level) for level in rest.split(","))
    alone = kind in ("redact", "standard") or rest == "ages"
    if not alone:
        _refuse_levels(kind, known.option(known.short).shape, levels)
    return Spec(kind, {known.short: rest if alone else levels})


def _refuse_levels(kind: str, shape: Shape, levels: Sequence[int | float | str]) -> None:
    """Refuse levels that are no numbers, or too small ones, where the hierarchy is made of numbers."""
    from deniable.policy.grammar import Amount, Either, ListOf, Whole

    shapes = shape.shapes if isinstance(shape, Either) else (shape,)
    item = next((each.item for each in shapes if isinstance(each, ListOf)), None)
    if not isinstance(item, Whole | Amount):
        return
    least = item.least if isinstance(item, Whole) or item.above is None else item.above
    strict = isinstance(item, Amount) and item.above is not None
    for level in levels:
        wanted = int if isinstance(item, Whole) else (int, float)
        number = level if isinstance(level, wanted) else math.nan
        if math.isfinite(number) and (least is None or number > least or (number == least and not strict)):
            continue
        floor = "" if least is None else f", {'above' if strict else 'at least'} {least}"
        expected = f"{'Whole numbers' if isinstance(item, Whole) else 'Numbers'}{floor}, separated by commas"
        raise ParameterError(f"A level of the hierarchy '{kind}' is '{level}'", expected=expected)


def _read_level(text: str) -> int | float | str:
    try:
        return _read_number(text)
    except ValueError:
        return text


def _read_number(text: str) -> int | float:
    """A whole number with all its digits, others as floats."""
    return int(text) if text.strip().lstrip("-").isdigit() else float(text)


def _write_page(path: Path | None, made: Mapping[str, Any], measure: str, order: Order) -> None:
    if path is not None:
        import json

        from deniable.curator.anonymize.explore import show_released
        from deniable.reports.page import write
        from deniable.reports.tradeoffs import build_lattice_page

        beside = Path(f"{made.get('output')}.recoding.json")
        recoding = json.loads(beside.read_text(encoding="utf-8")) if beside.exists() else None
        names, rows = show_released(order, Path(str(made.get("output"))))
        write(build_lattice_page(made, measure, recoding, (names, rows)), path)


def _describe_release(made: Mapping[str, Any]) -> Iterator[str]:
    yield f"{made['released']:,} of {pluralize(made['rows'], 'row')} written to {made['output']}"
    yield f"  {made['suppressed']:,} suppressed, {pluralize(made['classes'], 'class')}"
    for model in made["models"]:
        yield f"  {model}"
    for name, level in made.get("levels", {}).items():
        yield f"  {name}: level {level}"
    if risk := made.get("risk"):
        before, after = (risk[when]["prosecutor"]["at_risk"] for when in ("before", "after"))
        yield f"  rows at risk (in classes of fewer than 5): {before:.1%} before, {after:.1%} after"
    if joint := made.get("joint"):
        yield f"  {joint['words']}"
    yield from _describe_attacks(made)
    if learned := made.get("accuracy"):
        told = f"{learned['released']:.1%} from the release, {learned['original']:.1%} from the original"
        yield f"  {learned['target']} predicted: {told}, {learned['commonest']:.1%} blindly"
    if proof := made.get("proof"):
        told = "optimal" if proof["optimal"] else f"within {proof['gap']:.4g} of the optimum"
        yield f"  {told}: {proof['checks']} of {proof['nodes']} combinations of levels checked"
    for sentence in made["warnings"]:
        yield f"  Warning: {sentence}."
    if together := made.get("composition"):
        yield from _describe_together(together)


def _describe_findings(found: Mapping[str, Any], failed: list[str]) -> Iterator[str]:
    yield f"k = {found['k']}   {pluralize(found['classes'], 'class')} of {pluralize(found['rows'], 'row')}"
    for column in found["sensitive"]:
        line = (
            f"{column['column']}: l = {column['distinct_l']} (entropy {column['entropy_l']:.2f}), t = {column['t']:.4f}"
        )
        ordered = "" if column["ordered_t"] is None else f" (ordered {column['ordered_t']:.4f})"
        yield f"{line}{ordered}, certain for {column['certain']:.1%} of rows"
    if found["joint"] is not None:
        yield found["joint"]["words"]
    if found["policy"] is not None:
        yield f"These rows have a policy that was accepted, {found['policy']}; what it asks was not measured here"
    risks = found["risks"]
    yield (
        f"prosecutor: highest {risks['prosecutor']['highest']:.1%}, mean {risks['prosecutor']['mean']:.1%}, "
        f"{risks['prosecutor']['at_risk']:.1%} of rows at risk (in classes of fewer than 5)   "
        f"marketer: {risks['marketer']:.1%}   unique: {risks['sample_uniqueness']:.1%}"
    )
    guess = risks["bayesian"]
    told = f"one guess of a Bayesian intruder: {guess['score']:.1%} right (prior: {guess['prior']})"
    yield told
    if found["uniqueness"]:
        zayatz, pitman = found["uniqueness"]["zayatz"], found["uniqueness"]["pitman"]
        yield f"unique in the population: {zayatz:.1%} (Zayatz), {pitman:.1%} (Pitman)"
    for one in found["properties"]:
        asked = ", ".join(f"{name} = {value}" for name, value in one["parameters"].items())
        told = (
            f", measured {one['measured']:.4g}" if one["measured"] is not None else f", {one.get('note', 'no figure')}"
        )
        yield f"{one['name']} ({asked}): {'holds' if one['holds'] else 'fails'}{told}"
    for blamed in found["blame"][:3]:
        yield f"without {blamed['column']}: {blamed['at_risk_without']:.1%} at risk"
    for sentence in failed:
        yield f"not met: {sentence}"


def _describe_together(found: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"Both releases together: groups of {found['k']} rows at least, {found['exposed']} rows in groups under "
        f"{found['asked_k']}, {found['singled_out']} singled out with exact values"
    )
    for column, rows in ((name, rows) for name, rows in found["certain"] if rows):
        yield f"  {column} becomes certain for {rows} rows"


def _describe_update(found: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"{found['shown']} of {found['rows']} new rows may be shown ({found['new_classes']} new classes, "
        f"{found['grown_classes']} grown); {found['waiting']} wait for more of their kind"
    )
    if found["search_again"]:
        yield "The recoding no longer serves: anonymize the whole table again."
    if joint := found["joint"]:
        yield f"  {joint['words']}"
    yield from _describe_attacks(found)
    for sentence in found["warnings"]:
        yield f"  Warning: {sentence}."


def _describe_attacks(made: Mapping[str, Any]) -> Iterator[str]:
    if attacks := made.get("attacks"):
        from deniable.cli.attack import describe_limited

        yield from (f"  {line}" for line in describe_limited(attacks))


def _describe_draft(drafted: Mapping[str, Any]) -> Iterator[str]:
    for name, spec in drafted["hierarchies"].items():
        kept = "(no hierarchy: kept as it is, or the row is left out)"
        words = kept if spec is None else f"{{hierarchy: {spec}}}".replace("'", "")
        yield f"{name}: {words}"
