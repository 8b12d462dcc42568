"""The HIPAA Safe Harbor rule, category by category: what was found where, how it is handled, what was not found.

45 CFR 164.514(b)(2)(i) lists eighteen identifiers (A) to (R) that must be removed, with two exceptions that allow a
coarser form (three-digit ZIP codes, years). Paragraph (c) allows a code for re-identification only if it is not
derived from information about the person; so keyed tokens, format-preserving tokens, fakes and shifted dates, good
as they are for pseudonymizing, do not meet Safe Harbor, and a codebook of random tokens does. The rule further asks
that the releasing party has no actual knowledge that what is left could identify somebody: no program can say that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from deniable.errors import ParameterError
from deniable.masking.identifiers import Finding
from deniable.policy.schema import Spec, is_removed


@dataclass(frozen=True, slots=True)
class Category:
    """One of the eighteen."""

    letter: str
    name: str


CATEGORIES = (
    Category("A", "Names"),
    Category("B", "Geographic subdivisions smaller than a state"),
    Category("C", "Dates (except year) related to a person, and ages over 89"),
    Category("D", "Telephone numbers"),
    Category("E", "Fax numbers"),
    Category("F", "E-mail addresses"),
    Category("G", "Social security numbers"),
    Category("H", "Medical record numbers"),
    Category("I", "Health plan beneficiary numbers"),
    Category("J", "Account numbers"),
    Category("K", "Certificate and license numbers"),
    Category("L", "Vehicle identifiers and serial numbers, license plates"),
    Category("M", "Device identifiers and serial numbers"),
    Category("N", "Web addresses (URLs)"),
    Category("O", "IP addresses"),
    Category("P", "Biometric identifiers, finger and voice prints"),
    Category("Q", "Full-face photographs and comparable images"),
    Category("R", "Any other unique identifying number, characteristic or code"),
)

COARSE = {
    "postal code": ("zip3",),
    "birth date": ("year",),
    "date": ("year",),
    "age": ("age_over_89",),
}


@dataclass(frozen=True, slots=True)
class Line:
    """One category in a checklist: each column found, and how it is handled ('removed', a coarser form, or 'open')."""

    category: Category
    handled: Mapping[str, str]

    @property
    def status(self) -> str:
        """'not found', 'handled' or 'open'."""
        if not self.handled:
            return "not found"
        return "open" if "open" in self.handled.values() else "handled"

    def as_dict(self) -> dict[str, object]:
        """The shape that is printed and saved."""
        return {
            "category": self.category.letter,
            "name": self.category.name,
            "status": self.status,
            "columns": dict(self.handled),
        }


def build_checklist(
    findings: Mapping[str, tuple[Finding, ...]], masks: Mapping[str, Mapping[str, Spec | None]]
) -> tuple[Line, ...]:
    """Eighteen lines. Findings and masks go by table; a column that is not released is not among the masks."""
    lines = []
    for category in CATEGORIES:
        handled = {
            f"{table}.{finding.column}": describe_handling(finding.kind, masks.get(table, {}), finding.column)
            for table, found in findings.items()
            for finding in found
            if finding.about.letter == category.letter
        }
        lines.append(Line(category, handled))
    return tuple(lines)


def describe_handling(kind: str, masks: Mapping[str, Spec | None], column: str) -> str:
    """How a column of a kind leaves: 'not released', 'removed (...)', a coarser form, or 'open'."""
    if column not in masks:
        return "not released"
    mask = masks[column]
    return _describe_mask(kind, mask) if mask is not None else "open"


def is_sufficient(kind: str, mask: Spec | None) -> bool:
    """Whether a mask meets the rule for a kind."""
    return mask is not None and _describe_mask(kind, mask) != "open"


def _describe_mask(kind: str, mask: Spec) -> str:
    if is_removed(mask) or mask.kind == "codebook":
        return f"removed ({mask.kind})"
    form = str(mask.options.get("to", ""))
    if mask.kind == "generalize" and form in COARSE.get(kind, ()):
        return f"coarsened ({form})"
    return "open"


def complete_masks(found: tuple[Finding, ...], masks: Mapping[str, Spec | None]) -> dict[str, Spec | None]:
    """The masks of one table with the rule's own mask wherever a finding has none; a weaker mask is refused."""
    complete = dict(masks)
    for finding in found:
        if finding.column not in masks or not finding.about.letter:
            continue
        mask = masks[finding.column]
        if mask is None:
            complete[finding.column] = finding.about.safe
        elif not is_sufficient(finding.kind, mask):
            raise ParameterError(
                f"Safe Harbor does not allow the mask '{mask.kind}' on column '{finding.column}' ({finding.kind})",
                expected="Remove it (redact, nullify, constant, codebook), or zip3, year, age_over_89 where they apply",
                remedy="Change the mask, or release with --mode pseudonymize, which claims less",
                column=finding.column,
            )
    return complete
