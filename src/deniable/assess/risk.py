"""Risk: every attack that applies to a release, with what the steward has at hand, in one list of attempts.

The motivated intruder is played by trials (`assess.trials`); here they are run and judged against a policy's limits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from deniable.assess.evidence import COUNT as COUNT
from deniable.assess.evidence import Attempt as Attempt
from deniable.assess.evidence import Evidence as Evidence
from deniable.assess.evidence import Settings as Settings
from deniable.assess.evidence import Trial as Trial
from deniable.assess.trials import CONTROLLED as CONTROLLED
from deniable.assess.trials import GENERATED as GENERATED
from deniable.assess.trials import TRIALS as TRIALS
from deniable.attacks.outcome import Deadline, Progress, tell


def run_trials(
    evidence: Evidence,
    settings: Settings,
    names: Sequence[str] | None = None,
    *,
    trials: Sequence[Trial] = TRIALS,
    done: Mapping[str, Any] | None = None,
    finished: Callable[[Attempt], None] | None = None,
    progress: Progress | None = None,
) -> tuple[Attempt, ...]:
    """Run the trials (those named, or all); those in `done` are passed over, `finished` is called for each."""
    deadline, found = Deadline(settings.seconds), []
    chosen = [trial for trial in trials if (names is None or trial.name in names) and trial.name not in (done or {})]
    for place, trial in enumerate(chosen):
        deadline.check()
        why_not = trial.lacks(evidence)
        outcomes = () if why_not else trial.run(evidence, settings)
        made = Attempt(trial.name, outcomes, why_not, settings.beyond_chance)
        found.append(made)
        if finished is not None:
            finished(made)
        tell(progress, (place + 1) / len(chosen))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether an attack exposes more people than the policy allows."""

    attack: str
    exposed: float
    most: float

    @property
    def failed(self) -> bool:
        """Whether the release must not leave."""
        return self.exposed > self.most


def judge(exposed: Mapping[str, float], limits: Mapping[str, Fraction]) -> tuple[Verdict, ...]:
    """The verdicts on attacks that were run and that the policy limits."""
    return tuple(Verdict(name, exposed[name], float(most)) for name, most in limits.items() if name in exposed)
