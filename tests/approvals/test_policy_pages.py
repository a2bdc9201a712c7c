"""The pages of policies and exemptions: access, content and forms, without any script."""

import html
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from accounts import teams
from accounts.models import ROLES
from approvals import exemptions
from approvals.models import Activation, Exemption, PolicySet
from approvals.policies import draft_help, dry_run, policies
from approvals.policies.engine import Requirement
from approvals.policies.labels import describe_conditions, describe_requirement
from approvals.policies.policies_yaml import parse_policies
from approvals.policies.staffing_check import find_understaffed_rules
from approvals.policies.statistics import RuleStatistics
from db.clock import now_us
from journal.models import Entry
from tests.approvals.confirm_helpers import proved
from tests.approvals.inbox_scenario import RULES, InboxScenario

pytestmark = pytest.mark.django_db
DRAFT = """name: basic
rules:
  - {id: push, title: Nobody pushes, match: {tools: [git.push]}, outcome: deny}
"""


def page(
    inbox: InboxScenario,
    url_name: str,
    *args: Any,
    role: str = "viewer",
    status: int = 200,
    **query: Any,
) -> str:
    answer = inbox.organization.client(role).get(reverse(url_name, args=args), query)
    assert answer.status_code == status
    return answer.content.decode()


def post(
    inbox: InboxScenario, url_name: str, *args: Any, role: str = "administrator", **fields: Any
) -> Any:
    return inbox.organization.client(role).post(reverse(url_name, args=args), fields)


def exempted(inbox: InboxScenario, **scope: Any) -> Exemption:
    fields: dict[str, Any] = {
        "tool": "git.push",
        "reason": "The release train, INC-204.",
        "ends_at_us": now_us() + 3_600_000_000,
    }
    with transaction.atomic():
        return exemptions.create_exemption(
            inbox.project, user=inbox.user("operator"), **(fields | scope), **proved()
        )


def list_pages(inbox: InboxScenario) -> list[tuple[str, str]]:
    """(URL, least role) of every page of policies."""
    policy_set = PolicySet.objects.get(project=inbox.project)
    return [
        (reverse("policies"), "viewer"),
        (reverse("policy_set", args=[policy_set.pk]), "viewer"),
        (reverse("policy_draft"), "administrator"),
        (reverse("activate_policy", args=[policy_set.pk]), "administrator"),
        (reverse("exemptions"), "viewer"),
        (reverse("grant_exemption"), "operator"),
        (reverse("revoke_exemption", args=[exempted(inbox).pk]), "operator"),
    ]


@pytest.mark.parametrize("role", ROLES)
def test_each_page_opens_from_its_role_upwards(inbox: InboxScenario, role: str) -> None:
    client = inbox.organization.client(role)
    for url, least in list_pages(inbox):
        allowed = ROLES.index(role) >= ROLES.index(least)
        assert client.get(url).status_code == (200 if allowed else 403), url
        if not allowed:
            assert (
                client.post(url, {"mode": "observe", "text": DRAFT, "do": "load"}).status_code
                == 403
            ), url
    assert (Activation.objects.count(), PolicySet.objects.count()) == (1, 1)
    assert Exemption.objects.get().revoked_at_us is None


def test_nothing_of_another_project_is_found(inbox: InboxScenario) -> None:
    with transaction.atomic():
        foreign = policies.load_policy_set(inbox.organization.other, RULES)
        theirs = exemptions.create_exemption(
            inbox.organization.other,
            tool="*",
            reason="Of another project.",
            ends_at_us=now_us() + 9_000_000,
            user=inbox.organization.neighbour.user,
            **proved(),
        )
    for url_name, key in (
        ("policy_set", foreign.pk),
        ("activate_policy", foreign.pk),
        ("revoke_exemption", theirs.pk),
    ):
        page(inbox, url_name, key, role="administrator", status=404)
        assert post(inbox, url_name, key, mode="enforce").status_code in (404, 405)
    page(inbox, "policy_draft", role="administrator", status=404, **{"from": foreign.pk})
    assert "Of another project" not in page(inbox, "exemptions")
    assert "none is in force now" in page(inbox, "policies")
    assert "Exemptions 0</a>" in page(inbox, "inbox")
    assert not Activation.objects.filter(project=inbox.organization.other).exists()
    assert Exemption.objects.get(pk=theirs.pk).revoked_at_us is None


def test_every_post_without_its_csrf_proof_is_refused(inbox: InboxScenario) -> None:
    client = inbox.organization.client("administrator", csrf=True)
    for url, _ in list_pages(inbox):
        assert client.post(url, {"mode": "observe", "text": DRAFT, "do": "load"}).status_code in (
            403,
            405,
        ), url
    assert (Activation.objects.count(), PolicySet.objects.count()) == (1, 1)


def test_reading_pages_changes_nothing(inbox: InboxScenario) -> None:
    urls = list_pages(inbox)
    assert "1 exemption</a>\nnow skips approval" in page(inbox, "policies")
    assert "Exemptions 1</a>" in page(inbox, "inbox")
    before = Entry.objects.count()
    for url, _ in urls:
        inbox.organization.client("administrator").get(url)
    assert Entry.objects.count() == before


def test_without_rules_the_page_shows_how_to_begin(quiet: InboxScenario) -> None:
    assert "This project only observes" in page(quiet, "policies")
    assert "Write a draft and test it" in page(quiet, "policies", role="administrator")
    assert "Write a draft" not in page(quiet, "policies")


def test_the_page_shows_each_rule_and_how_often_it_matched(inbox: InboxScenario) -> None:
    for n in range(2):
        inbox.plan(f"push-{n}", arguments={"n": n})
    inbox.plan("other", tool="mail.send", arguments={})
    text = re.sub(r"\s+", " ", page(inbox, "policies"))
    assert "mode <b>enforce</b>" in text
    assert '<code id="push">push</code>' in text
    assert "1 person (any reviewer)" in text
    assert re.search(r'id="push".*?data-label="Matched"[^>]*>.*?>2</a></td>', text)
    assert re.search(
        r"No matching rule</td>.*?0 allowed.*?1 sent for approval.*?class=\"num\">1</td>", text
    )


def test_figures_of_human_decisions_are_shown_by_rule(inbox: InboxScenario) -> None:
    for n, seen_s in ((1, 5), (2, 0)):
        gate = inbox.gate(inbox.plan(f"push-{n}", arguments={"n": n}))
        with time_machine.travel(datetime.now(UTC), tick=False):
            seen = inbox.shown(gate)
            inbox.answer(
                gate,
                "reviewer",
                "approve",
                shown=seen._replace(at_us=seen.at_us - seen_s * 1_000_000),
            )
    inbox.plan("late", arguments={"n": 3})
    with time_machine.travel(datetime.now(UTC) + timedelta(hours=2), tick=True):
        text = page(inbox, "policies")
    row = re.search(r'<a href="#push">.*?</tr>', text, re.DOTALL)
    assert row is not None
    cells = re.findall(r'data-label="([^"]+)" class="\w+">(.*?)</td>', row[0], re.DOTALL)
    by_label = {label: re.sub(r"<[^>]+>", "", cell).strip() for label, cell in cells}
    assert (
        by_label["Requests"],
        by_label["Waiting"],
        by_label["Approved"],
        by_label["Expired"],
    ) == (
        "3",
        "0",
        "100%",
        "1",
    )
    assert (by_label["Denied"], by_label["Under 2 s"]) == ("0", "50%")
    assert "reviewer" not in row[0], "the figures are never a person's"


@pytest.mark.usefixtures("remembered")
def test_the_page_costs_as_many_queries_for_many_rows_as_for_few(inbox: InboxScenario) -> None:
    def cost() -> int:
        client = inbox.organization.client("viewer")
        client.get(reverse("policies"))
        with CaptureQueriesContext(connection) as queries:
            client.get(reverse("policies"))
        return len(queries)

    few = cost()
    for n in range(5):
        inbox.answer(inbox.gate(inbox.plan(f"push-{n}", arguments={"n": n})), "reviewer", "approve")
        inbox.rules(RULES.replace("name: basic", f"name: basic\n# {n}"))
    assert cost() == few <= 16


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        (
            RuleStatistics(requests=50, approved=48, denied=2, took_us=[2_000_000] * 50),
            "96% approved, half of them within 2.0 s",
        ),
        (
            RuleStatistics(requests=50, approved=40, denied=10, votes=50, quick=20),
            "40% of the votes came within 2 s",
        ),
        (RuleStatistics(requests=10, expired=3), "30% expired: ask other people"),
        (RuleStatistics(requests=50, approved=50, took_us=[60_000_000] * 50, votes=50), ""),
        (RuleStatistics(requests=5, approved=5, took_us=[1] * 5, votes=5, quick=5), ""),
    ],
)
def test_hints_follow_the_figures(budget: RuleStatistics, words: str) -> None:
    assert words in " ".join(budget.hints)
    assert bool(words) == bool(budget.hints)


def test_quantiles_are_times_that_people_really_took() -> None:
    budget = RuleStatistics(took_us=[*range(1, 101)])
    assert (budget.median_us, budget.p95_us) == (50, 95)
    assert (
        RuleStatistics(took_us=[7]).median_us,
        RuleStatistics(took_us=[7]).p95_us,
        RuleStatistics().median_us,
    ) == (7, 7, None)


def test_conditions_and_requirements_are_shown_in_words() -> None:
    text = """name: basic
rules:
  - id: all
    title: T
    match:
      tools: [git.*]
      risk_at_least: high
      labels: {team: web}
      arguments: [{path: to, cidr: 10.0.0.0/8}, {path: n, lt: 5}, {path: x, exists: false}]
      rate: {over: 5, within_s: 90m, per: agent}
      session_effects_over: 9
    outcome: require
    require: {teams: [leads], people: [ada], minimum: 2, step_up: reauth, deny_threshold: 2, valid_for: 45,
      rationale: {on: always, minimum_characters: 25, ticket: 'INC-*'}}
"""
    [rule] = parse_policies(text)["rules"]
    phrases = [
        " ".join([phrase.label, phrase.verb, *phrase.values]).strip()
        for phrase in describe_conditions(rule["match"])
    ]
    assert phrases == [
        "tool  git.*",
        "risk  high critical",
        "label team  web",
        'argument to is an address in "10.0.0.0/8"',
        "argument n is less than 5",
        "argument x is not there",
        "once 5 were planned within 90 min with this tool by the agent",
        "once 9 effects were planned in the session",
    ]
    words = describe_requirement(Requirement.of(rule["require"]))
    assert words.replace("\N{NO-BREAK SPACE}·", " ·") == (
        "2 people (team leads or ada) · with a password · not the requester, the session owner, "
        "the agent owner · "
        "a reason of 25 characters or more, with a ticket like INC-* · 2 denials to deny · decide "
        "within 1 h · "
        "approval valid 45 s"
    )


def test_a_rule_that_asks_people_who_do_not_exist_is_marked(inbox: InboxScenario) -> None:
    text = (
        "name: basic\nrules:\n"
        "  - {id: two, title: T, match: {}, outcome: require, require: {teams: [leads], minimum: "
        "2}}\n"
        "  - {id: who, title: W, match: {}, outcome: require, require: {teams: [ops], people: "
        "[viewer, operator]}}\n"
        "  - {id: any, title: A, match: {}, outcome: require, require: {minimum: 3}}\n"
        "  - {id: all, title: A, match: {}, outcome: require, require: {minimum: 4}}\n"
    )
    with transaction.atomic():
        leads = teams.create_team(inbox.project, "leads")
        for role in ("viewer", "reviewer"):
            teams.add_team_member(leads, inbox.organization.members[role])
        loaded = policies.load_policy_set(inbox.project, text)
    assert find_understaffed_rules(inbox.project, loaded.rules) == [
        ("two", "Needs 2 approvers but only 1 is eligible; requests will expire."),
        ("who", "The team ops does not exist in this project."),
        ("who", "viewer is not a reviewer of this project."),
        ("all", "Needs 4 approvers but only 3 are eligible; requests will expire."),
    ]
    for url_name in ("policy_set", "activate_policy"):
        assert "does not exist in this project" in page(
            inbox, url_name, loaded.pk, role="administrator"
        )
    assert "requests will expire" not in page(inbox, "policies")
    inbox.rules(text)
    assert "requests will expire" in page(inbox, "policies")


def test_the_rail_marks_one_app(inbox: InboxScenario) -> None:
    for url_name, name in (
        ("policies", "Policies"),
        ("exemptions", "Policies"),
        ("inbox", "Approvals"),
    ):
        marked = re.findall(r'<nav class="rail".*?</nav>', page(inbox, url_name), re.DOTALL)[0]
        assert re.findall(r'aria-current="\w+"[^>]*>([A-Z]\w+)', marked) == [name], url_name


def test_nothing_is_inline(inbox: InboxScenario) -> None:
    for url, _ in list_pages(inbox):
        html = inbox.organization.client("administrator").get(url).content.decode()
        assert not re.search(
            r"<style|\sstyle=|\son[a-z]+=|<script(?![^>]*\ssrc=)|javascript:", html
        ), url


def test_the_editor_checks_a_draft_as_it_is_written(inbox: InboxScenario) -> None:
    inbox.plan(tool="git.push")
    browser = inbox.organization.client("administrator")
    url, live = reverse("policy_draft"), {"HX-Request": "true"}
    form = {"days": "14", "mode": "enforce", "do": "check"}
    wrong = browser.post(url, form | {"text": DRAFT.replace("deny", "dny")}, headers=live)
    assert wrong.status_code == 200
    assert 'data-line="3"' in wrong.content.decode()
    assert "<html" not in wrong.content.decode()
    plain = browser.post(url, form | {"text": DRAFT.replace("deny", "dny")})
    assert plain.status_code == 422
    assert 'data-line="3"' in plain.content.decode()

    checked = browser.post(url, form | {"text": DRAFT}, headers=live).content.decode()
    replay = dry_run.prepare_dry_run(inbox.organization.project, DRAFT, days=14)
    changed = len(list(replay))
    assert changed
    assert f"<h3>{changed} change" in checked
    assert "changes <code>push</code>" in checked
    assert not PolicySet.objects.filter(text=DRAFT).exists()


def test_the_editor_inserts_examples_that_parse(inbox: InboxScenario) -> None:
    browser = inbox.organization.client("administrator")
    text = ""
    for example in [*draft_help.EXAMPLES, draft_help.EXAMPLES[0]]:
        page = browser.post(
            reverse("policy_draft"), {"text": text, "do": f"example:{example.key}"}
        ).content.decode()
        text = draft_help.insert_example(text, example.key)
        assert html.escape(text.strip()) in page
    ids = [rule["id"] for rule in parse_policies(text)["rules"]]
    assert ids[0] == "irreversible"
    assert ids[-1] == "irreversible-2"


def test_activation_shows_the_difference(inbox: InboxScenario) -> None:
    with transaction.atomic():
        loaded = policies.load_policy_set(inbox.organization.project, DRAFT)
    page = inbox.organization.client("administrator").get(
        reverse("activate_policy", args=[loaded.pk])
    )
    assert "changes <code>push</code>" in page.content.decode()
    assert "<ins" in page.content.decode()


def test_completions_name_what_the_project_has(inbox: InboxScenario) -> None:
    inbox.plan(tool="git.push")
    words = draft_help.load_completions(inbox.organization.project)
    assert "git.push" in words["tools"]
    assert "reviewer" in words["people"]
    assert "viewer" not in words["people"]
    assert "match: " in words[""]
