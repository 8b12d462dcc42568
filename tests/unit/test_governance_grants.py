"""Who may do what: the whole matrix of role, purpose, dataset, action and expiry against a table written by hand."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import product

import pytest

from deniable.errors import AccessRefused, ParameterError
from deniable.governance.grants import Action, Grant, Role
from deniable.governance.tokens import PREFIX, grant_of, issue_token
from deniable.ledger import Act, Ledger, Posting

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)

# One line a role, by hand, and not from the code: s(teward), a(nalyst), u (auditor), r(espondent).
MAY = {
    "query": "sa",
    "explain": "sa",
    "read": "sa",
    "balance": "sau",
    "request": "sa",
    "decide": "s",
    "grant": "s",
    "release": "s",
    "withdraw": "sr",
    "subject-report": "sr",
    "audit": "su",
    "register": "saur",
    "purge": "s",
    "epoch": "s",
    "resume": "s",
    "reinstate": "s",
}
LETTERS = {Role.STEWARD: "s", Role.ANALYST: "a", Role.AUDITOR: "u", Role.RESPONDENT: "r"}
NAMES_A_PURPOSE = {"query", "explain", "read", "request"}
OUTLIVES_THE_POLICY = {"audit", "register", "purge", "subject-report", "balance", "withdraw"}

PURPOSES = ("research", "operations", "")
DATASETS = ("clinic", "school")
GRANT_ENDS = (None, NOW + timedelta(days=1), NOW, NOW - timedelta(days=1))
POLICY_ENDS = (None, date(2026, 11, 15), date(2026, 11, 14))
SCOPES = (None, ("research",), ())


def expected(
    role: Role, action: Action, purpose: str, dataset: str, ends: object, policy_ends: object, scope: object
) -> bool:
    return (
        LETTERS[role] in MAY[action.value]
        and dataset == "clinic"
        and (ends is None or ends > NOW)
        and (policy_ends != date(2026, 11, 14) or action.value in OUTLIVES_THE_POLICY)
        and (scope is None or purpose in scope or (not purpose and action.value not in NAMES_A_PURPOSE))
    )


def test_the_whole_matrix() -> None:
    allowed = refused = 0
    for case in product(Role, Action, PURPOSES, DATASETS, GRANT_ENDS, POLICY_ENDS, SCOPES):
        role, action, purpose, dataset, ends, policy_ends, scope = case
        grant = Grant("somebody", role, "clinic", scope, ends)
        try:
            grant.authorize(action, dataset, purpose, NOW, policy_ends)
            found = True
        except AccessRefused:
            found = False
        assert found == expected(*case), case
        allowed, refused = allowed + found, refused + (not found)
    assert allowed > 300
    assert refused > 300


def test_every_action_is_in_the_table_written_by_hand() -> None:
    assert {action.value for action in Action} == set(MAY)


def given(grant: Grant, *acts: tuple[str, dict[str, object]]) -> tuple[str, dict[str, object]]:
    from deniable.governance.tokens import fold_tokens

    text, facts = issue_token(grant)
    ledger = Ledger("clinic")
    ledger.record(Posting(Act.TOKEN, details=facts))
    for act, details in acts:
        ledger.record(Posting(Act(act), details=details or {"id": facts["id"]}))
    return text, fold_tokens(ledger.entries())


ANALYST = Grant("ana", Role.ANALYST, "clinic", ("research",), NOW + timedelta(days=1))


def test_a_token_speaks_for_its_grant_and_no_other_text_does() -> None:
    text, tokens = given(ANALYST)
    found = grant_of(text, tokens)
    assert (found.name, found.role, found.dataset, found.purposes, found.expires) == (
        "ana", Role.ANALYST, "clinic", ("research",), ANALYST.expires,
    )  # fmt: skip
    for other in ("", PREFIX, text[:-1], text + "x", text.upper(), "\ud800", text.removeprefix(PREFIX)):
        with pytest.raises(AccessRefused, match="not valid"):
            grant_of(other, tokens)


def test_a_revoked_token_is_refused_with_the_words_of_an_unknown_one() -> None:
    text, tokens = given(ANALYST, ("revoke", {}))
    with pytest.raises(AccessRefused) as revoked:
        grant_of(text, tokens)
    with pytest.raises(AccessRefused) as unknown:
        grant_of(PREFIX + "nothing", tokens)
    assert revoked.value.message == unknown.value.message


def test_the_record_holds_a_hash_and_never_the_token() -> None:
    text, facts = issue_token(ANALYST)
    assert text.removeprefix(PREFIX) not in str(facts)
    assert len({issue_token(ANALYST)[0] for _ in range(100)}) == 100


@pytest.mark.parametrize(
    "grant",
    [Grant("", Role.AUDITOR, "clinic"), Grant("ana", Role.ANALYST, "clinic"), Grant("a", Role.ANALYST, "c", ())],
)
def test_a_token_without_a_name_or_an_analysts_purpose_is_refused(grant: Grant) -> None:
    with pytest.raises(ParameterError):
        issue_token(grant)
