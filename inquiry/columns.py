"""What tables, CSV and JSON show of the rows of a query: one place for the pages, the API, exports and the command.

No column is read from a body: whoever may not see what agents sent can be told all of this. Values are what JSON
holds: moments are texts in UTC that a query takes back (`at:2026-11-20T09:00:00.000001Z`), lengths are seconds, rows
are named by their handles.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final
from uuid import UUID

from django.db.models import F, OuterRef, Prefetch, QuerySet, Subquery

from approvals.models import Vote
from approvals.requirement import Requirement
from inquiry import shown
from inquiry.addresses import PAGE, in_full
from inquiry.auditing import WITHHELD
from inquiry.column import Column, Reader, Value, handle, length, moment, number, seconds, text, time, word
from inquiry.query import parts
from inquiry.query.entities import ENTITIES
from inquiry.query.grouping import Groups
from inquiry.query.kinds import Ordered, Several
from ledger.models import Effect
from sessions.models import Session

_UNREAD: Final = tuple(WITHHELD["agent_sessions_session"])


def of(entity: str, reader: Reader) -> list[Column]:
    """The columns of an entity's rows that `reader` is shown, in order."""
    return [one for one in COLUMNS[entity] if reader.people or not one.people]


def told(entity: str, row: Any, reader: Reader) -> dict[str, Value]:
    """One row, as JSON holds it. Of a query set that went through `rows`."""
    return {one.name: one.value(row, reader) for one in of(entity, reader)}


def rows(entity: str) -> "Callable[[QuerySet[Any]], QuerySet[Any]]":
    """What to add to a query set of the entity so that its rows can be told: for `asking.answer` and `stream`."""
    return _ROWS[entity]


def address(entity: str, row: Any) -> str:
    """The path of the page that shows the row."""
    return PAGE[entity](row)


def group_names(groups: Groups) -> list[str]:
    """The heads of a table of groups: what was grouped by, then the figures."""
    return [one.name for one in groups.names] + [str(figure) for figure, _ in groups.figures]


def groups_told(groups: Groups) -> list[list[Value]]:
    """The groups, each a list of what it was grouped by and its figures, as JSON holds it."""
    return [
        [_plain(value) for value in key]
        + [_figure(value, of, figure.function) for value, (figure, of) in zip(figures, groups.figures, strict=True)]
        for key, figures in groups.rows
    ]


def _figure(value: Any, of: Any, function: str) -> Value:
    kind = of.kind if isinstance(of, Ordered | Several) else ""
    if function in ("count", "distinct") or value is None:
        return value
    if kind == "time":
        return moment(int(value))
    return seconds(float(value)) if kind == "length" else _plain(value)  # type: ignore[arg-type]


def _plain(value: Any) -> Value:
    if isinstance(value, UUID):
        return str(value)
    return value if value is None or isinstance(value, str | int | float) else float(value)


# Columns. -----------------------------------------------------------------------------------------------------------


def _address(entity: str) -> Column:
    """Where the row's page is, in full: exports are read elsewhere."""
    where = PAGE[entity]
    return Column("url", "Address", "text", lambda row, reader: in_full(where(row), reader.project), main=False)


def _own(entity: str) -> tuple[Column, Column]:
    """The id and the address of a row."""
    return Column("id", "Id", "text", lambda row, _reader: str(row.pk), main=False), _address(entity)


def _state(row: Any, reader: Reader) -> Value:
    return _STATE_KEYS[shown.shown_state(row, reader.now_us)]


def _status(row: Any, _reader: Reader) -> Value:
    return "no_end_told" if shown.shown_status(row) == shown.NO_END else row.status


def _asked(row: Any, _reader: Reader) -> Value:
    """On whom a gate waits, or waited: how many of whom."""
    needed = Requirement.of(row.requirement)
    whom = [*(f"team {name}" for name in needed.teams), *needed.people]
    return f"{needed.minimum} of {', '.join(whom) if whom else 'the reviewers'}"


def _ruling(row: Any, _reader: Reader) -> Value:
    return next((word for word, statuses in parts.RULINGS.items() if row.status in statuses), "withdrawn")


def _votes(row: Any, reader: Reader) -> Value:
    """Who answered what, when, how long after their page was made, and the digest of the very card that it showed."""
    return [
        {
            "reviewer": one.username,
            "answer": one.answer,
            "at": moment(one.voted_at_us),
            "ruled_in": seconds(one.voted_at_us - one.shown_at_us),
            "card_sha256": one.card_sha256,
            "digest": one.shown_digest,
            "saw_everything": one.view_complete,
            "proof": one.step_up,
            "password_at": moment(one.password_at_us) if one.password_at_us is not None else None,
        }
        for one in cast(row, reader)
    ]


def _reviewers(row: Any, reader: Reader) -> Value:
    return [f"{one.username} {one.answer}" for one in cast(row, reader)]


def cast(row: Any, reader: Reader) -> list[Any]:
    """The votes on a gate that were cast by the moment as of which `reader` reads, in order."""
    return [one for one in row.votes.all() if reader.upto is None or one.position <= reader.upto]


_STATE_KEYS: Final = {word: key for key, word in shown.STATES.items()}


COLUMNS: Final[dict[str, tuple[Column, ...]]] = {
    "effect": (
        handle("e", "effect", "Effect", "opened_position"),
        time("at", "First heard of", "received_us", main=True),
        handle("s", "session", "Session", "session_position"),
        text("tool", "Tool", main=True),
        Column("state", "State", "word", _state),
        word("outcome", "Outcome", main=True),
        text("agent", "Agent", "agent_name", main=True),
        text("repository", "Repository", "repository_name", main=True),
        text("ref", "Ref", main=True),
        word("ref_class", "Ref class"),
        text("environment", "Environment"),
        text("resource", "Resource"),
        text("reference", "External reference", "external_reference", main=True),
        number("attempts", "Attempts", "attempt_count", main=True),
        word("leave", "Leave", main=True),
        word("basis", "Basis of leave", "leave_basis"),
        word("judged", "Judged by policy"),
        text("rule", "Policy rule", "judged_by"),
        word("reason", "Why it failed", "failure_reason"),
        word("resolution", "Resolution"),
        Column("violating", "Violates", "word", lambda row, _reader: row.violates, main=False),
        handle("e", "parent", "Parent", "parent_position", main=False),
        handle("e", "compensates", "Compensates", "compensates_position", main=False),
        time("planned_at", "Planned", "planned_at_us"),
        time("dispatched_at", "Dispatched", "dispatched_at_us"),
        time("settled_at", "Settled", "settled_at_us"),
        text("key", "Effect key", "effect_key"),
        text("session_key", "Key of the session"),
        text("intent", "Intent digest", "intent_digest"),
        *_own("effect"),
    ),
    "session": (
        handle("s", "session", "Session", "opened_position"),
        time("at", "Opened", "created_at_us", main=True),
        text("title", "Title", main=True),
        Column("status", "Status", "word", _status),
        text("agent", "Agent", "agent_name", main=True),
        text("owner", "Owner", "owner_name", main=True, people=True),
        text("repository", "Repository", "repository_name", main=True),
        text("branch", "Branch", main=True),
        number("effects", "Effects", "effect_count", main=True),
        number("resumes", "Resumes", main=True),
        word("mode", "Mode"),
        text("key", "Key"),
        handle("s", "parent", "Parent session", "parent_position", main=False),
        time("seen_at", "Last heard of", "seen_at_us"),
        time("started_at", "Started", "started_at_us"),
        time("ended_at", "Ended", "ended_at_us"),
        *_own("session"),
    ),
    "gate": (
        handle("g", "gate", "Gate", "opened_position"),
        time("at", "Requested", "requested_at_us", main=True),
        handle("e", "effect", "Effect", "effect_position"),
        handle("s", "session", "Session", "session_position"),
        text("tool", "Tool", main=True),
        word("status", "Status", main=True),
        Column("ruling", "Ruling", "word", _ruling, main=False),
        Column("asked", "Waits for", "text", _asked, people=True),
        Column("reviewers", "Answers", "list", _reviewers, people=True),
        time("decide_by", "Decide by", "decide_by_us", main=True),
        length("wait", "Waited", "requested_at_us", "decided_at_us", main=True),
        text("agent", "Agent", "agent_name", main=True),
        text("repository", "Repository", "repository_name"),
        text("rule", "Policy rule"),
        word("risk", "Risk"),
        word("reason", "Why it ended"),
        text("requester", "Requester", "requester_name", people=True),
        text("session_owner", "Owner of the session", "session_owner_name", people=True),
        text("agent_owner", "Owner of the agent", "agent_owner_name", people=True),
        Column("votes", "What each saw and answered", "list", _votes, main=False, people=True),
        time("decided_at", "Decided", "decided_at_us"),
        time("used_at", "Leave used", "used_at_us"),
        time("leave_until", "Leave until", "leave_until_us"),
        time("ended_at", "Ended", "ended_at_us"),
        text("intent", "Intent digest", "intent_digest"),
        text("digest", "Digest", "digest"),
        *_own("gate"),
    ),
    "exemption": (
        handle("x", "exemption", "Exemption", "opened_position"),
        time("granted", "Granted", "granted_at_us", main=True),
        text("tool", "Tool", main=True),
        text("rule", "Rule", main=True),
        text("agent", "Agent", main=True),
        text("repository", "Repository", main=True),
        text("ref", "Ref", main=True),
        text("environment", "Environment"),
        handle("s", "session", "Session", "session_position"),
        text("granter", "Granted by", "granter_name", main=True, people=True),
        time("expires", "Ends", "ends_at_us", main=True),
        time("revoked", "Revoked", "revoked_at_us", main=True),
        number("uses", "Uses", main=True),
        time("last_use", "Last use on record", "used_at_us", main=True),
        *_own("exemption"),
    ),
    "event": (
        number("position", "Position", main=True),
        time("at", "Received", "received_us", main=True),
        word("kind", "Kind", main=True),
        Column("actor", "Actor", "text", lambda row, reader: reader.called(row.actor)),
        handle("s", "session", "Session", "session_position"),
        handle("e", "effect", "Effect", "effect_position"),
        number("attempt", "Attempt", main=True),
        word("lane", "Lane", main=True),
        text("source", "Source"),
        number("epoch", "Lease epoch", "lease_epoch"),
        time("occurred_at", "Occurred", "occurred_us"),
        text("facts", "Facts", main=True, people=True),
        text("entry_id", "Entry id", "event_id"),
        _address("event"),
    ),
}


# Query sets. --------------------------------------------------------------------------------------------------------


def _position_of(model: Any, name: str) -> Subquery:
    """The position of a row that is named without a foreign key; none of what belongs to another project."""
    found = model._default_manager.filter(id=OuterRef(name), project=OuterRef("project"))
    return Subquery(found.values("opened_position")[:1])


def _effects(found: "QuerySet[Any]") -> "QuerySet[Any]":
    rows: QuerySet[Any] = found.annotate(
        session_position=F("session__opened_position"),
        session_key=F("session__key"),
        agent_name=F("agent__name"),
        repository_name=F("repository__name"),
        parent_position=_position_of(Effect, "parent_effect"),
        compensates_position=_position_of(Effect, "compensates"),
    )
    return rows


def _sessions(found: "QuerySet[Any]") -> "QuerySet[Any]":
    rows: QuerySet[Any] = found.defer(*_UNREAD).annotate(
        agent_name=F("agent__name"),
        owner_name=F("owner__username"),
        repository_name=F("repository__name"),
        parent_position=F("parent__opened_position"),
    )
    return rows


def _gates(found: "QuerySet[Any]") -> "QuerySet[Any]":
    votes = Vote.objects.annotate(username=F("user__username")).order_by("position")
    # Repository and owners of a gate are columns and foreign keys of its own: no name of theirs is taken by these.
    rows: QuerySet[Any] = found.annotate(
        effect_position=F("effect__opened_position"),
        session_position=F("session__opened_position"),
        agent_name=F("agent__name"),
        requester_name=F("requester__username"),
        session_owner_name=F("session_owner__username"),
        agent_owner_name=F("agent_owner__username"),
    ).prefetch_related(Prefetch("votes", votes))
    return rows


def _exemptions(found: "QuerySet[Any]") -> "QuerySet[Any]":
    rows: QuerySet[Any] = found.annotate(
        granter_name=F("granted_by__username"), session_position=F("session__opened_position")
    )
    return rows


def _events(found: "QuerySet[Any]") -> "QuerySet[Any]":
    rows: QuerySet[Any] = found.annotate(
        session_position=_position_of(Session, "session"), effect_position=_position_of(Effect, "effect")
    )
    return rows


_ROWS: Final[dict[str, "Callable[[QuerySet[Any]], QuerySet[Any]]"]] = {
    "effect": _effects,
    "session": _sessions,
    "gate": _gates,
    "exemption": _exemptions,
    "event": _events,
}


def flat(value: Value) -> Value:
    """A value as one cell of a table holds it: lists as texts with semicolons between."""
    if isinstance(value, dict):
        return " ".join(str(one) for one in value.values() if one not in (None, ""))
    if isinstance(value, Iterable) and not isinstance(value, str):
        return "; ".join(str(flat(one)) for one in value)
    return value


assert COLUMNS.keys() == ENTITIES.keys() == _ROWS.keys()  # noqa: S101 - an entity without columns is found at start
