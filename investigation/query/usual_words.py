"""Usual words of other products for fields and values, and the words of this query language."""

from collections.abc import Mapping
from typing import Final

Words = Mapping[
    str, tuple[str, ...]
]  # Usual word -> the words that it can mean, the likeliest first.


def _spread(**words: str) -> dict[str, tuple[str, ...]]:
    """Return the table of `meaning="usual words"`; `a__or__b` means a, or else b."""
    return {
        usual: tuple(meaning.split("__or__"))
        for meaning, usual_words in words.items()
        for usual in usual_words.split()
    }


_FIELDS_OF_ALL: Final = _spread(
    since="after from start begin newer newer_than",
    until="before to end older older_than",
    at="time date day when created created_at timestamp opened received",
    took="duration elapsed runtime latency",
    agent="bot worker agent_name assistant",
    session="run conversation thread session_id trace",
    repository="project git_repo repos",
    asof="as_of",
)
USUAL_FIELDS: Final[Mapping[str, Words]] = {
    "effect": {
        **_FIELDS_OF_ALL,
        **_spread(
            state="status",
            resource="target file path object",
            ref="branch tag git_ref",
            tool="action operation function tool_name command",
            on_behalf_of="user username owner requester",
            reviewer="person human reviewed_by voter",
            approver="approved_by approvers",
            reference="pr pull_request merge_request commit url link external_reference",
            outcome="result",
            ruling__or__permission="approval decision verdict",
            attempts="attempt retries tries",
            key="effect_key idempotency_key",
            intent="digest hash",
            wait="waited",
            changed_at="updated updated_at modified",
            id="effect_id",
        ),
    },
    "session": {
        **_FIELDS_OF_ALL,
        **_spread(
            owner="user username person human",
            title="name",
            branch="ref",
            seen_at="last_seen heartbeat",
            failing_tool="failed_tool",
            ended_at="ended finished",
            started_at="started",
        ),
    },
    "gate": {
        **_FIELDS_OF_ALL,
        **_spread(
            requester="user username owner",
            reviewer="person human reviewed_by voter",
            approver="approved_by approvers",
            ruling__or__status="decision verdict approval",
            decided_at="decided",
            decide_by="deadline due expires",
            wait="waited",
            repository="target",
        ),
    },
    "exemption": {
        **_FIELDS_OF_ALL,
        **_spread(
            granter="user username person granted_by owner",
            granted="created created_at time date",
            expires="expires_at ends deadline",
        ),
    },
    "event": {
        **_FIELDS_OF_ALL,
        **_spread(
            actor="user username person who by agent author",
            kind="type event",
            entry_id="id event_id",
        ),
    },
}

# Usual word -> the flag of `is:`, by entity.
USUAL_FLAGS: Final[Mapping[str, Words]] = {
    "effect": _spread(
        waiting="pending blocked held",
        unknown="lost uncertain",
        stuck="hung hanging",
        erased="deleted redacted",
        violating="violation",
    ),
    "session": _spread(
        stuck="hung hanging",
        looped="looping loop",
        erased="deleted redacted",
        ended="finished closed done",
        waiting="blocked",
    ),
    "gate": _spread(open="undecided", waiting="pending blocked held"),
    "exemption": _spread(live="active current", ended="expired over"),
    "event": _spread(erased="deleted redacted", violating="violation"),
}

# Field -> usual value -> the conditions that it can mean.
_FAILED: Final = "error errored fail failure"
_DENIED: Final = "rejected refused declined"
USUAL_VALUES: Final[Mapping[str, Words]] = {
    "effect.state": {
        **_spread(
            failed=_FAILED,
            acknowledged="done complete completed finished",
            dispatched="running started executing in_progress",
            awaiting="waiting pending blocked held",
            unknown="lost",
            compensated="reverted undone rolled_back",
        ),
        **dict.fromkeys(("ok", "success", "succeeded", "successful"), ("outcome:ok",)),
        **dict.fromkeys(("denied", *_DENIED.split()), ("permission:denied",)),
        "approved": ("ruling:approved",),
        "bypassed": ("permission:bypassed",),
        "retried": ("attempts:>1",),
    },
    "effect.outcome": _spread(
        ok="success succeeded successful done", error="failed failure fail", unknown="lost"
    ),
    "effect.permission": {
        **_spread(denied=_DENIED, pending="waiting awaiting open"),
        "approved": ("ruling:approved",),
    },
    "session.status": _spread(
        running="active started open",
        completed="done complete finished success succeeded ok",
        failed=_FAILED,
        cancelled="canceled aborted",
        suspended="paused",
        waiting="blocked",
    ),
    "gate.status": _spread(
        pending="waiting undecided awaiting",
        denied=_DENIED,
        approved="accepted granted",
        cancelled="canceled",
        expired="timeout timed_out",
    ),
    **dict.fromkeys(
        ("effect.ruling", "gate.ruling"),
        _spread(denied=_DENIED, approved="accepted granted"),
    ),
}


def list_usual_fields(entity: str, name: str) -> tuple[str, ...]:
    """Return the fields of the entity that a usual name can mean, the likeliest first."""
    return USUAL_FIELDS.get(entity, {}).get(name.lower().replace("-", "_"), ())
