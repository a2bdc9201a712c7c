"""Payloads as GitHub and GitLab send them: small ones here, recorded ones where they are."""

import gzip
import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from hooks.code_hosts import agent_identities
from hooks.code_hosts.event_facts import EventFacts
from hooks.code_hosts.github_payloads import GITHUB_EVENTS, read_github_event
from hooks.code_hosts.gitlab_payloads import read_gitlab_event
from hooks.models import CodeHostDelivery, CodeHostEvent
from tests.hooks.code_hosts.code_host import SHA, CodeHost, matches_of
from tests.importers.samples import RECORDED
from tests.matrices import keep_core

DELIVERIES: Final = RECORDED / "github-webhooks" / "github-webhooks.jsonl.gz"
WEB: Final = "https://github.com/acme/shop"
REPOSITORY: Final = {"full_name": "acme/shop", "html_url": WEB}
SENDER: Final = {"login": "release-bot"}


def read_recorded() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the event and payload of each recorded delivery; none where the data is absent."""
    if not DELIVERIES.exists():
        return
    with gzip.open(DELIVERIES, "rt", encoding="utf-8") as lines:
        for line in lines:
            recorded = json.loads(line)
            yield recorded["_source"]["path"].split("/")[2], recorded["raw"]


@pytest.mark.matrix
@pytest.mark.django_db
@pytest.mark.parametrize("is_whole", keep_core([True, False], [False]))
def test_recorded_deliveries_are_taken(host: CodeHost, is_whole: bool) -> None:
    """In the core one delivery of each event and action."""
    recorded = list(read_recorded())
    if not recorded:
        pytest.skip("The recorded payloads are not on this machine.")
    if not is_whole:
        kinds = {(event, payload.get("action")): (event, payload) for event, payload in recorded}
        recorded = list(kinds.values())
    for number, (event, payload) in enumerate(recorded):
        answer = host.deliver(event, payload, key=f"r-{number}")
        assert answer.status_code == 200, (event, answer.text)
        assert answer.json()["understood"] is (event in GITHUB_EVENTS), event
    assert CodeHostDelivery.objects.count() == len(recorded)
    for row in CodeHostEvent.objects.all():
        facts = EventFacts.from_dict(json.loads(row.facts))
        assert facts.repository, row.kind
        assert facts.sender, row.kind
        assert facts.occurred_us, row.kind
        if facts.kind == "push":
            assert facts.ref.startswith("refs/")
            assert facts.deleted is not bool(facts.sha)
        if facts.kind in ("pull_request", "comment"):
            assert facts.number
            assert facts.references
        if facts.kind in ("run", "check", "deployment"):
            assert facts.sha
    client = host.organization.client("viewer")
    assert client.get("/code-hosts/").status_code == 200
    for delivery in CodeHostDelivery.objects.all():
        assert client.get(f"/code-hosts/{delivery.id}/").status_code == 200


def test_a_merged_pull_request_of_github() -> None:
    facts = read_github_event("pull_request", build_pull_request("closed", merged=True))
    assert facts is not None
    assert (facts.action, facts.number, facts.ref, facts.base_ref, facts.is_action) == (
        "merged",
        7,
        "refs/heads/topic",
        "refs/heads/main",
        True,
    )
    assert f"{WEB}/pull/7" in facts.references
    assert "acme/shop#7" in facts.references


def test_an_update_by_a_push_is_no_action_of_its_own() -> None:
    facts = read_github_event("pull_request", build_pull_request("synchronize"))
    assert facts is not None
    assert not facts.is_action


def build_pull_request(action: str, **request: Any) -> dict[str, Any]:
    return {
        "action": action,
        "number": 7,
        "pull_request": {
            "number": 7,
            "html_url": f"{WEB}/pull/7",
            "title": "Topic",
            "body": "Text",
            "head": {"ref": "topic", "sha": SHA},
            "base": {"ref": "main"},
            "merged": False,
            **request,
        },
        "repository": REPOSITORY,
        "sender": SENDER,
    }


def build_comment(action: str = "created", body: str = "Looks good.\r\n") -> dict[str, Any]:
    return {
        "action": action,
        "issue": {"number": 7},
        "comment": {"id": 55, "html_url": f"{WEB}/issues/7#issuecomment-55", "body": body},
        "repository": REPOSITORY,
        "sender": SENDER,
    }


def build_deployment() -> dict[str, Any]:
    return {
        "action": "created",
        "deployment": {"id": 9, "ref": "main", "sha": SHA, "environment": "Production"},
        "repository": REPOSITORY,
        "sender": SENDER,
    }


def build_run(**run: Any) -> dict[str, Any]:
    return {
        "action": "requested",
        "workflow_run": {
            "id": 4,
            "event": "workflow_dispatch",
            "path": ".github/workflows/release.yml",
            "head_branch": "main",
            "head_sha": SHA,
            **run,
        },
        "repository": REPOSITORY,
        "sender": SENDER,
    }


ON_SEVEN: Final = {"owner": "acme", "repo": "shop", "issue_number": 7}
# Event, payload, tool and arguments of the effect, and the rule.
CASES: Final[dict[str, tuple[str, dict[str, Any], str, dict[str, Any], str]]] = {
    "merge": (
        "pull_request",
        build_pull_request("closed", merged=True),
        "github.merge_pull_request",
        {"owner": "acme", "repo": "shop", "pull_number": 7},
        "pull_request_number",
    ),
    "close": (
        "pull_request",
        build_pull_request("closed"),
        "mcp__github__update_pull_request",
        {"repository": "acme/shop", "pullNumber": 1, "pr": "#7", "state": "closed"},
        "pull_request_number",
    ),
    "open": (
        "pull_request",
        build_pull_request("opened"),
        "github.createPullRequest",
        {"repository": "acme/shop", "head": "topic", "base": "main", "title": "Topic"},
        "pull_request_head",
    ),
    "comment": (
        "issue_comment",
        build_comment(),
        "github.add_issue_comment",
        {**ON_SEVEN, "body": "Looks good."},
        "comment_text",
    ),
    "comment elsewhere written": (
        "issue_comment",
        build_comment(),
        "github.add_issue_comment",
        {**ON_SEVEN, "template": "approve"},
        "comment_number",
    ),
    "delete a comment": (
        "issue_comment",
        build_comment("deleted"),
        "github.delete_comment",
        {"owner": "acme", "repo": "shop", "comment_id": 55},
        "comment_id",
    ),
    "deploy": (
        "deployment",
        build_deployment(),
        "deploy",
        {"repository": "acme/shop", "environment": "production", "sha": SHA},
        "deployment_environment",
    ),
    "workflow": (
        "workflow_run",
        build_run(),
        "github.run_workflow",
        {"repository": "acme/shop", "workflow_id": "release.yml", "ref": "main"},
        "workflow_ref",
    ),
}


@pytest.fixture
def bot(host: CodeHost) -> CodeHost:
    agent_identities.add_identity(
        host.organization.agent, "github", "release-bot", actor="gatebook"
    )
    return host


@pytest.mark.django_db
@pytest.mark.parametrize("case", CASES)
def test_an_event_confirms_the_call_that_made_it(bot: CodeHost, case: str) -> None:
    event, payload, tool, arguments, rule = CASES[case]
    effect = bot.dispatch_push(tool=tool, arguments=arguments, target={"repository": "acme/shop"})
    assert bot.deliver(event, payload).status_code == 200
    stored = CodeHostEvent.objects.get()
    assert matches_of(stored) == [(rule, "confirmed")]
    effect.refresh_from_db()
    assert (effect.state, effect.confirmed_by) == ("acknowledged", "github")


OTHER: Final[dict[str, tuple[str, dict[str, Any], str, dict[str, Any]]]] = {
    "another number": (
        "pull_request",
        build_pull_request("closed", merged=True),
        "github.merge_pull_request",
        {"pull_number": 8},
    ),
    "a label is no merge": (
        "pull_request",
        build_pull_request("labeled"),
        "github.merge_pull_request",
        {"pull_number": 7},
    ),
    "another text": (
        "issue_comment",
        build_comment(),
        "github.add_issue_comment",
        {"issue_number": 7, "body": "Looks bad."},
    ),
    "reading": (
        "issue_comment",
        build_comment(),
        "github.list_issues",
        {"issue_number": 7},
    ),
    "another environment": (
        "deployment",
        build_deployment(),
        "deploy",
        {"environment": "staging", "sha": SHA},
    ),
    "another workflow": (
        "workflow_run",
        build_run(),
        "github.run_workflow",
        {"workflow_id": "test.yml", "ref": "main"},
    ),
}


@pytest.mark.django_db
@pytest.mark.parametrize("case", OTHER)
def test_an_event_of_another_call_confirms_nothing(bot: CodeHost, case: str) -> None:
    event, payload, tool, arguments = OTHER[case]
    bot.dispatch_push(tool=tool, arguments=arguments, target={"repository": "acme/shop"})
    assert bot.deliver(event, payload).status_code == 200
    assert matches_of(CodeHostEvent.objects.get()) == []


PROJECT: Final = {
    "web_url": "https://gitlab.example/acme/shop",
    "path_with_namespace": "Acme/Shop",
}
USER: Final = {"username": "release-bot", "email": "[REDACTED]"}
GITLAB: Final[dict[str, tuple[dict[str, Any], dict[str, Any]]]] = {
    "Push Hook": (
        {"ref": "refs/heads/main", "before": "0" * 40, "after": SHA, "user_username": "bot"},
        {"kind": "push", "action": "created", "sha": SHA, "sender": "bot", "is_action": True},
    ),
    "Tag Push Hook": (
        {"ref": "refs/tags/v1", "before": SHA, "after": "0" * 40},
        {"kind": "push", "action": "deleted", "sha": "", "deleted": True},
    ),
    "Merge Request Hook": (
        {
            "user": USER,
            "object_attributes": {
                "iid": 3,
                "action": "merge",
                "source_branch": "topic",
                "target_branch": "main",
                "url": "https://gitlab.example/acme/shop/-/merge_requests/3",
            },
        },
        {"kind": "pull_request", "action": "merged", "number": 3, "ref": "refs/heads/topic"},
    ),
    "Note Hook": (
        {
            "user": USER,
            "object_attributes": {"id": 5, "note": "Text", "action": "create"},
            "merge_request": {"iid": 3},
        },
        {"kind": "comment", "action": "created", "number": 3, "comment_id": "5"},
    ),
    "Deployment Hook": (
        {
            "user": USER,
            "deployment_id": 8,
            "status": "running",
            "environment": "production",
            "ref": "main",
            "commit_url": f"https://gitlab.example/acme/shop/-/commit/{SHA}",
        },
        {"kind": "deployment", "sha": SHA, "environment": "production", "is_action": True},
    ),
    "Pipeline Hook": (
        {
            "user": USER,
            "object_attributes": {
                "id": 31,
                "ref": "main",
                "sha": SHA,
                "status": "success",
                "source": "push",
                "finished_at": "2026-11-23 09:00:00 UTC",
            },
        },
        {"kind": "run", "conclusion": "success", "is_action": False},
    ),
    "Job Hook": (
        {"user": USER, "build_id": 1977, "sha": SHA, "ref": "main", "build_status": "failed"},
        {"kind": "check", "conclusion": "failed", "is_action": False},
    ),
}


@pytest.mark.parametrize("event", GITLAB)
def test_events_of_gitlab_have_the_same_facts(event: str) -> None:
    payload, expected = GITLAB[event]
    facts = read_gitlab_event(event, {"project": PROJECT, **payload})
    assert facts is not None
    assert (facts.repository, facts.site, facts.emails) == ("acme/shop", "gitlab.example", ())
    assert {name: getattr(facts, name) for name in expected} == expected
    assert EventFacts.from_dict(facts.as_dict()) == facts
