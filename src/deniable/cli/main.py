"""`deniable`: the command line. Exit codes: 0 done, 2 refused by policy or bad input, 3 our bug."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from copy import copy
from typing import Annotated

import typer

from deniable.cli import (
    anonymize,
    attack,
    demo,
    governance,
    hierarchy,
    inspect,
    key,
    ledger,
    mask,
    policy,
    query,
    randomize,
    release,
    start,
    survey,
    synthesize,
    train,
)
from deniable.cli.terminal import refuse
from deniable.errors import DeniableError, InternalError

EPILOG = """\b
Workflows:
  deniable demo                                      the story of one town
  deniable start people.csv                          from a table to a first release, step by step
  deniable scan people.csv                           find identifiers, draft a policy
  deniable policy check policy.yaml                  who is protected, and how much
  deniable query "SELECT COUNT(*) FROM visits" -p policy.yaml --epsilon 0.5
  deniable mask people.csv -p policy.yaml -o out.parquet
  deniable anonymize patients.parquet -p policy.yaml --k 5 -o out.parquet
  deniable synthesize visits -p policy.yaml --epsilon 1 --delta 1e-6 -o synthetic.parquet
  deniable train visits -p policy.yaml --target charge --epsilon 1 -o model.json
  deniable attack out.parquet --original patients.parquet -p policy.yaml --all
  deniable serve policy.yaml                         analysts ask over HTTP and with psql
  deniable mcp policy.yaml                           an AI assistant asks, within a token's budget
  deniable survey serve survey.yaml                  answers randomized in the browser

\b
Exit codes: 0 done, 2 refused by policy or bad input, 3 a bug of ours.
Every command has --help with examples, and --json.
"""

app = typer.Typer(name="deniable", no_args_is_help=True, rich_markup_mode=None, epilog=EPILOG)
app.command(name="demo")(demo.demo)
app.command(name="start", epilog=start.EXAMPLES)(start.start)
app.command(name="query", epilog=query.EXAMPLES)(query.query)
app.command(name="bounds", epilog=query.BOUNDS_EXAMPLES)(query.bounds)
app.command(name="hierarchy", epilog=hierarchy.EXAMPLES)(hierarchy.hierarchy)
app.command(name="mask", epilog=mask.EXAMPLES)(mask.mask)
app.command(name="anonymize", epilog=anonymize.EXAMPLES)(anonymize.anonymize)
app.command(name="check", epilog=anonymize.CHECK_EXAMPLES)(anonymize.check)
app.command(name="attack", epilog=attack.ATTACK_EXAMPLES)(attack.attack)
app.command(name="audit", epilog=attack.AUDIT_EXAMPLES)(attack.audit)
app.command(name="synthesize", epilog=synthesize.EXAMPLES)(synthesize.synthesize)
app.command(name="describe", epilog=synthesize.EXAMPLES)(synthesize.describe)
app.command(name="generate", epilog=synthesize.EXAMPLES)(synthesize.generate)
app.command(name="train", epilog=train.EXAMPLES)(train.train)
app.command(name="predict", epilog=train.EXAMPLES)(train.predict)
app.command(name="parity", epilog=inspect.PARITY_EXAMPLES)(inspect.parity)
app.command(name="inspect", epilog=inspect.EXAMPLES)(inspect.inspect)
app.command(name="scan", epilog=policy.SCAN_EXAMPLES)(policy.scan)
app.command(name="randomize")(randomize.randomize)
app.command(name="estimate")(randomize.estimate)
app.command(name="ladder")(randomize.ladder)
app.command(name="serve", epilog=governance.SERVE_EXAMPLES)(governance.serve)
app.command(name="mcp", epilog=governance.MCP_EXAMPLES)(governance.mcp)
governance.add_to(app)
app.add_typer(key.app, name="key")
app.add_typer(ledger.app, name="ledger")
app.add_typer(governance.token_app, name="token")
app.add_typer(governance.epoch_app, name="epoch")
app.add_typer(key.vault_app, name="vault")
app.add_typer(policy.app, name="policy")
app.add_typer(release.app, name="release")
app.add_typer(survey.app, name="survey")
app.add_typer(demo.world_app, name="world")


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"deniable {version('deniable')}")
        raise typer.Exit


@app.callback()
def deniable(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """A privacy curator for tables: it stands between the people in the data and the people who ask."""


def narrow_app(words: Sequence[str]) -> typer.Typer:
    """The command line with the one command that was named: building all of them takes longer than most commands."""
    named = next(iter(words), "")
    found = copy(app)
    found.registered_commands = [each for each in app.registered_commands if each.name == named]
    found.registered_groups = [each for each in app.registered_groups if each.name == named]
    return found if found.registered_commands or found.registered_groups else app


GARBAGE = 50_000
"""Objects between two searches for garbage: while modules are loaded there is none, and they are searched each time."""


class NoPandas:
    """Says that there is no pandas: Arrow imports it only to see whether it was given a frame, and no command is."""

    @staticmethod
    def find_spec(name: str, *_rest: object) -> None:
        """Refuse pandas, and know nothing of other modules."""
        if name == "pandas":
            raise ModuleNotFoundError(name, name=name)


def main() -> None:
    """Run one command; every refusal leaves as one paragraph (or one JSON document) and a documented exit code."""
    as_json = "--json" in sys.argv
    try:
        narrow_app(sys.argv[1:])()
    except DeniableError as refusal:
        sys.exit(refuse(refusal, as_json))
    except Exception as failure:
        # The message of an unforeseen failure may quote data, so only its type is shown.
        bug = InternalError(
            f"An unforeseen {type(failure).__name__} in deniable itself",
            remedy="Please report it, with DENIABLE_DEBUG=1 set to see where it happened (that text may quote data)",
            charge="",
        )
        import os

        if os.environ.get("DENIABLE_DEBUG"):
            raise
        sys.exit(refuse(bug, as_json))


def run() -> None:
    """The program: one command in a process of its own, in which nobody else needs pandas."""
    sys.meta_path.insert(0, NoPandas)
    gc.set_threshold(GARBAGE)
    main()
