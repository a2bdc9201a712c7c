"""One case for each constraint of the schema: a row that violates it and a row that satisfies it."""

from typing import Final

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
from approvals.gates.statuses import MAX_DECIDE_WITHIN_S, MAX_VALID_FOR_S, PASSWORD_VALID_S, US
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
from journal.models import Body, Entry, Erasure, Fingerprint, Outbox
from ledger.models import Attempt, Effect, Stop, Tool
from notifications.models import Notification, NotificationChannel
from sessions.models import Artifact, Item, Session, Task
from tests.ledger.cases_of_code_hosts import CODE_HOSTS
from tests.ledger.cases_of_erasure import ERASURES
from tests.ledger.cases_of_incidents import INCIDENTS
from tests.ledger.cases_of_questions import QUESTIONS
from tests.ledger.cases_of_recovery import RECOVERY
from tests.ledger.rows_by_hand import Row, World
from tests.ledger.schema_cases import Case, check_case, gate_case, unique_case


def _first_channel(world: World) -> NotificationChannel:
    channel: NotificationChannel = NotificationChannel.objects.first() or world.write(
        NotificationChannel
    )
    return channel


def _first_membership(world: World) -> Membership:
    membership: Membership = Membership.objects.first() or world.write(Membership)
    return membership


GIVEN: Final[Row] = {"status": "approved", "decided_at_us": 1, "permission_until_us": 2_000_001}
USED: Final[Row] = {"status": "used", "used_at_us": 3, "used_attempt": 1, "ended_at_us": 3}
MOVED: Final = {"state": "dispatched", "attempt_count": 1, "permission_basis": "observe"}
OPEN: Final = {"is_open": True}

CASES: Final[dict[str, Case]] = {
    # the journal
    "entry_id_is_used_once_per_source": unique_case(
        Entry, lambda _: {"event_id": "a"}, lambda _: {"source": "another"}
    ),
    "entry_lane_is_known": check_case(Entry, {"lane": "fast"}, {"lane": "system"}),
    "entry_kind_is_subject_dot_verb": check_case(
        Entry, {"kind": "started"}, {"kind": "session.started"}
    ),
    "entry_has_an_id": check_case(Entry, {"event_id": ""}),
    "entry_has_a_source": check_case(Entry, {"source": ""}),
    "body_salt_is_32_bytes": check_case(Body, {"salt": b"s" * 31}),
    "erasure_has_a_reason": check_case(Erasure, {"reason": ""}),
    "outbox_event_is_stored_once": unique_case(
        Outbox, lambda _: {"deduplication_key": "k"}, lambda w: {"project": w.project.id}
    ),
    "outbox_tries_are_counted": check_case(Outbox, {"tries": -1}, {"tries": 3}),
    "fingerprint_is_64_characters": check_case(Fingerprint, {"value": "f" * 63}),
    # projects, people, agents
    "project_name_is_unique": unique_case(
        Project, lambda _: {"name": "x"}, lambda _: {"name": "X"}
    ),
    "project_has_a_name": check_case(Project, {"name": ""}),
    "person_pseudonym_is_unique": unique_case(
        Person, lambda _: {"pseudonym": "p"}, lambda _: {"pseudonym": "q"}
    ),
    "person_theme_is_known": check_case(Person, {"theme": "pink"}, {"theme": "dark"}),
    "person_clock_is_known": check_case(Person, {"clock": "lunar"}, {"clock": "local"}),
    "membership_is_one_per_person": unique_case(
        Membership, lambda w: {"user": w.user}, lambda w: {"project": w.write(Project)}
    ),
    "membership_role_is_known": check_case(Membership, {"role": "king"}, {"role": "operator"}),
    "invitation_is_one_per_person": unique_case(
        Invitation, lambda w: {"user": w.user}, lambda w: {"project": w.write(Project)}
    ),
    "invitation_role_is_known": check_case(Invitation, {"role": "king"}, {"role": "operator"}),
    "agent_name_is_unique_in_project": unique_case(
        Agent, lambda _: {"name": "x"}, lambda w: {"project": w.write(Project)}
    ),
    "agent_has_a_name": check_case(Agent, {"name": ""}),
    "token_public_id_is_unique": unique_case(
        AgentToken, lambda _: {"public_id": "x"}, lambda _: {"public_id": "y"}
    ),
    "token_scope_is_known": check_case(AgentToken, {"scope": "root"}, {"scope": "import"}),
    "repository_name_is_unique_in_project": unique_case(
        Repository, lambda _: {"name": "x"}, lambda w: {"project": w.write(Project)}
    ),
    "repository_has_a_name": check_case(Repository, {"name": ""}),
    # sessions
    "session_key_is_unique_in_project": unique_case(
        Session, lambda _: {"key": "x"}, lambda w: {"project": w.write(Project)}
    ),
    "session_has_a_key": check_case(Session, {"key": ""}),
    "session_mode_is_known": check_case(Session, {"mode": "lazy"}, {"mode": "leased"}),
    "session_status_is_known": check_case(Session, {"status": "lost"}, {"status": "suspended"}),
    "session_is_not_its_own_parent": Case(
        Session,
        wrong=lambda w: {"id": w.project.id, "parent_id": w.project.id},
        right=lambda w: {"parent": w.session},
    ),
    "session_effects_are_counted": check_case(Session, {"effect_count": -1}),
    "task_key_is_unique_in_session": unique_case(
        Task, lambda _: {"key": "x"}, lambda w: {"session": w.write(Session)}
    ),
    "task_has_a_key": check_case(Task, {"key": ""}),
    "task_state_is_known": check_case(Task, {"state": "maybe"}, {"state": "blocked"}),
    "task_is_done_by_a_fact": check_case(
        Task, {"state": "done"}, {"state": "done", "done_mark": "m"}
    ),
    "item_key_is_unique_in_task": unique_case(
        Item, lambda _: {"key": "x"}, lambda w: {"task": w.write(Task)}
    ),
    "item_has_a_key": check_case(Item, {"key": ""}),
    "item_state_is_known": check_case(Item, {"state": "running"}, {"state": "failed"}),
    "artifact_hash_is_sha256": check_case(Artifact, {"sha256": "a" * 63}),
    "artifact_size_is_not_negative": check_case(Artifact, {"size": -1}, {"size": 0}),
    "team_name_is_unique_in_project": unique_case(
        Team, lambda _: {"name": "x"}, lambda w: {"project": w.write(Project)}
    ),
    "team_has_a_name": check_case(Team, {"name": ""}),
    "team_member_is_listed_once": unique_case(
        TeamMember,
        lambda w: {
            "team": Team.objects.first() or w.write(Team),
            "membership": _first_membership(w),
        },
        lambda w: {"team": w.write(Team)},
    ),
    # policies, gates, votes
    "policy_set_version_is_unique": unique_case(
        PolicySet, lambda _: {"name": "x"}, lambda _: {"version": 2}
    ),
    "policy_set_has_a_name": check_case(PolicySet, {"name": ""}),
    "policy_set_versions_start_at_one": check_case(PolicySet, {"version": 0}, {"version": 1}),
    "project_has_one_policy_in_force": unique_case(
        Activation, lambda _: {"is_current": True}, lambda w: {"project": w.write(Project)}
    ),
    "activation_mode_is_known": check_case(Activation, {"mode": "off"}, {"mode": "enforce"}),
    "exemption_names_a_tool": check_case(Exemption, {"tool": ""}, {"tool": "*"}),
    "exemption_ends_within_thirty_days": check_case(
        Exemption, {"ends_at_us": MAX_DECIDE_WITHIN_S * US + 2}
    ),
    "exemption_is_used_before_it_ends": check_case(
        Exemption, {"used_at_us": 10}, {"used_at_us": 9}
    ),
    "exemption_uses_are_counted": check_case(Exemption, {"uses": -1}, {"uses": 1}),
    "exemption_needs_at_least_one_person": check_case(Exemption, {"minimum": 0}, {"minimum": 2}),
    "exemption_needs_the_code": check_case(ExemptionVote, {"step_up": "reauth"}),
    "exemption_needs_a_recent_password": check_case(
        ExemptionVote, {"password_at_us": 0, "voted_at_us": PASSWORD_VALID_S * US + 1}
    ),
    "person_grants_an_exemption_once": unique_case(
        ExemptionVote,
        lambda w: {"exemption": w.exempted, "user": w.operator},
        lambda w: {"exemption": w.write(Exemption)},
    ),
    "effect_has_at_most_one_open_gate": unique_case(
        Gate, lambda w: {"effect": w.used}, lambda w: {"effect": w.write(Effect)}
    ),
    "gate_reason_is_known": check_case(Gate, {"reason": "mood"}, {"reason": "by_agent"}),
    "gate_risk_is_known": check_case(
        Gate, {"risk": "none"}, {"risk": "critical", "step_up": "typed_digest", "reason_of_yes": 3}
    ),
    "gate_reversibility_is_known": check_case(
        Gate,
        {"reversibility": "maybe"},
        {"reversibility": "irreversible", "step_up": "typed_digest", "reason_of_yes": 3},
    ),
    "gate_step_up_is_known": check_case(Gate, {"step_up": "wink"}, {"step_up": "reauth"}),
    "high_risk_gate_needs_the_code": check_case(
        Gate, {"risk": "high", "step_up": "reauth"}, {"risk": "high", "step_up": "typed_digest"}
    ),
    "irreversible_gate_needs_a_reason": check_case(
        Gate,
        {"reversibility": "irreversible", "step_up": "typed_digest"},
        {"reversibility": "irreversible", "step_up": "typed_digest", "reason_of_yes": 3},
    ),
    "gate_binds_a_digest": check_case(Gate, {"digest": ""}),
    "gate_needs_at_least_one_person": check_case(Gate, {"minimum": 0}, {"minimum": 3}),
    "gate_is_denied_by_at_least_one": check_case(
        Gate, {"deny_threshold": 0}, {"deny_threshold": 2}
    ),
    "self_approval_needs_low_risk": check_case(
        Gate, {"self_approval": True, "risk": "medium"}, {"self_approval": True, "risk": "low"}
    ),
    "gate_is_decided_within_thirty_days": check_case(
        Gate, {"decide_by_us": MAX_DECIDE_WITHIN_S * US + 2}
    ),
    "gate_permission_lasts_at_most_a_day": check_case(Gate, {"valid_for_s": MAX_VALID_FOR_S + 1}),
    "gate_has_ended_or_is_open": check_case(
        Gate, {"ended_at_us": 1}
    ),  # also rejects an unknown status
    **{
        name: gate_case(steps, wrong, right)
        for name, (steps, wrong, right) in {
            "gate_is_approved_before_its_deadline": (
                [],
                {**GIVEN, "decided_at_us": 9_000_001, "permission_until_us": 11_000_001},
                GIVEN,
            ),
            "gate_permission_has_an_end": ([], {**GIVEN, "permission_until_us": 9_000_000}, GIVEN),
            "gate_expires_after_its_deadline": (
                [],
                {"status": "expired", "ended_at_us": 8_999_999},
                {"status": "expired", "ended_at_us": 9_000_000},
            ),
            "gate_is_used_while_its_permission_lasts": (
                [GIVEN],
                {**USED, "used_at_us": 2_000_003},
                USED,
            ),
            "gate_is_used_once": ([GIVEN], {"used_attempt": 2}, USED),
        }.items()
    },
    "person_votes_once_on_a_gate": unique_case(
        Vote, lambda w: {"gate": w.gate}, lambda w: {"user": w.new_reviewer()}
    ),
    "vote_answer_is_known": check_case(Vote, {"answer": "perhaps"}, {"answer": "request_changes"}),
    "approval_saw_everything": check_case(
        Vote,
        {"answer": "approve", "view_complete": False},
        {"answer": "approve", "view_complete": True},
    ),
    "vote_on_own_request_is_an_approval": check_case(Vote, {"own": True}, {"own": False}),
    "vote_step_up_is_known": check_case(Vote, {"step_up": "wink"}, {"step_up": "reauth"}),
    "vote_follows_what_was_shown": check_case(Vote, {"voted_at_us": 0}, {"voted_at_us": 1}),
    "vote_reason_is_counted": check_case(Vote, {"reason_characters": -1}, {"reason_characters": 3}),
    # notifications
    "notification_channel_is_unique": unique_case(
        NotificationChannel, lambda _: {"target": "x"}, lambda w: {"project": w.write(Project)}
    ),
    "notification_channel_kind_is_known": check_case(
        NotificationChannel, {"kind": "pigeon"}, {"kind": "slack"}
    ),
    "notification_channel_form_is_known": check_case(
        NotificationChannel,
        {"kind": "slack", "body_form": "cloudevents"},
        {"kind": "webhook", "body_form": "cloudevents"},
    ),
    "member_has_one_settings": unique_case(
        ReviewSettings, lambda w: {"user": w.user}, lambda w: {"user": w.new_user()}
    ),
    "absence_ends_after_its_start": check_case(
        ReviewSettings,
        {"away_from_us": 5, "away_until_us": 5},
        {"away_from_us": 5, "away_until_us": 6},
        {"away_until_us": 5},
    ),
    "stand_in_is_another_person": Case(
        ReviewSettings,
        wrong=lambda w: {"stand_in": w.user},
        right=lambda w: {"stand_in": w.user, "away_from_us": 5, "away_until_us": 6},
        also=lambda w: [
            {"user": w.user, "stand_in": w.user, "away_from_us": 5, "away_until_us": 6}
        ],
    ),
    "digest_has_an_hour_and_an_address": check_case(
        ReviewSettings,
        {"digest_hour": 24, "digest_address": "a@example.org"},
        {"digest_hour": 23, "digest_address": "a@example.org"},
        {"digest_hour": 7},
    ),
    "person_is_addressed_once": unique_case(
        Addressee, lambda w: {"user": w.user}, lambda _: {"relation": "assigned"}
    ),
    "gate_is_assigned_to_one_person": unique_case(
        Addressee, lambda _: {"relation": "assigned"}, lambda _: {"relation": "mentioned"}
    ),
    "addressee_relation_is_known": check_case(
        Addressee, {"relation": "near"}, {"relation": "assigned"}
    ),
    "notification_channel_has_a_target": check_case(NotificationChannel, {"target": ""}),
    "notification_channel_risk_is_known": check_case(
        NotificationChannel, {"minimum_risk": "none"}, {"minimum_risk": "high"}
    ),
    "notification_channel_removed_is_silent": check_case(
        NotificationChannel, {"removed_at_us": 1}, {"removed_at_us": 1, "enabled": False}
    ),
    "notification_is_stored_once": unique_case(
        Notification, lambda w: {"channel": _first_channel(w), "key": "x"}, lambda _: {"key": "y"}
    ),
    "notification_topic_is_known": check_case(
        Notification, {"topic": "weather"}, {"topic": "integrity"}
    ),
    "notification_state_is_known": check_case(Notification, {"state": "lost"}, {"state": "quiet"}),
    "notification_sent_has_a_time": check_case(
        Notification, {"state": "sent"}, {"state": "sent", "sent_at_us": 1}
    ),
    "notification_tries_are_counted": check_case(Notification, {"tries": -1}, {"tries": 1}),
    # the ledger
    "subject_is_stopped_once": unique_case(
        Stop, lambda _: {"subject": "x"}, lambda w: {"project": w.write(Project)}
    ),
    "stop_scope_is_known": check_case(
        Stop, {"scope": "planet"}, {"scope": "project", "subject": ""}
    ),
    "stop_names_what_it_stops": check_case(
        Stop, {"subject": ""}, {"scope": "project", "subject": ""}
    ),
    "stop_is_lifted_by_a_person": Case(
        Stop,
        wrong=lambda _: {"lifted_at_us": 2},
        right=lambda w: {"lifted_at_us": 2, "lifted_by": w.user},
    ),
    "effect_policy_outcome_is_known": check_case(
        Effect, {"policy_outcome": "shrug"}, {"policy_outcome": "ask"}
    ),
    "tool_name_is_unique_in_project": unique_case(
        Tool, lambda _: {"name": "x"}, lambda w: {"project": w.write(Project)}
    ),
    "tool_class_is_known": check_case(
        Tool, {"tool_class": "magic"}, {"tool_class": "idempotency_key"}
    ),
    "tool_reversibility_is_known": check_case(
        Tool, {"reversibility": "maybe"}, {"reversibility": "read"}
    ),
    "tool_times_are_positive": check_case(Tool, {"deadline_s": 0}, {"deadline_s": 1}),
    "tool_window_and_counts_are_numbers": check_case(
        Tool, {"max_attempts": 0}, {"max_attempts": 1}
    ),
    "tool_undo_is_known": check_case(Tool, {"undo": "regret"}, {"undo": "reference"}),
    "effect_undoes_what_it_compensates": Case(
        Effect,
        wrong=lambda _: {"undoes": 1},
        right=lambda w: {"undoes": 1, "compensates": w.effect},
    ),
    "effect_undone_attempts_are_counted": check_case(Effect, {"undone": -1}, {"undone": 1}),
    "attempt_replaces_by_a_row_of_the_table": Case(
        Attempt,
        wrong=lambda w: {
            "number": 2,
            "lane": "command",
            "replaces": 1,
            "verdict_row": "26",
            **w.under("used"),
        },
        right=lambda w: {
            "number": 2,
            "lane": "command",
            "replaces": 1,
            "verdict_row": "17",
            **w.under("used"),
        },
    ),
    "effect_key_is_unique_in_session": unique_case(
        Effect, lambda _: {"effect_key": "x"}, lambda w: {"session": w.write(Session)}
    ),
    "compensation_is_open_once": unique_case(
        Effect,
        lambda w: {"compensates": w.effect, "lane": "command"},
        lambda _: {"state": "superseded"},
    ),
    "effect_has_a_key": check_case(Effect, {"effect_key": ""}),
    "effect_permission_is_known": check_case(
        Effect,
        {"permission": "assumed", "permission_basis": "observe"},
        {"permission": "none"},
    ),
    "effect_saved_permission_is_of_the_next_attempt": check_case(
        Effect, {"saved_permission": "used"}, {"saved_permission": "granted"}
    ),
    "effect_permission_basis_is_known": check_case(
        Effect, {"permission_basis": "hope"}, {"permission_basis": "changes_requested"}
    ),
    "effect_permission_has_a_basis_unless_none": check_case(
        Effect, {"permission": "granted"}, {"permission": "granted", "permission_basis": "policy"}
    ),
    "effect_moves_only_with_permission": check_case(
        Effect, {**MOVED, "permission": "granted"}, {**MOVED, "permission": "used"}
    ),
    "effect_outcome_fits_its_state": check_case(
        Effect,
        {**MOVED, "permission": "used", "outcome": "ok"},
        {**MOVED, "permission": "used", "outcome": ""},
    ),
    "effect_with_an_attempt_has_a_permission": check_case(
        Effect,
        {"state": "superseded", "attempt_count": 1},
        {
            "state": "superseded",
            "attempt_count": 1,
            "permission": "used",
            "permission_basis": "observe",
        },
    ),
    "effect_attempts_are_counted": check_case(
        Effect, {"attempt_count": -1, "permission": "used", "permission_basis": "observe"}
    ),
    "effect_moves_only_by_an_attempt": check_case(
        Effect,
        {**MOVED, "permission": "used", "attempt_count": 0},
        {**MOVED, "permission": "used", "attempt_count": 1},
    ),
    "effect_reason_is_known": check_case(
        Effect, {"failure_reason": "mood"}, {"failure_reason": "timeout"}
    ),
    "effect_resolution_is_known": check_case(
        Effect, {"resolution": "ignored"}, {"resolution": "abandoned"}
    ),
    "effect_ref_class_is_known": check_case(
        Effect, {"ref_class": "holy"}, {"ref_class": "protected"}
    ),
    "effect_plan_names_tool_and_intent": check_case(
        Effect,
        {"planned_mark": "m", "tool": "git.push"},
        {"planned_mark": "m", "tool": "git.push", "intent_digest": "v1:0"},
    ),
    "attempt_number_is_unique_in_effect": unique_case(
        Attempt, lambda _: {"number": 7}, lambda w: w.under("used")
    ),
    "effect_has_at_most_one_open_attempt": unique_case(
        Attempt, lambda _: OPEN, lambda _: {"is_open": False}
    ),
    "attempt_numbers_start_at_one": check_case(Attempt, {"number": 0}, {"number": 1}),
    "attempt_moves_only_with_permission": Case(
        Attempt, lambda w: w.under("granted"), lambda w: w.under("bypassed")
    ),
    "command_dispatch_uses_its_permission": Case(
        Attempt,
        wrong=lambda w: {"lane": "command", **w.under("observed")},
        right=lambda w: {"lane": "command", **w.under("used")},
    ),
    "open_attempt_was_dispatched_and_not_answered": check_case(
        Attempt, {**OPEN, "failed_mark": "m"}, OPEN
    ),
    "attempt_outcome_is_known": check_case(Attempt, {"outcome": "fine"}, {"outcome": "unknown"}),
    "attempt_reason_is_known": check_case(
        Attempt, {"failure_reason": "mood"}, {"failure_reason": "rejected"}
    ),
    "attempt_has_a_mark": check_case(
        Attempt, {"dispatched_mark": ""}, {"dispatched_mark": "", "failed_mark": "m"}
    ),
    # the endpoint
    "response_is_stored_once_per_key": unique_case(
        StoredResponse, lambda _: {"key": "x"}, lambda _: {"source": "another"}
    ),
    "response_is_a_success": check_case(StoredResponse, {"status": 409}, {"status": 201}),
    **RECOVERY,
    **INCIDENTS,
    **QUESTIONS,
    **CODE_HOSTS,
    **ERASURES,
}
