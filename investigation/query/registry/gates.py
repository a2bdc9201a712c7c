"""Fields of gates and exemptions."""

from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from django.db.models import CharField, OuterRef, Q, QuerySet, Subquery, Value
from django.db.models.functions import Cast, Coalesce, Replace

from accounts.models import Project
from approvals import exemptions
from approvals.gates import statuses as gate_states
from approvals.models import Exemption, Gate
from investigation.query.fields.row_tests import CompileContext, RowTest
from investigation.query.fields.types import (
    Choice,
    ComputedChoice,
    Duration,
    Entity,
    Flag,
    Handle,
    MultiValue,
    NamedRow,
    Number,
    Text,
    Time,
    label_choices,
)
from investigation.query.registry.common import (
    RULINGS,
    agent_field,
    approver_field,
    constant_test,
    fields_by_name,
    find_by_handle,
    find_effect_id,
    flags_by_name,
    person_field,
    project_people,
    project_votes,
    reviewer_field,
    ruling_test,
    session_field,
    stuck_test,
)
from investigation.query.registry.declared_fields import find_gate_field
from journal.models import Entry
from ledger import states
from ledger.models import Attempt, Effect
from ledger.partial_indexes import IS_OF_A_RARE_KIND

MAX_LISTED_IDS: Final = 1_000  # Most ids that are listed in a condition.


def find_gate_id(project: Project, text: str) -> UUID | None:
    return find_by_handle(project, Gate, "g", text)


def self_approved_test(context: CompileContext) -> RowTest:
    """Return the test for gates approved by their requester or the owner of the session or agent.

    The votes are read once.
    """
    self_votes = project_votes(context.project).filter(own=True).order_by()
    if context.upto is not None:
        self_votes = self_votes.filter(position__lte=context.upto)
    name_key = ("self_approved", "", False)
    if name_key not in context.names:
        context.names[name_key] = list(
            self_votes.values_list("gate", flat=True).distinct()[: MAX_LISTED_IDS + 1]
        )
    ids = context.names[name_key]
    if len(ids) > MAX_LISTED_IDS:
        return RowTest(Q(pk__in=self_votes.values("gate")), indexed=True)
    return RowTest(Q(pk__in=ids), lambda row: row.pk in ids, indexed=True)


def exemption_state_test(live: bool) -> Callable[[CompileContext], RowTest]:
    def test(context: CompileContext) -> RowTest:
        now = context.now_us
        q = (
            Q(revoked_at_us__isnull=True, ends_at_us__gt=now, in_force_at_us__isnull=False)
            & exemptions.IS_GRANTED
        )

        def is_in_force(row: Any) -> bool:
            is_active: bool = (
                row.in_force_at_us is not None
                and row.revoked_at_us is None
                and row.ends_at_us > now
            )
            return is_active and getattr(row, "present", row.minimum) >= row.minimum

        return RowTest(q if live else ~q, lambda row: is_in_force(row) is live)

    return test


GATE: Final = Entity(
    "gate",
    "gates",
    "a request to approve one effect",
    Gate,
    "at",
    "status",
    fields_by_name(
        Choice(
            "status",
            "Status",
            path="status",
            choices=label_choices(gate_states.GATE_STATUSES),
            index="gate_open",
            common=gate_states.FINAL_STATUSES,
            aliases=("state",),
            facet=True,
        ),
        ComputedChoice(
            "ruling", "Ruling", path="status", choices=label_choices(RULINGS), each=ruling_test
        ),
        Choice(
            "reason",
            "Why it ended",
            path="reason",
            choices=label_choices(x for x in gate_states.GATE_END_REASONS if x),
        ),
        Choice("risk", "Risk", path="risk", choices=label_choices(gate_states.RISKS), facet=True),
        Choice(
            "reversibility",
            "Reversibility",
            path="reversibility",
            choices=label_choices(states.REVERSIBILITIES),
        ),
        Text("tool", "Tool", path="tool", index="gate_by_target", facet=True),
        agent_field("gate_by_agent"),
        Text("repository", "Repository", path="repository_name", aliases=("repo",), facet=True),
        Text("rule", "Policy rule", path="rule", aliases=("policy",), facet=True),
        session_field("gate_by_session"),
        Handle(
            "effect",
            "Effect",
            "e_12 or id",
            path="effect_id",
            find=find_effect_id,
            called="an effect",
            index="effect",
            in_project=True,
        ),
        Handle(
            "id",
            "Gate",
            "g_12 or id",
            path="id",
            find=find_gate_id,
            called="a gate",
            index="primary key",
            in_project=True,
            aliases=("gate",),
        ),
        Text("intent", "Intent digest", "what the permission covers", path="intent_digest"),
        Text("digest", "Digest", "over everything the permission covers", path="digest"),
        person_field("requester", "Requester", "requester_id"),
        person_field("session_owner", "Owner of the session", "session_owner_id"),
        person_field("agent_owner", "Owner of the agent", "agent_owner_id"),
        reviewer_field("gate_id", "votes"),
        approver_field("gate_id", "votes"),
        MultiValue(
            "ruled_in",
            "Voted within",
            "time from first showing the request to the vote, for any voter",
            rows=project_votes,
            reported_at="position",
            lasts=True,
            link="gate_id",
            reach="votes",
            inner=Duration(
                "ruled_in",
                "Voted within",
                path="voted_at_us",
                minus="shown_at_us",
                nullable=False,
            ),
        ),
        Number("minimum", "People needed", path="minimum", nullable=False),
        Time("at", "Requested", "server's clock", path="requested_at_us", nullable=False),
        Time("decide_by", "Decide by", path="decide_by_us", nullable=False),
        Time("decided_at", "Decided", path="decided_at_us", index="gate_by_decision"),
        Time("used_at", "Permission used", path="used_at_us"),
        Time("permission_until", "Permission expires", path="permission_until_us"),
        Time("ended_at", "Ended", path="ended_at_us"),
        Duration(
            "wait",
            "Waited",
            "from the request to the ruling",
            path="decided_at_us",
            minus="requested_at_us",
        ),
    ),
    flags_by_name(
        Flag(
            "open",
            "not decided yet, or its permission was not used yet",
            constant_test(
                Q(status__in=gate_states.OPEN_STATUSES),
                lambda row: row.status in gate_states.OPEN_STATUSES,
                indexed=True,
            ),
        ),
        Flag(
            "waiting",
            "waiting for approval",
            constant_test(Q(status="pending"), lambda row: row.status == "pending", indexed=True),
        ),
        Flag("stuck", "reported as stuck", stuck_test("S6")),
        Flag(
            "self_approved",
            "approved by its requester or by the owner of its session or agent",
            self_approved_test,
        ),
        Flag(
            "violating",
            "its effect ran without permission",
            constant_test(Q(reason="bypassed"), lambda row: row.reason == "bypassed"),
        ),
        Flag(
            "erased",
            "a body of its effect was erased",
            lambda context: RowTest(
                Q(
                    effect__in=Entry.objects.filter(
                        project=context.project.id, effect__isnull=False, erasure__isnull=False
                    )
                    .order_by()
                    .values("effect")
                )
            ),
        ),
    ),
    {
        "effect": lambda rows: (rows, "id", "effect_id"),
        "session": lambda rows: (rows, "id", "session_id"),
        "event": lambda rows: (rows.filter(effect__isnull=False), "effect", "effect_id"),
    },
    find_declared=find_gate_field,
)


def exemption_uses(project: Project) -> "QuerySet[Any]":
    """Return the entries of an exemption's uses, each with the time its effect ran.

    Effects that were permitted in another way since do not count. An effect that ran after the
    exemption ended counts, although the ledger then removed the exemption from it. Without a
    reported time, an effect ran when Gatebook received the report.
    """
    # permission_ref holds an id without hyphens.
    exemption_ref = Replace(Cast(OuterRef("subject"), CharField()), Value("-"), Value(""))
    permitted = Q(permission_basis="exemption", permission_ref=exemption_ref) | Q(
        permission__in=("observed", "bypassed")
    )
    used_effects = Effect.objects.filter(
        permitted, id=OuterRef("effect"), project=OuterRef("project")
    )
    rows = Entry.objects.filter(IS_OF_A_RARE_KIND, kind="exemption.used", lane="system")
    rows = rows.filter(project=project.id) if project is not None else rows
    reported = Attempt.objects.filter(effect=OuterRef("id"), received_us__isnull=False).order_by(
        "-number"
    )
    ran_us = Coalesce("dispatched_at_us", Subquery(reported.values("received_us")[:1]))
    return rows.annotate(ran_us=Subquery(used_effects.values(at_us=ran_us)[:1]))


EXEMPTION: Final = Entity(
    "exemption",
    "exemptions",
    "a temporary suspension of a policy, with a reason",
    Exemption,
    "granted",
    "rule",
    fields_by_name(
        Text("tool", "Tool", "the glob as granted", path="tool", facet=True),
        Text(
            "rule",
            "Rule",
            "the glob as granted",
            path="rule",
            aliases=("policy",),
            facet=True,
        ),
        Text("agent", "Agent", "the glob as granted", path="agent", facet=True),
        Text(
            "repository",
            "Repository",
            "the glob as granted",
            path="repository",
            aliases=("repo",),
        ),
        Text("ref", "Ref", "the glob as granted", path="ref"),
        Text(
            "environment",
            "Environment",
            "the glob as granted",
            path="environment",
            aliases=("env",),
        ),
        session_field("", nullable=True),
        NamedRow(
            "granter",
            "Granted by",
            path="granted_by_id",
            shows="granted_by__username",
            candidates=project_people,
            column="username",
            called="a person",
            facet=True,
        ),
        Time("granted", "Granted", path="granted_at_us", nullable=False, aliases=("at",)),
        Time("expires", "Ends", path="ends_at_us", nullable=False),
        Time("revoked", "Revoked", path="revoked_at_us"),
        MultiValue(
            "used",
            "Used",
            "when an effect ran that the exemption allowed",
            rows=exemption_uses,
            reported_at="position",
            link="subject",
            inner=Time("used", "Used", path="ran_us"),
            of=Exemption,
        ),
        Time("last_use", "Last recorded use", path="used_at_us"),
        Number("uses", "Uses", path="uses", nullable=False),
    ),
    flags_by_name(
        Flag("live", "in force now", exemption_state_test(True)),
        Flag("ended", "not in force, or not in force yet", exemption_state_test(False)),
    ),
    {"session": lambda rows: (rows, "id", "session_id")},
)
