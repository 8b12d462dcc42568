"""Write the reference pages from the code, and the figures from the last runs of the benchmarks.

Run by `make docs`. A test compares the committed pages with what these functions say, so they are never out of date.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from deniable import errors
from deniable.policy.grammar import Either, Field, Kind, Kinds, ListOf, Named, Record, Shape, describe
from deniable.policy.layout import policy_file, release
from deniable.policy.layout.hierarchies import BRACKETS, HIERARCHIES
from deniable.policy.layout.masks import MASKS, PRESETS
from deniable.policy.yaml_tree import DEEPEST, MOST_BYTES, MOST_VALUES
from deniable.query.algebra.functions import AGGREGATE_FORMS, FUNCTION_FORMS, FUNCTIONS
from deniable.query.sql.clauses import OPTIONS
from deniable.server import refusals, survey

sys.path.append(str(Path(__file__).parents[1] / "bench"))

import _record

REFERENCE = Path(__file__).parent / "reference"
NOTE = "<!-- Written by docs/generate.py from the code: change the code, then run `make docs`. -->\n"


def policy_page() -> str:
    """Every key of a policy file: what it may be, what it means, and its default."""
    lines = [
        "# The policy file\n",
        NOTE,
        "One YAML file says what is protected, for whom, and how much. `deniable policy check FILE` reads it and lists",
        "every mistake with its line; `deniable policy schema` prints a JSON Schema for editors. How to write one:",
        "[write a policy](../how-to/write-a-policy.md).\n",
        "Values are read by the type that is wanted and not by YAML's guess: where text is wanted, `NO` and `02138`",
        "are text; where a number is wanted, `02138` is refused. Numbers are exact: `0.1` is one tenth and `1e-6` one",
        f"millionth. A file has at most {MOST_BYTES >> 10} KiB, {MOST_VALUES} values and {DEEPEST} levels; long lists",
        "go into files of their own. Anchors, aliases and `<<` are understood.\n",
    ]
    for record in _records(policy_file.POLICY, []):
        lines += _section(record)
    lines += _kinds("Masks", MASKS) + _presets() + _kinds("Hierarchies", HIERARCHIES) + _brackets()
    lines += _kinds("Privacy models", release.MODELS) + _kinds("Truths", release.TRUTHS)
    return "\n".join(lines).rstrip() + "\n"


def _records(shape: Shape, seen: list[Record]) -> list[Record]:
    """The records of a layout, each before those inside it; kinds have chapters of their own."""
    match shape:
        case Record() if shape not in seen:
            seen.append(shape)
            for field in shape.fields:
                _records(field.shape, seen)
        case Named(item) | ListOf(item):
            _records(item, seen)
        case Either(shapes):
            for each in shapes:
                _records(each, seen)
    return seen


def _section(record: Record) -> list[str]:
    lines = [f"## {record.name}\n", f"{record.meaning}\n" if record.meaning else ""]
    return [*(line for line in lines if line), *_fields(record.fields), *_alternatives(record.exactly_one)]


def _fields(fields: tuple[Field, ...]) -> list[str]:
    rows = [
        f"| `{field.name}` | {_cell(describe(field.shape))} | {_cell(field.meaning)} | {_cell(_default(field))} |"
        for field in fields
    ]
    return ["| key | value | meaning | if left out |", "|---|---|---|---|", *rows, ""]


def _default(field: Field) -> str:
    return "refused" if field.required else field.default or "none"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\t", "tab")


def _alternatives(exactly_one: tuple[tuple[str, ...], ...]) -> list[str]:
    sets = [" with ".join(f"`{name}`" for name in names) for names in exactly_one]
    return [f"Exactly one is given: {', or '.join(sets)}.\n"] if sets else []


def _kinds(title: str, kinds: Kinds) -> list[str]:
    return [f"## {title}\n", *(line for kind in kinds.kinds for line in _kind(kind))]


def _kind(kind: Kind) -> list[str]:
    types = f" For columns of type {' or '.join(kind.types)}." if kind.types else ""
    lines = [f"### {kind.name}\n", f"{kind.meaning}{types} Example: `{kind.example}`.\n"]
    if kind.short:
        lines.append(f"A value alone is its `{kind.short}`.\n")
    return lines + (_fields(kind.fields) + _alternatives(kind.exactly_one) if kind.fields else [])


def _presets() -> list[str]:
    rows = [f"| `{p.name}` | {p.meaning} | `{p.find.replace('|', chr(92) + '|')}` | `{p.put}` |" for p in PRESETS]
    return ["### Presets of regex\n", "| preset | meaning | find | put |", "|---|---|---|---|", *rows, ""]


def _brackets() -> list[str]:
    rows = [f"| `{name}` | {', '.join(map(str, edges))} |" for name, edges in BRACKETS.items()]
    return ["### Known brackets\n", "| name | edges |", "|---|---|", *rows, ""]


def errors_page() -> str:
    """Every class of refusal with its code, exit code and meaning."""
    rows = [
        f"| `{kind.code}` | `{kind.__name__}` | {kind.exit_code} | {_cell(inspect.getdoc(kind) or '')} |"
        for kind in _refusals(errors.DeniableError)
    ]
    served = [
        each for each in vars(refusals).values() if inspect.isclass(each) and each.__module__ == refusals.__name__
    ]
    further = [
        f"| `{each.code}` | {refusals.HTTP_STATUS.get(each.code, '')} | {_cell(inspect.getdoc(each) or '')} |"
        for each in served
        if issubclass(each, errors.DeniableError)
    ]
    return "\n".join(
        [
            "# Errors\n",
            NOTE,
            "A refusal says what happened, what was expected, how to go on, and whether anything was charged. It never",
            "holds a value taken from the data. With `--json` it is one document: `error` (the code), `happened`,",
            "`expected`, `remedy`, `charged`, `message` (all of it in one paragraph), and `source`, `line`, `column`",
            "where it points into a text; `unknown` is `table` or `column` where a question names one that is not",
            "there. The server answers with the same fields.\n",
            "| code | class | exit code | meaning |",
            "|---|---|---|---|",
            *rows,
            "",
            "A server has further refusals. The status of HTTP stands beside each code.\n",
            "| code | status | meaning |",
            "|---|---|---|",
            *further,
            "",
        ]
    )


def _refusals(kind: type[errors.DeniableError]) -> Iterator[type[errors.DeniableError]]:
    """All refusals of the errors module, in the order in which they are written there."""
    yield from sorted(
        (each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, kind)),
        key=lambda each: inspect.getsourcelines(each)[1],
    )


def cli_page() -> str:
    """Every command with its arguments, options and examples."""
    import typer.main

    from deniable.cli.main import app

    root = typer.main.get_command(app)
    lines = ["# The command line\n", NOTE, f"{_help(root)}\n", "Exit codes: 0 done, 2 refused by policy or bad input,"]
    lines += ["3 a bug of ours. Refusals go to standard error, results to standard output.\n"]
    for path, command in _commands(root, "deniable"):
        lines += [f"## {path}\n", f"{_help(command)}\n", *_parameters(command), *_examples(command)]
    return "\n".join(lines).rstrip() + "\n"


def _commands(command: object, path: str) -> Iterator[tuple[str, object]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield path, command
        return
    for name in sorted(inner):
        if not inner[name].hidden:
            yield from _commands(inner[name], f"{path} {name}")


def _help(command: object) -> str:
    return inspect.cleandoc(str(getattr(command, "help", None) or "")).replace("\b\n", "")


def _examples(command: object) -> list[str]:
    """The lines below a command's options, shown and not run."""
    told = inspect.cleandoc(str(getattr(command, "epilog", None) or "").replace("\b\n", ""))
    lines = [line.removeprefix("Example: ").rstrip() for line in told.splitlines() if line.strip() != "Examples:"]
    return ["```text", *(line.removeprefix("  ") for line in lines), "```\n"] if lines else []


def _parameters(command: object) -> list[str]:
    """A table of arguments and options; those that every command has are left out."""
    rows = []
    for parameter in command.params:  # type: ignore[attr-defined]
        if parameter.name == "help":
            continue
        is_argument = parameter.param_type_name == "argument"
        opts = [*parameter.opts, *parameter.secondary_opts]
        written = str(parameter.name).upper() if is_argument else ", ".join(opts)
        needed = "required" if parameter.required else _shown_default(parameter)
        rows.append(f"| `{written}` | {_cell(parameter.help or '')} | {needed} |")
    return ["| argument or option | meaning | if left out |", "|---|---|---|", *rows, ""] if rows else []


def _shown_default(parameter: object) -> str:
    default = getattr(parameter, "default", None)
    if callable(default) or default in (None, (), [], False):
        return "off" if default is False else "none"
    return f"`{'on' if default is True else default}`"


def sql_page() -> str:
    """Every aggregate, function and option of a question in SQL."""
    lines = [
        "# SQL: aggregates, functions, options\n",
        NOTE,
        "What a question may use. How questions are answered: [DP SQL](../topics/sql.md). Everything else is refused",
        "before any data is touched. In the forms `x` and `y` are numbers, `t` is a text, `d` a date, `c` a",
        "condition.\n",
        "## Aggregates over people\n",
        "| aggregate | gives | is measured as |",
        "|---|---|---|",
        *(f"| `{form}` | {_cell(meaning)} | {measured} |" for form, meaning, measured in AGGREGATE_FORMS),
        "",
        "## Functions of a row\n",
        "All are total: a division by zero, a logarithm of zero or a text that is no number gives null, no error.\n",
        ", ".join(f"`{FUNCTION_FORMS[name]}`" for name in FUNCTIONS)
        + ", `x BETWEEN y AND y`, `IF(c, x, y)`, `t || t`, `d + 30`.\n",
        "## Options\n",
        "After `SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (name = value, ...)`: "
        + ", ".join(f"`{name}`" for name in OPTIONS)
        + ". Inside an aggregate: `contribution_bounds_per_group => (low, high)`. At the end: `WITHIN 100`,",
        "`WITHIN 5% OF 20000`, each with `CONFIDENCE 0.95` if wanted; `CONTRIBUTION AUTO`, with `SHARE 0.2` if wanted,",
        "or `CONTRIBUTION (max_groups_contributed = 3, max_rows_per_group = 2)`.\n",
    ]
    return "\n".join(lines).rstrip() + "\n"


def survey_files_page() -> str:
    """The hashes of the files that a survey's page is made of."""
    served = survey.list_files()
    lines = [
        "# The files of a survey's page\n",
        NOTE,
        "Every survey of this version serves these files, and no other script or style; its page names their hashes,",
        "and browsers run none that differs. Compare them with the `integrity` attributes in the source of a page that",
        "you are asked to trust. What a survey asks is pinned by its link:",
        "[run a survey](../how-to/run-a-survey.md).\n",
        "| file | hash |",
        "|---|---|",
        *(f"| `/{name}` | `{survey.compute_integrity(content)}` |" for name, (content, _) in served.items()),
    ]
    return "\n".join(lines) + "\n"


ON_REQUEST = "`POST /v1/requests`, which the steward approves"
STEWARD = "none: it reads the steward's own rows, and its outcome is for the steward"
FILES = "none: it works on files of the caller's machine"
ONE_PLACE = "none: it is done before a server exists"
SHELL = "none: it is done once, by hand"
AT_LEDGER = "none: it is done on the machine of the ledger"
KEYS = "none: keys never leave the steward's machine"
SERVED = "none: it is a server of its own"
PAGES = "none: it writes pages for people"
VERBS: tuple[tuple[str, str, str, str], ...] = (
    ("ask a question in SQL", "Curator.query", "query", "POST /v1/query"),
    ("ask several questions with one budget", "Curator.query_batch", "query --together", "POST /v1/batch"),
    ("show what a question measures and costs", "Curator.explain", "query --explain", "POST /v1/explain"),
    ("show how much of your budget a question would use", "Curator.preview", "query --explain", "POST /v1/preview"),
    (
        "the error of a question against epsilon",
        "Curator.error_curve",
        "query --curve PAGE.html",
        "none: ask `/v1/explain` at each epsilon",
    ),
    ("ask by methods instead of SQL", "Curator.table", "none: the command line has SQL", "none: HTTP has SQL"),
    ("find bounds of a column with noise", "Curator.find_bounds", "bounds", "`AUTO_CLAMP` in `POST /v1/query`"),
    ("the largest groups", "Curator.top", "top", "`ORDER BY ... LIMIT` in `POST /v1/query`"),
    ("a tree of counts that add up", "Curator.hierarchy", "hierarchy", "`ROLLUP` in `POST /v1/query`"),
    ("tables of counts that agree", "Curator.margins", "margins", "`GROUPING SETS` in `POST /v1/query`"),
    ("weighted estimates of a survey", "Curator.weighted", "weighted", "`SUM(weight * column)` in `POST /v1/query`"),
    ("tell when a count passes a threshold", "Curator.watch", "watch", "none: a watch lives as long as its process"),
    (
        "any function, on blocks of people",
        "Curator.sample_and_aggregate",
        "sample-and-aggregate",
        "none: the function sees rows",
    ),
    ("publish a series of counts as time goes on", "Curator.publish", "publish", "POST /v1/streams/{stream}"),
    ("counts by area and cell that add up", "Curator.tabulate", "tabulate", "POST /v1/tabulations/{tabulation}"),
    ("a statistic of a network, or a made network", "Curator.network", "network", "POST /v1/network"),
    ("a map of places, or flows between regions", "Curator.places", "places", "POST /v1/places"),
    ("new traces of people", "Curator.traces", "places --traces", "none: the steward draws them"),
    ("mask identifiers", "Curator.mask", "mask", ON_REQUEST),
    ("make rows k-anonymous", "Curator.anonymize", "anonymize", ON_REQUEST),
    ("measure k, l, t and risks of a table", "Curator.check", "check", STEWARD),
    ("learn a synthetic model", "Curator.describe", "describe", ON_REQUEST),
    ("write synthetic rows", "Curator.synthesize", "synthesize", ON_REQUEST),
    ("draw rows of a model", "Curator.generate", "generate", FILES),
    ("show what a model measured", "Curator.inspect", "inspect", FILES),
    ("which findings hold on synthetic rows", "Curator.parity", "parity", STEWARD),
    ("learn a model that predicts", "Curator.train", "train", "none: models are made by the steward"),
    ("plan a sum over tables of several owners", "Curator.plan_round", "federate plan", "none: a file for all clients"),
    ("take part in such a sum", "Curator.join_round", "federate join", "a server of its own: `federate serve`"),
    ("predict with a model", "Curator.predict", "predict", FILES),
    ("randomize each record", "Curator.randomize", "randomize", "none: rows leave through requests"),
    ("recover counts from randomized records", "Curator.estimate", "estimate", FILES),
    (
        "the results of a survey",
        "Curator.survey",
        "survey results",
        "none: whoever holds the survey's store reads them",
    ),
    ("find identifiers in a table", "Curator.scan", "scan", STEWARD),
    ("attack a release", "Curator.attack", "attack", STEWARD),
    ("test a claimed epsilon", "Curator.audit", "audit", FILES),
    ("check a released file and its promise", "Curator.release", "release verify", FILES),
    ("the public register", "Curator.register", "register", "GET /v1/register"),
    ("what is spent and left", "Curator.balance", "ledger show", "GET /v1/remaining"),
    ("begin a new epoch", "Curator.new_epoch", "epoch new", "POST /v1/epoch"),
    ("resume a paused analyst", "Curator.resume", "resume", "POST /v1/analysts/{analyst}/resume"),
    ("open a table in memory or in a file, without a policy file", "Curator.from_frame", "start", ONE_PLACE),
    ("open a policy", "Curator.open", "policy check", ONE_PLACE),
    ("write down a policy", "Curator.save_policy", "policy init", ONE_PLACE),
    ("ask for a release of rows", "steward.request", "request", "POST /v1/requests"),
    ("decide on a request", "steward.decide", "approve", "POST /v1/requests/{request}/approve"),
    ("exclude a person from now on", "steward.withdraw", "withdraw", "POST /v1/withdrawals"),
    ("include a person again", "steward.reinstate", "reinstate", "POST /v1/reinstatements"),
    ("tell a person where their rows were used", "steward.subject", "subject", "POST /v1/subject"),
    ("show and acknowledge terms", "steward.show_terms", "terms", "GET /v1/terms"),
    ("give out tokens", "steward.new_token", "token new", "POST /v1/tokens"),
    ("check that the ledger was not changed", "steward.verify", "ledger verify", "GET /v1/verify"),
    (
        "show what several questions cost together",
        "Curator.explain_batch",
        "query --together",
        "POST /v1/batch/explain",
    ),
    ("show what a map costs", "Curator.explain_places", "places --explain", "POST /v1/places/explain"),
    (
        "show what a statistic of a network costs",
        "Curator.explain_network",
        "network --explain",
        "POST /v1/network/explain",
    ),
    (
        "show what a tabulation costs",
        "Curator.explain_tabulate",
        "tabulate --explain",
        "GET /v1/tabulations/{tabulation}/explain",
    ),
    ("read what a stream published", "Curator.publish", "publish --until", "GET /v1/streams/{stream}"),
    (
        "read the totals that a tabulation published",
        "Curator.tabulate",
        "tabulate --totals",
        "GET /v1/tabulations/{tabulation}",
    ),
    (
        "read the cells that a tabulation published",
        "Curator.tabulate",
        "tabulate --out",
        "GET /v1/tabulations/{tabulation}/cells",
    ),
    ("see the public schema", "Connection.schema", "policy check", "GET /v1/schema"),
    ("get invented rows of a table's shape", "Connection.dummies", "generate", "GET /v1/schema/{table}/dummies"),
    ("take back a question that is waiting", "Connection.cancel", "none: Ctrl-C", "DELETE /v1/queries/{request}"),
    ("list one's own releases", "Connection.releases", "register", "GET /v1/releases"),
    ("get the receipt of a release", "Connection.receipt", "release show", "GET /v1/receipts/{release}"),
    ("list requests", "steward.requests", "requests", "GET /v1/requests"),
    ("decline a request", "steward.decide", "decline", "POST /v1/requests/{request}/decline"),
    ("make an approved release", SHELL, "fulfill", "POST /v1/requests/{request}/make"),
    (
        "get a table of a release that was made",
        "Connection.download",
        "fulfill --out",
        "GET /v1/requests/{request}/tables/{table}",
    ),
    ("acknowledge terms", "steward.show_terms", "terms --acknowledge", "POST /v1/terms"),
    ("list tokens", "steward.list_tokens", "token list", "GET /v1/tokens"),
    ("end a token", "steward.revoke_token", "token revoke", "DELETE /v1/tokens/{token}"),
    ("pause a token", "steward.pause_token", "token pause", "POST /v1/tokens/{token}/pause"),
    ("resume a token", "steward.pause_token", "token resume", "POST /v1/tokens/{token}/unpause"),
    ("see all budgets", "steward.show", "ledger show", "GET /v1/budgets"),
    ("read the record", "steward.export", "ledger export", "GET /v1/audit"),
    ("see what is unusual", "steward.incidents", "ledger incidents", "GET /v1/incidents"),
    ("see the epoch and its sources", "steward.show_epoch", "epoch show", "GET /v1/epoch"),
    ("note how far the ledger is, for a witness", "steward.show_head", "ledger head", AT_LEDGER),
    ("back up the ledger", "steward.back_up", "ledger backup", AT_LEDGER),
    ("restore it", "steward.restore", "ledger restore", AT_LEDGER),
    ("state what lost entries spent", "steward.settle", "ledger settle", AT_LEDGER),
    ("give a policy a budget of its own", "steward.separate", "ledger separate", AT_LEDGER),
    ("forget the answers of an expired policy", "steward.purge", "purge", AT_LEDGER),
    ("all policies of a folder together", SHELL, "estate", AT_LEDGER),
    ("accept a policy, so that one that protects less is refused", SHELL, "policy accept", ONE_PLACE),
    ("draft a policy from another tool's file", SHELL, "policy import", FILES),
    ("the JSON Schema of policies, for editors", SHELL, "policy schema", "none: it is part of the site"),
    ("make a masking key", SHELL, "key new", KEYS),
    ("check a masking key", SHELL, "key check", KEYS),
    ("replace a masking key", SHELL, "key rotate", KEYS),
    ("see how many values a vault holds", SHELL, "vault show", KEYS),
    ("turn tokens back into values", SHELL, "vault reveal", KEYS),
    ("check tables of counts before they are published without noise", SHELL, "release tables", FILES),
    ("a searchable page of what a release holds", PAGES, "release catalog", FILES),
    ("the draft of an expert determination", PAGES, "release expert", FILES),
    ("the least epsilon at which randomized records train a model", SHELL, "ladder", STEWARD),
    ("check a survey's file", SHELL, "survey check", FILES),
    ("serve a survey", SERVED, "survey serve", SERVED),
    ("print links that let one person answer once", SHELL, "survey invite", FILES),
    ("serve a round of a federated sum", SERVED, "federate serve", SERVED),
    ("serve a policy", SERVED, "serve", "`GET /health` and `GET /ready` say how it is"),
    ("let an AI assistant ask", SERVED, "mcp", "`/mcp`, with the same tools"),
    ("generate people to try things on", SHELL, "world make", FILES),
    ("list the generated worlds", SHELL, "world list", FILES),
    ("the story of one town", PAGES, "demo", FILES),
    ("the lessons", PAGES, "learn", SERVED),
)
"""What can be done, with its name in Python, at the command line and over HTTP; `none` comes with its reason.

`steward` is `deniable.curator.governance.steward`."""


def verbs_page() -> str:
    """One table of everything that can be done, in Python, at the command line and over HTTP."""
    rows = [
        f"| {what} | {_code(python)} | {_code(f'deniable {cli}', cli)} | {_code(http)} |"
        for what, python, cli, http in VERBS
    ]
    return "\n".join(
        [
            "# Tasks in Python, command line and HTTP\n",
            NOTE,
            "Each row is one task. `steward` is `deniable.curator.governance.steward`; `Connection` is what `connect`",
            "returns. Signatures: [Python](python.md); options: [command line](cli.md). In all three a refusal has the",
            "same fields: [errors](errors.md). Over HTTP the steward's own tasks are at the steward's address",
            "(`deniable serve --steward`), and all others at the analysts'; `/openapi.json` of each lists its own.\n",
            "| what | Python | command line | HTTP |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )


def _code(written: str, given: str = "") -> str:
    """A name as code; a reason or a text that has its own marks as it is."""
    told = given or written
    return told if "`" in told or told.startswith("none:") else f"`{written}`"


def python_page() -> str:
    """Every public name of the package with its signature and help."""
    import deniable
    from deniable import client, engines, ledger, release, world
    from deniable.client import Answer, AsyncConnection, Connection
    from deniable.curator.governance import steward
    from deniable.curator.query.batch import BatchAnswer
    from deniable.curator.query.sql import QueryAnswer
    from deniable.query.builder import Aggregate, Expression, Question
    from deniable.release.display import Plotted

    lines = [
        "# Python\n",
        NOTE,
        f"{inspect.getdoc(deniable)}\n",
        "All tasks in one table: [Python, command line and HTTP](verbs.md).\n",
    ]
    named = [(name, getattr(deniable, name)) for name in deniable.__all__ if name not in ("__version__", "errors")]
    for name, value in (each for each in named if not inspect.isclass(each[1])):
        lines += _describe_callable(f"deniable.{name}", value, "##")
    results = (QueryAnswer, BatchAnswer, Plotted, Question, Expression, Aggregate, Connection, AsyncConnection, Answer)
    for kind in (*(value for _, value in named if inspect.isclass(value)), *results):
        lines += _describe_class(kind, kind.__name__)
    lines += _describe_class(client.BatchAnswer, "client.BatchAnswer")
    lines += [f"## The steward's tasks: {steward.__name__}\n", *_write_help(steward)]
    for name in steward.__all__:
        lines += _describe_callable(f"steward.{name}", getattr(steward, name), "###")
    lines += ["## Other packages\n", "Parts that the calls above take or give, for whoever needs one by itself.\n"]
    for package in (engines, ledger, release, world):
        lines += [f"### {package.__name__}\n", "| name | what it is |", "|---|---|"]
        lines += [f"| `{name}` | {_tell_shortly(getattr(package, name))} |" for name in sorted(package.__all__)]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _tell_shortly(value: object) -> str:
    """The first paragraph of a help text, or of what a value is."""
    told = (inspect.getdoc(value) or "").partition("\n\n")[0].replace("\n", " ").replace("|", "\\|")
    is_documented = inspect.isclass(value) or inspect.isroutine(value) or inspect.ismodule(value)
    return told if is_documented else "a constant"


def _describe_class(kind: type, called: str) -> list[str]:
    lines = [f"## {called}\n", *_write_help(kind)]
    for name in (name for name in dir(kind) if not name.startswith("_")):
        member = inspect.getattr_static(kind, name)
        if isinstance(member, property):
            lines += [f"### {called}.{name}\n", *_write_help(member)]
        elif isinstance(member, staticmethod | classmethod) or inspect.isfunction(member):
            lines += _describe_callable(f"{called}.{name}", getattr(kind, name), "###")
    return lines


def _describe_callable(name: str, value: object, level: str) -> list[str]:
    signature = inspect.signature(value)  # type: ignore[arg-type]
    kept = [each for each in signature.parameters.values() if each.name not in ("self", "cls")]
    parts = [_write_parameter(each) for each in kept]
    star = next((i for i, each in enumerate(kept) if each.kind is each.KEYWORD_ONLY), None)
    if star is not None and not any(each.kind is each.VAR_POSITIONAL for each in kept):
        parts = [*parts[:star], "*", *parts[star:]]
    gives = "" if signature.return_annotation is signature.empty else f" -> {signature.return_annotation}"
    shown = f"({', '.join(parts)}){gives}"
    if len(shown) > 100:
        shown = "(\n    " + ",\n    ".join(parts) + f",\n){gives}"
    return [f"{level} {name}\n", f"```text\n{name.rpartition('.')[2]}{shown}\n```\n", *_write_help(value)]


def _write_parameter(parameter: inspect.Parameter) -> str:
    """A parameter as it is written in Python: annotations are texts already, and defaults are values."""
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    kind = "" if parameter.annotation is parameter.empty else f": {parameter.annotation}"
    default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
    return f"{stars}{parameter.name}{kind}{default}"


def _write_help(value: object) -> list[str]:
    """A help text; examples in it become a block that is shown and not run."""
    told = inspect.getdoc(value) or ""
    text, mark, example = told.partition("\n>>>")
    return [f"{text.strip()}\n", *([f"```text\n>>>{example.rstrip()}\n```\n"] if mark else [])]


PAGES: dict[str, Callable[[], str]] = {
    "policy.md": policy_page,
    "cli.md": cli_page,
    "errors.md": errors_page,
    "sql.md": sql_page,
    "survey-files.md": survey_files_page,
    "verbs.md": verbs_page,
    "python.md": python_page,
}


def main() -> None:
    """Write all reference pages, and the figures of the benchmarks."""
    REFERENCE.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (REFERENCE / name).write_text(page(), encoding="utf-8")
    _record.write_pages(_record.read_layout(), _record.read_runs())


if __name__ == "__main__":
    main()
