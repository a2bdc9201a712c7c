"""Rows that violate the constraints of leases, working state, messages, breakers and stuck
sessions, and rows that satisfy them."""

from typing import Final

from accounts.models import Agent, Project
from investigation.models import (
    EffectText,
    FieldCoverage,
    FieldValue,
    FirstOccurrence,
    ImportedBundle,
    RepeatedOccurrence,
)
from ledger.models import (
    Breaker,
    Effect,
    SameCall,
    Tool,
    UsedName,
    UsedNamePlan,
    UsedNameProgress,
)
from monitoring.models import EffectDay, EffectHour, JobHeartbeat, StuckEpisode, StuckLimit
from proofs.models import Anchor, SealProgress, SigningKey, Tile, TreeHead
from sessions.models import (
    Capacity,
    Checkpoint,
    Decision,
    Handoff,
    HeartbeatMinute,
    Lease,
    Message,
    MessageFile,
    MessageRead,
    ObservedFact,
    Session,
)
from tests.ledger.rows_by_hand import Row
from tests.ledger.schema_cases import Case, check_case, unique_case

PACED: Final[Row] = {"pace_reason": "context", "paced_from_us": 1, "paced_until_us": 2}
ACCEPTED: Final[Row] = {"accepted_mark": "m", "accepted_at_us": 2}
OPENED: Final[Row] = {"opened_at_us": 1, "until_us": 2}
RAISED: Final[Row] = {"raised_us": 5, "raised_position": 1}
CLEARED: Final[Row] = {"cleared_us": 9, "cleared_position": 2}

RECOVERY: Final[dict[str, Case]] = {
    "same_call_is_named_once": unique_case(
        SameCall,
        lambda w: {"effect": w.used, "other": w.effect},
        lambda w: {"other": w.write(Effect)},
    ),
    "same_call_is_of_another_session": Case(
        SameCall,
        wrong=lambda w: {"other_session": w.session},
        right=lambda w: {"other_session": w.write(Session)},
    ),
    # the seal of the journal
    "tile_is_stored_once": unique_case(Tile, lambda _: {"index": 0}, lambda _: {"level": 1}),
    "tile_has_level_and_index": check_case(Tile, {"level": 64}, {"level": 63}, {"index": -1}),
    "tile_holds_1_to_256_hashes": check_case(
        Tile, {"hashes": b""}, {"hashes": b"h" * 8192}, {"hashes": b"h" * 8193}
    ),
    "tree_head_is_counted_from_one": check_case(TreeHead, {"size": -1}, {"size": 1}),
    "tree_head_root_is_32_bytes": check_case(TreeHead, {"root": b"r" * 31}),
    "tree_head_has_a_note": check_case(TreeHead, {"note": ""}),
    "signing_key_is_stored_once": unique_case(
        SigningKey, lambda _: {"key_id": "0badcafe"}, lambda _: {"name": "gatebook/2"}
    ),
    "signing_key_is_32_bytes": check_case(SigningKey, {"public_key": b"k" * 33}),
    "signing_key_retires_after_its_use": check_case(
        SigningKey, {"retired_at_us": 4}, {"retired_at_us": 5}
    ),
    "anchor_takes_a_head_once": unique_case(
        Anchor,
        lambda w: {"tree_head": TreeHead.objects.first() or w.write(TreeHead)},
        lambda _: {"receipt": "", "error": "refused"},  # a failure counts for nothing
    ),
    "anchor_has_a_receipt_or_an_error": check_case(
        Anchor, {"receipt": ""}, {"receipt": "", "error": "refused"}, {"error": "refused"}
    ),
    "anchor_kind_is_known": check_case(Anchor, {"kind": "paper"}, {"kind": "git"}),
    "seal_progress_is_one_row": check_case(SealProgress, {"id": 2}, {"id": 1}),
    # sessions that branch and merge
    "session_is_not_branched_from_itself": Case(
        Session,
        wrong=lambda w: {"id": w.project.id, "branched_from_id": w.project.id},
        right=lambda w: {"branched_from": w.session},
    ),
    "session_does_not_merge_into_itself": Case(
        Session,
        wrong=lambda w: {"id": w.project.id, "merge_into_id": w.project.id},
        right=lambda w: {"merge_into": w.session, "merged_into": w.session},
        also=lambda w: [{"id": w.project.id, "merged_into_id": w.project.id}],
    ),
    # leases
    "lease_is_one_per_subject": unique_case(
        Lease, lambda _: {"subject": "x"}, lambda w: {"project": w.write(Project)}
    ),
    "lease_kind_is_known": check_case(
        Lease,
        {"kind": "mood"},
        {"kind": "resource", "session": None},
        {"kind": "mood", "session": None},
    ),
    "lease_names_subject_and_process": check_case(Lease, {"subject": ""}, {}, {"process": ""}),
    "lease_kind_matches_its_subject": Case(
        Lease,
        wrong=lambda _: {"kind": "resource"},
        right=lambda w: {"kind": "task", "task": w.task},
        also=lambda w: [
            {"session": None},
            {"task": w.task},
            {"kind": "task"},
            {"kind": "task", "task": w.task, "session": None},
            {"kind": "resource", "task": w.task, "session": None},
        ],
    ),
    "lease_epoch_begins_at_one": check_case(Lease, {"epoch": 0}, {"epoch": 1}),
    "lease_lasts_seconds_to_an_hour": check_case(
        Lease, {"ttl_s": 4}, {"ttl_s": 5}, {"ttl_s": 3601}
    ),
    "lease_expires_before_it_is_dead": check_case(
        Lease,
        {"expires_at_us": 4},
        {"expires_at_us": 3},
        {"heartbeat_at_us": 3, "progress_at_us": 3},
    ),
    "heartbeat_minute_is_counted_once": unique_case(
        HeartbeatMinute,
        lambda w: {"lease": w.lease, "minute": 7},
        lambda w: {"lease": w.write(Lease)},
    ),
    "heartbeat_minute_counts_up": check_case(
        HeartbeatMinute, {"heartbeats": -1}, {"heartbeats": 1}, {"progresses": -1}
    ),
    # messages and capacities
    "message_has_one_sender": Case(
        Message,
        wrong=lambda w: {"from_agent": w.agent, "from_user": w.user},
        right=lambda w: {"from_agent": w.agent},
    ),
    "message_to_all_is_read_by_each": Case(
        Message,
        wrong=lambda _: {"read_at_us": 2},
        right=lambda w: {"read_at_us": 2, "recipient": w.agent},
    ),
    "message_size_is_not_negative": check_case(Message, {"size": -1}, {"size": 0}),
    "message_is_read_once_by_each": unique_case(
        MessageRead,
        lambda w: {"message": w.message, "agent": w.agent},
        lambda w: {"agent": w.write(Agent)},
    ),
    "delivery_is_one_file_of_a_directory": unique_case(
        MessageFile,
        lambda w: {"message": w.message, "directory": w.project.id},
        lambda w: {"directory": w.session.id},
    ),
    "delivery_has_a_file": check_case(MessageFile, {"file": ""}),
    "capacity_is_one_of_a_session": unique_case(
        Capacity,
        lambda w: {"agent": w.agent, "session": w.session},
        lambda w: {"session": w.write(Session)},
    ),
    "capacity_is_one_of_an_agent": unique_case(
        Capacity, lambda w: {"agent": w.agent, "session": None}, lambda w: {"session": w.session}
    ),
    "capacity_paces_for_a_known_reason": check_case(
        Capacity, {**PACED, "pace_reason": "mood"}, PACED
    ),
    "capacity_paces_from_and_until": check_case(
        Capacity,
        {**PACED, "pace_reason": ""},
        PACED,
        {**PACED, "paced_from_us": None},
        {**PACED, "paced_until_us": None},
        {"pace_reason": "context"},
    ),
    # working state
    "checkpoint_size_is_not_negative": check_case(Checkpoint, {"size": -1}, {"size": 0}),
    "decision_key_is_unique_in_session": unique_case(
        Decision, lambda _: {"key": "x"}, lambda w: {"session": w.write(Session)}
    ),
    "decision_has_a_key": check_case(Decision, {"key": ""}),
    "decision_status_is_known": check_case(
        Decision,
        {"status": "maybe", "concluded_position": 1},
        {"status": "failed", "concluded_position": 1},
    ),
    "decision_is_concluded_by_a_fact": check_case(
        Decision,
        {"status": "done"},
        {"status": "done", "concluded_position": 1},
        {"concluded_position": 1},
    ),
    "handoff_key_is_unique_in_session": unique_case(
        Handoff, lambda _: {"key": "x"}, lambda w: {"session": w.write(Session)}
    ),
    "handoff_has_a_key": check_case(Handoff, {"key": ""}),
    "handoff_size_is_not_negative": check_case(Handoff, {"size": -1}, {"size": 0}),
    "handoff_is_accepted_by_a_fact": check_case(
        Handoff,
        {"accepted_at_us": 2},
        ACCEPTED,
        {"accepted_mark": "m"},
        {**ACCEPTED, "accept_by_us": 3},
    ),
    "fact_is_stored_once_per_source": unique_case(
        ObservedFact, lambda _: {"name": "x"}, lambda _: {"source": "a person"}
    ),
    "fact_has_a_name_and_a_source": check_case(ObservedFact, {"name": ""}, {}, {"source": ""}),
    # circuit breakers of tools
    "tool_breaker_has_all_values": check_case(
        Tool,
        {"breaker_failures": 0, "breaker_pause_s": 60},
        {"breaker_failures": 3, "breaker_pause_s": 60},
        {"breaker_failures": 3, "breaker_pause_s": 0},
        {"breaker_failures": 3},
        {"breaker_pause_s": 60},
    ),
    "breaker_is_one_of_a_tool": unique_case(
        Breaker, lambda _: {"tool": "x"}, lambda w: {"project": w.write(Project)}
    ),
    "breaker_failures_are_counted": check_case(Breaker, {"failures": -1}, {"failures": 1}),
    "breaker_that_opened_has_an_end": check_case(
        Breaker, {"opened_at_us": 1}, OPENED, {"until_us": 2}
    ),
    "breaker_tries_while_open": Case(
        Breaker,
        wrong=lambda w: {"trial": w.effect.id, "trial_until_us": 3},
        right=lambda w: {**OPENED, "trial": w.effect.id, "trial_until_us": 3},
        also=lambda w: [{**OPENED, "trial": w.effect.id}, {**OPENED, "trial_until_us": 3}],
    ),
    # stuck sessions
    "stuck_episode_is_open_once": unique_case(
        StuckEpisode, lambda w: {"subject": w.session.id}, lambda _: {"cleared_us": 9}
    ),
    "stuck_rule_is_known": check_case(StuckEpisode, {"rule": "S9"}, {"rule": "S10"}),
    "stuck_is_raised_after_it_was_seen_and_in_the_journal": check_case(
        StuckEpisode, {**RAISED, "raised_us": 4}, RAISED, {"raised_us": 5}, {"raised_position": 1}
    ),
    "stuck_is_cleared_in_the_journal_after_it_was_raised": check_case(
        StuckEpisode, CLEARED, {**RAISED, **CLEARED}, {**RAISED, "cleared_position": 2}
    ),
    "stuck_is_snoozed_by_a_person_with_a_reason": Case(
        StuckEpisode,
        wrong=lambda _: {"snoozed_until_us": 9, "snoozed_position": 2},
        right=lambda w: {"snoozed_until_us": 9, "snoozed_position": 2, "snoozed_by": w.user},
        also=lambda w: [{"snoozed_until_us": 9, "snoozed_by": w.user}],
    ),
    "stuck_limit_is_set_once_per_agent": unique_case(
        StuckLimit, lambda _: {"name": "x"}, lambda w: {"agent": w.write(Agent)}
    ),
    "stuck_limit_names_a_length": check_case(StuckLimit, {"name": ""}, {"value": 0}, {"value": -1}),
    "words_are_of_an_effect_in_the_journal": check_case(
        EffectText, {"position": 0}, {"position": 1}, {"position": -1}
    ),
    "first_occurrence_is_in_the_journal": check_case(
        FirstOccurrence, {"position": 0}, {"position": 1}
    ),
    "repeated_occurrence_is_unique": unique_case(
        RepeatedOccurrence, lambda _: {"position": 7}, lambda _: {"sort": "target"}
    ),
    "repeated_occurrence_sort_is_known": check_case(
        RepeatedOccurrence, {"sort": "word"}, {"sort": "read"}
    ),
    "repeated_occurrence_is_counted": check_case(
        RepeatedOccurrence, {"nth": 0}, {"nth": 2}, {"repeat_position": 1}
    ),
    "field_value_is_stored_once": unique_case(
        FieldValue,
        lambda w: {"effect": Effect.objects.first() or w.write(Effect)},
        lambda _: {"field": "order"},
    ),
    "field_value_has_field_and_value": check_case(FieldValue, {"field": ""}, None, {"value": ""}),
    "field_coverage_is_unique_for_tool": unique_case(
        FieldCoverage, lambda _: {"tool": "mail.send"}, lambda _: {"tool": "git.push"}
    ),
    "field_coverage_begins_at_a_position": check_case(
        FieldCoverage, {"complete_from": -1}, {"complete_from": 7}
    ),
    "used_name_is_listed_once": unique_case(
        UsedName, lambda _: {"name": "a.example"}, lambda _: {"kind": "account"}
    ),
    "used_name_is_in_the_journal": check_case(
        UsedName,
        {"first_position": 0},
        {"first_position": 2, "last_position": 3},
        {"first_position": 2, "last_position": 1},
        {"uses": 0},
    ),
    "used_name_plan_is_listed_once": unique_case(
        UsedNamePlan,
        lambda w: {"name": UsedName.objects.first() or w.write(UsedName), "position": 7},
        lambda _: {"position": 8},
    ),
    "used_name_progress_is_one_row": check_case(
        UsedNameProgress, {"id": 2}, {"id": 1}, {"position": -1}
    ),
    "bundle_is_imported_once": unique_case(
        ImportedBundle,
        lambda _: {"sha256": "f" * 64},
        lambda w: {"sha256": "e" * 64, "session": w.write(Session)},
    ),
    "bundle_versions_start_at_one": check_case(ImportedBundle, {"version": 0}, {"version": 1}),
    "effect_hour_is_counted_once": unique_case(
        EffectHour, lambda _: {"hour_us": 0}, lambda _: {"hour_us": 3_600_000_000}
    ),
    "effect_hour_has_effects": check_case(
        EffectHour, {"effects": 0}, {"effects": 2}, {"first_position": 0}
    ),
    "effect_day_is_counted_once": unique_case(
        EffectDay, lambda _: {"day_us": 0}, lambda _: {"tool": "git.pull"}
    ),
    "effect_day_has_effects": check_case(EffectDay, {"effects": 0}, {"effects": 2}),
    "job_heartbeat_counts_up": check_case(
        JobHeartbeat, {"heartbeats": 0}, {"heartbeats": 1}, {"every_us": -1}
    ),
}
