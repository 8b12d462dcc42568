"""`%%deniable` for notebooks: a cell of SQL is asked of a curator or of a server, and the answer is shown.

    %load_ext deniable
    %%deniable curator --epsilon 0.5
    SELECT sex, COUNT(*) FROM visits GROUP BY sex

The first word is a variable of the notebook that holds a `Curator` or a connection. `--explain` tells what the question
would cost and asks nothing; `--into name` keeps the answer in a variable. IPython is needed only to register the magic.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from deniable.errors import ParameterError, nearest

OPTIONS = ("epsilon", "delta", "rho", "confidence", "into")
FLAGS = ("explain",)
EXAMPLE = "%%deniable curator --epsilon 0.5"


def load_ipython_extension(shell: Any) -> None:
    """Register `%%deniable`; IPython calls it for `%load_ext deniable`."""

    def deniable(line: str, cell: str) -> Any:
        """Ask the SQL of a cell: %%deniable curator --epsilon 0.5"""
        return ask_cell(line, cell, shell.user_ns)

    shell.register_magic_function(deniable, magic_kind="cell", magic_name="deniable")


def ask_cell(line: str, sql: str, names: dict[str, Any]) -> Any:
    """The answer to a cell, by the curator that the line names among the notebook's variables."""
    who, given = _read_line(line)
    asker = _find_asker(who, names)
    into, explained = given.pop("into", ""), given.pop("explain", False)
    if given.get("confidence") is not None:
        given["confidence"] = _read_confidence(given["confidence"])
    if into and not into.isidentifier():
        raise ParameterError(f"'{into}' is not the name of a variable", expected="Such as --into answer")
    if explained:
        given.pop("confidence", None)
    answer = (asker.explain if explained else asker.query)(sql.strip(), **given)
    if not into:
        return answer
    names[into] = answer
    return None


def _read_line(line: str) -> tuple[str, dict[str, Any]]:
    """The variable that is asked, and the options of a line."""
    try:
        words = shlex.split(line)
    except ValueError:
        raise ParameterError("a quotation mark is not closed", expected=EXAMPLE) from None
    if not words or words[0].startswith("-"):
        raise ParameterError("no curator is named after %%deniable", expected=EXAMPLE)
    given: dict[str, Any] = {}
    rest = iter(words[1:])
    for word in rest:
        name, mark, value = word.removeprefix("--").partition("=")
        if name in FLAGS and word.startswith("--"):
            given[name] = True
        elif name in OPTIONS and word.startswith("--"):
            given[name] = value if mark else next(rest, "")
        else:
            known = [f"--{each}" for each in (*OPTIONS, *FLAGS)]
            raise ParameterError(
                f"'{word}' is not an option of the cell",
                expected=f"Options: {', '.join(known)}",
                remedy=nearest(word, known),
            )
    return words[0], given


def _find_asker(name: str, names: Mapping[str, Any]) -> Any:
    found = names.get(name)
    if not callable(getattr(found, "query", None)) or not callable(getattr(found, "explain", None)):
        raise ParameterError(
            f"the notebook has no curator '{name}'",
            expected="A variable that holds Curator.open(...), Curator.from_frame(...) or deniable.connect(...)",
        )
    return found


def _read_confidence(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ParameterError("the confidence is not a number", expected="Such as --confidence 0.95") from None
