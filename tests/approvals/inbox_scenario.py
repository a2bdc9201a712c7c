"""A scenario for the inbox: a project whose policy asks for pushes, its people, and an agent
client."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.contrib.auth.models import User
from django.db import transaction

from accounts import people
from accounts.models import Membership, Project
from approvals.models import Gate
from approvals.policies import policies
from approvals.voting import votes
from approvals.voting.votes import ShownGate, VoteResult
from approvals.voting.warned_proof import list_warnings, load_request_checks
from db.clock import now_us
from ledger.models import Effect, Tool
from ledger.tools import cache
from tests.api.api_client import Caller
from tests.pages.people import PASSWORD, Organization
from tests.rows_with_entries import add_row

RULES = """
name: basic
rules:
  - id: reads
    title: Reading changes nothing
    match: {tools: [file.read]}
    outcome: allow
  - id: no-tags
    title: Tags are made by people
    match: {tools: [git.tag]}
    outcome: deny
  - id: push
    title: A push to a protected branch
    match: {tools: [git.push]}
    outcome: require
    require: {minimum: 1, rationale: {on: on_deny, minimum_characters: 3}}
  - id: deploy
    title: A deployment
    match: {tools: [deploy]}
    outcome: require
    require: {minimum: 2, decide_within: 1h, valid_for: 10m}
"""


@dataclass
class InboxScenario:
    """One project in mode enforce, unless a test sets another mode."""

    organization: Organization
    agent: Caller

    @property
    def project(self) -> Project:
        return self.organization.project

    def rules(self, text: str = RULES, mode: str = "enforce") -> None:
        """Load and activate rules."""
        with transaction.atomic():
            loaded = policies.load_policy_set(self.project, text, "gatebook")
            policies.activate_policy_set(self.project, loaded, mode, None, "gatebook")

    def declare(
        self, name: str, reversibility: str = "compensable", tool_class: str = "idempotent"
    ) -> None:
        """Declare a tool, so that the worst is not assumed."""
        add_row(
            Tool(
                project=self.project, name=name, tool_class=tool_class, reversibility=reversibility
            )
        )
        cache.clear_tool_cache()

    def person(self, name: str, role: str = "reviewer") -> Membership:
        """Return the member called `name`, created if missing."""
        membership = Membership.objects.filter(project=self.project, user__username=name).first()
        if membership is not None:
            return membership
        with transaction.atomic():
            return people.add_project_member(self.project, name, role, PASSWORD)

    def plan(self, effect_key: str = "e-1", **fields: Any) -> dict[str, Any]:
        """Plan an effect of session s-1 (opened if needed) and return the answer."""
        self.agent.session("s-1")
        return self.agent.plan(effect_key, **fields)

    def gate(self, effect: dict[str, Any]) -> Gate:
        """The latest gate of a planned effect, as stored."""
        return Gate.objects.filter(effect=UUID(effect["id"])).latest("opened_position")

    def effect(self, effect: dict[str, Any]) -> Effect:
        """The effect as stored."""
        return Effect.objects.get(id=UUID(effect["id"]))

    def answer(
        self,
        gate: Gate,
        person: str,
        answer: str = "approve",
        reason: str = "agreed in INC-204",
        **options: Any,
    ) -> VoteResult:
        """Answer as a person who saw the gate's page a moment ago."""
        seen = options.pop("shown", None) or self.shown(gate)
        with transaction.atomic():
            return votes.cast_vote(gate, self.person(person), answer, reason, seen, **options)

    def shown(self, gate: Gate, *, complete: bool = True) -> ShownGate:
        """The gate as a page would show it now."""
        now = Gate.objects.get(id=gate.id)
        warnings = list_warnings(load_request_checks(now, now.effect))
        return ShownGate(now.version, now.digest, "c" * 64, complete, now_us(), warnings)

    def user(self, name: str) -> User:
        return User.objects.get(username=name)
