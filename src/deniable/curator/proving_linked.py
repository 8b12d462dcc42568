"""Attack before release of people with their rows: both tables are attacked, and both leave or none.

People are held out whole, with all their rows. The intruder is tried on the table of people, where the number of their
rows counts as known, and on the table of rows, each with its person's columns. A limit holds for both tables.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.curator.proving import Proof, attacked, told
from deniable.errors import ParameterError

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.curator.hall import Curator
    from deniable.curator.linked import Linked
    from deniable.curator.synthesizing import Order, Progress
    from deniable.governance.grants import Asker
    from deniable.release import Release
    from deniable.synth.linked import LinkedModel

Tables = tuple["pa.Table | None", "pa.Table"]


def synthesize(
    curator: Curator, order: Order, out: Path, proof: Proof, *, rows: int | None = None, seed: int = 0,
    progress: Progress | None = None, who: Asker | None = None,
) -> tuple[Release | None, dict[str, Any]]:  # fmt: skip
    """Describe, draw, attack; write the release if every limit is met. The charge stands either way."""
    from deniable.curator.linked import charge, learned, tables, written
    from deniable.curator.attacking import judged
    from deniable.curator.recording import after_the_charge
    from deniable.synth.held_out import parted_people

    _refuse_control(proof)
    judged({"exposed": {}}, curator.policy, proof.limits)
    charged = charge(curator, order, who, out)
    with after_the_charge():
        seen, control = parted_people(*tables(charged), charged.link.key, proof.held_out)
        model = learned(curator, order, charged, *seen)
        drawn = _drawn(model, proof, rows, seed)
        found = _both(curator, charged, drawn, seen, control, proof, progress)
    verdict = told(judged(found, curator.policy, proof.limits), out, order, proof)
    if verdict["failed"]:
        return None, verdict
    share = round(1.0 - proof.described, 6)
    return written(curator, order, model, out, *drawn, seed=seed, held_out=share), verdict


def _refuse_control(proof: Proof) -> None:
    if proof.control is not None:
        raise ParameterError(
            "rows of other people are for one table", remedy="Leave out --control: people are held out with their rows"
        )


def _drawn(model: LinkedModel, proof: Proof, people: int | None, seed: int) -> tuple[pa.Table, pa.Table]:
    """As many people as asked for, or as there are estimated to be in all: the model saw a share of them."""
    from deniable.synth.linked_rows import generate_linked

    estimated = round(model.people.description.estimates.total / proof.described)
    return generate_linked(model, estimated if people is None else people, seed)


def _both(
    curator: Curator, charged: Linked, drawn: tuple[pa.Table, pa.Table], seen: Tables, control: Tables, proof: Proof,
    progress: Progress | None,
) -> dict[str, Any]:  # fmt: skip
    """The attacks on people and on their rows; an attack exposes what it exposes of either."""
    from deniable.synth.sighted import sighted

    link = charged.link
    shown = sighted(link, drawn[0] if link.parent else None, drawn[1])
    sides = zip(shown, sighted(link, *seen), sighted(link, *control), strict=True)
    schemas = tuple(each.table for each in (charged.people, charged.rows) if each is not None)
    found = [attacked(curator.policy, schemas, *tables, proof, progress) for tables in sides]
    names = (link.parent or "people", link.child)
    made = [_labeled(one, name) for name, part in zip(names, found, strict=True) for one in part["attacks"]]
    exposed = {
        name: max(part["exposed"].get(name, 0.0) for part in found) for part in found for name in part["exposed"]
    }
    knows = list(dict.fromkeys(name for part in found for name in part["knows"]))
    return {**found[1], "knows": knows, "attacks": made, "exposed": exposed}


def _labeled(made: dict[str, Any], table: str) -> dict[str, Any]:
    """An attempt whose outcomes say which table was attacked."""
    outcomes = [
        {**one, "attack": f"{one['attack']} ({table})", "sentence": f"{table}: {one['sentence']}"}
        for one in made["outcomes"]
    ]
    skipped = f"{table}: {made['skipped']}" if made["skipped"] else ""
    return {**made, "skipped": skipped, "outcomes": outcomes}
