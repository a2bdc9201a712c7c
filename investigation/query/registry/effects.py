"""Fields of effects."""

from typing import Any, Final
from uuid import UUID

from django.db.models import Q, QuerySet

from accounts.models import REF_CLASSES, Project
from approvals.gates import statuses as gate_states
from approvals.models import Gate
from display import display_state
from display.run_times import run_time_expression
from investigation.query.fields.related import RelatedRows, load_chain
from investigation.query.fields.row_tests import CompileContext, RowTest
from investigation.query.fields.types import (
    Choice,
    ComputedChoice,
    ComputedTime,
    Duration,
    Entity,
    Flag,
    Handle,
    MultiValue,
    Number,
    Ref,
    Text,
    Time,
    label_choices,
)
from investigation.query.registry.common import (
    RULINGS,
    agent_field,
    approver_field,
    constant_test,
    entry_test,
    fields_by_name,
    find_by_handle,
    find_effect_id,
    flags_by_name,
    person_field,
    repository_field,
    reviewer_field,
    ruling_test,
    session_field,
    stuck_test,
)
from investigation.query.registry.declared_fields import find_effect_field
from investigation.query.registry.duplicates import SameCall, duplicate_field
from ledger import states, violations
from ledger.confirmations import CODE_HOST_LABELS
from ledger.models import Effect
from ledger.partial_indexes import (
    HAS_BAD_OUTCOME,
    HAS_PROTECTED_REF,
    HAS_REFERENCE,
    HAS_RESOURCE,
    IS_CONFIRMED,
    IS_RETRIED,
    NEEDS_PERMISSION,
    RAN_WITHOUT_PERMISSION,
)
from sessions.models import Task

APPROVED_GATE: Final = RowTest(
    Q(status__in=gate_states.APPROVED_STATUSES),
    lambda row: row.status in gate_states.APPROVED_STATUSES,
)


def find_task_id(project: Project, text: str) -> UUID | None:
    return find_by_handle(project, Task, "t", text)


def project_gates(project: Project) -> "QuerySet[Any]":
    return Gate.objects.filter(project=project) if project is not None else Gate.objects.all()


def project_approved_gates(project: Project) -> "QuerySet[Any]":
    return project_gates(project).filter(status__in=gate_states.APPROVED_STATUSES)


def effect_state_test(state: str, context: CompileContext) -> RowTest:
    """Return the test for a shown state, which may differ from the stored one.

    A failed effect whose outcome is unknown is shown as unknown. The arms are disjoint, and one
    index serves each.
    """
    arms, now_us = (
        tuple(display_state.shown_state_conditions(state, context.now_us)),
        context.now_us,
    )
    label = display_state.STATES[state]
    return RowTest(
        display_state.union_of_conditions(list(arms)),
        lambda row: display_state.derive_shown_state(row, now_us) == label,
        arms,
    )


def unknown_effects_test(context: CompileContext) -> RowTest:
    test = effect_state_test(display_state.UNKNOWN, context)
    return RowTest(test.q, test.holds, test.arms, indexed=True)


def policy_outcome_test(word: str, _context: CompileContext) -> RowTest:
    if word == "not_enforced":
        return RowTest(
            Q(NEEDS_PERMISSION, policy_enforced=False),
            lambda row: row.policy_outcome in ("ask", "deny") and not row.policy_enforced,
        )
    q = Q(policy_outcome=word) if word == "allow" else Q(NEEDS_PERMISSION, policy_outcome=word)
    return RowTest(q, lambda row: row.policy_outcome == word)


def unacknowledged_test(context: CompileContext) -> RowTest:
    """Return the test for effects with a violation that no person has acknowledged since.

    Entries never change, so as of a past moment only those up to it count.
    """
    condition = violations.is_unacknowledged(
        violations.MAX_POSITION if context.upto is None else context.upto
    )
    return RowTest(condition, indexed=True, lasts=context.upto is not None)


EFFECT: Final = Entity(
    "effect",
    "effects",
    "one externally visible action",
    Effect,
    "at",
    "state",
    fields_by_name(
        ComputedChoice(
            "state",
            "State",
            "as shown on every page",
            choices=tuple(display_state.STATES.items()),
            path="state",
            each=effect_state_test,
            index="effect_by_state",
            common=("acknowledged",),
            facet=True,
        ),
        Choice(
            "outcome",
            "Outcome",
            path="outcome",
            choices=label_choices(states.REPORTED_OUTCOMES),
            narrow={word: Q(HAS_BAD_OUTCOME) for word in ("error", "unknown")},
            index="effect_by_bad_outcome",
            common=("ok",),
            facet=True,
        ),
        Text(
            "tool",
            "Tool",
            "full name, or a prefix with *",
            path="tool",
            index="effect_by_tool",
            facet=True,
        ),
        agent_field(),
        session_field("effect_by_session"),
        repository_field("effect_by_repository"),
        Ref("ref", "Ref", "branch or tag, in any spelling; matches what git moves", path="ref"),
        Choice(
            "confirmed",
            "Confirmed by",
            "a code host whose own event matches the effect",
            path="confirmed_by",
            choices=tuple(CODE_HOST_LABELS.items()),
            narrow={word: Q(IS_CONFIRMED) for word in states.CODE_HOSTS},
            index="effect_by_confirmation",
            facet=True,
        ),
        Choice(
            "ref_class",
            "Ref class",
            "set on arrival by the repository's patterns",
            path="ref_class",
            choices=label_choices(REF_CLASSES),
            narrow={word: Q(HAS_PROTECTED_REF) for word in ("production", "protected")},
            index="effect_by_ref_class",
            common=("other",),
            facet=True,
        ),
        Text(
            "environment",
            "Environment",
            "as the agent named it",
            path="environment",
            aliases=("env",),
            facet=True,
        ),
        Text(
            "resource", "Resource", path="resource", index="effect_by_resource", few=Q(HAS_RESOURCE)
        ),
        Text(
            "reference",
            "External reference",
            "pull request, commit, message id",
            path="external_reference",
            index="effect_by_reference",
            few=Q(HAS_REFERENCE),
        ),
        Choice(
            "permission",
            "Permission",
            path="permission",
            choices=label_choices(states.PERMISSIONS),
            narrow={"bypassed": Q(RAN_WITHOUT_PERMISSION)},
            index="effect_without_permission",
            common=tuple(word for word in states.PERMISSIONS if word != "bypassed"),
            facet=True,
        ),
        Choice(
            "basis",
            "Permission basis",
            path="permission_basis",
            choices=label_choices(x for x in states.PERMISSION_BASES if x),
        ),
        ComputedChoice(
            "policy_outcome",
            "Policy outcome",
            path="policy_outcome",
            choices=(
                ("ask", "needs permission"),
                ("deny", "denied"),
                ("not_enforced", "would have been held"),
                ("allow", "allowed"),
            ),
            each=policy_outcome_test,
            index="effect_needing_permission",
            common=("allow",),
        ),
        Text(
            "rule",
            "Policy rule",
            "set@version/rule",
            path="policy_rule",
            aliases=("policy",),
            facet=True,
        ),
        Text("key", "Effect key", "its idempotency key", path="effect_key"),
        Text("intent", "Intent digest", "v1:… in full", path="intent_digest"),
        MultiValue(
            "approved_intent",
            "Approved intent",
            "the intent digest that people approved",
            rows=project_approved_gates,
            link="effect_id",
            entity="gate",
            only=APPROVED_GATE,
            inner=Text("approved_intent", "Approved intent", path="intent_digest"),
        ),
        Choice(
            "reason",
            "Why it failed",
            path="failure_reason",
            choices=label_choices(x for x in states.FAILURE_REASONS if x),
        ),
        Choice(
            "resolution",
            "Resolution",
            "what a person stated about it",
            path="resolution",
            choices=label_choices(x for x in states.RESOLUTIONS if x),
        ),
        Choice(
            "lane", "Lane", path="lane", choices=(("command", "command"), ("evidence", "evidence"))
        ),
        Number(
            "attempts",
            "Attempts",
            path="attempt_count",
            nullable=False,
            index="effect_tried_again",
            few_above=1,
            few=Q(IS_RETRIED),
        ),
        duplicate_field(),
        Text("call", "Call id", path="call_id"),
        Text("turn", "Turn", path="turn"),
        Handle(
            "task",
            "Task",
            "t_7 or id",
            path="task_id",
            find=find_task_id,
            called="a task",
            nullable=True,
        ),
        Handle(
            "id",
            "Effect",
            "e_12 or id",
            path="id",
            find=find_effect_id,
            called="an effect",
            index="primary key",
            in_project=True,
            aliases=("effect",),
        ),
        RelatedRows(
            "chain",
            "Chain",
            "with its causes and compensations",
            load_related=load_chain,
            called="an effect by its handle, id, external reference or resource",
        ),
        SameCall(
            "like",
            "Like",
            "with all effects of the same call, as `duplicate:call` compares them",
            called="an effect by its handle or id",
            compared_late=True,
        ),
        Handle(
            "compensates",
            "Compensates",
            "e_12 or id",
            path="compensates_id",
            find=find_effect_id,
            called="an effect",
            index="effect_by_compensated",
            nullable=True,
        ),
        Handle(
            "parent",
            "Parent effect",
            "e_12 or id",
            path="parent_effect_id",
            find=find_effect_id,
            called="an effect",
            nullable=True,
        ),
        person_field(
            "on_behalf_of",
            "On behalf of",
            "session__on_behalf_of_id",
            "a user name, as reported by the agent",
        ),
        reviewer_field("gate__effect", "gates__votes"),
        approver_field("gate__effect", "gates__votes"),
        MultiValue(
            "ruling",
            "Ruling",
            "of its gates",
            rows=project_gates,
            link="effect_id",
            entity="gate",
            reach="gates",
            inner=ComputedChoice(
                "ruling", "Ruling", choices=label_choices(RULINGS), path="status", each=ruling_test
            ),
        ),
        MultiValue(
            "wait",
            "Waited for people",
            "from the request to the ruling",
            rows=project_gates,
            link="effect_id",
            entity="gate",
            reach="gates",
            inner=Duration("wait", "Waited", path="decided_at_us", minus="requested_at_us"),
        ),
        Time("at", "First seen", "server's clock", path="received_us", nullable=False),
        ComputedTime(
            "ran",
            "Ran",
            "dispatch by the server's clock; of later reports, the time that the agent stated",
            path="dispatched_at_us",
            expression=run_time_expression,
            unkept="The time is read from the newest attempt. Use dispatched_at with asof:.",
        ),
        Time("changed_at", "Last changed", "server's clock", path="changed_us", nullable=False),
        Time("planned_at", "Planned", "producer's clock, if reported", path="planned_at_us"),
        Time(
            "dispatched_at",
            "Dispatched",
            "producer's clock, if reported",
            path="dispatched_at_us",
        ),
        Time("settled_at", "Settled", "producer's clock, if reported", path="settled_at_us"),
        Time("deadline", "Deadline", "a dispatch past it is shown as unknown", path="deadline_us"),
        Duration(
            "took",
            "Took",
            "from dispatch to answer",
            path="settled_at_us",
            minus="dispatched_at_us",
        ),
    ),
    flags_by_name(
        Flag("unknown", "its outcome is unknown", unknown_effects_test),
        Flag(
            "waiting",
            "waiting for approval",
            lambda context: effect_state_test(display_state.AWAITING, context),
        ),
        Flag("stuck", "reported as stuck", stuck_test("S4")),
        Flag(
            "fenced",
            "a worker without the lease, or another agent, reported on it",
            entry_test("effect", kind="integrity.fenced", lane="system"),
        ),
        Flag(
            "erased",
            "one of its bodies was erased",
            entry_test("effect", erasure__isnull=False),
        ),
        Flag(
            "violating",
            "an integrity violation names it",
            constant_test(Q(violates=True), lambda row: row.violates, indexed=True),
        ),
        Flag(
            "unacknowledged",
            "it ran without approval or during a stop, and nobody has acknowledged that",
            unacknowledged_test,
        ),
    ),
    {
        "session": lambda rows: (rows, "id", "session_id"),
        "gate": lambda rows: (rows, "effect_id", "id"),
        "event": lambda rows: (rows.filter(effect__isnull=False), "effect", "id"),
    },
    "effect",
    many=True,
    find_declared=find_effect_field,
)
