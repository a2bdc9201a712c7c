"""Helpers of the stuck tests: workers at the endpoints, and stored times moved back."""

from typing import Any, Final
from uuid import UUID

from django.db.models import BigIntegerField, F, Value

from ledger.models import Attempt, Effect
from monitoring.models import JobHeartbeat, StuckEpisode
from sessions.models import Handoff, HeartbeatMinute, Lease, Session
from tests.api.api_client import Caller

US: Final = 1_000_000
_CLOCKS: Final[dict[Any, tuple[str, ...]]] = {
    Session: ("created_at_us", "start_by_us", "seen_at_us"),
    Lease: (
        *(
            "acquired_at_us",
            "heartbeat_at_us",
            "progress_at_us",
            "expires_at_us",
            "dead_at_us",
            "wedged_at_us",
        ),
        "quiet_until_us",
    ),
    Handoff: ("created_at_us", "accept_by_us", "accepted_at_us"),
    Effect: ("received_us", "changed_us", "deadline_us", "permission_until_us", "dispatched_at_us"),
    Attempt: ("received_us", "heard_us", "dispatched_at_us"),
    StuckEpisode: ("since_us", "seen_us", "raised_us", "snoozed_until_us"),
}


def pass_by(seconds: int, agent: str = "") -> None:
    """Move the times of all sessions, or of one agent's sessions, back by `seconds`.

    Gates keep their times: a trigger of the schema fixes them.
    """
    for model, columns in _CLOCKS.items():
        rows = model.objects.all()
        if agent:
            whose = {Session: "agent__name", Attempt: "effect__session__agent__name"}
            rows = rows.filter(**{whose.get(model, "session__agent__name"): agent})
        if model is Lease:  # a trigger fixes the times of released leases
            rows = rows.filter(released_at_us__isnull=True)
        # Without an output field Django sends the number to PostgreSQL as four bytes.
        gone = Value(seconds * US, output_field=BigIntegerField())
        rows.update(**{column: F(column) - gone for column in columns})
    for row in (
        HeartbeatMinute.objects.none() if agent else HeartbeatMinute.objects.order_by("minute")
    ):  # one by one: in PostgreSQL one UPDATE of all violates uniqueness
        HeartbeatMinute.objects.filter(id=row.id).update(minute=row.minute - seconds // 60)


def sweeps_go_on(seconds: int) -> None:
    """Pretend that Gatebook's jobs ran until a moment ago: there was no outage."""
    JobHeartbeat.objects.update(paused_until_us=0, every_us=seconds * US)


def leased(agent: Caller, key: str = "s-1", **more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Open a session of mode leased and acquire its lease."""
    session = agent.session(key, mode="leased", **more)
    answer = agent.post("/leases", {"session": session["id"], "process": "w-1"})
    assert answer.status_code == 201, answer.text
    return session, answer.json()


def heartbeat(agent: Caller, lease: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Send one heartbeat for a lease and return its result."""
    answer = agent.client.post(
        "/heartbeats",
        json={"heartbeats": [{"lease": lease["id"], "epoch": lease["epoch"], **more}]},
    )
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = answer.json()["results"][0]
    return result


def open_rules(session: str | None = None) -> dict[str, bool]:
    """Return the open episodes by rule, and whether each was raised."""
    rows = StuckEpisode.objects.filter(cleared_us__isnull=True)
    if session is not None:
        rows = rows.filter(session=UUID(session))
    return {row.rule: row.raised_us is not None for row in rows}
