"""Spellings of a ref: none escapes its class, a rule, a denial or the search; the card shows what
git moves."""

from typing import Any

import pytest
from django.urls import reverse

from accounts import repositories
from accounts.models import Repository
from approvals.policies.engine import evaluate_rules
from db.clock import now_us
from investigation.history import past_effects
from investigation.history.moment import JournalCut
from journal.models import Entry
from ledger.models import Effect
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.policy_factories import no_earlier_plans, rules, wish

pytestmark = pytest.mark.django_db

OF_MAIN = (
    "main",
    "heads/main",
    "refs/heads/main",
    "+main",
    "+refs/heads/main",
    "main:main",
    "HEAD:main",
    "+HEAD:heads/main",
    "dev:refs/heads/main",
    ":main",
    "--delete main",
    "--force main",
    "HEAD",
    "@",
)
UNCLEAR = (
    "--all",
    "--mirror",
    "refs/heads/*:refs/heads/*",
    ":",
    "main/",
    "main.lock",
    "m%61in",
    "ma\\in",
    "^main",
    "--what",
    "a b c d e f g h i",
    "main:",
    "dev:HEAD",
    '"main"',
    "'main'",
    "`main`",
    "$main",
    "main;",
    "{main,dev}",
    "dev&&main",
)
ALIKE = (  # compared so that no host reads them as main
    "Main",
    "MAIN",
    "ｍａｉｎ",
    "máin",
    "mаin",
    "refs/remotes/origin/main",
    "origin/main",
    "refs/for/main",
    "dev main",
)
RULES = """
name: basic
rules:
  - {id: production, title: Production, match: {tools: [git.push], ref_classes: [production]}, outcome: require}
  - {id: others, title: The rest, match: {tools: [git.push], ref_classes: [protected, other]}, outcome: allow}
"""


def planned(inbox: InboxScenario, key: str, ref: str | None, **fields: Any) -> dict[str, Any]:
    target = {"repository": "web", **({"ref": ref} if ref is not None else {})}
    return inbox.plan(key, arguments={"call": key, "branch": "main"}, target=target, **fields)


def test_no_spelling_lets_a_push_to_production_through(inbox: InboxScenario) -> None:
    inbox.rules(RULES)
    for at, ref in enumerate((*OF_MAIN, *UNCLEAR, *ALIKE)):
        answer = planned(inbox, f"e-{at}", ref)
        effect = inbox.effect(answer)
        assert (answer["answer"], effect.ref, effect.ref_class) == ("wait", ref, "production"), ref
        if ref in OF_MAIN:
            assert effect.moved_refs == "refs/heads/main", ref
        if ref in UNCLEAR:
            assert "*" in effect.moved_refs, ref
    assert planned(inbox, "unnamed", None)["answer"] == "wait", (
        "a push that names no ref moves what nobody knows"
    )
    for ref in (
        "topic",
        "refs/heads/topic",
        "HEAD:topic",
        "+topic",
        "feature/main",
        "topic:feature/mainly",
        "tag v1",
    ):
        assert planned(inbox, f"free-{ref}", ref)["answer"] == "proceed", ref


def test_head_is_the_branch_that_arguments_or_session_name(inbox: InboxScenario) -> None:
    inbox.agent.post("/sessions", {"key": "on-dev", "branch": "dev"})
    for at, (arguments, moved) in enumerate(
        (
            ({}, "refs/heads/dev"),
            ({"branch": "refs/heads/x"}, "refs/heads/x"),
            ({"branch": "a:main"}, "*"),
        )
    ):
        target = {"repository": "web", "ref": "HEAD"}
        answer = inbox.agent.plan(f"e-{at}", "on-dev", arguments=arguments, target=target)
        assert inbox.effect(answer).moved_refs == moved
    answer = inbox.plan("nowhere", target={"repository": "web", "ref": "HEAD"})
    assert (inbox.effect(answer).moved_refs, inbox.effect(answer).ref_class) == ("*", "production")


def test_a_report_is_classed_by_the_same_function(inbox: InboxScenario) -> None:
    inbox.agent.session("s-1")
    bodies = [
        {
            "id": f"r-{at}",
            "kind": "effect.planned",
            "session": "s-1",
            "effect_key": f"r-{at}",
            "tool": "git.push",
            "arguments": {"branch": branch},
            "target": {"repository": "web", "ref": "HEAD"},
        }
        for at, branch in enumerate(("main", "topic"))
    ]
    assert inbox.agent.post("/events", bodies).status_code == 200
    effects = Effect.objects.filter(effect_key__startswith="r-").order_by("effect_key")
    assert list(effects.values_list("moved_refs", "ref_class")) == [
        ("refs/heads/main", "production"),
        ("refs/heads/topic", "other"),
    ]


def test_a_ref_without_a_repository_has_the_class_of_a_new_one(inbox: InboxScenario) -> None:
    inbox.rules(RULES)
    answer = inbox.plan(target={"ref": "HEAD:main"})
    assert (answer["answer"], inbox.effect(answer).ref_class) == ("wait", "production")


def test_the_worst_class_is_that_of_the_repository() -> None:
    for production, protected, worst in (
        ("main", "r/*", "production"),
        ("", "r/*", "protected"),
        ("", "", "other"),
    ):
        repository = Repository(production_refs=production, protected_refs=protected)
        assert repositories.classify_moved_refs(repository, "*")[0] == worst
        assert repositories.classify_moved_refs(repository, "refs/heads/x refs/heads/r/1")[0] == (
            "protected" if protected else "other"
        )


@pytest.mark.parametrize(
    ("ref", "glob", "asks", "allows"),
    [
        ("HEAD:main", "main", True, True),
        ("HEAD:main", "refs/heads/main", True, False),
        ("HEAD:refs/heads/main", "refs/heads/main", True, True),
        ("v1", "refs/tags/*", True, False),  # a plain name can be the name of a tag
        ("refs/heads/v1", "refs/tags/*", False, False),
        ("heads/v1", "refs/tags/*", True, False),
        ("agent/1", "agent/*", True, True),
        ("agent/1 main", "agent/*", True, False),
        ("agent/1 main", "main", True, False),
        ("--all", "main", True, False),
        ("refs/heads/agent/*:refs/heads/agent/*", "agent/*", True, False),
        ("Main", "main", True, False),
        ("main", "topic", False, False),
        ("", "main", True, False),  # git.push without a ref
        ("--all", "*", True, True),
    ],
)
def test_an_allowing_rule_covers_all_refs_and_an_asking_rule_any(
    ref: str, glob: str, asks: bool, allows: bool
) -> None:
    for outcome, holds in (("require", asks), ("deny", asks), ("allow", allows)):
        outcome_decision = evaluate_rules(
            rules({"match": {"refs": [glob]}, "outcome": outcome}),
            wish(ref=ref),
            "enforce",
            no_earlier_plans,
        )
        assert (outcome_decision.rule == "r0") is holds, outcome


def test_several_refs_may_have_any_class_up_to_their_worst() -> None:
    both = wish(ref="main release/1", ref_class="production")
    for outcome, classes, holds in (
        ("deny", ["protected"], True),
        ("deny", ["other"], True),
        ("allow", ["production"], False),
        ("allow", ["production", "protected", "other"], True),
    ):
        decision = evaluate_rules(
            rules({"match": {"ref_classes": classes}, "outcome": outcome}),
            both,
            "enforce",
            no_earlier_plans,
        )
        assert (decision.rule == "r0") is holds, (outcome, classes)
    subject = wish(ref="main", ref_class="production")
    assert (
        evaluate_rules(
            rules({"match": {"ref_classes": ["protected"]}, "outcome": "deny"}),
            subject,
            "enforce",
            no_earlier_plans,
        ).rule
        == ""
    )


def test_a_denial_for_the_session_covers_every_spelling(inbox: InboxScenario) -> None:
    def push(key: str, ref: str) -> dict[str, Any]:
        return inbox.plan(
            key, arguments={"branch": "main"}, target={"repository": "web", "ref": ref}
        )

    denied = push("e-1", "main")
    inbox.answer(inbox.gate(denied), "reviewer", "deny_session", "never in this session")
    for at, ref in enumerate(("refs/heads/main", "+main", "HEAD", "dev:main")):
        inbox.agent.post(f"/effects/{denied['id']}/supersede")
        denied = push(f"again-{at}", ref)
        assert denied["permission"] == "denied", ref
    inbox.agent.post(f"/effects/{denied['id']}/supersede")
    assert push("other", "topic")["answer"] == "wait"


def test_the_card_shows_the_sent_ref_and_what_git_moves(inbox: InboxScenario) -> None:
    client = inbox.organization.client("reviewer")
    for key, ref, moves in (
        ("a", "+HEAD:main", "refs/heads/main"),
        ("b", "--all", "all of refs/heads/*"),
    ):
        page = client.get(
            reverse("gate", args=[inbox.gate(planned(inbox, key, ref)).id])
        ).content.decode()
        assert ref in page
        assert "Git moves" in page
        assert moves in page


def test_a_search_for_main_finds_every_spelling_then_too(inbox: InboxScenario) -> None:
    for at, ref in enumerate((*OF_MAIN, "topic", "main/x", "refs/tags/v1", "dev main")):
        planned(inbox, f"e-{at}", ref)

    def search_refs(query: str) -> set[str]:
        rows = inbox.agent.get("/search", q=query, limit=200).json()["rows"]
        return {row["ref"] for row in rows}

    everything = {*OF_MAIN, "dev main"}
    for query in (
        "ref:main",
        "ref:refs/heads/main",
        "ref:heads/main",
        'ref:"HEAD:main"',
        "ref:=main",
    ):
        assert search_refs(query) == everything, query
    assert search_refs("ref:main/*") == {"main/x"}
    assert search_refs("ref:v1") == search_refs("ref:tags/v1") == {"refs/tags/v1"}
    assert search_refs("ref:[topic,main/x]") == {"topic", "main/x"}
    assert search_refs("ref:Main") == set()


def test_the_refs_that_git_moved_are_in_the_effect_as_of_then(inbox: InboxScenario) -> None:
    answer = planned(inbox, "e-1", "+HEAD:main")
    then = JournalCut(Entry.objects.latest("position").position, now_us())
    inbox.agent.post(f"/effects/{answer['id']}/supersede")
    [row] = past_effects.rebuild_effects(inbox.project.id, [inbox.effect(answer).id], then).values()
    assert (row.ref, row.moved_refs, row.state) == ("+HEAD:main", "refs/heads/main", "planned")
