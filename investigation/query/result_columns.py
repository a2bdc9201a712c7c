"""The columns of query results in tables, CSV and JSON, for pages, API, exports and commands.

No column is read from a body, so all columns may be shown to readers without access to agents'
content; only `fields` has values of arguments, which the operator declared for the search. Values
are JSON values: times are UTC text that a query accepts (`at:2026-11-20T09:00:00.000001Z`),
durations are seconds, and rows are named by their handles.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final
from uuid import UUID

from django.db.models import F, OuterRef, Prefetch, QuerySet, Subquery

from approvals.models import Vote
from approvals.policies.engine import Requirement
from display import display_state
from display.run_times import run_time_expression
from display.urls_of_rows import URL_OF_ROW, absolute_url
from investigation.models import FieldValue
from investigation.query.auditor_columns import WITHHELD_COLUMNS
from investigation.query.column_types import (
    Column,
    Reader,
    Value,
    duration_column,
    format_moment_us,
    handle_column,
    number_column,
    text_column,
    time_column,
    us_to_seconds,
    word_column,
)
from investigation.query.entity_registry import ENTITIES
from investigation.query.fields.types import MultiValue, Ordered
from investigation.query.grouping import GroupTable
from investigation.query.registry import common
from ledger.models import Effect
from sessions.models import Session

_WITHHELD_OF_SESSIONS: Final = tuple(WITHHELD_COLUMNS["agent_sessions_session"])


def visible_columns(entity: str, reader: Reader) -> list[Column]:
    """Return the columns of an entity's rows that `reader` may see, in order."""
    return [column for column in COLUMNS[entity] if reader.people or not column.people]


def row_to_json(
    entity: str, row: Any, reader: Reader, names: Collection[str] | None = None
) -> dict[str, Value]:
    """Return a row as JSON values, of the columns `names` if given.

    Its queryset must come from `rows`.
    """
    return {
        column.name: column.value(row, reader)
        for column in visible_columns(entity, reader)
        if names is None or column.name in names
    }


def prepare_rows(entity: str) -> "Callable[[QuerySet[Any]], QuerySet[Any]]":
    """Return the function that prepares an entity's queryset for `execute.load_results` and
    `stream`."""
    return _ROWS[entity]


def group_column_names(groups: GroupTable) -> list[str]:
    """Return the column names of a table of groups: group fields, then figures."""
    return [group_field.name for group_field in groups.names] + [
        str(figure) for figure, _ in groups.figures
    ]


def groups_to_json(groups: GroupTable) -> list[list[Value]]:
    """Return the groups as JSON values: group fields, then figures."""
    return [
        [_to_json_value(value) for value in key]
        + [
            _figure_to_json(value, of, figure.function)
            for value, (figure, of) in zip(figures, groups.figures, strict=True)
        ]
        for key, figures in groups.rows
    ]


def _figure_to_json(value: Any, of: Any, function: str) -> Value:
    kind = of.kind if isinstance(of, Ordered | MultiValue) else ""
    if function in ("count", "distinct") or value is None:
        return value
    if kind == "time":
        return format_moment_us(int(value))
    return us_to_seconds(float(value)) if kind == "length" else _to_json_value(value)  # type: ignore[arg-type]


def _to_json_value(value: Any) -> Value:
    if isinstance(value, UUID):
        return str(value)
    return value if value is None or isinstance(value, str | int | float) else float(value)


# Columns.


def _address_column(entity: str) -> Column:
    """Return the column with the full URL of the row's page, for use in exports."""
    where = URL_OF_ROW[entity]
    return Column(
        "url",
        "Address",
        "text",
        lambda row, reader: absolute_url(where(row), reader.project),
        main=False,
    )


def _id_and_address_columns(entity: str) -> tuple[Column, Column]:
    """Return the columns with the id and the address of a row."""
    return Column(
        "id", "Id", "text", lambda row, _reader: str(row.pk), main=False
    ), _address_column(entity)


def _state(row: Any, reader: Reader) -> Value:
    return _STATE_KEYS[display_state.derive_shown_state(row, reader.now_us)]


def _status(row: Any, _reader: Reader) -> Value:
    return (
        "no_end_told"
        if display_state.derive_shown_status(row) == display_state.END_NOT_REPORTED
        else row.status
    )


def _required_approval(row: Any, _reader: Reader) -> Value:
    """Return whose approval a gate needs, or needed: how many of whom."""
    requirement = Requirement.of(row.requirement)
    approvers = [*(f"team {name}" for name in requirement.teams), *requirement.people]
    return f"{requirement.minimum} of {', '.join(approvers) if approvers else 'the reviewers'}"


def _ruling(row: Any, _reader: Reader) -> Value:
    return next(
        (word for word, statuses in common.RULINGS.items() if row.status in statuses), "withdrawn"
    )


def _declared_values(row: Any, reader: Reader) -> Value:
    """Return the values of declared fields: a list of {field, value}."""
    return [
        {"field": stored.field, "value": stored.value}
        for stored in row.field_values.all()
        if reader.upto is None or stored.plan_position <= reader.upto
    ]


def _votes(row: Any, reader: Reader) -> Value:
    """Return who voted what and when, the time since first shown, and the card's digest."""
    return [
        {
            "reviewer": vote.username,
            "answer": vote.answer,
            "at": format_moment_us(vote.voted_at_us),
            "ruled_in": us_to_seconds(vote.voted_at_us - vote.shown_at_us),
            "card_sha256": vote.card_sha256,
            "digest": vote.shown_digest,
            "saw_everything": vote.view_complete,
            "proof": vote.step_up,
            "password_at": format_moment_us(vote.password_at_us)
            if vote.password_at_us is not None
            else None,
        }
        for vote in votes_as_of(row, reader)
    ]


def _reviewers(row: Any, reader: Reader) -> Value:
    return [f"{vote.username} {vote.answer}" for vote in votes_as_of(row, reader)]


def votes_as_of(row: Any, reader: Reader) -> list[Any]:
    """Return the votes of a gate that were cast by the reader's moment, in order."""
    return [vote for vote in row.votes.all() if reader.upto is None or vote.position <= reader.upto]


_STATE_KEYS: Final = {word: key for key, word in display_state.STATES.items()}


COLUMNS: Final[dict[str, tuple[Column, ...]]] = {
    "effect": (
        handle_column("e", "effect", "Effect", "opened_position"),
        time_column("at", "First seen", "received_us", main=True),
        time_column("ran", "Ran", "ran_us"),
        handle_column("s", "session", "Session", "session_position"),
        text_column("tool", "Tool", main=True),
        Column("state", "State", "word", _state),
        word_column("outcome", "Outcome", main=True),
        text_column("agent", "Agent", "agent_name", main=True),
        text_column("repository", "Repository", "repository_name", main=True),
        text_column("ref", "Ref", main=True),
        word_column("ref_class", "Ref class"),
        text_column("environment", "Environment"),
        text_column("resource", "Resource"),
        text_column("reference", "External reference", "external_reference", main=True),
        number_column("attempts", "Attempts", "attempt_count", main=True),
        word_column("permission", "Permission", main=True),
        word_column("basis", "Permission basis", "permission_basis"),
        word_column("policy_outcome", "Policy outcome"),
        text_column("rule", "Policy rule", "policy_rule"),
        word_column("reason", "Why it failed", "failure_reason"),
        word_column("resolution", "Resolution"),
        Column("violating", "Violates", "word", lambda row, _reader: row.violates, main=False),
        handle_column("e", "parent", "Parent", "parent_position", main=False),
        handle_column("e", "compensates", "Compensates", "compensates_position", main=False),
        time_column("planned_at", "Planned", "planned_at_us"),
        time_column("dispatched_at", "Dispatched", "dispatched_at_us"),
        time_column("settled_at", "Settled", "settled_at_us"),
        Column("fields", "Declared fields", "list", _declared_values, main=False),
        text_column("key", "Effect key", "effect_key"),
        text_column("session_key", "Key of the session"),
        text_column("intent", "Intent digest", "intent_digest"),
        *_id_and_address_columns("effect"),
    ),
    "session": (
        handle_column("s", "session", "Session", "opened_position"),
        time_column("at", "Opened", "created_at_us", main=True),
        text_column("title", "Title", main=True),
        Column("status", "Status", "word", _status),
        text_column("agent", "Agent", "agent_name", main=True),
        text_column("owner", "Owner", "owner_name", main=True, people=True),
        text_column("repository", "Repository", "repository_name", main=True),
        text_column("branch", "Branch", main=True),
        number_column("effects", "Effects", "effect_count", main=True),
        number_column("resumes", "Resumes", main=True),
        word_column("mode", "Mode"),
        text_column("key", "Key"),
        handle_column("s", "parent", "Parent session", "parent_position", main=False),
        time_column("seen_at", "Last seen", "seen_at_us"),
        time_column("started_at", "Started", "started_at_us"),
        time_column("ended_at", "Ended", "ended_at_us"),
        *_id_and_address_columns("session"),
    ),
    "gate": (
        handle_column("g", "gate", "Gate", "opened_position"),
        time_column("at", "Requested", "requested_at_us", main=True),
        handle_column("e", "effect", "Effect", "effect_position"),
        handle_column("s", "session", "Session", "session_position"),
        text_column("tool", "Tool", main=True),
        word_column("status", "Status", main=True),
        Column("ruling", "Ruling", "word", _ruling, main=False),
        Column("asked", "Approval needed from", "text", _required_approval, people=True),
        Column("reviewers", "Votes", "list", _reviewers, people=True),
        time_column("decide_by", "Decide by", "decide_by_us", main=True),
        duration_column("wait", "Waited", "requested_at_us", "decided_at_us", main=True),
        text_column("agent", "Agent", "agent_name", main=True),
        text_column("repository", "Repository", "repository_name"),
        text_column("rule", "Policy rule"),
        word_column("risk", "Risk"),
        word_column("reason", "Why it ended"),
        text_column("requester", "Requester", "requester_name", people=True),
        text_column("session_owner", "Owner of the session", "session_owner_name", people=True),
        text_column("agent_owner", "Owner of the agent", "agent_owner_name", people=True),
        Column("votes", "Vote details", "list", _votes, main=False, people=True),
        time_column("decided_at", "Decided", "decided_at_us"),
        time_column("used_at", "Permission used", "used_at_us"),
        time_column("permission_until", "Permission expires", "permission_until_us"),
        time_column("ended_at", "Ended", "ended_at_us"),
        text_column("intent", "Intent digest", "intent_digest"),
        text_column("digest", "Digest", "digest"),
        *_id_and_address_columns("gate"),
    ),
    "exemption": (
        handle_column("x", "exemption", "Exemption", "opened_position"),
        time_column("granted", "Granted", "granted_at_us", main=True),
        text_column("tool", "Tool", main=True),
        text_column("rule", "Rule", main=True),
        text_column("agent", "Agent", main=True),
        text_column("repository", "Repository", main=True),
        text_column("ref", "Ref", main=True),
        text_column("environment", "Environment"),
        handle_column("s", "session", "Session", "session_position"),
        text_column("granter", "Granted by", "granter_name", main=True, people=True),
        time_column("expires", "Ends", "ends_at_us", main=True),
        time_column("revoked", "Revoked", "revoked_at_us", main=True),
        number_column("uses", "Uses", main=True),
        time_column("last_use", "Last recorded use", "used_at_us", main=True),
        *_id_and_address_columns("exemption"),
    ),
    "event": (
        number_column("position", "Position", main=True),
        time_column("at", "Received", "received_us", main=True),
        word_column("kind", "Kind", main=True),
        Column("actor", "Actor", "text", lambda row, reader: reader.called(row.actor)),
        handle_column("s", "session", "Session", "session_position"),
        handle_column("e", "effect", "Effect", "effect_position"),
        number_column("attempt", "Attempt", main=True),
        word_column("lane", "Lane", main=True),
        text_column("source", "Source"),
        number_column("epoch", "Lease epoch", "lease_epoch"),
        time_column("occurred_at", "Occurred", "occurred_us"),
        text_column("facts", "Facts", main=True, people=True),
        text_column("entry_id", "Entry id", "event_id"),
        _address_column("event"),
    ),
}


# Querysets.


def _position_subquery(model: Any, name: str) -> Subquery:
    """Return the position of a row that is referenced without a foreign key.

    Rows of other projects have none.
    """
    target_rows = model._default_manager.filter(id=OuterRef(name), project=OuterRef("project"))
    return Subquery(target_rows.values("opened_position")[:1])


def _prepare_effects(effects: "QuerySet[Any]") -> "QuerySet[Any]":
    rows: QuerySet[Any] = effects.annotate(
        session_position=F("session__opened_position"),
        session_key=F("session__key"),
        agent_name=F("agent__name"),
        repository_name=F("repository__name"),
        parent_position=_position_subquery(Effect, "parent_effect"),
        compensates_position=_position_subquery(Effect, "compensates"),
        ran_us=run_time_expression(),
    ).prefetch_related(Prefetch("field_values", FieldValue.objects.order_by("field", "value")))
    return rows


def _prepare_sessions(sessions: "QuerySet[Any]") -> "QuerySet[Any]":
    rows: QuerySet[Any] = sessions.defer(*_WITHHELD_OF_SESSIONS).annotate(
        agent_name=F("agent__name"),
        owner_name=F("owner__username"),
        repository_name=F("repository__name"),
        parent_position=F("parent__opened_position"),
    )
    return rows


def _prepare_gates(gates: "QuerySet[Any]") -> "QuerySet[Any]":
    votes = Vote.objects.annotate(username=F("user__username")).order_by("position")
    # A gate's repository and owners are columns and foreign keys, whose names cannot be reused
    # here.
    rows: QuerySet[Any] = gates.annotate(
        effect_position=F("effect__opened_position"),
        session_position=F("session__opened_position"),
        agent_name=F("agent__name"),
        requester_name=F("requester__username"),
        session_owner_name=F("session_owner__username"),
        agent_owner_name=F("agent_owner__username"),
    ).prefetch_related(Prefetch("votes", votes))
    return rows


def _prepare_exemptions(exemptions: "QuerySet[Any]") -> "QuerySet[Any]":
    rows: QuerySet[Any] = exemptions.annotate(
        granter_name=F("granted_by__username"), session_position=F("session__opened_position")
    )
    return rows


def _prepare_events(entries: "QuerySet[Any]") -> "QuerySet[Any]":
    rows: QuerySet[Any] = entries.annotate(
        session_position=_position_subquery(Session, "session"),
        effect_position=_position_subquery(Effect, "effect"),
    )
    return rows


_ROWS: Final[dict[str, "Callable[[QuerySet[Any]], QuerySet[Any]]"]] = {
    "effect": _prepare_effects,
    "session": _prepare_sessions,
    "gate": _prepare_gates,
    "exemption": _prepare_exemptions,
    "event": _prepare_events,
}


def flatten_value(value: Value) -> Value:
    """Return a value as one table cell; lists become text separated by semicolons."""
    if isinstance(value, dict):
        return " ".join(str(item) for item in value.values() if item not in (None, ""))
    if isinstance(value, Iterable) and not isinstance(value, str):
        return "; ".join(str(flatten_value(item)) for item in value)
    return value


assert COLUMNS.keys() == ENTITIES.keys() == _ROWS.keys()  # noqa: S101 - an entity without columns is found at start
