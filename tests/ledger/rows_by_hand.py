"""Complete, valid rows of every table, written without the verbs, as a database user could write
them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final
from uuid import UUID

from django.contrib.auth.models import User
from django.db import models

from accounts.models import (
    Agent,
    AgentToken,
    Invitation,
    Membership,
    Person,
    Project,
    Repository,
    Team,
    TeamMember,
)
from api.models import StoredResponse
from approvals.models import (
    Activation,
    Addressee,
    Exemption,
    ExemptionVote,
    Gate,
    PolicySet,
    ReviewSettings,
    Vote,
)
from db.ids import new_uuid7
from journal.models import Body, Entry, Erasure, Fingerprint, Outbox
from ledger.models import Attempt, Effect, Stop, Tool
from notifications.models import Notification, NotificationChannel
from sessions.models import Artifact, Item, Lease, Message, Session, Task
from tests.ledger.rows_of_code_hosts import CODE_HOSTS
from tests.ledger.rows_of_erasure import ERASURE
from tests.ledger.rows_of_incidents import INCIDENTS
from tests.ledger.rows_of_questions import QUESTIONS
from tests.ledger.rows_of_recovery import RECOVERY
from tests.rows_with_entries import add_row, mark_own_password

Row = dict[str, Any]


@dataclass
class World:
    """One of each thing that other rows refer to, and a number that was never used."""

    last_number: int = 0
    project: Project = field(init=False)
    user: User = field(init=False)
    reviewer: User = field(init=False)  # a person whose approval counts
    agent: Agent = field(init=False)
    session: Session = field(init=False)
    task: Task = field(init=False)
    entry: Entry = field(init=False)
    effect: Effect = field(init=False)
    used: Effect = field(init=False)  # its permission is used
    rules: PolicySet = field(init=False)
    gate: Gate = field(init=False)

    def __post_init__(self) -> None:
        self.project = self.write(Project)
        self.user = self.new_user()
        self.reviewer = self.new_reviewer()
        self.agent = self.write(Agent)
        self.session = self.write(Session)
        self.task = self.write(Task)
        self.entry = self.write(Entry)
        self.effect = self.write(Effect)
        self.used = self.under("used")["effect"]
        self.rules = self.write(PolicySet)
        self.gate = self.write(Gate)

    @cached_property
    def lease(self) -> Lease:
        lease: Lease = self.write(Lease)
        return lease

    @cached_property
    def message(self) -> Message:
        message: Message = self.write(Message)
        return message

    def new(self) -> int:
        self.last_number += 1
        return self.last_number

    def new_user(self) -> User:
        return User.objects.create(username=f"user {self.new()}")

    def new_reviewer(self) -> User:
        """Create a person whose approval counts in the project."""
        return self._new_member("reviewer")

    @cached_property
    def exempted(self) -> Exemption:
        exemption: Exemption = self.write(Exemption)
        return exemption

    @cached_property
    def operator(self) -> User:
        return self.new_operator()

    def new_operator(self) -> User:
        """Create a person who may grant exemptions in the project, with their own password."""
        return self._new_member("operator")

    def _new_member(self, role: str) -> User:
        person = mark_own_password(self.write(Person).user)
        self.write(Membership, user=person.user, role=role)
        return person.user

    def under(self, permission: str) -> Row:
        """The columns of an attempt that ran under `permission`, and an effect with the same
        permission."""
        return {
            "permission": permission,
            "effect": self.write(Effect, permission=permission, permission_basis="observe"),
        }

    def write(self, model: Any, **columns: Any) -> Any:
        """INSERT one row: the valid columns of its table, overridden by `columns`.

        The entry that its guard requires comes first.
        """
        return add_row(model(**{**VALID_ROWS[model](self), **columns}))


def _open(world: World) -> Row:
    return {"opened_position": world.new(), "created_at_us": 1}


VALID_ROWS: Final[dict[type[models.Model], Callable[[World], Row]]] = {
    Entry: lambda w: {
        "project": UUID(int=7),
        "source": "robot",
        "event_id": f"id {w.new()}",
        "kind": "fact.observed",
        "actor": "agent:7",
        "lane": "evidence",
        "received_us": 1,
    },
    Body: lambda w: {"entry": w.write(Entry), "salt": b"s" * 32, "text": "{}"},
    Erasure: lambda w: {
        "entry": w.write(Entry),
        "project": UUID(int=7),
        "reason": "request 17",
        "actor": "p_1",
        "erased_at_us": 1,
    },
    Outbox: lambda w: {
        "project": UUID(int=7),
        "entry": w.entry,
        "topic": "mail",
        "deduplication_key": f"key {w.new()}",
        "due_at_us": 1,
    },
    Fingerprint: lambda w: {"name": f"key {w.new()}", "value": "f" * 64, "recorded_at_us": 1},
    Project: lambda w: {"name": f"project {w.new()}"},
    Person: lambda w: {"user": w.new_user(), "pseudonym": f"p_{w.new()}"},
    Membership: lambda w: {"project": w.project, "user": w.new_user(), "role": "viewer"},
    Invitation: lambda w: {
        "project": w.project,
        "user": w.new_user(),
        "role": "viewer",
        "invited_by": "p_1",
    },
    Agent: lambda w: {"project": w.project, "name": f"agent {w.new()}"},
    AgentToken: lambda w: {
        "project": w.project,
        "agent": w.agent,
        "public_id": f"{w.new():08}",
        "digest": b"d" * 32,
    },
    Repository: lambda w: {"project": w.project, "name": f"repository {w.new()}"},
    Session: lambda w: {
        "project": w.project,
        "key": f"session {w.new()}",
        "agent": w.agent,
        "seen_at_us": 1,
        **_open(w),
    },
    Task: lambda w: {
        "id": new_uuid7(),
        "project": w.project,
        "session": w.session,
        "key": f"task {w.new()}",
        "updated_at_us": 1,
        **_open(w),
    },
    Item: lambda w: {
        "project": w.project,
        "task": w.task,
        "key": f"item {w.new()}",
        "changed_at_us": 1,
    },
    Artifact: lambda w: {
        "id": new_uuid7(),
        "project": w.project,
        "session": w.session,
        "type": "log",
        "sha256": "a" * 64,
        "size": 1,
        "media_type": "text/plain",
        **_open(w),
    },
    Tool: lambda w: {"project": w.project, "name": f"tool {w.new()}"},
    Effect: lambda w: {
        "id": new_uuid7(),
        "project": w.project,
        "session": w.session,
        "agent": w.agent,
        "effect_key": f"effect {w.new()}",
        "opened_position": w.new(),
        "received_us": 1,
        "changed_us": 1,
    },
    Attempt: lambda w: {
        "project": w.project,
        "effect": w.used,
        "number": w.new(),
        "remote_key": "gbk-1",
        "permission": "used",
        "dispatched_mark": "m",
    },
    Stop: lambda w: {
        "project": w.project,
        "scope": "tool",
        "subject": f"tool {w.new()}",
        "set_by": w.user,
        "set_at_us": 1,
        "opened_position": 1,
    },
    Team: lambda w: {"project": w.project, "name": f"team {w.new()}"},
    TeamMember: lambda w: {
        "project": w.project,
        "team": w.write(Team),
        "membership": w.write(Membership),
    },
    PolicySet: lambda w: {
        "project": w.project,
        "name": f"rules-{w.new()}",
        "version": 1,
        "text": "name: rules",
        "sha256": "a" * 64,
        "rules": {"rules": []},
        "loaded_by": "p_1",
        "loaded_at_us": 1,
    },
    Activation: lambda w: {
        "project": w.project,
        "policy_set": w.rules,
        "mode": "observe",
        "actor": "p_1",
        "activated_at_us": 1,
        "is_current": False,
    },
    Exemption: lambda w: {
        "project": w.project,
        "tool": "git.push",
        "granted_by": w.reviewer,
        "opened_position": 1,
        "granted_at_us": 1,
        "ends_at_us": 9,
    },
    ExemptionVote: lambda w: {
        "exemption": w.exempted,
        "user": w.new_operator(),
        "actor": "p_1",
        "step_up": "typed_digest",
        "password_at_us": 1,
        "position": 1,
        "voted_at_us": 2,
    },
    Gate: lambda w: {
        "project": w.project,
        "session": w.session,
        "effect": w.write(Effect),
        "agent": w.agent,
        "opened_position": w.new(),
        "plan_position": 1,
        "digest": "v1:1",
        "requirement": {},
        "requirement_hash": "a" * 64,
        "risk": "low",
        "reversibility": "reversible",
        "tool": "git.push",
        "requested_at_us": 1,
        "decide_by_us": 9_000_000,
        "valid_for_s": 2,
    },
    Vote: lambda w: {
        "project": w.project,
        "gate": w.write(Gate),
        "user": w.reviewer,
        "actor": "p_1",
        "answer": "deny",
        "card_sha256": "a" * 64,
        "shown_version": 1,
        "shown_digest": "v1:1",
        "shown_at_us": 1,
        "view_complete": True,
        "position": 1,
        "voted_at_us": 2,
    },
    ReviewSettings: lambda w: {"project": w.project, "user": w.new_user()},
    Addressee: lambda w: {
        "project": w.project,
        "gate": w.gate,
        "user": w.new_user(),
        "relation": "mentioned",
        "position": 1,
    },
    NotificationChannel: lambda w: {
        "project": w.project,
        "kind": "email",
        "target": f"desk-{w.new()}@example.org",
        "created_by": w.user,
        "created_at_us": 1,
    },
    Notification: lambda w: {
        "project": w.project,
        "channel": w.write(NotificationChannel),
        "topic": "test",
        "key": f"key {w.new()}",
        "position": 1,
        "due_at_us": 1,
    },
    StoredResponse: lambda w: {
        "project": UUID(int=7),
        "source": "robot",
        "key": f"key {w.new()}",
        "status": 200,
        "body": "{}",
        "created_us": 1,
    },
    **RECOVERY,
    **INCIDENTS,
    **QUESTIONS,
    **CODE_HOSTS,
    **ERASURE,
}
