"""`python -m mutation`: judge a sample of mutants and print what survived."""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

from mutation.choose import Records
from mutation.handwritten import handwritten_mutants
from mutation.operators import Mutant, generate
from mutation.record import CACHE, ROOT, record, refresh
from mutation.targets import PACKAGES, all_sources, package_of, test_files_for
from mutation.trials import OPTIONS, Verdict, run

ACCEPTED = Path(__file__).with_name("accepted.json")
"""Survivors that change nothing, or nothing that anybody could rely on: their key, and the reason."""
LAST = CACHE / "last.json"


def parse_arguments(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="mutation", description=__doc__)
    parser.add_argument("--sample", type=int, default=240, help="generated mutants, as many from each package")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--package", action="append", choices=sorted(PACKAGES), help="only of this package")
    parser.add_argument(
        "--module", action="append", help="only of this file, all of its mutants unless --sample is given"
    )
    parser.add_argument("--handwritten", action="store_true", help="only those written by hand")
    parser.add_argument("--again", action="store_true", help="only those that survived the last run")
    parser.add_argument("--seconds", type=float, default=20, help="CPU seconds of tests that a mutant must survive")
    parser.add_argument("--least", type=float, default=0, help="fail below this share of generated mutants killed")
    parser.add_argument("--list", action="store_true", help="print the mutants and run nothing")
    parser.add_argument("--record", action="store_true", help="record again which tests run which lines")
    parser.add_argument("--record-files", nargs="+", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args(given)


def choose_mutants(options: argparse.Namespace) -> list[Mutant]:
    """The mutants that the options ask for; a sample has one change of a site at most."""
    written = handwritten_mutants()
    if options.handwritten:
        return written
    if options.module:
        found = [mutant for file in options.module for mutant in generate((ROOT / file).resolve(), ROOT)]
        return draw(found, options.sample, options.seed) if "--sample" in sys.argv else found
    names = options.package or sorted(PACKAGES)
    drawn = []
    for name in names:
        found = [mutant for path in PACKAGES[name].sources() for mutant in generate(path, ROOT)]
        drawn += draw(found, options.sample // len(names), options.seed)
    return drawn if options.package else drawn + written


def draw(mutants: list[Mutant], count: int, seed: int) -> list[Mutant]:
    """So many of them, of different sites."""
    rng, sites = random.Random(seed), defaultdict(list)
    for mutant in mutants:
        sites[mutant.site].append(mutant)
    chosen = rng.sample(sorted(sites), min(count, len(sites)))
    return sorted((rng.choice(sites[site]) for site in chosen), key=lambda each: (each.file, each.line, each.place))


def again(mutants: list[Mutant]) -> list[Mutant]:
    """Those among all mutants that survived the last run."""
    kept = set(json.loads(LAST.read_text(encoding="utf-8"))["survivors"])
    return [mutant for mutant in mutants if mutant.key in kept]


def tell_result(verdicts: list[Verdict], accepted: dict[str, str], seconds: float) -> float:
    """Print kills by package and all survivors; gives the share of generated mutants that were killed."""
    tally: dict[str, Counter[str]] = defaultdict(Counter)
    for verdict in verdicts:
        written = verdict.mutant.texts is not None
        name = "written by hand" if written else package_of(verdict.mutant.file)
        tally[name]["accepted" if verdict.mutant.key in accepted else verdict.outcome] += 1
    survivors = [v for v in verdicts if v.outcome in ("survived", "uncovered") and v.mutant.key not in accepted]
    for verdict in survivors:
        print(f"{verdict.outcome:>9}  {verdict.mutant}  ({verdict.why})")
    columns = ("killed", "survived", "uncovered", "accepted", "skipped")
    print(f"\n{'package':<16}", *(f"{name:>10}" for name in columns), f"{'share':>8}")
    for name, counts in tally.items():
        print(f"{name:<16}", *(f"{counts[each]:>10}" for each in columns), f"{share_of(counts):>8.1%}")
    generated = sum((counts for name, counts in tally.items() if name != "written by hand"), Counter[str]())
    print(f"\n{share_of(generated):.1%} of generated mutants killed, in {seconds / 60:.1f} minutes")
    return share_of(generated)


def share_of(counts: Counter[str]) -> float:
    """Killed, of those that could have been: neither accepted nor skipped."""
    judged = counts["killed"] + counts["survived"] + counts["uncovered"]
    return counts["killed"] / judged if judged else 1.0


def main(given: list[str] | None = None) -> int:
    """Run what the arguments ask for; 1 where a mutant written by hand, or too many others, survived."""
    options = parse_arguments(given)
    if options.record_files:
        record(options.record_files, all_sources(), OPTIONS)
        return 0
    mutants = choose_mutants(options)
    if options.again:
        mutants = again([each for path in all_sources() for each in generate(path, ROOT)] + handwritten_mutants())
    if options.list:
        print(*mutants, sep="\n")
        return 0
    accepted: dict[str, str] = json.loads(ACCEPTED.read_text(encoding="utf-8"))
    named = {node for mutant in mutants for node in mutant.tests}
    test_files = test_files_for({mutant.file for mutant in mutants}, named)
    refresh(test_files, options.record)
    records, start, output = Records.read(test_files), time.monotonic(), sys.stdout
    for node in records.failing:
        print(f"left out, fails without any change: {node}", flush=True)

    def tell(verdict: Verdict) -> None:
        if verdict.outcome != "killed" and verdict.mutant.key not in accepted:
            print(f"{verdict.outcome}: {verdict.mutant} ({verdict.why}, {verdict.seconds} s)", file=output, flush=True)

    verdicts = run(records, mutants, options.seconds, tell)
    share = tell_result(verdicts, accepted, time.monotonic() - start)
    alive = [v.mutant for v in verdicts if v.outcome in ("survived", "uncovered") and v.mutant.key not in accepted]
    LAST.write_text(json.dumps({"survivors": [each.key for each in alive]}, indent=1), encoding="utf-8")
    return int(share < options.least or any(each.texts is not None for each in alive))


if __name__ == "__main__":
    sys.exit(main())
