"""A session to export: effects in every state, gates with rulings, and an erased body."""

import io
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from django.db import transaction
from django.urls import reverse

from approvals import exemptions
from approvals.models import Gate
from db.clock import now_us
from journal import erasures
from ledger.models import Effect
from sessions.models import Session
from tests.api.api_client import new_key
from tests.approvals.confirm_helpers import proved
from tests.approvals.inbox_scenario import InboxScenario
from tests.config.row_snapshot import Kept
from tests.pages.people import Organization
from tests.pages.sample_data import (
    ORGANIZATIONS_TOKEN,
    SampleIds,
    connect_agent,
    fill,
    permission,
)

RULES = """
name: basic
rules:
  - {id: push, title: A push, match: {tools: [git.push]}, outcome: require}
  - {id: ship, title: Shipping, match: {tools: [ship]}, outcome: require, require: {people: [reviewer, ann]}}
  - {id: deploy, title: A deployment, match: {tools: [deploy]}, outcome: require, require: {minimum: 2}}
  - {id: no-tags, title: Tags are made by people, match: {tools: [git.tag]}, outcome: deny}
  - {id: rest, title: The rest, match: {}, outcome: allow}
"""
OPENED = {  # as `fill` opens the session, without a person
    "title": "Deploy the web shop",
    "repository": "web",
    "branch": "hotfix/rounding",
    "mode": "leased",
    "labels": {"ticket": "INC-204"},
}
EDIT = {
    "file_path": "pay/round.py",
    "old_string": "a\nb\n",
    "new_string": "a\nc\n",
    "replace_all": False,
}


@dataclass
class Origin:
    """The exported session and its author. `gates` maps an effect key to its last gate."""

    inbox: InboxScenario
    exported: SampleIds
    gates: dict[str, Gate] = field(default_factory=dict)

    @property
    def session(self) -> Session:
        return Session.objects.get(id=self.exported.session)

    def effect(self, key: str) -> Effect:
        return Effect.objects.get(session=self.exported.session, effect_key=key)

    def export(self) -> bytes:
        """Return the bundle from the button on the session's page."""
        answer = self.inbox.organization.client("operator").post(
            reverse("export_bundle", args=[self.exported.session])
        )
        assert answer.status_code == 200, answer
        return b"".join(answer.streaming_content)  # type: ignore[attr-defined]


_STORY = Kept[tuple[SampleIds, dict[str, Gate]]](
    for_s=120,
    unguarded=(
        *("ledger_effect", "ledger_attempt", "approvals_gate", "approvals_vote"),
        *("approvals_exemption", "approvals_exemptionvote", "journal_erasure", "journal_body"),
    ),
)


@pytest.fixture
def origin(organization: Organization) -> Iterator[Origin]:
    with connect_agent(organization.agent, kept=ORGANIZATIONS_TOKEN) as agent:
        inbox = InboxScenario(organization, agent)
        yield Origin(inbox, *_STORY.again(lambda: _tell_story(inbox)))


def _tell_story(inbox: InboxScenario) -> tuple[SampleIds, dict[str, Gate]]:
    agent = inbox.agent
    agent.session("deploy-web", **OPENED, on_behalf_of="viewer")
    made = Origin(inbox, fill(agent))
    permission(agent, made.exported)
    _rule(made)
    return made.exported, made.gates


def _rule(origin: Origin) -> None:
    """Vote on the further requests of the session, and let agents act."""
    inbox, agent, session = origin.inbox, origin.inbox.agent, str(origin.exported.session)
    for name in ("git.push", "deploy", "git.tag", "ship"):
        inbox.declare(name)
    for name in ("ann", "bob"):
        inbox.person(name)
    inbox.rules(RULES)
    for key, tool in (
        *(
            ("two", "deploy"),
            ("unanswered", "git.push"),
            ("denied", "git.push"),
            ("waits", "git.push"),
        ),
        *(("forbidden", "git.tag"), ("bypassed", "git.push"), ("edit", "Edit"), ("named", "ship")),
    ):
        arguments = EDIT if key == "edit" else {"n": key, "command": f"{tool} <b>{key}</b>\u202e"}
        planned = agent.plan(key, session, tool=tool, arguments=arguments, why=f"because of {key}")
        origin.exported.effects[key] = origin.effect(key).id
        if planned["permission"] == "pending":
            origin.gates[key] = inbox.gate(planned)
        for person in {"two": ("ann", "bob"), "unanswered": ("ann",)}.get(key, ()):
            assert (
                inbox.answer(
                    origin.gates[key], person, reason=f"{person} agrees in INC-204"
                ).refusal
                is None
            )
        if key == "denied":
            assert (
                inbox.answer(origin.gates[key], "reviewer", "deny", "not on a Friday").refusal
                is None
            )
        if key in ("two", "unanswered", "edit"):
            agent.dispatch(planned)
        if key in ("two", "edit"):
            agent.acknowledge(planned, external_reference=f"run/{key}", result={"text": "done"})
        if key == "bypassed":
            fact = {
                "id": new_key(),
                "kind": "effect.dispatched",
                "session": session,
                "effect_key": key,
                "attempt": 1,
            }
            assert agent.report([fact]).status_code == 200
    with transaction.atomic():
        ends = now_us() + 3_600_000_000
        exemptions.create_exemption(
            inbox.project,
            tool="ship",
            reason="harbour drill",
            ends_at_us=ends,
            user=inbox.user("administrator"),
            **proved(),
        )
    agent.dispatch(agent.plan("exempted", session, tool="ship", arguments={"n": "exempted"}))
    erased = origin.effect("error").plan_position
    assert erased is not None
    with transaction.atomic():
        erasures.erase_body(
            inbox.project.id, erased, reason="request 17", actor="gatebook", now_us=now_us()
        )


Change = Callable[[dict[str, bytes]], None]


def members(bundle: bytes) -> dict[str, bytes]:
    """Return the members of a bundle by name."""
    with zipfile.ZipFile(io.BytesIO(bundle)) as file:
        return {name: file.read(name) for name in file.namelist()}


def packed(contents: dict[str, bytes], path: Path) -> Path:
    """Return a zip file of these members."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in contents.items():
            file.writestr(name, content)
    return path
