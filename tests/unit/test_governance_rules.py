"""What a policy demands of those who govern and ask: approvals, justification, terms, groups, grants that end."""

from __future__ import annotations

import json
import re
import sqlite3
import threading
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from deniable import Curator
from deniable.cli.main import app
from deniable.curator.governance import estate, losses, reports, requests, withdrawals
from deniable.errors import AccessRefused, BudgetExceeded, DeniableError, ParameterError, PolicyError
from deniable.governance.grants import Asker, Grant, Role
from deniable.ledger import Act, Ledger, Posting
from deniable.policy.access import find_name_fault, list_looks
from deniable.policy.diff import list_loosened
from deniable.policy.document import parse
from deniable.server.refusals import describe_refusal, translate_failure
from ledgers import Clock, charge, tree

POLICY = """
version: 1
dataset: clinic
stewards: [sam, sue, sid, pat, carol, cyd]
tables:
  visits:
    source: visits.csv
    unit: {column: id, max_groups: 2, max_rows_per_group: 1}
    columns:
      id: {type: integer, role: identifier, mask: redact}
      sex: {role: quasi-identifier, categories: [F, M]}
      zip: {role: quasi-identifier}
budgets:
  dataset: {epsilon: 20}
  purposes:
    research: {epsilon: 9, approvals: 2, justify: true}
    teaching: {epsilon: 9, terms: "Nobody tries to find a person."}
  analysts:
    ana: {purposes: [research, teaching]}
    team: {purposes: [teaching], epsilon: 2, members: [bea, cyd]}
    dan: {purposes: [research], until: 2026-11-15}
"""
ANA = Asker("ana", "research", Role.ANALYST)
WHY = {"justification": "to plan the wards"}


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    return write_policy(tmp_path)


def write_policy(folder: Path, text: str = POLICY) -> Path:
    folder.mkdir(exist_ok=True)
    rows = "".join(f"{i},{'FM'[i % 2]},z{i}\n" for i in range(40))
    (folder / "visits.csv").write_text("id,sex,zip\n" + rows)
    (folder / "policy.yaml").write_text(text)
    return folder / "policy.yaml"


@pytest.fixture
def curator(policy: Path) -> Iterator[Curator]:
    with Curator.open(policy, ledger=policy.with_suffix(".ledger.sqlite")) as opened:
        yield opened


def run(*words: object, refused: bool = False) -> str:
    """What a command prints, or the words in which it refuses."""
    done = CliRunner().invoke(app, [str(each) for each in words])
    assert isinstance(done.exception, DeniableError) if refused else done.exit_code == 0, (done.output, done.exception)
    return str(done.exception) if refused else done.output


def test_two_different_stewards_approve_where_the_purpose_demands_it(curator: Curator) -> None:
    context = curator.context
    request = requests.ask(context.speak_for(ANA), "mask", ["visits"], WHY)
    assert (request.approvals, request.justification) == (2, "to plan the wards")
    once = requests.decide(context, request.id, True, "fine", "sam")
    assert (once.status, once.approved_by, once.decided) == ("pending", ("sam",), None)
    with pytest.raises(AccessRefused, match="pending"):
        requests.find_approved(context, request.id)
    with pytest.raises(AccessRefused, match="'sam' approved request"):
        requests.decide(context, request.id, True, "fine again", "sam")
    for same in ("SAM", " sam ", "s\u200bam", "ana", "Ana"):
        with pytest.raises(AccessRefused, match="already, or made it"):
            requests.decide(context, request.id, True, "fine again", same)
    twice = requests.decide(context, request.id, True, "fine too", "sue")
    assert (twice.status, twice.approved_by) == ("approved", ("sam", "sue"))
    assert twice.as_dict()["reasons"] == ["fine", "fine too"], "what each of them said"
    assert requests.find_approved(context, request.id).id == request.id


@pytest.mark.parametrize("purpose", ["research", "teaching"])
def test_a_group_approves_nothing_by_its_name(policy: Path, purpose: str) -> None:
    """A member asked, and the group's own name was taken for another person."""
    policy.write_text(POLICY.replace("team: {purposes: [teaching]", "team: {purposes: [teaching, research]"))
    with Curator.open(policy) as curator:
        context = curator.context
        bea = context.speak_for(Asker("bea", purpose, Role.ANALYST))
        if purpose == "teaching":
            requests.acknowledge(bea, requests.show_terms(bea).digest)
        request = requests.ask(bea, "mask", ["visits"], WHY)
        token = issue_steward(curator, "Team")
        for name in ("team", "TEAM", " te\u200bam", token):
            with pytest.raises(AccessRefused, match="'team' is a group, and a request is approved by a person"):
                requests.decide(context, request.id, True, "fine", name)
        assert requests.find_request(context, request.id).approved_by == ()
        if purpose == "research":
            with pytest.raises(AccessRefused, match="or made it"):
                requests.decide(context, request.id, True, "fine", "bea")
            with pytest.raises(AccessRefused, match="'cyd' is a member of the group"):
                requests.decide(context, request.id, True, "fine", "cyd")
        assert requests.decide(context, request.id, True, "fine", "sam").approved_by == ("sam",)


STRANGERS = (
    "steward",
    "auditor",
    "research",
    "ana",
    "team",
    "bea",
    "dan",
    "mallory",
    "s\u0430m",
    "SA\u041c",
    "5am",
    "",
)


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_only_stewards_whom_the_policy_knows_decide(
    policy: Path, postgres_address: str, kind: str, listed: bool
) -> None:
    """Roles, purposes, analysts, members of groups, strangers and look-alikes are no stewards."""
    if not listed:
        policy.write_text(POLICY.replace("stewards: [sam, sue, sid, pat, carol, cyd]", ""))
    at = policy.with_suffix(".ledger.sqlite") if kind == "sqlite" else postgres_address
    if kind == "postgres":
        policy.write_text(policy.read_text().replace("dataset: clinic", f"dataset: clinic{listed}"))
    with Curator.open(policy, ledger=at) as curator:
        context = curator.context
        if not listed:
            issue_steward(curator, "sam")
            issue_steward(curator, "sue")
        request = requests.ask(context.speak_for(ANA), "mask", ["visits"], WHY)
        for name in STRANGERS:
            with pytest.raises(AccessRefused, match=r"a steward whom the policy knows|or made it|is a group"):
                requests.decide(context, request.id, True, "fine", name)
        requests.decide(context, request.id, True, "fine", "Sam")
        for name in ("sam", "s\u0430m", "SA\u041c", *STRANGERS):
            with pytest.raises(AccessRefused):
                requests.decide(context, request.id, True, "fine", name)
        for name in STRANGERS:
            if name != "steward" or listed:
                with pytest.raises(AccessRefused):
                    requests.decide(context, request.id, False, "no", name)
        done = requests.decide(context, request.id, True, "fine", "sue")
        assert (done.status, done.approved_by) == ("approved", ("Sam", "sue"))


def test_tokens_of_names_that_look_alike_are_one_person(policy: Path) -> None:
    policy.write_text(POLICY.replace("stewards: [sam, sue, sid, pat, carol, cyd]", ""))
    with Curator.open(policy) as curator:
        request = requests.ask(curator.context.speak_for(ANA), "mask", ["visits"], WHY)
        sam, same = issue_steward(curator, "sam"), issue_steward(curator, "SAM")
        requests.decide(curator.context, request.id, True, "fine", sam)
        with pytest.raises(AccessRefused, match="already, or made it"):
            requests.decide(curator.context, request.id, True, "fine", same)


LOOKS = (
    ("SAM", "\ua4e2\ua4ee\ua4df"), ("ANNA", "\u0391\u039d\u039d\u0391"), ("Ian", "lan"), ("lan", "1an"),
    ("wim", "vvirn"), ("coco", "\u0441\u043e\u0441\u043e"), ("Jay", "\u13abay"), ("\u00cbBA", "\u0401\u0412\u0410"),
    ("\u06cc\u0627\u0631", "\u064a\u0627\u0631"),
)  # fmt: skip
MORE_LOOKS = (
    ("\u00c4A", "\u04d2\u0410"), ("EBA", "\u0401\u0412\u0410"), ("\u00e1", "\u03ac"), ("\u00e7a", "\u04ab\u0430"),
    ("\u3079\u3044", "\u30d9\u3044"), ("\u3078\u3044", "\u30d8\u3044"), ("\u30ed\u30a4", "\u53e3\u30a4"),
    ("\u0643\u064a\u0645", "\u06a9\u06cc\u0645"), ("\u0647\u0646\u0627", "\u06c1\u0646\u0627"),
    ("\u05f2", "\u05d9\u05d9"), ("\u0b95\u0bcc", "\u0b95\u0bc6\u0bb3"), ("\u015fan", "\u0219an"), ("\u0566", "q"),
)  # fmt: skip
APART = (
    ("jose", "jos\u00e9"), ("\u306f\u306a", "\u3070\u306a"),
    ("\u0410\u043d\u0434\u0440\u0435\u0439", "\u0410\u043d\u0434\u0440\u0435\u0438"),
    ("N\u00fa\u00f1ez", "Nu\u00f1ez"), ("\u0639\u0644\u064a", "\u0639\u0645\u0631"), ("\ubbfc\uc218", "\ubbfc\uc9c0"),
)  # fmt: skip


def test_a_letter_with_a_mark_looks_like_that_of_another_script_with_it_and_without() -> None:
    assert [pair for pair in MORE_LOOKS if not list_looks(pair[0]) & list_looks(pair[1])] == []
    assert [pair for pair in APART if list_looks(pair[0]) & list_looks(pair[1])] == []
    assert [each for pair in APART for each in pair if find_name_fault(each)] == []


@pytest.mark.parametrize("name", ["\u0905\u093e\u0936\u093e", "\u1175", "\U00010404"], ids=ascii)
def test_letters_that_draw_another_one_are_in_no_name(name: str) -> None:
    """A vowel with a vowel sign after it, a part of a syllable, and a script that is no longer written."""
    assert "characters" in find_name_fault(name)
    assert find_name_fault("\u0906\u0936\u093e") == ""


@pytest.mark.parametrize(("one", "other"), LOOKS, ids=ascii)
def test_two_names_that_look_alike_are_refused_in_a_policy_and_among_tokens(policy: Path, one: str, other: str) -> None:
    for pair in ((one, other), (other, one)):
        for before, after in (
            ("[sam, sue, sid, pat, carol, cyd]", f"[{', '.join(pair)}]"),
            ("[bea, cyd]", f"[{', '.join(pair)}]"),
        ):
            with pytest.raises(PolicyError, match=r"looks like|alphabets"):
                parse(POLICY.replace(before, after))
    policy.write_text(POLICY.replace("stewards: [sam, sue, sid, pat, carol, cyd]", ""))
    with Curator.open(policy) as curator:
        issue_steward(curator, one)
        with pytest.raises(AccessRefused, match=r"looks like|alphabets"):
            issue_steward(curator, other)


def test_a_token_of_somebody_whom_the_policy_does_not_list_decides_nothing(curator: Curator) -> None:
    request = requests.ask(curator.context.speak_for(ANA), "mask", ["visits"], WHY)
    with pytest.raises(AccessRefused, match="'mallory' is not the name of a steward"):
        requests.decide(curator.context, request.id, True, "fine", issue_steward(curator, "mallory"))
    assert requests.decide(curator.context, request.id, True, "fine", issue_steward(curator, "sue")).approved_by == (
        "sue",
    )


@pytest.mark.parametrize("names", ["steward", "rese\u0430rch", "team", "sam, s\u0430m", "sam, SAM"])
def test_a_steward_who_is_no_person_or_looks_like_another_is_a_mistake(names: str) -> None:
    with pytest.raises(PolicyError, match="or looks like it, and of no steward"):
        parse(POLICY.replace("[sam, sue, sid, pat, carol, cyd]", f"[{names}]"))


ODD_NAMES = (
    "steward", "Respondent", "\uff53teward", "ste\u200bward", "st\u00e9ward", "\u0455teward", "s\u0430m", "\u200b",
    "an\u00a0a", "\ua731am", "\uff41na", "ana\u202e", "sam\u2800", "sam\u3164", "anaIyst", "5teward", "$teward",
    "stevvard", "steward.", "ana|yst", "\uabaa\uab72\uab7c\uab83\uab7a\uaba2\uab70",
)  # fmt: skip


@pytest.mark.parametrize("name", ODD_NAMES, ids=ascii)
def test_no_role_look_alike_or_unseen_character_is_a_name_wherever_one_enters(curator: Curator, name: str) -> None:
    for before, after in (
        ("[bea, cyd]", f'[bea, "{name}"]'),
        ("    dan:", f'    "{name}":'),
        ("[sam, ", f'["{name}", '),
    ):
        assert POLICY.count(before) == 1
        with pytest.raises(PolicyError, match=r"name of a role|nobody sees|plain ones|alphabets|invisible|other char"):
            parse(POLICY.replace(before, after))
    for given in (Role.ANALYST, Role.STEWARD, Role.AUDITOR):
        if (name, given) != ("steward", Role.STEWARD):
            with pytest.raises(AccessRefused):
                requests.issue(curator.context, name, given, ["research"] if given is Role.ANALYST else None)
    with pytest.raises(AccessRefused):
        Asker(name, "research", Role.ANALYST)
    request = requests.ask(curator.context.speak_for(ANA), "mask", ["visits"], WHY)
    with pytest.raises(AccessRefused):
        requests.decide(curator.context, request.id, True, "fine", name)
    if name != "steward":
        with pytest.raises(AccessRefused):
            losses.refuse_unlisted(replace(curator.policy, stewards=()), name)
    from deniable.server.oidc import find_name_fault as asked_of_issuers

    assert asked_of_issuers(name)


def test_two_analysts_who_look_alike_are_a_mistake() -> None:
    with pytest.raises(PolicyError, match="looks like 'ana', who is listed too"):
        parse(POLICY.replace("[bea, cyd]", "[bea, ANA]"))


def issue_steward(curator: Curator, name: str, by: str | Grant = "steward") -> Grant:
    return requests.issue(curator.context, name, Role.STEWARD, None, 1, by)[1]


def test_a_steward_who_gives_out_further_tokens_is_one_person(curator: Curator) -> None:
    """Whoever gives out a token sees its text; by whatever name and over how many steps, it counts as the giver."""
    context = curator.context
    request = requests.ask(context.speak_for(ANA), "mask", ["visits"], WHY)
    sam, sue = issue_steward(curator, "sam"), issue_steward(curator, "sue")
    second = issue_steward(curator, "sue", sam)
    third = issue_steward(curator, "sid", second)
    requests.decide(context, request.id, True, "fine", second)
    for same in (sam, second, third, "sam"):
        with pytest.raises(AccessRefused, match="'sam' approved request"):
            requests.decide(context, request.id, True, "fine again", same)
    twice = requests.decide(context, request.id, True, "fine too", sue)
    assert (twice.status, twice.approved_by, twice.approvers) == ("approved", ("sue", "sue"), ("sam", "sue"))


def test_a_steward_of_an_issuer_elsewhere_is_known_by_name(curator: Curator) -> None:
    context = curator.context
    request = requests.ask(context.speak_for(ANA), "mask", ["visits"], WHY)
    for name in ("sam", "sue"):
        requests.decide(context, request.id, True, "fine", Grant(name, Role.STEWARD, "clinic"))
    assert requests.find_approved(context, request.id).approvers == ("sam", "sue")


def test_one_steward_can_decline_after_another_approved(curator: Curator) -> None:
    request = requests.ask(curator.context.speak_for(ANA), "mask", ["visits"], WHY)
    requests.decide(curator.context, request.id, True, "fine", "sam")
    assert requests.decide(curator.context, request.id, False, "a query does", "sue").status == "declined"
    with pytest.raises(ParameterError, match="declined already"):
        requests.decide(curator.context, request.id, True, "fine", "sid")


def test_stewards_who_approve_at_once_are_both_counted(policy: Path, curator: Curator) -> None:
    barrier, found = threading.Barrier(2), []

    def approve(name: str, identity: str) -> None:
        with Curator.open(policy, ledger=policy.with_suffix(".ledger.sqlite")) as own:
            barrier.wait()
            found.append(requests.decide(own.context, identity, True, "fine", name).approved_by)

    for _ in range(5):
        found.clear()
        request = requests.ask(curator.context.speak_for(ANA), "mask", ["visits"], WHY)
        threads = [threading.Thread(target=approve, args=(name, request.id)) for name in ("sam", "sue")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 2, "nobody is told that somebody else was first"
        assert requests.find_approved(curator.context, request.id).status == "approved"


def test_a_policy_that_changes_between_two_approvals_is_approved_by_nobody(policy: Path, curator: Curator) -> None:
    asked = requests.ask(curator.context.speak_for(ANA), "mask", ("visits",), {"justification": "to plan the wards"})
    requests.decide(curator.context, asked.id, True, "fine", "sam")
    policy.write_text(POLICY.replace("epsilon: 9", "epsilon: 8"))
    with Curator.open(policy, ledger=policy.with_suffix(".ledger.sqlite")) as changed:
        with pytest.raises(AccessRefused, match="policy was changed after request"):
            requests.decide(changed.context, asked.id, True, "fine", "pat")
        # Whoever writes such an approval all the same is not counted.
        details = {"id": asked.id, "reason": "fine", "person": "pat", "policy": changed.context.policy.hash}
        changed.ledger.record(Posting(Act.APPROVE, analyst="pat", purpose="research", details=details))
        assert requests.find_request(changed.context, asked.id).is_pending
        declined = requests.decide(changed.context, asked.id, False, "filed anew", "pat")
        assert not declined.is_pending


def test_a_policy_that_demands_more_approvals_afterwards_counts(policy: Path, curator: Curator) -> None:
    request = requests.ask(curator.context.speak_for(ANA), "mask", ["visits"], WHY)
    for name in ("sam", "sue"):
        requests.decide(curator.context, request.id, True, "fine", name)
    policy.write_text(POLICY.replace("approvals: 2", "approvals: 3"))
    with (
        Curator.open(policy, ledger=policy.with_suffix(".ledger.sqlite")) as stricter,
        pytest.raises(AccessRefused, match="demands more now"),
    ):
        requests.find_approved(stricter.context, request.id)


def test_what_was_approved_under_another_policy_is_not_released(policy: Path, curator: Curator) -> None:
    request = requests.ask(curator.context.speak_for(ANA), "mask", ["visits"], WHY)
    for name in ("sam", "sue"):
        requests.decide(curator.context, request.id, True, "fine", name)
    assert requests.find_approved(curator.context, request.id).id == request.id
    policy.write_text(POLICY.replace("zip: {role: quasi-identifier}", "zip: {role: insensitive}"))
    with (
        Curator.open(policy, ledger=policy.with_suffix(".ledger.sqlite")) as other,
        pytest.raises(AccessRefused, match="the policy was changed after"),
    ):
        requests.find_approved(other.context, request.id)


def test_an_asker_can_have_twenty_different_requests_wait_and_no_more(curator: Curator) -> None:
    """One analyst filed thousands in a minute; the steward could not list them any more."""
    ana = curator.context.speak_for(ANA)
    filed = [requests.ask(ana, "mask", ["visits"], {"justification": f"study {n}"}) for n in range(20)]
    before = len(list(curator.ledger.entries()))
    assert requests.ask(ana, "mask", ["visits"], {"justification": "study 7"}).id == filed[7].id
    with pytest.raises(ParameterError, match="20 requests of yours wait"):
        requests.ask(ana, "mask", ["visits"], {"justification": "study 20"})
    assert len(list(curator.ledger.entries())) == before
    requests.decide(curator.context, filed[7].id, False, "no", "carol")
    assert requests.ask(ana, "mask", ["visits"], {"justification": "study 7"}).id not in {each.id for each in filed}


def test_a_request_without_a_justification_is_refused_where_one_is_demanded(curator: Curator) -> None:
    for parameters in (None, {"justification": "  "}):
        with pytest.raises(ParameterError, match="says what it is needed for"):
            requests.ask(curator.context.speak_for(ANA), "mask", ["visits"], parameters)
    assert list(curator.ledger.entries()) == []


def test_terms_are_acknowledged_once_for_each_wording_before_anything_is_asked(policy: Path, curator: Curator) -> None:
    teaching = curator.context.speak_for(Asker("ana", "teaching", Role.ANALYST))
    count = "SELECT COUNT(*) AS n FROM visits"
    with pytest.raises(AccessRefused, match=r"has not acknowledged .* Nobody tries to find a person"):
        curator.query(count, epsilon=1, who=teaching.asker)
    with pytest.raises(AccessRefused, match="has not acknowledged"):
        requests.ask(teaching, "mask", ["visits"])
    with pytest.raises(ParameterError, match="not the terms as they are now"):
        requests.acknowledge(teaching, "0" * 16)
    shown = requests.show_terms(teaching)
    for _ in range(2):
        assert requests.acknowledge(teaching, shown.digest).acknowledged
    assert len(list(curator.ledger.entries(acts=("acknowledge",)))) == 1
    curator.query(count, epsilon=1, who=teaching.asker)
    curator.query(count, epsilon=1, who=Asker("", "teaching"))
    policy.write_text(POLICY.replace("find a person", "find anybody"))
    with (
        Curator.open(policy, ledger=policy.with_suffix(".ledger.sqlite")) as later,
        pytest.raises(AccessRefused, match="has not acknowledged"),
    ):
        later.query(count, epsilon=1, who=teaching.asker)
    with pytest.raises(ParameterError, match="has no terms"):
        requests.acknowledge(curator.context.speak_for(ANA), shown.digest)


def test_members_of_a_group_ask_by_their_own_names_and_share_what_it_may_spend(curator: Curator) -> None:
    both = [Asker(name, "teaching", Role.ANALYST) for name in ("bea", "cyd")]
    for who in both:
        context = curator.context.speak_for(who)
        requests.acknowledge(context, requests.show_terms(context).digest)
    curator.query("SELECT COUNT(*) AS n FROM visits", epsilon=1, who=both[0])
    curator.query("SELECT COUNT(*) AS m FROM visits WHERE sex = 'F'", epsilon=1, who=both[1])
    with pytest.raises(BudgetExceeded, match="group 'team'"):
        curator.query("SELECT COUNT(*) AS o FROM visits WHERE sex = 'M'", epsilon="0.1", who=both[0])
    with pytest.raises(AccessRefused, match="is a group"):
        curator.query("SELECT COUNT(*) AS o FROM visits", epsilon="0.1", who=Asker("team", "teaching", Role.ANALYST))
    listed = reports.budgets(curator.context).analysts
    assert {each.analyst for each in listed} == {"ana", "bea", "cyd", "dan"}
    assert [entry.analyst for entry in curator.ledger.entries(acts=("charge",))] == ["bea", "cyd"]


def test_somebody_who_stands_twice_or_a_role_as_a_member_is_a_mistake() -> None:
    for members, words in (("[ana]", "stands twice"), ("[bea, steward]", "name of a role")):
        with pytest.raises(PolicyError, match=words):
            parse(POLICY.replace("[bea, cyd]", members))


def test_a_grant_ends_on_the_day_that_the_policy_says() -> None:
    budgets, clock = parse(POLICY).budgets, Clock(2026, 11, 15, 23)
    ledger = Ledger("clinic", budgets, clock=clock)
    charge(ledger, "1/10", analyst="dan", purpose="research")
    clock.set(2026, 11, 16)
    for use in (
        lambda: charge(ledger, "1/10", analyst="dan", purpose="research"),
        lambda: ledger.admit("research", "dan"),
    ):
        with pytest.raises(AccessRefused, match="ended on 2026-11-15"):
            use()
    assert ledger.balance("research", "dan"), "what was spent can still be seen"
    charge(ledger, "1/10", analyst="ana", purpose="research")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("approvals: 2, ", "", "approvals 2 became 1"),
        (", justify: true", "", "no justification"),
        (', terms: "Nobody tries to find a person."', "", "terms were dropped"),
        ("2026-11-15", "2027-11-15", "the grant until 2026-11-15 became"),
        ("[bea, cyd]", "[bea, cyd, eve]", "eve is a new member"),
        ("carol, cyd]", "carol, cyd, eve]", "stewards: eve decides too"),
        ("stewards: [sam, sue, sid, pat, carol, cyd]", "", "stewards: nobody is listed any more"),
    ],
)
def test_dropping_a_demand_loosens_the_policy(old: str, new: str, words: str) -> None:
    assert any(words in each for each in list_loosened(parse(POLICY), parse(POLICY.replace(old, new))))
    assert not list_loosened(parse(POLICY.replace(old, new)), parse(POLICY)) or "2026" in old or "dropped" in words


def test_risk_stands_beside_cost_on_what_waits_and_is_not_stored(curator: Curator) -> None:
    first = requests.ask(curator.context.speak_for(ANA), "mask", ["visits"], WHY)
    requests.decide(curator.context, first.id, False, "no", "sam")
    second = requests.ask(curator.context.speak_for(ANA), "mask", ["visits"], WHY)
    waiting, decided = reports.requests(curator.context, risk=True)
    assert waiting.id == second.id
    assert waiting.risk is not None
    assert waiting.risk["visits"].per_thousand == 1000
    assert decided.risk is None
    assert all(each.risk is None for each in reports.requests(curator.context, "ana"))
    assert "per_thousand" not in json.dumps([entry.as_dict() for entry in curator.ledger.entries()])


def test_a_paused_token_is_refused_until_it_is_resumed(curator: Curator) -> None:
    context = curator.context
    text, grant = requests.issue(context, "ana", Role.ANALYST, ["research"])
    requests.pause(context, grant.id, "half of the budget in an hour", "sam")
    with pytest.raises(AccessRefused, match="paused"):
        requests.authenticate(context, text)
    assert requests.provable(context, "ana") == []
    requests.unpause(context, grant.id, "explained", "sam")
    assert requests.authenticate(context, text).id == grant.id
    requests.revoke(context, grant.id)
    requests.unpause(context, grant.id)
    with pytest.raises(AccessRefused, match="not valid"):
        requests.authenticate(context, text)


@pytest.mark.parametrize("days", [0, -1, 3661, 1e9, float("nan"), float("inf"), float("-inf")])
def test_a_token_has_a_term_that_ends(curator: Curator, days: float) -> None:
    before = requests.list_tokens(curator.context)
    with pytest.raises(ParameterError, match="cannot be good for"):
        requests.issue(curator.context, "ana", Role.ANALYST, ["research"], days)
    assert requests.list_tokens(curator.context) == before


def test_incidents_tell_who_asked_what_and_what_is_unusual() -> None:
    clock = Clock(2026, 11, 15, 8)
    ledger = Ledger("clinic", tree(), clock=clock)
    for _ in range(3):
        charge(ledger, "1/10", analyst="ana")
        clock.now += timedelta(minutes=90)
    assert estate.list_incidents(ledger).alerts == []
    for _ in range(2):
        charge(ledger, "1/5", analyst="ana")
        clock.now += timedelta(minutes=20)
    ledger.record(Posting(Act.FAIL, analyst="ben", purpose="research"))
    clock.set(2026, 11, 15, 9)
    ledger.record(Posting(Act.REVEAL, analyst="cyd"))
    found = estate.list_incidents(ledger)
    assert [(alert.kind, alert.who) for alert in found.alerts] == [
        ("burst", "ana"), ("fail", "ben"), ("reveal", "cyd"), ("clock", "cyd"),
    ]  # fmt: skip
    assert "40% of what may be spent" in found.alerts[0].words
    ana = found.usage[0]
    assert (ana.who, ana.charges, ana.failures, ana.busiest_share) == ("ana", 5, 0, 0.4)
    assert ana.spent == pytest.approx(0.7)


UNEVEN = """
version: 1
dataset: clinic
tables: {visits: {source: visits.csv, unit: row, columns: {id: {role: identifier}}}}
budgets:
  dataset: {epsilon: 100}
  purposes: {research: {epsilon: 1}}
  analysts: {ana: {purposes: [research]}}
"""


def test_a_burst_is_measured_by_the_least_of_what_may_be_spent_also_of_an_analyst_without_an_amount() -> None:
    ledger = Ledger("clinic", parse(UNEVEN).budgets, clock=Clock(2026, 11, 15, 8))
    charge(ledger, "3/10", analyst="ana")
    charge(ledger, "1/10", analyst="steward", purpose="research")
    found = estate.list_incidents(ledger)
    assert [(each.who, each.busiest_share) for each in found.usage] == [("ana", 0.3), ("steward", 0.1)]
    assert [(alert.kind, alert.who) for alert in found.alerts] == [("burst", "ana")]


def test_the_report_of_a_person_is_in_plain_words_with_rights_and_proof(policy: Path, curator: Curator) -> None:
    context = curator.context
    curator.query("SELECT COUNT(*) AS n FROM visits", epsilon=1, who=ANA)
    curator.query("SELECT COUNT(*) AS m FROM visits WHERE sex = 'F'", epsilon=1, who=ANA)
    curator.record("masking", tables=["visits"], who=ANA)
    told = "\n".join(reports.subject_report(context, "id", "7").words)
    together = "2 of these with noise together: by a factor of at most 7.39"
    rights = ("are in: visits", "no number bounds", "whoever withdraws is left out")
    for words in ("factor of at most 2.72", together, *rights):
        assert words in told, words
    receipt = withdrawals.withdraw(context, "id", "7")
    found = reports.subject_report(context, "id", "7")
    assert found.proof is not None
    assert (found.proof.number, found.proof.hash) == (receipt.number, receipt.head)
    assert "To be erased: the steward deletes the rows" in "\n".join(found.words)
    kept = [line for line in (policy.parent / "visits.csv").read_text().splitlines() if not line.startswith("7,")]
    (policy.parent / "visits.csv").write_text("\n".join(kept) + "\n")
    erased = reports.subject_report(context, "id", "7")
    assert erased.tables == []
    assert "Erased: no source holds rows of the person any more" in "\n".join(erased.words)


OTHER = """
version: 1
dataset: billing
tables:
  bills:
    source: bills.csv
    unit: {column: id, max_groups: 2, max_rows_per_group: 1}
    columns: {id: {type: integer, role: identifier, mask: redact}, zip: {role: insensitive}}
  map: {source: map.csv, public: true, columns: {sex: {role: insensitive}, zip: {role: insensitive}}}
budgets: {dataset: {epsilon: 3}}
"""


def test_a_ledger_that_is_not_to_be_trusted_has_no_totals(policy: Path) -> None:
    """An older copy, a ledger that is gone, and a store of which answers were deleted: every command refuses."""
    ledger = policy.with_suffix(".ledger.sqlite")
    store = policy.with_suffix(".ledger.kept.sqlite")

    def spend(sql: str) -> None:
        with Curator.open(policy, ledger=ledger) as opened:
            opened.query(sql, epsilon=1, who=ANA)

    spend("SELECT COUNT(*) FROM visits")
    older = {each: each.read_bytes() for each in (ledger, store)}
    spend("SELECT COUNT(*) FROM visits WHERE sex = 'F'")
    newest = {each: each.read_bytes() for each in (ledger, store)}
    reading = [("estate", policy.parent)]
    reading += [("ledger", word, "-p", policy) for word in ("show", "verify", "export", "incidents")]
    for words in reading:
        run(*words)
    for each, content in older.items():
        each.write_bytes(content)
    for words in reading:
        assert "when it was last used" in run(*words, refused=True), words
    ledger.unlink()
    for words in reading:
        assert "it is gone" in run(*words, refused=True), words
    for each, content in newest.items():
        each.write_bytes(content)
    with sqlite3.connect(store) as connection:
        connection.execute("DELETE FROM kept WHERE drawer = 'answers'")
    connection.close()
    for words in reading:
        assert "answer store" in run(*words, refused=True), words


def test_the_estate_tells_who_is_where_and_what_it_adds_up_to(tmp_path: Path) -> None:
    one, two = write_policy(tmp_path / "one"), write_policy(tmp_path / "two", OTHER)
    (tmp_path / "two" / "bills.csv").write_text("id,zip\n" + "".join(f"{i},y{i}\n" for i in range(20)))
    (tmp_path / "two" / "map.csv").write_text("sex,zip\nF,z1\n")
    (tmp_path / "broken.yaml").write_text("version: 1\ndataset: x\ntables: {t: {source: t.csv}}\n")
    (tmp_path / "other.yaml").write_text("just: yaml\n")
    with Curator.open(one, ledger=one.with_suffix(".ledger.sqlite")) as curator:
        curator.query("SELECT COUNT(*) AS n FROM visits", epsilon=2, who=ANA)
        curator.record("masking", tables=["visits"], who=ANA)
    with Curator.open(two, ledger=two.with_suffix(".ledger.sqlite")) as curator:
        curator.query("SELECT COUNT(*) AS n FROM bills", epsilon=1)
        curator.record("masking", tables=["bills"])
    found = json.loads(run("estate", tmp_path, "-o", tmp_path / "estate.html", "--json"))
    assert [each["dataset"] for each in found["datasets"]] == ["clinic", "billing"]
    people = {each["known_by"]: each for each in found["people"]}["column id"]
    assert people["places"] == ["clinic.visits", "billing.bills"]
    assert (people["spent"]["epsilon"], people["rows_released"]) == ("3", 2)
    assert found["key_columns"] == {"sex": ["clinic.visits"], "zip": ["clinic.visits"]}
    assert [each.split(":")[0] for each in found["unread"]] == ["broken.yaml"]
    told = "\n".join(found["findings"])
    assert "billing.map is public and holds sex, zip, by which people of clinic.visits may be found" in told
    assert "billing.bills released zip of the same people as they are; clinic.visits protects them" in told
    page = (tmp_path / "estate.html").read_text()
    assert "billing.map is public" in page
    shown = run("estate", tmp_path)
    assert "spent on one person in all: epsilon 3" in shown


def test_the_estate_counts_what_ledgers_in_a_database_spent_and_tells_of_one_that_is_not_named(
    tmp_path: Path, postgres_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = write_policy(tmp_path / "one"), write_policy(tmp_path / "two", OTHER)
    names = {path: f"{path.parent.name}{uuid.uuid4().hex[:8]}" for path in (one, two)}
    for path, name in names.items():
        path.write_text(re.sub(r"dataset: \w+\n", f"dataset: {name}\n", path.read_text(), count=1))
    (tmp_path / "two" / "bills.csv").write_text("id,zip\n" + "".join(f"{i},y{i}\n" for i in range(20)))
    (tmp_path / "two" / "map.csv").write_text("sex,zip\nF,z1\n")
    with Curator.open(one, ledger=postgres_address) as curator:
        curator.query("SELECT COUNT(*) AS n FROM visits", epsilon=2, who=ANA)
    with Curator.open(two, ledger=two.with_suffix(".ledger.sqlite")) as curator:
        curator.query("SELECT COUNT(*) AS n FROM bills", epsilon=1)
    alone, once = json.loads(run("estate", tmp_path, "--json")), {"differentially private query": 1}
    assert [each["techniques"] for each in alone["datasets"]] == [{}, once]
    [told] = alone["unread"]
    told_so = rf"one/\S+: its ledger is postgresql://\S+#{names[one]}, .*not counted: name it with --ledger"
    assert re.fullmatch(told_so, told)
    monkeypatch.setenv("DENIABLE_LEDGER", postgres_address)
    found = json.loads(run("estate", tmp_path, "--json"))
    assert [each["techniques"] for each in found["datasets"]] == [once, once]
    people = {each["known_by"]: each for each in found["people"]}["column id"]
    assert (people["spent"]["epsilon"], found["unread"]) == ("3", [])
    shared = run("estate", tmp_path, "--ledger", two.with_suffix(".ledger.sqlite"))
    assert f"{names[two]} (two/policy.yaml): 1 diff" in shared, "a file is the ledger of its own dataset only"


def test_a_folder_without_a_policy_is_refused(tmp_path: Path) -> None:
    assert "no policy in" in run("estate", tmp_path, refused=True)
    assert "is not a folder" in run("estate", tmp_path / "nothing", refused=True)


def test_the_commands_of_two_stewards_terms_and_incidents(policy: Path) -> None:
    at = ("-p", policy)
    asked = json.loads(run("request", "mask", "visits", "--analyst", "ana", "--purpose", "research",
                           "--justification", "to plan", *at, "--json"))  # fmt: skip
    assert " % of the people of visits" in run("requests", "--pending", *at)
    assert "2 stewards must" in run("approve", asked["id"], "--reason", "fine", "--by", "sam", *at)
    assert "approved request" in run("approve", asked["id"], "--reason", "fine", "--by", "sam", *at, refused=True)
    assert "approved: mask" in run("approve", asked["id"], "--reason", "fine", "--by", "sue", *at)
    terms = ("terms", "--analyst", "ana", "--purpose", "teaching")
    assert "not acknowledged" in run(*terms, *at)
    assert "ana: acknowledged" in run(*terms, "--acknowledge", *at)
    token = json.loads(run("token", "new", "ana", "--purpose", "research", *at, "--json"))
    assert "is paused" in run("token", "pause", token["id"], "--reason", "unusual", *at)
    assert "a token was paused" in run("ledger", "incidents", *at)
    assert "counts again" in run("token", "resume", token["id"], "--reason", "explained", *at)


def test_the_record_goes_to_other_systems_line_by_line_in_the_names_of_ecs(policy: Path) -> None:
    run("terms", "--analyst", "ana", "--purpose", "teaching", "--acknowledge", "-p", policy)
    run("withdraw", "7", "--column", "id", "-p", policy)
    lines = [json.loads(line) for line in run("ledger", "export", "--form", "ecs", "-p", policy).splitlines()]
    assert [line["event"]["action"] for line in lines] == ["acknowledge", "withdraw"]
    assert [line["event"]["sequence"] for line in lines] == [1, 2]
    assert lines[0]["user"] == {"name": "ana"}
    assert lines[0]["event"]["dataset"] == "deniable.clinic"
    moment = datetime.fromisoformat(lines[0]["@timestamp"].replace("Z", "+00:00"))
    assert abs(moment - datetime.now(UTC)) < timedelta(minutes=5)
    after = run("ledger", "export", "--form", "jsonl", "--after", "1", "-p", policy).splitlines()
    assert [json.loads(line)["sequence"] for line in after] == [2]
    assert "line by line" in run("ledger", "export", "--form", "csv", "--follow", "-p", policy, refused=True)


def test_an_export_that_follows_shows_entries_as_they_are_written(
    policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deniable.curator.governance import steward

    monkeypatch.setattr(steward, "FOLLOW_SECONDS", 0.01)
    with Curator.open(policy, ledger=policy.with_suffix(".ledger.sqlite")) as curator:
        withdrawals.withdraw(curator.context, "id", "7")
        following = steward.export(policy, None, "jsonl", None, follow=True)
        assert json.loads(next(following))["sequence"] == 1
        withdrawals.withdraw(curator.context, "id", "8")
        assert json.loads(next(following))["sequence"] == 2
        following.close()


REMEDIES = {
    "Acknowledge them once: deniable terms --analyst ana --purpose teaching --acknowledge": (
        "Acknowledge them once: POST /v1/terms"
    ),
    "Ask the steward, who looks at the ledger and runs: deniable resume ana": (
        "Ask the steward, who looks at the ledger and runs: POST /v1/analysts/ana/resume"
    ),
    "Say --justification, in words": "Say justification, in words",
    "Look at it again: deniable requests": "Look at it again: GET /v1/requests",
    "Use a larger epsilon": "Use a larger epsilon",
}


@pytest.mark.parametrize("remedy", REMEDIES)
def test_over_http_a_remedy_names_routes_and_fields_instead_of_commands_and_options(remedy: str) -> None:
    raised = AccessRefused("it is refused", expected="--reason TEXT", remedy=remedy, request="r1")
    shown = describe_refusal(translate_failure(raised))
    assert (shown["remedy"], shown["expected"], shown["request"]) == (REMEDIES[remedy], "reason TEXT", "r1")
    assert str(shown["message"]).startswith(f"it is refused. reason TEXT. {REMEDIES[remedy]}")
    assert raised.remedy == remedy, "the command line still names its own"
